"""Replies are read as strictly as h11 reads them: a differential fuzz, with h11 as the referee.

Whatever our reader accepts, h11 accepts too, and reads the same status, headers and body out of the same bytes; and a
connection that we would use again, h11 would use again. The other way round nothing is asked: what we are stricter
about closes the connection.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import h11
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from zae_limiter.stores.dynamodb.transport.http_replies import (
    HttpReply,
    MalformedReply,
    ReplyReader,
    parse_plain_reply,
)

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: Mon, 16 Nov 2026 02:13:33 GMT\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{}{}\r\n2;n=1\r\n{}\r\n0\r\n\r\n"
REFUSED = b"HTTP/1.1 400 Bad Request\r\nx-amzn-RequestId: 01A1\r\nContent-Length: 2\r\n\r\n{}"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
AFTER_OTHERS = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN


class Refereed(NamedTuple):
    """What h11 reads."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    reusable: bool


def ours(raw: bytes, cuts: list[int], *, ends: bool) -> tuple[HttpReply | None, list[bytes]]:
    """The answer as transports read it from pieces, and the pieces it was read from. May raise ``MalformedReply``."""
    edges = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts)})
    reader: ReplyReader | None = None
    read: list[bytes] = []
    pieces = [raw[begin:end] for begin, end in itertools.pairwise(edges)]
    for piece in [*pieces, b""] if ends else pieces:
        read.append(piece)
        answer = parse_plain_reply(piece) if reader is None else None
        if answer is None:
            reader = reader or ReplyReader()
            answer = reader.feed(piece)
        if answer is not None:
            return answer, read
    return None, read


def theirs(pieces: list[bytes]) -> Refereed:
    """What h11 reads from the same pieces. Raises ``h11.RemoteProtocolError``; fails if the reply is not whole."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**30)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "a"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    response: Any = None
    body = b""
    for piece in pieces:
        connection.receive_data(piece)
        while True:
            happened = connection.next_event()
            if happened in (h11.NEED_DATA, h11.PAUSED):
                break
            if isinstance(happened, h11.Response):
                response = happened
            elif isinstance(happened, h11.Data):
                body += bytes(happened.data)
            elif isinstance(happened, h11.EndOfMessage):
                kept = connection.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}
                quiet = connection.trailing_data == (b"", False)
                return Refereed(response.status_code, list(response.headers), body, kept and quiet)
    raise AssertionError("h11 waits for more")


def compare(raw: bytes, cuts: list[int], *, ends: bool = False) -> None:
    try:
        answer, pieces = ours(raw, cuts, ends=ends)
    except MalformedReply:
        event("refused")
        return
    if answer is None:
        event("waits for more")
        return
    event("kept" if answer.reusable else "read, and closed")
    try:
        refereed = theirs(pieces)
    except h11.RemoteProtocolError as error:
        pytest.fail(f"h11 refuses what was read as {answer}: {error}")
    assert (answer.status, answer.body) == (refereed.status, refereed.body)
    assert refereed.reusable or not answer.reusable
    for name, value in answer.headers.items():
        values = [their for its_name, their in refereed.headers if its_name == name]
        assert value.lower() == functools.reduce(joined, values).lower()


def joined(one: bytes, other: bytes) -> bytes:
    """The value of a header that comes twice."""
    return one if one == other else one + b", " + other


# Replies that are nearly right


ENDS = st.sampled_from([b"\r\n"] * 120 + [b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n ", b"\r\n\t", b"\0\r\n", b""])
STATUSES = st.sampled_from(
    [b"HTTP/1.1 200 OK"] * 30
    + [
        b"HTTP/1.1 400 Bad Request",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 200\tOK",
        b"HTTP/1.1 200\x0bOK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 200 O\0K",
        b"HTTP/1.1 200 O\x01K",
        b"HTTP/1.1 200 O\xe4K",
        b"HTTP/1.1 099 Low",
        b"HTTP/1.1 000 None",
        b"HTTP/1.1 100 Continue",
        b"HTTP/1.1 199 Odd",
        b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 304 Not Modified",
        b"HTTP/1.1 600 High",
        b"HTTP/1.1 999 High",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.2 200 OK",
    ]
)
NAMES = st.sampled_from(
    [
        b"Content-Length",
        b"content-length",
        b"Transfer-Encoding",
        b"Connection",
        b"Date",
        b"x-amz-crc32",
        b"Content-Length ",
        b" Content-Length",
        b"Content-Length\t",
        b"Content\x0bLength",
        b"Content-Length\0",
        b"Transfer-Encoding\x0c",
        b"A b",
        b"A(b)",
        b"\xe4",
        b"",
    ]
)
COLONS = st.sampled_from([b": "] * 12 + [b":", b":\t", b" :", b":  ", b"", b"::", b":\x0b", b":\x0c "])
VALUES = st.sampled_from(
    [
        b"0",
        b"2",
        b"4",
        b"4",
        b"04",
        b"+4",
        b"4, 4",
        b"4,2",
        b"4\x0b",
        b"4\0",
        b"0x4",
        b"\xb2",
        b"",
        b"chunked",
        b"Chunked",
        b"chunked, chunked",
        b"gzip, chunked",
        b"identity",
        b"\x0bchunked",
        b"chunked;q=1",
        b"close",
        b"keep-alive",
        b"keep-alive, close",
        b"clos\0e",
        b"a\x01b",
        b"a\x7fb",
        b"a\rb",
        b"a b\tc",
        b"\xe4",
    ]
)
HEADER = st.one_of(
    st.tuples(NAMES, COLONS, VALUES).map(b"".join),
    st.sampled_from(
        [
            b"Content-Length: 4",
            b"Content-Length: 4",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: chunked",
            b"Connection: close",
            b"Connection: keep-alive",
        ]
    ),
)
CONNECTION = st.sampled_from([b"Connection: close", b"Connection: keep-alive", b"connection: Close, Keep-Alive"])
SIZES = st.sampled_from(
    [b"4"] * 20
    + [b"0"] * 20
    + [
        b"04",
        b"0x4",
        b"0X4",
        b"+4",
        b"-4",
        b" 4",
        b"4 ",
        b"4\t",
        b"4 ;n",
        b"4;n=1",
        b"4;a\0b",
        b"4;a\rb",
        b"4;a\nb",
        b"4_0",
        b"4\x0b",
        b"\xb2",
        b"00000000000000000000004",
        b"000000004",
        b"z",
        b"",
        b"0;n",
        b"00",
    ]
)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    framing = draw(st.sampled_from([[b"Content-Length: 4"], [b"Transfer-Encoding: chunked"], []]))
    lines = [draw(STATUSES), *draw(st.permutations([*framing, *draw(st.lists(HEADER, max_size=2))]))]
    return b"".join(line + draw(ENDS) for line in lines) + draw(ENDS)


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    written = b""
    for size in draw(st.lists(SIZES, max_size=2)):
        written += size + draw(ENDS) + b"{}{}" + draw(ENDS)
    trailers = draw(st.lists(HEADER, max_size=1))
    return written + draw(SIZES) + draw(ENDS) + b"".join(line + draw(ENDS) for line in trailers) + draw(ENDS)


BODIES = st.one_of(st.sampled_from([b"", b"{}", b"{}{}", b"{}{}", b"{}{}{}"]), chunks())
CUTS = st.lists(st.integers(0, 400), max_size=5)
MANY = settings(max_examples=1500, deadline=None)


@MANY
@given(heads(), BODIES, CUTS, st.booleans())
def test_what_is_put_together_from_lines_is_read_as_h11_reads_it(
    head: bytes, body: bytes, cuts: list[int], ends: bool
) -> None:
    compare(head + body, cuts, ends=ends)


@st.composite
def hurt(draw: st.DrawFn) -> bytes:
    """A good reply with lines added, or a few bytes changed, or both, or neither."""
    status, _, rest = draw(st.sampled_from([PLAIN, CHUNKED, REFUSED, EMPTY, AFTER_OTHERS])).partition(b"\r\n")
    before = draw(st.sampled_from([b"", b"", b"", draw(STATUSES) + b"\r\n\r\n"]))
    added = draw(st.lists(st.one_of(HEADER, CONNECTION), max_size=2))
    raw = bytearray(before + b"\r\n".join([status, *added, rest]))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2, 3]))):
        at = draw(st.integers(0, len(raw)))
        length = draw(st.integers(0, 2))
        raw[at : at + length] = draw(
            st.one_of(
                st.sampled_from(
                    [b"\0", b"\n", b"\r", b"\r\n", b" ", b"\t", b":", b"0", b"1", b"x", b",", b";", b"\x7f"]
                ),
                st.binary(max_size=2),
            )
        )
    return bytes(raw)


@MANY
@given(hurt(), CUTS, st.booleans())
def test_a_good_reply_with_something_changed_is_read_as_h11_reads_it(raw: bytes, cuts: list[int], ends: bool) -> None:
    compare(raw, cuts, ends=ends)
