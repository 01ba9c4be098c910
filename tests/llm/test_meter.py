"""An answer is read as it passes, in whatever pieces it comes, and says what was used."""

from __future__ import annotations

import gzip
import json
import zlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.llm import Call, Meter, Usage, read_call
from zae_limiter.llm.meter import MOST_KEPT
from zae_limiter.testing.provider_dialects import conversation

SSE = "text/event-stream; charset=utf-8"
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": "gpt", "messages": [{"role": "user", "content": "x" * 40}]}),
    "responses": ("/v1/responses", {"model": "gpt", "input": "x" * 40}),
    "anthropic": ("/v1/messages", {"model": "gpt", "messages": [{"role": "user", "content": "x" * 40}]}),
    "gemini": ("/v1beta/models/gpt:streamGenerateContent", {"contents": [{"parts": [{"text": "x" * 40}]}]}),
}


def call(name: str) -> Call:
    path, body = BODIES[name]
    found = read_call(path, json.dumps({**body, "stream": True}).encode())
    assert found is not None
    return found


def stream_of(name: str, *, usage: bool = True, pieces: int | None = None) -> tuple[bytes, Usage]:
    """A whole stream, or its beginning, and what it used."""
    path, body = BODIES[name]
    body = {**body, "stream": True, **({"stream_options": {"include_usage": True}} if usage else {})}
    talk = conversation(path, body)
    assert talk is not None
    count = talk.pieces if pieces is None else pieces
    events = [*talk.opening(), *(talk.piece(number) for number in range(count))]
    if pieces is None:
        events += talk.closing()
    return b"".join(events), Usage(input=talk.input_tokens, output=2 * count)


def in_pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(content) + 1) for cut in cuts} | {0, len(content)})
    return [content[begin:end] for begin, end in pairwise(places)]


@pytest.mark.parametrize("name", BODIES)
@given(cuts=st.lists(st.integers(0, 10**6), max_size=40), hides=st.booleans())
def test_in_whatever_pieces_a_stream_comes(name: str, cuts: list[int], hides: bool) -> None:
    content, used = stream_of(name)
    meter = Meter(call(name), content_type=SSE, hides_usage=hides)
    passed = b"".join(meter.feed(piece) for piece in in_pieces(content, cuts)) + meter.rest()
    found = meter.used()
    assert (found.input - found.cached, found.output, found.exact) == (used.input, used.output, True)
    if hides and name == "chat":
        assert passed == stream_of("chat", usage=True)[0].replace(_usage_event(content), b"")
    else:
        assert passed == content


def _usage_event(content: bytes) -> bytes:
    (event,) = (part + b"\n\n" for part in content.split(b"\n\n") if b'"choices": []' in part)
    return event


@pytest.mark.parametrize("name", BODIES)
@given(pieces=st.integers(0, 9))
def test_a_stream_that_breaks_off_is_counted(name: str, pieces: int) -> None:
    content, used = stream_of(name, pieces=pieces)
    meter = Meter(call(name), content_type=SSE)
    meter.feed(content)
    found = meter.used()
    assert found.input - found.cached == used.input
    assert found.output == max(used.output, 1 if name == "anthropic" else 0)  # Anthropic states one to begin with


def test_a_stream_that_states_no_usage_is_counted() -> None:
    content, used = stream_of("chat", usage=False)
    meter = Meter(call("chat"), content_type=SSE)
    meter.feed(content)
    assert meter.used() == used


def test_a_very_long_stream_is_not_kept() -> None:
    content, _ = stream_of("chat", usage=False)
    (piece, *_) = content.split(b"\n\n")
    many = MOST_KEPT // len(piece) + 1000
    meter = Meter(call("chat"), content_type=SSE)
    for _ in range(many):
        meter.feed(piece + b"\n\n")
    assert sum(map(len, meter._kept)) <= MOST_KEPT
    assert meter.used().output == 2 * many


@pytest.mark.parametrize("encode", [gzip.compress, zlib.compress, lambda raw: zlib.compress(raw, wbits=-15)])
def test_an_encoded_answer_passes_as_it_is_and_is_read(encode: Any) -> None:
    document = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6}}
    raw = encode(json.dumps(document).encode())
    meter = Meter(call("chat"), content_type="application/json", content_encoding="gzip")
    assert meter.feed(raw) == raw
    assert meter.used() == Usage(input=5, output=6, exact=True)


ESTIMATE = Usage(input=10, output=1024)


@pytest.mark.parametrize(
    ("content", "used"),
    [
        (b'{"usage": {"prompt_tokens": 5}}', Usage(input=5, exact=True)),
        (b'{"text": "\\"usage\\": {}", "usage" : {"prompt_tokens": 5}}', Usage(input=5, exact=True)),
        (b'{"input": {"usage": {"a": 1}}, "usage": {"input_tokens": 5, "output_tokens": 2}}',
         Usage(input=5, output=2, exact=True)),
        (b'[{"usageMetadata": {"promptTokenCount": 1}}, {"usageMetadata": {"promptTokenCount": 4, '
         b'"candidatesTokenCount": 2, "thoughtsTokenCount": 3}}]', Usage(input=4, output=5, reasoning=3, exact=True)),
        (b'{"usage": {"prompt_tokens": 5', ESTIMATE),
        (b'{"usage": {"prompt_tokens": "many"}}', Usage(exact=True)),
        (b'{"usage": {"cost": 5}}', ESTIMATE),
        (b'{"usage": null}', ESTIMATE),
        (b"", ESTIMATE),
        (b"\xff\xfe not json", ESTIMATE),
    ],
)  # fmt: skip
def test_whole_answers(content: bytes, used: Usage) -> None:
    meter = Meter(call("chat"), content_type="application/json")
    meter.feed(content)
    assert meter.used() == used


@given(st.binary(), st.sampled_from([SSE, "application/json"]), st.sampled_from(["", "gzip"]), st.booleans())
def test_no_answer_upsets_the_meter(content: bytes, kind: str, encoding: str, hides: bool) -> None:
    for name in BODIES:
        meter = Meter(call(name), content_type=kind, content_encoding=encoding, hides_usage=hides)
        passed = meter.feed(content) + meter.rest()
        assert passed == content
        assert meter.used().input >= 0
