"""What people type, read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit, ValidationError
from zae_limiter.cli.argument_parsers import parse_amounts, parse_event_id, parse_moment, parse_notes
from zae_limiter.cli.views.formats import duration, limit_in_words
from zae_limiter.manifests.limit_syntax import period_of
from zae_limiter.stores.audit_events import ulid

NOW = 1_767_225_600_000  # 2026-01-01


@pytest.mark.parametrize(
    ("pairs", "amounts"),
    [
        ([], {}),
        (["rpm=1"], {"rpm": 1}),
        (["rpm=0", "tpm=10_000"], {"rpm": 0, "tpm": 10_000}),
        (["a.b-c=7"], {"a.b-c": 7}),
        (["tpm=10k", "tpd=1.5M", "x=0.001k"], {"tpm": 10_000, "tpd": 1_500_000, "x": 1}),
    ],
)
def test_amounts_are_whole_tokens_by_limit(pairs: list[str], amounts: dict[str, int]) -> None:
    assert parse_amounts(pairs) == amounts


@pytest.mark.parametrize(
    "pair",
    [
        "rpm",
        "rpm=",
        "=1",
        "rpm=-1",
        "rpm=1.5",
        "rpm=1e3",
        "rpm= 1",
        "wcu=1",
        "rpm=\u0661",
        "rpm=" + "9" * 40,
        "1=1",
        "rpm=10m",
        "rpm=k",
    ],
)
def test_what_is_no_amount_is_refused(pair: str) -> None:
    with pytest.raises(ValidationError):
        parse_amounts([pair])


def test_a_limit_is_named_once() -> None:
    with pytest.raises(ValidationError, match="twice"):
        parse_amounts(["rpm=1", "rpm=1"])


def test_a_note_may_have_anything_in_it() -> None:
    assert parse_notes(["a=b=c", "d=", "e f=g h"]) == {"a": "b=c", "d": "", "e f": "g h"}


@pytest.mark.parametrize("pair", ["a", "=b", ""])
def test_a_note_has_a_key_and_a_sign(pair: str) -> None:
    with pytest.raises(ValidationError, match="key=value"):
        parse_notes([pair])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:30", datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
        ("2026-01-31T12:30+02:00", datetime(2026, 1, 31, 10, 30, tzinfo=UTC)),
        ("24hours", datetime(2025, 12, 31, tzinfo=UTC)),
        ("1hour", datetime(2025, 12, 31, 23, tzinfo=UTC)),
        ("90min", datetime(2025, 12, 31, 22, 30, tzinfo=UTC)),
        ("7 days ago", datetime(2025, 12, 25, tzinfo=UTC)),
        ("2weeks", datetime(2025, 12, 18, tzinfo=UTC)),
        ("1h", datetime(2025, 12, 31, 23, tzinfo=UTC)),
        ("90m", datetime(2025, 12, 31, 22, 30, tzinfo=UTC)),
        ("2d", datetime(2025, 12, 30, tzinfo=UTC)),
        ("1w", datetime(2025, 12, 25, tzinfo=UTC)),
        ("30s ago", datetime(2025, 12, 31, 23, 59, 30, tzinfo=UTC)),
        ("999999weeks", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_date_a_time_or_an_age(text: str, moment: datetime) -> None:
    assert parse_moment(text, NOW, "since") == moment


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "24", "-1hour", "1fortnight", "1hs", "1.5h", "1M", "1969-12-31", "0001-01-01T00:00+14:00"],
)
def test_what_is_no_moment_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValidationError, match="2026-01-31"):
        parse_moment(text, NOW, "since")


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_an_event_id_tells_its_moment(milliseconds: int, distinct: int) -> None:
    event_id = ulid(milliseconds, distinct)
    assert (
        parse_event_id(event_id) == parse_event_id(event_id[:10]) == parse_event_id(event_id.lower()) == milliseconds
    )


@pytest.mark.parametrize("text", ["", "01KDVDNA0", "01KDVDNA0I", "8" * 26, "0" * 27, "x"])
def test_what_is_no_event_id_is_refused_as_it_was_typed(text: str) -> None:
    with pytest.raises(ValidationError, match="audit list") as refused:
        parse_event_id(text)
    assert refused.value.value == text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3_600, "1 h"),
        (7_260, "2 h 1 min"),
        (86_399.9, "1 d"),
        (200_000, "2 d 7 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("limit", "period", "words"),
    [
        (Limit.per_second("rps", 5), "sec", "rps 5/sec"),
        (Limit.per_minute("tpm", 10_000, burst=15_000), "min", "tpm 10,000/min burst 15,000"),
        (Limit.custom("x", 10, 10, 900), "15min", "x 10/15min"),
        (Limit.custom("x", 10, 10, 90), "90sec", "x 10/90sec"),
        (Limit.custom("x", 10, 5, 172_800), "2day", "x 5/2day burst 10"),
        (Limit.custom("x", 10, 10, 604_800), "week", "x 10/week"),
    ],
)
def test_a_limit_in_words_is_close_to_what_is_typed(limit: Limit, period: str, words: str) -> None:
    assert (period_of(limit), limit_in_words(limit)) == (period, words)
