"""Usage as pictures: series, scales, and plots for terminals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import UsageSnapshot, WindowType
from zae_limiter.stores.windows import window_around
from zae_limiter.visualization.scales import compact, round_up
from zae_limiter.visualization.series import MOST_WINDOWS, Point, Series, series_of
from zae_limiter.visualization.terminal import Role, Style, plot, scale_of

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
WINDOWS = list(WindowType)


def snapshot(hours: int, entity_id: str = "key-1", **counters: int) -> UsageSnapshot:
    start = NEW_YEAR + timedelta(hours=hours)
    return UsageSnapshot(entity_id, "gpt-4", WindowType.HOURLY, start, start + timedelta(hours=1), counters, 1)


def series(*values: int, window: WindowType = WindowType.HOURLY) -> Series:
    start, points = NEW_YEAR, []
    for value in values:
        points.append(Point(start, value))
        _, start = window_around(start, window)
    return Series("tpm", window, tuple(points))


def drawn(*values: int, width: int = 60, height: int = 4, style: Style = Style.BARS) -> list[str]:
    return ["".join(mark.text for mark in line).rstrip() for line in plot(series(*values), style, width, height)]


# Series


def test_a_series_adds_up_entities_and_has_no_gaps() -> None:
    found = series_of([snapshot(0, tpm=5), snapshot(3, tpm=7), snapshot(3, "key-2", tpm=1, rpm=2)], WindowType.HOURLY)
    assert [(one.name, [point.value for point in one.points]) for one in found] == [
        ("rpm", [0, 0, 0, 2]),
        ("tpm", [5, 0, 0, 8]),
    ]
    assert found[1].total == 13
    assert found[1].peak.start == NEW_YEAR + timedelta(hours=3)


def test_only_the_windows_and_limits_that_were_asked_for() -> None:
    snapshots = [snapshot(0, tpm=5, rpm=1)]
    assert series_of(snapshots, WindowType.DAILY) == []
    assert [one.name for one in series_of(snapshots, WindowType.HOURLY, {"rpm"})] == ["rpm"]
    assert series_of([], WindowType.HOURLY) == []


def test_a_stray_window_far_away_does_not_become_a_million() -> None:
    (found,) = series_of([snapshot(-400_000, tpm=5), snapshot(0, tpm=5)], WindowType.HOURLY)
    assert len(found.points) == MOST_WINDOWS
    assert found.points[-1].start == NEW_YEAR


@pytest.mark.parametrize(
    ("start", "window", "following"),
    [
        (datetime(2026, 1, 31, 23), WindowType.HOURLY, datetime(2026, 2, 1)),
        (datetime(2024, 2, 28), WindowType.DAILY, datetime(2024, 2, 29)),
        (datetime(2026, 12, 1), WindowType.MONTHLY, datetime(2027, 1, 1)),
        (datetime(2026, 1, 1), WindowType.MONTHLY, datetime(2026, 2, 1)),
    ],
)
def test_windows_follow_the_calendar(start: datetime, window: WindowType, following: datetime) -> None:
    assert window_around(start, window) == (start, following)


# Scales


@settings(deadline=None)
@given(st.integers(1, 10**18))
def test_a_scale_ends_at_a_round_number_not_far_above(value: int) -> None:
    end = round_up(value)
    assert value <= end <= max(value * 1.5, 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (2.5, "2.5"), (9_999, "9,999"), (10_000, "10k"), (12_500, "12.5k"), (-3 * 10**6, "-3M")],
)
def test_numbers_beside_a_plot_are_short(value: float, text: str) -> None:
    assert compact(value) == text


# Terminal plots


def test_bars_are_as_high_as_their_values() -> None:
    assert drawn(1, 4, 0, 2) == [
        "tpm  per hour; 7 in all, at most 4",
        "4 ┤      █████",
        "  │      █████",
        "2 ┤      █████       █████",
        "  │█████ █████       █████",
        "0 ┼─────────────────────────",
        "   00:00 01:00 02:00 03:00",
        "   01 Jan",
    ]


def test_what_came_back_is_drawn_below_zero() -> None:
    assert drawn(4, -2, height=6)[1:8] == [
        " 4 ┤█████",
        "   │█████",
        " 2 ┤█████",
        "   │█████",
        " 0 ┼─────────────",
        "   │      █████",
        "-2 ┤      █████",
    ]
    roles = [mark.role for line in plot(series(4, -2), Style.BARS, 60, 6) for mark in line]
    assert Role.BELOW_ZERO in roles


def test_the_smallest_use_is_still_seen() -> None:
    assert "▁" in drawn(1, 1_000_000)[4]


def test_nothing_used_is_a_line_not_a_plot() -> None:
    assert drawn(0, 0, 0) == ["tpm  per hour; nothing used"]


def test_bars_show_the_newest_and_say_what_is_missing() -> None:
    lines = drawn(*range(1, 200), width=40)
    assert lines[1] == "  164 earlier windows do not fit; lines show all of them"
    assert max(map(len, lines[2:])) <= 40


def test_lines_show_every_window() -> None:
    lines = drawn(*[*range(100), *range(100, 0, -1)], width=40, style=Style.LINES)
    assert not any("do not fit" in line for line in lines)
    assert "⠀" < lines[1].rstrip()[-1] <= "⣿"


@settings(deadline=None)
@given(
    values=st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=300),
    width=st.integers(20, 160),
    height=st.integers(2, 20),
    style=st.sampled_from(Style),
    window=st.sampled_from(WINDOWS),
)
def test_any_series_fits_its_room(
    values: list[int], width: int, height: int, style: Style, window: WindowType
) -> None:
    lines = plot(series(*values, window=window), style, width, height)
    texts = ["".join(mark.text for mark in line).rstrip() for line in lines]
    if any(values):
        scale = scale_of(values, height)
        assert scale.up + scale.down == height
        rows = [text for text in texts if "┤" in text or "│" in text or "┼" in text]
        assert len(rows) == height + 1
        assert max(map(len, rows)) <= max(width, 20)


@pytest.mark.parametrize(
    ("window", "count", "named"),
    [
        (WindowType.HOURLY, 30, ["00:00", "06:00"]),
        (WindowType.DAILY, 40, ["01", "06", "11"]),
        (WindowType.MONTHLY, 15, ["Jan", "Mar"]),
    ],
)
def test_windows_are_named_at_round_times(window: WindowType, count: int, named: list[str]) -> None:
    lines = plot(series(*[5] * count, window=window), Style.BARS, 50, 4)
    labels = "".join(mark.text for mark in lines[-2]).split()
    assert labels[: len(named)] == named
