"""Every call of every scenario meets every fate: nothing is minted, and nothing stays taken unsaid.

*Minted*: a bucket holds more than it may by what its clients were told. *Unsaid*: something stays taken (or is not
booked) although the outcome is neither ambiguous nor counted as unresolved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from support.dynamodb.draw_scenarios import SCENARIOS, Case
from support.dynamodb.scripted_plans import EVERY_FATE, Ended, Fate, Script
from support.dynamodb.scripted_tables import DEADLINE_S, LIMITS
from zae_limiter import ConfigurationError, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.bucket import MILLI

ONE_DEADLINE_MS = 1_000 * DEADLINE_S + 5

# What must be true


class Books(NamedTuple):
    """What the buckets of a case held, and what had been taken from them."""

    levels: dict[str, dict[str, int]]
    counters: dict[str, dict[str, int]]


FULL = {limit.name: limit.burst * MILLI for limit in LIMITS}


def books_of(case: Case) -> Books:
    levels = {entity: case.table.levels(entity) or FULL for entity in case.legs}
    return Books(levels, {entity: case.table.counters(entity) for entity in case.legs})


def ended_well(case: Case, ended: Ended) -> bool:
    """Whether the caller was told that it happened."""
    if isinstance(ended.error, RateLimitExceeded):
        return False
    if case.never_fails:
        return True
    return ended.error is None or (case.to_the_end and ended.finished)


def check(case: Case, before: Books, ended: Ended) -> None:
    """Compare what happened to the buckets with what the caller was told."""
    after = books_of(case)
    said = ended.ambiguous or case.client.unresolved > 0
    done = ended_well(case, ended)
    for entity in case.legs:
        for name in FULL:
            taken = before.levels[entity][name] - after.levels[entity][name]
            counted = after.counters[entity].get(name, 0) - before.counters[entity].get(name, 0)
            promised = case.effect.get(name, 0)
            where = f"{name} of {entity}: {taken} taken, {promised} promised, {ended.error!r}"
            assert taken == counted, f"the counter says {counted}: {where}"
            least = min(promised, 0) if case.is_settlement or not done else promised
            if done and not said:
                least = promised
            assert taken >= least, f"minted, {where}"
            if not said:
                assert taken == (promised if done else 0), f"unsaid, {where}"
    expected = (RateLimitExceeded, RateLimiterUnavailable, ConfigurationError)
    stopped = ended.error is not None and ended.error.__class__.__name__ == "Stopped"
    assert ended.error is None or stopped or isinstance(ended.error, expected), repr(ended.error)


def play(scenario: str, fates: Mapping[int, Fate]) -> int:
    """Play a scenario once; the number of its calls."""
    case = SCENARIOS[scenario]()
    before = books_of(case)
    script = Script(case.table, fates)
    ended = script.run(case.plan(), to_the_end=case.to_the_end)
    assert not script.minted, f"minted, {script.minted}"
    check(case, before, ended)
    return len(ended.calls)


def play_all(scenario: str, several: Iterator[Mapping[int, Fate]]) -> None:
    """Play it with each of these fates; everything that went wrong in one message."""
    wrong = []
    for fates in several:
        try:
            play(scenario, fates)
        except AssertionError as error:
            named = ", ".join(f"{number}: {fate.name}" for number, fate in fates.items())
            wrong.append(f"{{{named}}} {str(error).splitlines()[0]}")
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_without_faults_ends_well(scenario: str) -> None:
    case = SCENARIOS[scenario]()
    before = books_of(case)
    ended = Script(case.table).run(case.plan(), to_the_end=case.to_the_end)
    check(case, before, ended)
    assert case.client.unresolved == 0
    assert ended_well(case, ended) == bool(case.effect)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_call_meets_any_fate(scenario: str) -> None:
    calls = play(scenario, {})
    play_all(scenario, ({place: fate} for place in range(calls + 4) for fate in EVERY_FATE))


@pytest.mark.parametrize("heard", [False, True], ids=["nothing arrives", "everything is done"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_from_some_call_on_no_call_is_answered_and_that_costs_one_deadline(scenario: str, heard: bool) -> None:
    for place in range(play(scenario, {}) + 1):
        case = SCENARIOS[scenario]()
        before = books_of(case)
        started = case.table.timer
        script = Script(case.table, silent_from=place, heard=heard)
        ended = script.run(case.plan(), to_the_end=case.to_the_end)
        assert not script.minted
        check(case, before, ended)
        assert case.table.timer - started <= ONE_DEADLINE_MS, f"silence from call {place} on"


def test_a_cancelled_draw_of_a_silent_store_costs_two_deadlines_at_most() -> None:
    """The call in flight is waited for, and the giving back has a deadline of its own."""
    case = SCENARIOS["warm grant over 2"]()
    started = case.table.timer
    ended = Script(case.table, {0: Fate.CANCELLED}, silent_from=0).run(case.plan())
    assert isinstance(ended.error, BaseException)
    assert case.client.unresolved == 1
    assert case.table.timer - started <= 2 * ONE_DEADLINE_MS
