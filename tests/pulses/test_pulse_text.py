"""Pulses: bounded, whatever happens; merged in any order; strangers' texts harm none."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Decided, Degraded, Event, Limit, LimitStatus, StoreCalled
from zae_limiter.pulses.pulse_counts import PulseCounts
from zae_limiter.pulses.pulse_text import MOST_BYTES, merge, to_text

START = 1_800_000_000
"""Begins a minute."""

LONG = "é" * 100


class Statuses:
    """What was decided, with these statuses."""

    def __init__(self, *statuses: LimitStatus) -> None:
        self.statuses = statuses


def status(entity_id: str, resource: str, available: int, *, exceeded: bool, name: str = "tpm") -> LimitStatus:
    limit = Limit.per_minute(name, 100)
    wait = 3.0 if exceeded else 0.0
    return LimitStatus(entity_id, resource, name, limit, available, 7, exceeded, wait, "system")


def decided(
    entity_id: str,
    *,
    granted: bool,
    available: int,
    at: float = START,
    resource: str = "gpt",
    whose: str | None = None,
) -> Decided:
    found = Statuses(status(whose or entity_id, resource, available, exceeded=not granted))
    return Decided(entity_id, resource, {"tpm": 7}, granted, found, 0.0, "default", at)


DECISIONS = st.builds(
    decided,
    st.sampled_from([f"key-{number}" for number in range(6)] + [LONG + str(number) for number in range(3)]),
    granted=st.booleans(),
    available=st.integers(-500, 100),
    at=st.integers(START, START + 600).map(float),
)
PROCESSES = st.lists(st.lists(DECISIONS, max_size=30), min_size=1, max_size=4)


def pulse_of(events: list[Event], now: int = START + 600) -> str:
    counts = PulseCounts()
    for event in events:
        counts(event)
    return to_text(counts.counted(now))


@settings(max_examples=80)
@given(PROCESSES)
def test_merging_adds_up_what_every_process_counted(processes: list[list[Decided]]) -> None:
    events = [sorted(one, key=lambda event: event.timestamp) for one in processes]
    pulse = merge([pulse_of(list(one)) for one in events], (START + 600) * 1000)
    everything = [event for one in events for event in one]
    assert pulse.processes == len(processes)
    assert sum(pulse.granted) == sum(event.granted for event in everything)
    assert sum(pulse.refused_per_minute) == sum(not event.granted for event in everything)
    recent = [event for event in everything if event.timestamp >= START + 60]
    for row in pulse.rows:
        own = [event for event in recent if (event.entity_id, event.resource) == (row.entity_id, row.resource)]
        assert row.refused_in_all == sum(not event.granted for event in own)
        assert row.calls == len(own)
    assert [row.refused_in_all for row in pulse.rows] == sorted(
        (row.refused_in_all for row in pulse.rows), reverse=True
    )


@settings(max_examples=40)
@given(PROCESSES)
def test_the_order_of_the_pulses_does_not_matter(processes: list[list[Decided]]) -> None:
    texts = [pulse_of(sorted(one, key=lambda event: event.timestamp)) for one in processes][:3]
    assert len({repr(merge(order, (START + 600) * 1000)) for order in permutations(texts)}) == 1


@given(st.lists(st.tuples(st.text(max_size=250), st.text(max_size=250)), max_size=150, unique=True))
@settings(max_examples=20, deadline=None)
def test_a_pulse_is_bounded_and_keeps_the_worst(places: list[tuple[str, str]]) -> None:
    counts = PulseCounts()
    for number, (entity_id, resource) in enumerate(places):
        for _ in range(1 + (number == 0) * 5):
            counts(decided(entity_id, granted=False, available=-number, resource=resource))
    text = to_text(counts.counted(START))
    assert len(text.encode()) <= MOST_BYTES
    rows = merge([text], START * 1000).rows
    if places and len(json.dumps(places[0])) < 4000:
        assert (rows[0].entity_id, rows[0].resource) == places[0]


def test_memory_is_bounded_with_a_hundred_thousand_keys() -> None:
    counts = PulseCounts()
    for number in range(100_000):
        counts(decided(f"key-{number}", granted=number % 2 == 0, available=1, at=START + number / 1000))
    counts(decided("noisy", granted=False, available=0, at=START + 101))
    known = counts.counted(START + 101)
    assert len(known.refusals) <= 256
    assert len(known.calls) <= 256
    assert len(known.levels) <= 256
    assert len(counts._looked_at) <= 4096
    assert sum(known.granted) + sum(map(sum, known.refused.values())) == 100_001


def test_levels_come_from_the_latest_look_and_go_when_there_is_enough_again() -> None:
    near = [decided("key", granted=True, available=10)]
    (row,) = merge([pulse_of(list(near), START)], START * 1000).rows
    assert row.level is not None
    assert (row.level.used_permille, row.level.is_near, row.level.limit_name) == (900, True, "tpm")
    full = [*near, decided("key", granted=True, available=90, at=START + 6)]
    (row,) = merge([pulse_of(list(full), START + 6)], (START + 6) * 1000).rows
    assert row.level is None


def test_an_ancestor_that_refuses_is_named() -> None:
    text = pulse_of([decided("key", granted=False, available=0, whose="org")], START)
    pulse = merge([text], START * 1000)
    assert [(one.limit_name, one.level, sum(one.minutes)) for one in pulse.refused] == [("tpm", "ancestor", 1)]
    assert pulse.rows[0].level is not None
    assert pulse.rows[0].level.entity_id == "org"


def test_store_calls_and_degradations_are_told() -> None:
    calls: list[Event] = [StoreCalled("draw", ms / 1000, None, "default", START) for ms in (0.4, 3, 3, 4000)]
    calls.append(StoreCalled("draw", 0.01, TimeoutError(), "default", START))
    calls.append(Degraded("key", "gpt", {}, TimeoutError(), "default", START))
    pulse = merge([pulse_of(calls, START)], START * 1000)
    assert (pulse.store_milliseconds(0.5), pulse.store_milliseconds(0.99), pulse.store_errors) == (5, None, 1)
    assert sum(pulse.degraded) == 1


def test_minutes_go_by() -> None:
    text = pulse_of([decided("key", granted=False, available=0)], START)
    later = merge([text], (START + 300) * 1000)
    assert (later.refused_per_minute[-6], sum(later.refused_per_minute)) == (1, 1)
    assert later.rows[0].refused == (0, 0, 0, 0, 1, 0, 0, 0, 0, 0)
    assert merge([text], (START + 3600) * 1000).rows[0].refused_in_all == 0


GOOD: dict[str, Any] = json.loads(pulse_of([decided("key", granted=False, available=0)], START))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        json.dumps({**GOOD, "v": 2}),
        json.dumps({**GOOD, "g": [1] * 61}),
        json.dumps({**GOOD, "g": [-1]}),
        json.dumps({**GOOD, "m": "x"}),
        json.dumps({**GOOD, "rows": [[1, "gpt", [], 1, []]]}),
        json.dumps({**GOOD, "rows": [["key", "gpt", [], 1, ["tpm"]]]}),
        json.dumps({**GOOD, "rows": [["key", "gpt", [], 1, ["tpm", "key", 1.5, 0, 0, {}]]]}),
        json.dumps({key: value for key, value in GOOD.items() if key != "rows"}),
    ],
)
def test_a_text_that_is_no_pulse_is_left_out(text: str) -> None:
    pulse = merge([text, json.dumps(GOOD)], START * 1000)
    assert (pulse.processes, len(pulse.rows)) == (1, 1)
