"""The scripts compute what ``bucket.py`` computes, to the millitoken, and a mistake in them would be noticed."""

from __future__ import annotations

import random

import pytest
from lua_arithmetic import arithmetic, some_limit, wrong_low, wrong_step

from engines.redis_servers import RedisServer
from zae_limiter.bucket import Balance
from zae_limiter.stores.redis.scripts import DRAW

MUTATIONS = {
    "a product beyond 2^53 is divided all the same": ("x < 9007199254740992", "x < 1e300"),
    "the last digit is lost": ("+ floor(x / rp)\nend", "\nend"),
    "the remainder is not carried": ("(x - k * rp) * 16384", "x * 16384"),
    "the baseline is forgotten": ("low(now, s, rp) - low(rf, s, rp)", "low(now - rf, s, rp)"),
    "millitokens are rounded up": ("b[i + 2] = am - k * 1000", "b[i + 2] = 0; tokens = tokens + 1"),
    "the ceiling is passed": ("if tokens >= top then tokens = top; b[i + 2] = 0 end", ""),
    "a full bucket keeps its millitokens": ("tokens = top; b[i + 2] = 0 end", "tokens = top end"),
    "a credit passes the ceiling": ("if tokens >= top then return top, 0 end", ""),
    "time is credited twice": ("    b[2] = now\n  elseif", "  elseif"),
}


def first_mistake(mutation: tuple[str, str] | None, seed: int, quotients: int, lives: int) -> str | None:
    lua, low, advance, booked = arithmetic(mutation)
    rng = random.Random(seed)
    for _ in range(lives):
        wrong = wrong_step(lua, advance, booked, rng, 40)
        if wrong is not None:
            return wrong
    return wrong_low(low, rng, quotients)


@pytest.mark.parametrize("seed", range(4))
def test_the_scripts_compute_what_the_definition_says(seed: int) -> None:
    assert first_mistake(None, seed, 10_000, 250) is None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mistake_in_the_scripts_is_noticed(mutation: str) -> None:
    assert any(first_mistake(MUTATIONS[mutation], seed, 8_000, 150) for seed in range(4))


@pytest.mark.parametrize("server", ["redis_6_2", "valkey_9_1"])
def test_the_servers_divide_as_exactly(server: str, request: pytest.FixtureRequest) -> None:
    there: RedisServer = request.getfixturevalue(server)
    text = DRAW.text.decode().partition("-- A bucket b is")[0]
    script = (
        text
        + "local out = {}\nfor i = 1, #ARGV, 3 do out[#out + 1] = string.format('%.0f', "
        + ("low(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))) end\nreturn out")
    )
    rng = random.Random(7)
    for _ in range(20):
        asked = []
        for _ in range(200):
            balance = Balance(some_limit(rng), 0)
            asked.append((rng.randint(0, 2**43 - 1), balance.ra % balance.rp, balance.rp))
        replies = there.ask("EVAL", script, 0, *(number for one in asked for number in one))
        assert [int(reply) for reply in replies] == [t * s // rp for t, s, rp in asked]
