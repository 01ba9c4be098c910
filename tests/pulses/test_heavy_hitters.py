"""Counts of those that come most often are never too high, and too low by no more than is said."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter.pulses.heavy_hitters import HeavyHitters, merged

STREAMS = st.lists(st.integers(0, 30), max_size=300)
MOST = st.integers(1, 8)


def counted(stream: list[int], most: int) -> HeavyHitters[int]:
    hitters: HeavyHitters[int] = HeavyHitters(most)
    for key in stream:
        hitters.add(key)
    return hitters


def check(hitters: HeavyHitters[int], stream: list[int], most: int) -> None:
    true = Counter(stream)
    assert hitters.total == len(stream)
    assert len(hitters.counts) <= 2 * most
    assert hitters.error * (most + 1) <= len(stream)
    for key, times in true.items():
        assert times - hitters.error <= hitters.counts.get(key, 0) <= times
        if times * (most + 1) > len(stream):
            assert key in hitters.counts
    assert set(hitters.counts) <= set(true)


@given(STREAMS, MOST)
def test_counts_are_bounded_and_nearly_right(stream: list[int], most: int) -> None:
    check(counted(stream, most), stream, most)


@settings(max_examples=60)
@given(st.lists(STREAMS, max_size=5), MOST)
def test_merged_counts_keep_the_promise(streams: list[list[int]], most: int) -> None:
    whole = merged((counted(stream, most) for stream in streams), most)
    check(whole, [key for stream in streams for key in stream], most)


def test_the_largest_come_first() -> None:
    assert counted([1, 2, 2, 3, 3, 3], 5).top(2) == [(3, 3), (2, 2)]
