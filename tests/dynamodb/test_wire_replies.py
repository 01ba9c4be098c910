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

from zae_limiter.stores.dynamodb.transport import http_replies
from zae_limiter.stores.dynamodb.transport.http_replies import Answer, Garbled, ReplyReader, read_at_once

HEADERS = b"Content-Type: application/x-amz-json-1.0\r\nx-amzn-RequestId: 01A1\r\n"


def with_length(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode() + HEADERS + more + b"\r\n" + body


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


def read(raw: bytes, cuts: list[int] | None = None, *, ends: bool = False) -> Answer | None:
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
    with pytest.raises(Garbled):
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


IN_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

STRANGE = {
    "no http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "no http at all": b"\x16\x03\x01\x02\x00",
    "a later http": b"HTTP/2 200\r\n\r\n",
    "an odd version": b"HTTP/1.x 200 OK\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a long status": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "an odd length": b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
    "an empty length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a huge length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    "a folded header": b"HTTP/1.1 200 OK\r\nA: b\r\n c: d\r\n\r\n",
    "a header with a gap": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n",
    "no header": b"HTTP/1.1 200 OK\r\nwelcome\r\n\r\n",
    "gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n",
    "gzip in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "an odd chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a signed chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    "a chunk that goes on": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
    "a huge chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n",
    "a chunk in hexadecimal as Python writes it": IN_CHUNKS + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk with a blank before it": IN_CHUNKS + b" 2\r\n{}\r\n0\r\n\r\n",
    "a chunk with a control character": IN_CHUNKS + b"2;a\0b\r\n{}\r\n0\r\n\r\n",
    "a chunk with a bare line feed": IN_CHUNKS + b"2;a\nb\r\n{}\r\n0\r\n\r\n",
    "a chunk of nine digits": IN_CHUNKS + b"000000002\r\n{}\r\n0\r\n\r\n",
    "a chunk with a long extension": IN_CHUNKS + b"2;" + b"a" * 300,
    "a trailer with a length": IN_CHUNKS + b"0\r\nContent-Length: 1\r\n\r\n",
    "a trailer with a control character": IN_CHUNKS + b"0\r\nA: \x01\r\n\r\n",
    "trailers without end": IN_CHUNKS + b"0\r\n" + b"A: b\r\n" * 20_000,
    "many trailers": IN_CHUNKS + b"0\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    "chunked twice": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a low status": b"HTTP/1.1 099 Low\r\n\r\n" + with_length(b"{}"),
    "a high status": b"HTTP/1.1 600 High\r\nContent-Length: 0\r\n\r\n",
    "a status after a tab": b"HTTP/1.1 200\tOK\r\nContent-Length: 0\r\n\r\n",
    "a status with a control character": b"HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n",
    "a bare line feed": b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 9\r\nContent-Length: 2\r\n\r\n{}",
    "bare line feeds only": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
    "a bare carriage return": with_length(b"{}", more=b"A: b\rc\r\n"),
    "a NUL": with_length(b"{}", more=b"A: b\0c\r\n"),
    "a control character": with_length(b"{}", more=b"A: b\x01c\r\n"),
    "a name with a control character": with_length(b"{}", more=b"A\x0b: b\r\n"),
    "a name with brackets": with_length(b"{}", more=b"A(b): c\r\n"),
    "a head that is too long in one piece": with_length(b"{}", more=b"A: b\r\n" * 11_000),
    "interim replies without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000,
    "an interim reply with a length": b"HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\n{}" + with_length(b"{}"),
    "an interim reply with a strange header": b"HTTP/1.1 100 Continue\r\nA b\r\n\r\n" + with_length(b"{}"),
    "an encoding beside another": with_length(b"{}", more=b"Content-Encoding: gzip\r\nContent-Encoding: identity\r\n"),
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
}


@pytest.mark.parametrize("raw", STRANGE.values(), ids=STRANGE)
def test_what_is_not_a_reply_is_told_at_once(raw: bytes) -> None:
    with pytest.raises(Garbled):
        read(raw)
    with contextlib.suppress(Garbled):
        assert read_at_once(raw) is None


def test_a_reply_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_replies, "LONGEST_BODY", 1000)
    for raw in (until_the_end(b"x" * 1001), in_chunks(b"x" * 1001, [100] * 10), with_length(b"x" * 1001)):
        with pytest.raises(Garbled):
            read(raw)


def test_a_connection_that_ends_without_a_word_is_told_apart() -> None:
    reader = ReplyReader()
    assert not reader.begun
    with pytest.raises(Garbled, match="without an answer"):
        reader.feed(b"")
    reader.feed(b"HTTP/1.1 200 OK\r\n")
    assert reader.begun
    with pytest.raises(Garbled, match="cut off after 17 bytes"):
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
    except Garbled:
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
    with contextlib.suppress(Garbled):
        read((b"HTTP/1.1 200 OK\r\n" if like_http else b"") + raw, cuts, ends=True)


# What comes in one piece


@settings(max_examples=600, deadline=None)
@given(st.lists(LINES, max_size=8), st.binary(max_size=6), st.booleans())
def test_what_is_read_at_once_is_what_a_reader_reads(lines: list[bytes], tail: bytes, fits: bool) -> None:
    head = b"\r\n".join([b"HTTP/1.1 200 OK", *lines, *([b"content-length: %d" % len(tail)] if fits else [])])
    raw = head + b"\r\n\r\n" + tail
    try:
        answer = ReplyReader().feed(raw)
    except Garbled:
        try:
            at_once = read_at_once(raw)
        except Garbled:
            return
        assert at_once is None
    else:
        assert read_at_once(raw) in (None, answer)


@settings(max_examples=50, deadline=None)
@given(BODIES, st.sampled_from([b"", b"Connection: keep-alive\r\n", b"Date: Mon, 16 Nov 2026 02:13:33 GMT\r\n"]))
def test_the_plainest_replies_are_read_at_once(body: bytes, more: bytes) -> None:
    raw = with_length(body, more=more)
    assert read_at_once(raw) == read(raw)
    assert read_at_once(raw) is not None
    assert read_at_once(raw[:-1]) is None
