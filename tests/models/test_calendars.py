"""Calendars: every boundary of every zone, what the numbers of periods promise, and what is refused."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.calendars import ANCHOR, Calendar, anchor_of, calendar_from, start_of, zone_of
from zae_limiter.exceptions import ValidationError


def zones() -> list[str]:
    """Every zone of the database once: many have several names."""
    by_rules: dict[bytes, str] = {}
    for name in sorted(available_timezones()):
        files = (Path(folder, name) for folder in TZPATH)
        rules = next((file.read_bytes() for file in files if file.is_file()), name.encode())
        by_rules.setdefault(rules, name)
    return sorted(by_rules.values())


ZONES = zones()
ZONES_BY_LETTER = {zone[0]: [other for other in ZONES if other[0] == zone[0]] for zone in ZONES}
LETTERS = sorted(ZONES_BY_LETTER)
ODD_ZONES = (
    "Pacific/Apia",  # a day was skipped
    "Pacific/Kwajalein",
    "America/Sao_Paulo",  # days that begin at 01:00
    "Asia/Beirut",
    "Africa/Cairo",
    "America/Havana",
    "America/Scoresbysund",
    "Australia/Lord_Howe",  # half an hour
    "Antarctica/Troll",
    "Europe/London",
)
FIRST_MS = int(datetime(1965, 1, 1, tzinfo=UTC).timestamp() * 1000)
UNITS = ("sec", "min", "hour", "day", "week", "month")


def local(moment_ms: int, zone: str) -> datetime:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment_ms)
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def check_boundaries(calendar: Calendar, numbers: range) -> None:
    """Boundaries never go back, the clock on the wall shows them, and every moment lies in its period."""
    starts = [calendar.start(number) for number in numbers]
    assert starts == sorted(starts)
    for number, begins, ends in zip(numbers, starts, starts[1:], strict=False):
        civil = calendar._civil(number * calendar.every)
        shown = local(begins, calendar.tz)
        assert civil <= shown <= civil + timedelta(hours=24), (calendar, number)
        if begins < ends and begins >= 0:
            assert calendar.ordinal(begins) == calendar.ordinal(ends - 1) == number
            assert calendar.until(begins) == calendar.until((begins + ends) // 2) == ends


@pytest.mark.parametrize("letter", LETTERS)
def test_months_of_every_zone_of_the_database(letter: str) -> None:
    for tz in ZONES_BY_LETTER[letter]:
        check_boundaries(Calendar("month", 1, tz), range(-59 * 12, 26 * 12, 1))
        check_boundaries(Calendar("month", 1, tz, datetime(2024, 1, 31, 7, 30)), range(-5 * 12, 5 * 12))


@pytest.mark.parametrize("letter", LETTERS)
def test_days_of_every_zone_around_each_change_of_its_clock(letter: str) -> None:
    """A day where the offset changes, and its neighbours: where boundaries could be lost or doubled."""
    for tz in ZONES_BY_LETTER[letter]:
        calendar, zone = Calendar("day", 1, tz), ZoneInfo(tz)
        offset = None
        for number in range(-21_000, 9_000, 7):
            civil = ANCHOR + timedelta(days=number)
            before, offset = offset, civil.replace(tzinfo=zone).utcoffset()
            if before != offset:
                check_boundaries(calendar, range(number - 9, number + 3))


@pytest.mark.parametrize("tz", ODD_ZONES)
def test_every_day_of_odd_zones(tz: str) -> None:
    check_boundaries(Calendar("day", 1, tz), range(-12_000, 4_000))
    check_boundaries(Calendar("week", 2, tz, datetime(2024, 1, 3, 2, 30)), range(-1_500, 700))


def test_a_skipped_day_has_no_length() -> None:
    calendar = Calendar("day", 1, "Pacific/Apia")
    skipped = (datetime(2011, 12, 30) - ANCHOR).days
    assert calendar.start(skipped) == calendar.start(skipped + 1)
    assert calendar.ordinal(calendar.start(skipped)) == skipped + 1


def test_a_month_without_the_day_begins_on_its_last() -> None:
    calendar = Calendar("month", 1, "UTC", datetime(2024, 1, 31))
    assert [local(calendar.start(number), "UTC").day for number in range(5)] == [31, 29, 31, 30, 31]


def test_hours_are_plain_time_from_the_anchor_on() -> None:
    calendar = Calendar("hour", 5, "Europe/Berlin", datetime(2026, 1, 5, 9))
    starts = [calendar.start(number) for number in range(1_000)]
    assert {after - before for before, after in pairwise(starts)} == {5 * 3_600_000}
    assert local(starts[0], "Europe/Berlin") == datetime(2026, 1, 5, 9)


@given(
    unit=st.sampled_from(UNITS),
    every=st.integers(1, 40),
    tz=st.sampled_from(ZONES),
    anchor=st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1)).map(lambda at: at.replace(microsecond=0)),
    moment=st.integers(0, 4_000_000_000_000),
    carry_debt=st.booleans(),
)
def test_every_moment_lies_in_one_period(
    unit: str, every: int, tz: str, anchor: datetime, moment: int, carry_debt: bool
) -> None:
    calendar = Calendar(unit, every, tz, anchor, carry_debt)
    number = calendar.ordinal(moment)
    assert calendar.start(number) <= moment < calendar.start(number + 1) == calendar.until(moment)
    again = calendar_from(str(calendar))
    assert again == calendar
    assert hash(again) == hash(calendar)
    assert pickle.loads(pickle.dumps(calendar)) == calendar
    assert anchor_of(start_of(calendar), unit) == calendar.anchor


def test_moments_in_any_order_get_the_same_numbers() -> None:
    """The period that was asked for last is remembered: that must not show."""
    moments = [random.Random(7).randrange(0, 3_000_000_000_000) for _ in range(500)]
    calendar = Calendar("month", 1, "America/New_York")
    fresh = [Calendar("month", 1, "America/New_York").ordinal(moment) for moment in moments]
    assert [calendar.ordinal(moment) for moment in moments] == fresh


def test_the_far_future_has_an_end() -> None:
    calendar = Calendar("month")
    assert calendar.start(10**9) == calendar.start(10**12) == Calendar("sec").start(10**18)
    assert calendar.ordinal(10**17) < 10**6


@pytest.mark.parametrize("tz", ["Nowhere/Land", "Europe", "", "../etc/passwd", "UTC,fresh", 7, None, "é"])
def test_what_is_no_zone_is_refused(tz: object) -> None:
    with pytest.raises(ValidationError, match="time zone"):
        zone_of(tz)


def test_a_zone_that_the_host_lacks_is_told_with_what_to_install() -> None:
    with pytest.raises(ValidationError, match=r"pip install '\.\[tz\]' in a clone"):
        Calendar("month", 1, "Europe/Atlantis")


def test_utc_needs_no_database() -> None:
    """Not even the module that reads it is imported."""
    program = (
        "import sys; from zae_limiter import Limit; Limit.per_month('usd', 5); "
        "print('zoneinfo' in sys.modules); Limit.per_month('usd', 5, tz='Europe/Berlin'); "
        "print('zoneinfo' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("start", "unit"),
    [("32", "month"), (0, "month"), ("mon", "month"), ("15", "day"), ("24:00", "day"), ("x", "week"), (1.5, "month")],
)
def test_what_is_no_start_is_refused(start: object, unit: str) -> None:
    with pytest.raises(ValidationError, match=r"must be .*a time like 07:00"):
        anchor_of(start, unit)


def test_a_calendar_does_not_change() -> None:
    with pytest.raises(AttributeError, match="does not change"):
        Calendar("month").tz = "Europe/Berlin"
    with pytest.raises(ValidationError):
        Calendar("fortnight")
    with pytest.raises(ValidationError):
        Calendar("day", 0)
    with pytest.raises(ValidationError):
        Calendar("day", 1, "UTC", datetime(2024, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("text", ["", "month", "month@", "fortnight@UTC", "month@UTC,later", "month@UTC,fresh,fresh"])
def test_words_of_another_version_are_no_calendar(text: str) -> None:
    with pytest.raises(ValueError, match=r"calendar|every"):
        calendar_from(text)
