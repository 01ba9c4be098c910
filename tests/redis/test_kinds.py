"""The scripts compute budgets and calls in flight as ``balances.py`` does, and a mistake in them would be noticed."""

from __future__ import annotations

import random

import pytest
from lua_kinds import Scripts, wrong_budget, wrong_holds

MUTATIONS = {
    "a period is credited again": ("      x[2] = number\n    elseif", "    elseif"),
    "a new period keeps its debt": ("if fresh or more >= top", "if more >= top"),
    "a boundary passes the ceiling": ("more >= top - tokens then return top, 0 end", "false then return top, 0 end"),
    "only one period is credited": ("local more = step * periods", "local more = step"),
    "new amounts clamp": ("local more = step - old.step", "local more = 0"),
    "an earlier period may follow": ("number = math.max(number, old.x[2])", "number = number - 1"),
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
