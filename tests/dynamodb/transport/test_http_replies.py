"""Reading replies: whole ones in whatever pieces, and nothing else taken for one."""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.strange_replies import HEADERS, STRANGE, with_length
from zae_limiter.stores.dynamodb.transport import http_replies
from zae_limiter.stores.dynamodb.transport.http_replies import (
    HttpReply,
    MalformedReply,
    ReplyReader,
    parse_plain_reply,
)


def in_chunks(body: bytes, sizes: list[int], more: bytes = b"") -> bytes:
    chunks, rest = b"", body
    for size in sizes:
        piece, rest = rest[:size], rest[size:]
        if piece:
            chunks += f"{len(piece):X};note=1\r\n".encode() + piece + b"\r\n"
    if rest:
        chunks += f"{len(rest):x}\r\n".encode() + rest + b"\r\n"
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + HEADERS + more + b"\r\n" + chunks + b"0\r\n\r\n"


def until_the_end(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + HEADERS + b"\r\n" + body


def read(raw: bytes, cuts: list[int] | None = None, *, ends: bool = False) -> HttpReply | None:
    """What a reader makes of bytes that come in pieces, and perhaps end."""
    reader = ReplyReader()
    edges = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts or [])})
    for begin, end in itertools.pairwise(edges):
        answer = reader.feed(raw[begin:end])
        if answer is not None:
            assert end == len(raw) or begin < len(raw)
            return answer
    return reader.feed(b"") if ends else None


BODIES = st.one_of(st.just(b""), st.binary(max_size=300), st.just(b'{"Item":{"PK":{"S":"a"}}}'))
CUTS = st.lists(st.integers(0, 600), max_size=8)


@settings(max_examples=200, deadline=None)
@given(BODIES, CUTS, st.sampled_from(["200 OK", "400 Bad Request", "500", "599 "]))
def test_a_reply_with_a_length_is_read_in_any_pieces(body: bytes, cuts: list[int], status: str) -> None:
    answer = read(with_length(body, status), cuts)
    assert answer is not None
    assert (answer.status, answer.body, answer.reusable) == (int(status[:3]), body, True)
    assert answer.headers[b"x-amzn-requestid"] == b"01A1"


@settings(max_examples=200, deadline=None)
@given(BODIES, CUTS, st.lists(st.integers(1, 50), max_size=6))
def test_a_reply_in_chunks_is_read_in_any_pieces(body: bytes, cuts: list[int], sizes: list[int]) -> None:
    answer = read(in_chunks(body, sizes), cuts)
    assert answer is not None
    assert (answer.status, answer.body, answer.reusable) == (200, body, True)


@settings(max_examples=100, deadline=None)
@given(BODIES, CUTS)
def test_a_reply_without_a_length_ends_with_the_connection(body: bytes, cuts: list[int]) -> None:
    raw = until_the_end(body)
    assert read(raw, cuts) is None
    answer = read(raw, cuts, ends=True)
    assert answer is not None
    assert (answer.body, answer.reusable) == (body, False)


@settings(max_examples=200, deadline=None)
@given(BODIES, st.integers(1, 1000), st.booleans())
def test_a_reply_that_is_cut_off_is_not_one(body: bytes, missing: int, chunked: bool) -> None:
    raw = in_chunks(body, [7, 30]) if chunked else with_length(body)
    with pytest.raises(MalformedReply):
        read(raw[: max(len(raw) - missing, 0)], ends=True)


@pytest.mark.parametrize(
    ("raw", "reusable"),
    [
        (with_length(b"{}", more=b"Connection: close\r\n"), False),
        (with_length(b"{}", more=b"Connection: Keep-Alive, Close\r\n"), False),
        (with_length(b"{}", more=b"Connection: keep-alive\r\n"), True),
        (with_length(b"{}") + b"HTTP/1.1 200 OK\r\n", False),
        (with_length(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (in_chunks(b"{}", [], more=b"Content-Length: 2\r\n"), False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + with_length(b"{}"), True),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n", False),
        (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (with_length(b"{}", more=b"Connection: close\r\nConnection: keep-alive\r\n"), False),
        (with_length(b"{}", more=b"Content-Length: 2\r\n"), True),
        (in_chunks(b"{}", [])[:-2] + b"Trailer: x\r\n\r\n", False),
    ],
)
def test_a_connection_is_used_again_only_after_a_reply_in_order(raw: bytes, reusable: bool) -> None:
    for cuts in ([], [3], [20, 40], list(range(len(raw)))):
        if not reusable and raw.endswith(b"200 OK\r\n") and len(cuts) > 2:
            continue  # there, the reply is read before the rest comes; the connection is not quiet then
        answer = read(raw, cuts)
        assert answer is not None
        assert answer.reusable is reusable


@pytest.mark.parametrize("raw", STRANGE.values(), ids=STRANGE)
def test_what_is_not_a_reply_is_told_at_once(raw: bytes) -> None:
    with pytest.raises(MalformedReply):
        read(raw)
    with contextlib.suppress(MalformedReply):
        assert parse_plain_reply(raw) is None


def test_a_reply_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_replies, "MAX_BODY_BYTES", 1000)
    for raw in (until_the_end(b"x" * 1001), in_chunks(b"x" * 1001, [100] * 10), with_length(b"x" * 1001)):
        with pytest.raises(MalformedReply):
            read(raw)


def test_a_connection_that_ends_without_a_word_is_told_apart() -> None:
    reader = ReplyReader()
    assert not reader.begun
    with pytest.raises(MalformedReply, match="without an answer"):
        reader.feed(b"")
    reader.feed(b"HTTP/1.1 200 OK\r\n")
    assert reader.begun
    with pytest.raises(MalformedReply, match="cut off after 17 bytes"):
        reader.feed(b"")


class _Recorded:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._raw)


LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 400 Bad",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 204 x",
        b"HTTP/1.1 100 Continue",
        b"Content-Length: 4",
        b"content-length: 10",
        b"CONTENT-LENGTH: 0",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
        b"Date: Mon, 16 Nov 2026 02:13:33 GMT",
        b"",
        b"4",
        b"{}{}",
        b"0",
        b"2\r\n{}",
        b'{"a": {"S": "b"}}',
    ]
)


@settings(max_examples=600, deadline=None)
@given(st.lists(LINES, max_size=12), st.binary(max_size=6), CUTS)
def test_what_is_read_is_what_the_standard_library_reads(lines: list[bytes], tail: bytes, cuts: list[int]) -> None:
    raw = b"\r\n".join([b"HTTP/1.1 200 OK", *lines, tail])
    try:
        answer = read(raw, cuts, ends=True)
    except MalformedReply:
        return
    assert answer is not None
    response = http.client.HTTPResponse(_Recorded(raw), method="POST")  # type: ignore[arg-type]
    try:
        response.begin()
        body = response.read()
    except (http.client.HTTPException, ValueError):
        assume(False)
    assert (answer.status, answer.body) == (response.status, body)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans(), CUTS)
def test_no_bytes_do_any_harm(raw: bytes, like_http: bool, cuts: list[int]) -> None:
    with contextlib.suppress(MalformedReply):
        read((b"HTTP/1.1 200 OK\r\n" if like_http else b"") + raw, cuts, ends=True)


# What comes in one piece


@settings(max_examples=600, deadline=None)
@given(st.lists(LINES, max_size=8), st.binary(max_size=6), st.booleans())
def test_what_is_read_at_once_is_what_a_reader_reads(lines: list[bytes], tail: bytes, fits: bool) -> None:
    head = b"\r\n".join([b"HTTP/1.1 200 OK", *lines, *([b"content-length: %d" % len(tail)] if fits else [])])
    raw = head + b"\r\n\r\n" + tail
    try:
        answer = ReplyReader().feed(raw)
    except MalformedReply:
        try:
            at_once = parse_plain_reply(raw)
        except MalformedReply:
            return
        assert at_once is None
    else:
        assert parse_plain_reply(raw) in (None, answer)


@settings(max_examples=50, deadline=None)
@given(BODIES, st.sampled_from([b"", b"Connection: keep-alive\r\n", b"Date: Mon, 16 Nov 2026 02:13:33 GMT\r\n"]))
def test_the_plainest_replies_are_read_at_once(body: bytes, more: bytes) -> None:
    raw = with_length(body, more=more)
    assert parse_plain_reply(raw) == read(raw)
    assert parse_plain_reply(raw) is not None
    assert parse_plain_reply(raw[:-1]) is None
