"""A limit in one word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_strategies import limits

from zae_limiter import Limit, ValidationError
from zae_limiter.manifests.limit_syntax import format_limit, parse_limit

WORDS = [
    ("rpm:100", Limit.per_minute("rpm", 100)),
    ("rpm:100/min", Limit.per_minute("rpm", 100)),
    ("rpm:100:150", Limit.per_minute("rpm", 100, burst=150)),
    ("tpm:10_000/min:15_000", Limit.per_minute("tpm", 10_000, burst=15_000)),
    ("rps:5/sec", Limit.per_second("rps", 5)),
    ("rph:7/hour", Limit.per_hour("rph", 7)),
    ("rpd:50/day:5", Limit.per_day("rpd", 50, burst=5)),
    ("x:3/15min", Limit.custom("x", 3, 3, 900)),
    ("x:3/90sec", Limit.custom("x", 3, 3, 90)),
    ("a.b-c_d:1", Limit.per_minute("a.b-c_d", 1)),
    ("rps:5/s", Limit.per_second("rps", 5)),
    ("rph:7/h", Limit.per_hour("rph", 7)),
    ("rpd:50/d", Limit.per_day("rpd", 50)),
    ("rpw:50/w", Limit.custom("rpw", 50, 50, 604_800)),
    ("rpw:50/2week", Limit.custom("rpw", 50, 50, 1_209_600)),
    ("x:3/5s", Limit.custom("x", 3, 3, 5)),
    ("tpm:10k/min:15k", Limit.per_minute("tpm", 10_000, burst=15_000)),
    ("tpd:1.5M/day:0.25G", Limit.per_day("tpd", 1_500_000, burst=250_000_000)),
    ("tpd:1_000K/d", Limit.per_day("tpd", 1_000_000)),
]


@pytest.mark.parametrize(("word", "limit"), WORDS, ids=[word for word, _ in WORDS])
def test_a_word_says_a_limit(word: str, limit: Limit) -> None:
    assert parse_limit(word) == limit


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("", "must be name:rate"),
        ("rpm", "must be name:rate"),
        ("rpm:", "rate must be a whole number"),
        ("rpm:abc", "rate must be a whole number"),
        ("rpm:-1", "rate must be a whole number"),
        ("rpm:1.5", "rate must be a whole number of tokens, which 1.5 is not"),
        ("rpm:1.0005k", "rate must be a whole number of tokens, which 1.0005k is not"),
        ("rpm:1m", "k, M and G stand for thousands, millions and billions, not m"),
        ("rpm:.5k", "rate must be a whole number"),
        ("rpm:1.k", "rate must be a whole number"),
        ("rpm:1kk", "rate must be a whole number"),
        ("rpm:1_", "rate must be a whole number"),
        ("rpm:0", "rate must be a whole number of tokens from 1"),
        ("rpm:1:0", "burst must be a whole number of tokens from 1"),
        ("rpm:1:", "burst must be a whole number"),
        ("rpm:9999999999999999", "rate must be a whole number of tokens from 1 to"),
        ("rpm:" + "9" * 5000, "rate must be a whole number"),
        ("rpm:1/0min", "period must be a whole number of seconds from 1"),
        ("rpm:1/367day", "period must be a whole number of seconds from 1"),
        ("rpm:1/min/min", "must be name:rate"),
        ("rpm:1:2:3", "must be name:rate"),
        ("rpm:1/", "unknown unit ''"),
        ("rpm:1/fortnight", "write sec, min, hour, day, week, month or inflight"),
        ("rpm:1/minutes", "write min"),
        ("rpm:1/m", "write min"),
        ("rpm:1/ss", "write sec, min"),
        ("rpm:1/hrs", "write hour"),
        ("rpm:1/days", "write day"),
        ("wcu:1", "'wcu' is reserved"),
        (":1", "must not be empty"),
        ("r pm:1", "must be letters"),
        (None, "must be name:rate"),
        (7, "must be name:rate"),
    ],
)
def test_what_is_no_limit_is_refused_with_what_would_be_right(word: object, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_limit(word)
    assert reason in caught.value.reason
    assert caught.value.field == "limit"


@given(limits())
def test_what_a_word_can_say_it_says_exactly(limit: Limit) -> None:
    word = format_limit(limit)
    assert (word is None) == (limit.capacity != limit.refill_amount)
    if word is not None:
        assert parse_limit(word) == limit


@given(
    st.text(max_size=30)
    | st.from_regex(r"[a-z]{0,3}:[0-9_.]{0,4}[kKMGm]?(/[0-9]{0,2}[a-z]{0,5})?(:[0-9.]{0,3}[kM]?)?", fullmatch=True)
)
def test_any_text_is_a_limit_or_a_validation_error(text: str) -> None:
    try:
        limit = parse_limit(text)
    except ValidationError:
        return
    word = format_limit(limit)
    assert word is not None
    assert parse_limit(word) == limit
