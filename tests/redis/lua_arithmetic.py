"""The arithmetic of the scripts against ``bucket.py``: the same buckets in both, and every step compared."""

from __future__ import annotations

import random
from importlib.resources import files
from typing import Any

from lupa.lua51 import LuaRuntime

from zae_limiter.bucket import MILLI, Balance, book
from zae_limiter.models.limit import Limit
from zae_limiter.stores.redis.terms import terms_of

TWO_53 = 2**53
LATEST_MS = 2**43 - 1
PERIODS_S = (1, 3, 7, 60, 3_600, 86_400, 999_983, 366 * 86_400)
AMOUNTS = (1, 2, 3, 7, 999, 1_000, 10**6 + 3, 10**9 + 7, 10**12, 10**15 - 1, 10**15)


def arithmetic(mutation: tuple[str, str] | None = None) -> Any:
    """``low``, ``advance`` and ``booked`` of the scripts; with one place changed, if a mutation says so."""
    text = (files("zae_limiter.stores.redis") / "lua" / "arithmetic.lua").read_text(encoding="utf-8")
    if mutation is not None:
        assert mutation[0] in text, f"the mutation changes nothing: {mutation[0]}"
        text = text.replace(*mutation)
    lua = LuaRuntime()
    functions = lua.execute(text + "\nreturn { low, advance, booked }")
    return lua, *functions.values()


def some_limit(rng: random.Random) -> Limit:
    return Limit(
        "x",
        rng.choice(AMOUNTS),
        rng.choice((rng.choice(AMOUNTS), rng.randint(1, 10**15))),
        rng.choice((rng.choice(PERIODS_S), rng.randint(1, 366 * 86_400))),
        rng.choice(AMOUNTS),
    )


def wrong_low(low: Any, rng: random.Random, count: int) -> str | None:
    """The first of ``count`` quotients that is wrong, a third of them at or one off a multiple, around 2^53."""
    for _ in range(count):
        balance = Balance(some_limit(rng), 0)
        rp = balance.rp
        s = balance.ra % rp
        t = rng.randint(0, LATEST_MS)
        if rng.random() < 0.35 and s:
            product = rng.choice((TWO_53, rng.randint(1, LATEST_MS * s)))
            t = min(product // rp * rp // s + rng.choice((-1, 0, 1)), LATEST_MS)
        t = max(t, 0)
        if low(float(t), float(s), float(rp)) != t * s // rp:
            return f"low({t}, {s}, {rp})"
    return None


def wrong_step(lua: Any, advance: Any, booked: Any, rng: random.Random, steps: int) -> str | None:
    """The first step of a life of one bucket after which the scripts have another level than ``bucket.py``."""
    limit = some_limit(rng)
    now = rng.choice((rng.randint(0, 10**12), rng.randint(1_600_000_000_000, 2_000_000_000_000)))
    balance = Balance(limit, now)
    t = lua.table_from(["v", 1, 0, *terms_of((limit,))])
    b = lua.table_from(["", float(now), 0, 0, 0, float(limit.burst), 0.0, 0.0, 0.0, 0.0, ""])
    for _ in range(steps):
        now += rng.choice((0, 1, 2, 999, rng.randint(0, 10**5), rng.randint(0, 10**9), -rng.randint(0, 1_000)))
        advance(b, t, float(now))
        latest = int(b[2])
        level = balance.level(max(now, latest))
        if int(b[6]) * MILLI + int(b[7]) != level:
            return f"{limit} at {now}: {b[6]} and {b[7]} instead of {level}"
        amount = rng.choice((0, 1, 2, rng.randint(0, limit.burst), -1, -rng.randint(0, limit.burst)))
        if level // MILLI - amount < -8 * 10**15:
            continue
        b[6], b[7] = booked(b[6], b[7], float(amount), float(limit.burst))
        balance.tk = book(balance, amount * MILLI, max(now, latest))
    return None
