"""Replies that are none: not HTTP, not whole, or not to be trusted with the connection they came over."""

from __future__ import annotations

HEADERS = b"Content-Type: application/x-amz-json-1.0\r\nx-amzn-RequestId: 01A1\r\n"


def with_length(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode() + HEADERS + more + b"\r\n" + body


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
