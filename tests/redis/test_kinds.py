"""The scripts compute budgets and calls in flight as ``balances.py`` does, and a mistake in them would be noticed."""

from __future__ import annotations

import random

import pytest
from lua_kinds import Scripts, wrong_budget, wrong_holds

MUTATIONS = {
    "a period is credited again": ("x[2], x[3] = number, nil", "x[3] = nil"),
    "an extra outlives its period": ("x[2], x[3] = number, nil", "x[2] = number"),
    "an extra rolls over": ("return tokens - ex, m", "return tokens, m"),
    "an extra that was spent is a debt": ("if tokens < ex then return 0, 0 end", ""),
    "an extra is a debt of those in debt": ("if ex == 0 or tokens < 0 then", "if ex == 0 then"),
    "new amounts clip an extra": ("tokens, m = top + (ex or 0), 0", "tokens, m = top, 0"),
    "new amounts end an extra": ("math.max(number, old.x[2]), ex }", "math.max(number, old.x[2]) }"),
    "another calendar keeps an extra": (
        "without_extra(old.tokens, old.m, it.extra(old.kind, old.x))",
        "old.tokens, old.m",
    ),
    "a wait counts on an extra": (
        "local tokens = without_extra(b[i + 1], 0, b[i + 6][3] or 0)",
        "local tokens = b[i + 1]",
    ),
    "a bucket with an extra is forgotten": ("if x[3] then count = math.max(count, 1) end", ""),
    "a lift is not counted": ("return tokens + amount\n", "return tokens\n"),
    "a new period keeps its debt": ("if fresh or more >= top", "if more >= top"),
    "a boundary passes the ceiling": ("more >= top - tokens then return top, 0 end", "false then return top, 0 end"),
    "only one period is credited": ("local more = step * periods", "local more = step"),
    "new amounts clamp": ("local more = step - old.step", "local more = 0"),
    "an earlier period may follow": ("math.max(number, old.x[2]), ex", "number - 1, ex"),
    "a wait is a period too short": ("math.ceil((needed - tokens) / step)", "floor((needed - tokens) / step)"),
    "slots clamp under new terms": ("old.tokens + top - old.top, 0", "math.min(old.tokens, top), 0"),
    "slots of another life come back": ("life ~= x[3] or ", ""),
    "more comes back than was lent": ("lent_until(x, due) < slots", "lent_until(x, due) == 0"),
    "what is overdue stays": ("if x[n] * 1000 <= now then\n          x[2]", "if false then\n          x[2]"),
    "the latest return is not noted": ("x[2] = math.max(x[2], x[n])\n          table", "table"),
    "a due time may have passed": ("return due > x[2] and due or", "return due or"),
    "a renewal may come sooner": ("math.max(it.due_time(x, ttl, now), due)", "it.due_time(x, ttl, now)"),
    "a reset forgets what was lent": ("for n = 4, #x, 2 do x[2] = math.max(x[2], x[n]) end\n    return", "return"),
    "the grid is another": ("floor(ttl / 4)", "floor(ttl / 3)"),
}


def first_mistake(mutation: tuple[str, str] | None, seed: int, lives: int) -> str | None:
    scripts = Scripts(mutation)
    rng = random.Random(seed)
    for _ in range(lives):
        wrong = wrong_budget(scripts, rng, 30) or wrong_holds(scripts, rng, 60)
        if wrong is not None:
            return wrong
    return None


@pytest.mark.parametrize("seed", range(4))
def test_the_scripts_compute_what_the_definition_says(seed: int) -> None:
    assert first_mistake(None, seed, 120) is None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mistake_in_the_scripts_is_noticed(mutation: str) -> None:
    assert any(first_mistake(MUTATIONS[mutation], seed, 60) for seed in range(3))
