"""Redis's protocol: what is sent is what was meant, and replies are found however they arrive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.stores.redis.wire import INCOMPLETE, NotRedis, ServerError, bulk, command, parse

LINES = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=20)
REPLIES = st.recursive(
    st.one_of(
        st.none(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=40), LINES.map(lambda text: ServerError(text))
    ),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def encoded(reply: Any) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return bulk(reply)
    if isinstance(reply, ServerError):
        return b"-%b\r\n" % str(reply).encode()
    return b"*%d\r\n%b" % (len(reply), b"".join(map(encoded, reply)))


def plain(reply: Any) -> Any:
    """Something that can be compared."""
    if isinstance(reply, ServerError):
        return "error", str(reply), reply.code
    return [plain(one) for one in reply] if isinstance(reply, list) else reply


@given(st.lists(REPLIES, min_size=1, max_size=4))
def test_replies_are_found_one_after_the_other(replies: list[Any]) -> None:
    data = b"".join(map(encoded, replies))
    at, found = 0, []
    while at < len(data):
        reply, at = parse(data, at)
        found.append(reply)
    assert plain(found) == plain(replies)


@given(REPLIES, st.data())
def test_a_part_of_a_reply_is_incomplete(reply: Any, data: st.DataObject) -> None:
    whole = encoded(reply)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert parse(b"+before\r\n" + part, 9) == (INCOMPLETE, 9)


@given(st.lists(st.one_of(st.binary(max_size=30), st.integers(), st.text(max_size=10)), min_size=1, max_size=6))
def test_a_command_is_an_array_of_its_parts(parts: list[bytes | int | str]) -> None:
    found, at = parse(command(*parts), 0)
    assert found == [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    assert at == len(command(*parts))


def test_a_status_is_bytes_and_another_protocol_is_none() -> None:
    assert parse(b"+OK\r\n", 0) == (b"OK", 5)
    assert parse(b"*-1\r\n", 0) == (None, 5)
    with pytest.raises(NotRedis, match="HTTP"):
        parse(b"HTTP/1.1 400 Bad Request\r\n", 0)
