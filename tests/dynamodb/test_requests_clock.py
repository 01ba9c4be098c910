"""The machine's clock against the dates of replies: what it is corrected by, and when that is confirmed."""

from __future__ import annotations

import pytest

from zae_limiter.stores.dynamodb.requests import CheckedClock

HOUR = 3_600_000
WALL, TIMER = 1_800_000_000_000, 5_000


def checked(skew: int = 0) -> CheckedClock:
    clock = CheckedClock()
    clock.hear(skew, WALL, TIMER)
    return clock


def correction(clock: CheckedClock, wall_ms: int, timer_ms: int) -> tuple[int, bool]:
    """What a reading of the wall clock is corrected by, and whether a reply confirms that."""
    time = clock.machine_time(wall_ms, timer_ms)
    assert time.timer_ms == timer_ms
    assert time.epoch_s == (wall_ms + time.clock_error_ms) // 1000
    return time.clock_error_ms, time.checked


def test_before_the_first_reply_nothing_is_confirmed() -> None:
    assert correction(CheckedClock(), WALL, TIMER) == (0, False)


@pytest.mark.parametrize(
    ("skew", "error"), [(0, 0), (1_900, 0), (-1_900, 0), (2_001, 2_001), (-HOUR, -HOUR), (24 * HOUR, 24 * HOUR)]
)
def test_a_clock_is_corrected_by_what_the_reply_shows_if_that_is_more_than_two_seconds(skew: int, error: int) -> None:
    assert correction(checked(skew), WALL + 7_000, TIMER + 7_000) == (error, True)


def test_the_correction_is_reported_when_it_changes() -> None:
    clock = CheckedClock()
    assert clock.hear(300, WALL, TIMER) is None
    assert clock.hear(-HOUR, WALL, TIMER) == -HOUR
    assert clock.hear(-HOUR - 900, WALL, TIMER) is None, "dates are of whole seconds"
    assert clock.hear(0, WALL, TIMER) == 0
    assert correction(clock, WALL, TIMER) == (0, True)


@pytest.mark.parametrize("step", [HOUR, -HOUR, 365 * 24 * HOUR])
@pytest.mark.parametrize("skew", [0, 24 * HOUR])
def test_a_clock_that_was_set_goes_on_along_the_timer_until_a_reply_confirms_it(step: int, skew: int) -> None:
    clock = checked(skew)
    at = (WALL + 1_000 + step, TIMER + 1_000)
    assert correction(clock, *at) == (skew - step, False)
    clock.hear(skew - step, *at)
    assert correction(clock, *at) == (skew - step, True)


def test_a_machine_that_was_asleep_learns_the_time_from_the_next_reply() -> None:
    clock = checked()
    woken = (WALL + 8 * HOUR, TIMER + 10)
    assert not correction(clock, *woken)[1]
    clock.hear(200, *woken)
    assert correction(clock, *woken) == (0, True)


def test_drift_between_two_replies_is_no_step() -> None:
    clock = checked()
    for second in range(1, 3_000):
        at = (WALL + second * 1_001, TIMER + second * 1_000)
        assert correction(clock, *at) == (0, True)
        clock.hear(0, *at)


def test_replies_without_a_date_leave_the_clock_as_it_is_and_cost_no_calls() -> None:
    clock = CheckedClock()
    assert clock.hear(None, WALL, TIMER) is None
    assert correction(clock, WALL, TIMER) == (0, True)
    clock.hear(None, WALL + HOUR, TIMER)
    assert correction(clock, WALL + HOUR, TIMER) == (0, True)
