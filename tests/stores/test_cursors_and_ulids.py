"""Page cursors take anything a caller may send; ids sort by time."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.audit_events import moment_of, ulid
from zae_limiter.stores.cursors import decode_cursor, encode_cursor, name_after, page_of

KINDS: list[tuple[type, ...]] = [(str,), (int,), (str, str), (str, str, int, int), ()]

kinds_of_keys = st.sampled_from(KINDS)
parts = st.text(st.characters(codec="utf-8")) | st.integers(-(2**62), 2**62)
keys = st.lists(parts, max_size=5).map(tuple)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def check_decoding(cursor: str, kinds: tuple[type, ...]) -> None:
    """Either a refusal that says what is right, or a key of exactly these kinds."""
    refusal: ValidationError | None = None
    try:
        key = decode_cursor(cursor, *kinds)
    except ValidationError as error:
        refusal = error
    if refusal is None:
        assert key is not None
        assert tuple(type(part) for part in key) == kinds
        assert decode_cursor(encode_cursor(key), *kinds) == key
    else:
        assert (refusal.field, refusal.value) == ("cursor", cursor)
        assert "next_cursor of a page" in str(refusal)


@given(st.text(), kinds_of_keys)
def test_any_text_is_refused_or_is_a_key(cursor: str, kinds: tuple[type, ...]) -> None:
    check_decoding(cursor, kinds)


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="), kinds_of_keys)
def test_any_base64_is_refused_or_is_a_key(cursor: str, kinds: tuple[type, ...]) -> None:
    check_decoding(cursor, kinds)


@given(st.binary(), kinds_of_keys)
def test_any_bytes_in_base64_are_refused_or_are_a_key(content: bytes, kinds: tuple[type, ...]) -> None:
    check_decoding(urlsafe_b64encode(content).decode(), kinds)


@given(json_values, kinds_of_keys)
def test_any_json_in_base64_is_refused_or_is_a_key(value: object, kinds: tuple[type, ...]) -> None:
    check_decoding(urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("="), kinds)


@given(keys, st.data())
def test_a_cursor_with_one_character_changed_is_refused_or_is_a_key(
    key: tuple[str | int, ...], data: st.DataObject
) -> None:
    cursor = encode_cursor(key)
    position = data.draw(st.integers(0, len(cursor) - 1))
    forged = cursor[:position] + data.draw(st.characters()) + cursor[position + 1 :]
    check_decoding(forged, tuple(type(part) for part in key))


@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b'["' + b"a" * 10, b"[" + b"9" * 10_000 + b"]", b"[1e999]", b"[NaN]", b"\xff\xfe[\x00"],
    ids=["nested too deep", "cut short", "number too long", "infinite", "no number", "other encoding"],
)
@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_hostile_json_is_refused(content: bytes, kinds: tuple[type, ...]) -> None:
    with pytest.raises(ValidationError):
        decode_cursor(urlsafe_b64encode(content).decode(), *kinds)


@given(keys)
def test_a_cursor_brings_back_its_key(key: tuple[str | int, ...]) -> None:
    assert decode_cursor(encode_cursor(key), *(type(part) for part in key)) == key


@given(keys)
def test_a_cursor_can_stand_in_a_url_as_it_is(key: tuple[str | int, ...]) -> None:
    assert set(encode_cursor(key)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_no_cursor_is_the_beginning() -> None:
    assert decode_cursor(None, str) is None
    assert name_after(None) is None


@pytest.mark.parametrize("key", [("a", "b"), (7,), (), ("a", 7)])
def test_a_cursor_of_another_list_is_refused(key: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError, match="must be the next_cursor of a page of this same list"):
        name_after(encode_cursor(key))


def test_a_bool_in_a_cursor_is_not_a_number() -> None:
    forged = urlsafe_b64encode(b"[true]").decode()
    with pytest.raises(ValidationError):
        decode_cursor(forged, int)


@given(st.lists(st.text(min_size=1), unique=True), st.integers(1, 10))
def test_pages_one_after_the_other_have_every_row_once(rows: list[str], size: int) -> None:
    names = sorted(rows)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        after = name_after(cursor)
        following = [name for name in names if after is None or name > after]
        page = page_of(following[: size + 1], size, lambda name: (name,))
        assert len(page.items) <= size
        seen.extend(page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
        assert len(page.items) == size
    assert seen == names


# Ids

times = st.integers(0, 2**48 - 1)
distincts = st.integers(0, 2**80 - 1)


@given(times, distincts, times, distincts)
def test_ids_sort_by_time_and_then_by_what_tells_them_apart(one_ms: int, one: int, other_ms: int, other: int) -> None:
    assert (ulid(one_ms, one) < ulid(other_ms, other)) == ((one_ms, one) < (other_ms, other))


@given(times, distincts, distincts)
def test_ids_of_one_moment_sort_by_what_tells_them_apart(ms: int, one: int, other: int) -> None:
    assert (ulid(ms, one) < ulid(ms, other)) == (one < other)


@given(times, distincts)
def test_an_id_is_a_ulid(ms: int, distinct: int) -> None:
    identifier = ulid(ms, distinct)
    assert len(identifier) == 26
    assert set(identifier) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
    assert identifier[0] <= "7"


def test_the_first_ten_digits_are_the_time() -> None:
    """The example of the ULID specification."""
    assert ulid(1_469_918_176_385, 0) == "01ARYZ6S41" + "0" * 16


@given(times, distincts)
def test_an_id_tells_its_moment(ms: int, distinct: int) -> None:
    assert moment_of(ulid(ms, distinct)) == ms
