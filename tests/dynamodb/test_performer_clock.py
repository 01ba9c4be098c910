"""The machine's clock against the dates of replies: what it is corrected by, and when that is confirmed."""

from __future__ import annotations

import pytest

from zae_limiter.stores.dynamodb.performer import CheckedClock, Correction

HOUR = 3_600_000
WALL, TIMER = 1_800_000_000_000, 5_000


def checked(skew: int = 0) -> CheckedClock:
    clock = CheckedClock()
    clock.hear(skew, WALL, TIMER)
    return clock


def test_before_the_first_reply_nothing_is_confirmed() -> None:
    assert CheckedClock().correction(WALL, TIMER) == Correction(0, checked=False)


@pytest.mark.parametrize(
    ("skew", "error"), [(0, 0), (1_900, 0), (-1_900, 0), (2_001, 2_001), (-HOUR, -HOUR), (24 * HOUR, 24 * HOUR)]
)
def test_a_clock_is_corrected_by_what_the_reply_shows_if_that_is_more_than_two_seconds(skew: int, error: int) -> None:
    assert checked(skew).correction(WALL + 7_000, TIMER + 7_000) == Correction(error, checked=True)


def test_the_correction_is_reported_when_it_changes() -> None:
    clock = CheckedClock()
    assert clock.hear(300, WALL, TIMER) is None
    assert clock.hear(-HOUR, WALL, TIMER) == -HOUR
    assert clock.hear(-HOUR - 900, WALL, TIMER) is None, "dates are of whole seconds"
    assert clock.hear(0, WALL, TIMER) == 0
    assert clock.correction(WALL, TIMER) == Correction(0, checked=True)


@pytest.mark.parametrize("step", [HOUR, -HOUR, 365 * 24 * HOUR])
@pytest.mark.parametrize("skew", [0, 24 * HOUR])
def test_a_clock_that_was_set_goes_on_along_the_timer_until_a_reply_confirms_it(step: int, skew: int) -> None:
    clock = checked(skew)
    at = (WALL + 1_000 + step, TIMER + 1_000)
    assert clock.correction(*at) == Correction(skew - step, checked=False)
    clock.hear(skew - step, *at)
    assert clock.correction(*at) == Correction(skew - step, checked=True)


def test_a_machine_that_was_asleep_learns_the_time_from_the_next_reply() -> None:
    clock = checked()
    woken = (WALL + 8 * HOUR, TIMER + 10)
    assert not clock.correction(*woken).checked
    clock.hear(200, *woken)
    assert clock.correction(*woken) == Correction(0, checked=True)


def test_drift_between_two_replies_is_no_step() -> None:
    clock = checked()
    for second in range(1, 3_000):
        at = (WALL + second * 1_001, TIMER + second * 1_000)
        assert clock.correction(*at) == Correction(0, checked=True)
        clock.hear(0, *at)


def test_replies_without_a_date_leave_the_clock_as_it_is_and_cost_no_calls() -> None:
    clock = CheckedClock()
    assert clock.hear(None, WALL, TIMER) is None
    assert clock.correction(WALL, TIMER) == Correction(0, checked=True)
    clock.hear(None, WALL + HOUR, TIMER)
    assert clock.correction(WALL + HOUR, TIMER) == Correction(0, checked=True)
