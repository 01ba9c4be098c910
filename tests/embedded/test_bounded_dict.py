"""The bounded dict keeps what is used, and never more than it may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.stores.embedded.bounded_dict import BoundedDict


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30))))
def test_there_are_never_more_than_it_may_hold_and_what_it_holds_is_right(uses: list[tuple[bool, int]]) -> None:
    recent: BoundedDict[int, str] = BoundedDict(10)
    for put, key in uses:
        if put:
            recent[key] = str(key)
        else:
            try:
                assert recent[key] == str(key)
            except KeyError:
                continue
        assert len(recent) + len(recent._old) <= 10


def test_what_is_read_again_and_again_stays() -> None:
    recent: BoundedDict[int, int] = BoundedDict(10)
    recent[0] = 0
    for key in range(1, 100):
        recent[key] = key
        assert recent[0] == 0
    with pytest.raises(KeyError):
        recent[1]


def test_what_is_forgotten_is_gone_from_both_generations() -> None:
    recent: BoundedDict[int, int] = BoundedDict(4)
    for key in range(3):
        recent[key] = key
    for key in range(3):
        recent.forget(key)
        with pytest.raises(KeyError):
            recent[key]
    recent[5] = 5
    recent.clear()
    with pytest.raises(KeyError):
        recent[5]
