"""Limits of other kinds in the scripts against ``balances.py``: the same lives in both, and every step compared."""

from __future__ import annotations

import random
from importlib.resources import files
from typing import Any

from lupa.lua51 import LuaRuntime

from zae_limiter.balances import without_extra
from zae_limiter.bucket import MILLI, HeldBalance, SteppedBalance, book, rebase
from zae_limiter.calendars import Calendar
from zae_limiter.models.limit import Limit
from zae_limiter.stores.redis.periods import Window
from zae_limiter.stores.redis.terms import kind_of, terms_of

AMOUNTS = (1, 2, 7, 1_000, 10**6 + 3, 10**15)
EVERY = ("month", "day", "week", "hour", "5hour", "3min", "7sec")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia")
TTLS = (10, 11, 60, 600, 86_400)
LIFE = 1_767_225_600_000_000


class Scripts:
    """The scripts' arithmetic; with one place changed, if a mutation says so."""

    def __init__(self, mutation: tuple[str, str] | None = None) -> None:
        folder = files("zae_limiter.stores.redis") / "lua"
        text = "\n".join((folder / f"{name}.lua").read_text(encoding="utf-8") for name in ("arithmetic", "kinds"))
        if mutation is not None:
            assert mutation[0] in text, f"the mutation changes nothing: {mutation[0]}"
            text = text.replace(*mutation)
        self.lua = LuaRuntime()
        made = self.lua.execute(
            text + "\nlocal function begin(told) told_periods = told; kinds = make_kinds(); return kinds end"
            "\nreturn { advance, booked, begin }"
        )
        self.advance, self.booked, self._begin = made.values()

    def begin(self, told: str) -> Any:
        """A script that was told these periods."""
        return self._begin(told)


def some_budget(rng: random.Random) -> Limit:
    amount = rng.choice(AMOUNTS)
    burst = rng.choice((amount, amount, min(2 * amount + 1, 10**15)))
    return Limit.calendar(
        "x",
        amount,
        rng.choice(EVERY),
        burst,
        tz=rng.choice(ZONES),
        start=rng.choice((None, "07:30", "2026-01-05T09:00")),
        carry_debt=rng.random() < 0.7,
    )


def like(rng: random.Random, limit: Limit) -> Limit:
    """Another budget, by the same periods."""
    amount = rng.choice(AMOUNTS)
    return Limit("x", amount, amount, None, rng.choice((amount, min(3 * amount, 10**15))), limit.periods)


def told(calendar: Calendar, now: int) -> str:
    return Window(calendar, calendar.ordinal(now)).text


def wrong_budget(scripts: Scripts, rng: random.Random, steps: int) -> str | None:
    """The first step of a life of a budget after which the scripts have another level than ``balances.py``."""
    limit = some_budget(rng)
    now = rng.randint(1_600_000_000_000, 2_000_000_000_000)
    balance = SteppedBalance(limit, now)
    t = scripts.lua.table_from(["v", 1, 2, *terms_of((limit,))])
    x = scripts.lua.table_from([0, balance.pn])
    b = scripts.lua.table_from(["", now, 0, 0, 0, limit.burst, 0, 0, 0, 0, x])
    for _ in range(steps):
        now += rng.choice((0, 1, 999, rng.randint(0, 10**5), rng.randint(0, 10**8), rng.randint(0, 10**10)))
        assert balance.limit.periods is not None
        kinds = scripts.begin(told(balance.limit.periods, now))
        scripts.advance(b, t, float(now))
        balance.advance(now)
        if int(b[6]) * MILLI + int(b[7]) != balance.level(now) or int(b[11][2]) != balance.pn:
            return f"{balance.limit} at {now}: {b[6]} instead of {balance.level(now)}"
        extra = kinds.extra(kind_of(balance.limit), b[11])
        if int(extra) * MILLI != balance.extra:
            return f"{balance.limit} at {now}: {extra} extra instead of {balance.extra}"
        burst = balance.limit.burst
        full_in = kinds.full_in(b, t, 5, 3, float(now))
        if extra and now + full_in < balance.full_at():
            return f"{balance.limit} at {now}: forgotten {balance.full_at() - now - full_in} ms too soon"
        needed = rng.choice((1, burst, burst + rng.randint(0, 3)))
        if balance.level(now) < needed * MILLI:
            due = balance.due(needed * MILLI, now) - now
            periods = -(-(needed * MILLI - without_extra(balance.tk, balance.extra)) // balance.step)
            if periods <= 2 and kinds.wait(b, t, 5, 3, float(needed), float(now)) != due:
                return f"{balance.limit} at {now}: another wait than {due}"
        amount = rng.choice((0, 1, rng.randint(0, burst), 3 * burst, -rng.randint(0, burst)))
        if balance.level(now) // MILLI - amount < -8 * 10**15:
            continue
        b[6], b[7] = scripts.booked(b[6], b[7], float(amount), float(burst + extra))
        balance.tk = book(balance, amount * MILLI, now)
        if rng.random() < 0.3 and balance.extra < 10**17:
            more = rng.choice((1, rng.randint(1, burst), 10**13))
            b[6] = kinds.lift(b[11], b[6], float(more))
            balance.lift(more * MILLI)
        if rng.random() < 0.2:
            new = like(rng, balance.limit) if rng.random() < 0.6 else some_budget(rng)
            assert new.periods is not None
            kinds = scripts.begin(told(new.periods, now))
            fields = {"tokens": b[6], "m": b[7], "top": burst, "step": balance.limit.capacity}
            old = scripts.lua.table_from({**fields, "kind": kind_of(balance.limit), "x": b[11]})
            b[6], b[7], b[11] = kinds.rebased(kind_of(new), new.burst, new.capacity, 0, old, float(now))
            t = scripts.lua.table_from(["v", 1, 2, *terms_of((new,))])
            after = rebase(balance, new, now)
            assert isinstance(after, SteppedBalance)
            balance = after
    return None


def wrong_holds(scripts: Scripts, rng: random.Random, steps: int) -> str | None:
    """The first step of a life of a limit of calls in flight after which the scripts differ from ``balances.py``."""
    limit = Limit.concurrent("x", rng.choice((1, 3, 20, 1_000)), ttl=rng.choice(TTLS))
    now = rng.randint(1_600_000_000_000, 2_000_000_000_000)
    balance = HeldBalance(limit, now)
    kinds = scripts.begin("")
    x = scripts.lua.table_from([0, balance.hb, LIFE])
    free: float = limit.burst
    known: list[tuple[int, int]] = []
    for _ in range(steps):
        now += rng.choice((0, 1, 999, 5_000, rng.randint(0, 2 * balance.ttl_ms)))
        what = rng.choice(("lend", "lend", "back", "back", "renew", "reset", "terms"))
        slots, due = rng.choice(known) if known and rng.random() < 0.9 else (rng.randint(1, 3), now // MILLI)
        if what == "lend":
            slots = rng.randint(1, 4)
            after, due = balance.taken(slots * MILLI, now)
            balance.become(after)
            free, found = kinds.lend(free, x, float(balance.ttl), slots, float(now))
            known.append((slots, due))
            if found != due:
                return f"due {found} instead of {due}"
        elif what == "back":
            life = rng.choice((LIFE, LIFE, LIFE, LIFE - 1))
            given = balance.given_back(slots * MILLI, due) if life == LIFE else None
            if given is not None:
                balance.become(given)
            left = kinds.give_back(free, x, slots, due, life)
            free = free if left is None else left
        elif what == "renew":
            renewed = balance.renewed(slots * MILLI, due, now)
            if renewed is not None:
                balance.become(renewed[0])
                known.append((slots, renewed[1]))
            found = kinds.renew(free, x, float(balance.ttl), slots, due, LIFE, float(now))
            if found != (None if renewed is None else renewed[1]):
                return f"renewed until {found} instead of {renewed}"
        elif what == "reset" and rng.random() < 0.3:
            balance.refill(now)
            x, free = kinds.refilled(x), balance.limit.burst
        elif what == "terms":
            new = Limit.concurrent("x", rng.choice((1, 3, 20, 1_000)), ttl=rng.choice(TTLS))
            fields = {"tokens": free, "m": 0, "top": balance.limit.burst, "step": 0, "kind": "h", "x": x}
            free, _, x = kinds.rebased("h", new.burst, 0, 0, scripts.lua.table_from(fields), float(now))
            changed = rebase(balance, new, now)
            assert isinstance(changed, HeldBalance)
            balance = changed
        counts = {int(x[n]): int(x[n + 1]) * MILLI for n in range(4, len(x) + 1, 2)}
        if (int(free) * MILLI, counts, int(x[2])) != (balance.tk, balance.counts, balance.hb):
            return f"{what}: {free} free and {counts}, instead of {balance.tk} and {balance.counts}"
        if int(free) + int(kinds.overdue(x, float(now))) != balance.level(now) // MILLI:
            return "another level"
        if balance.tk + sum(balance.counts.values()) != balance.bx:
            return "slots were minted or lost"
    return None
