"""Reads an answer as it passes by, and says what was used.

Little is done while it passes: pieces are kept, and read when the answer ends. Then the usage that the provider stated
is looked for. If a stream broke off before that, its deltas are counted instead. A stream that grows very long is read
in parts, so that no more than :data:`MOST_KEPT` bytes of it are held.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from zae_limiter.llm.calls import Call
from zae_limiter.llm.usage import Usage, read_usage, tokens_in, usage_in

MOST_KEPT = 4 * 2**20
"""Bytes of a stream that are kept before they are read. Of a whole answer so many are kept in all."""

_END_OF_EVENT = re.compile(rb"\r?\n\r?\n")
_USAGE = re.compile(rb'"usage(?:Metadata)?"\s*:\s*(?=\{)')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_FINISHED = re.compile(rb'"type"\s*:\s*"(?:message_stop|response\.(?:completed|incomplete|failed))"')
_FINISHED_GEMINI = re.compile(rb'"finishReason"\s*:\s*"')

_DECODER = json.JSONDecoder()


class Meter:
    """What one answer used, as far as it was read.

    ``hides_usage``: the caller did not ask for the event that states the usage of a stream, and does not get it.
    """

    __slots__ = (
        "_call",
        "_characters",
        "_encoded",
        "_finished",
        "_held",
        "_hides_usage",
        "_kept",
        "_size",
        "_sse",
        "_stated",
    )

    def __init__(
        self, call: Call, *, content_type: str = "", content_encoding: str = "", hides_usage: bool = False
    ) -> None:
        self._call = call
        self._sse = content_type.startswith("text/event-stream")
        self._encoded = content_encoding.strip().lower() not in ("", "identity")
        self._hides_usage = hides_usage and self._sse and not self._encoded
        self._kept: list[bytes] = []
        self._held = b""
        self._size = 0
        self._stated: Usage | None = None
        self._characters = 0
        self._finished = False

    def feed(self, raw: bytes) -> bytes:
        """Take note of some bytes. Returns what goes on to the reader: all of it, or all but a hidden event."""
        if not self._hides_usage:
            self._keep(raw)
            return raw
        if not self._held and raw.endswith(b"\n\n") and b"[]" not in raw:
            self._keep(raw)  # whole events, as most come, and none that could be the hidden one
            return raw
        # The last event may be incomplete: it is held until its end has come, before which no reader can use it.
        events, passed = self._held + raw, []
        begin = 0
        for end in _END_OF_EVENT.finditer(events):
            event = events[begin : end.end()]
            begin = end.end()
            if not (_NO_CHOICES.search(event) and _USAGE.search(event)):
                passed.append(event)
            self._keep(event)
        self._held = events[begin:]
        return b"".join(passed)

    def rest(self) -> bytes:
        """What was held and has no end: the answer is over, and the reader may have it."""
        held, self._held = self._held, b""
        self._kept.append(held)
        return held

    def _keep(self, raw: bytes) -> None:
        self._size += len(raw)
        if self._size > MOST_KEPT:
            if not self._sse or self._encoded:
                return  # too large to be parsed: it is charged as estimated
            self._read_events(b"".join(self._kept))
            self._kept.clear()
            self._size = len(raw)
        self._kept.append(raw)

    def used(self) -> Usage:
        """What was used as far as the answer was read: as stated, else as counted, else as estimated."""
        content = _plain(b"".join((*self._kept, self._held)), self._encoded)
        self._kept.clear()
        if not self._sse:
            return self._stated or stated_in(content) or self._call.estimate
        self._read_events(content)
        return self._used_by_stream()

    def _used_by_stream(self) -> Usage:
        counted = tokens_in(self._characters)
        stated = self._stated
        if stated is None:
            return self._call.estimate._replace(output=counted)
        if self._finished or stated.output >= counted:
            return stated
        return stated._replace(output=counted, exact=False)  # it broke off: its input was stated, its output was not

    def _read_events(self, content: bytes) -> None:
        """Read the events of a stream: those that state usage, and all of them if it did not end, or states none."""
        self._finished = self._finished or _is_finished(self._call.dialect, content)
        stated = [place.start() for place in _places_of_usage(content)]
        if self._finished and (stated or self._stated is not None):
            for document in _documents_at(content, stated):
                self._state(document)
            return
        for event in _END_OF_EVENT.split(content):
            found = _document_in(event)
            if found is not None:
                self._state(found)
                self._characters += characters_in(found)

    def _state(self, document: dict[str, Any]) -> None:
        said = usage_in(document)
        if said is not None:
            self._stated = _merged(self._stated, said)


def _is_finished(dialect: str, content: bytes) -> bool:
    """Whether a stream says that it has come to its end."""
    if dialect == "gemini":
        return _FINISHED_GEMINI.search(content) is not None
    return b"[DONE]" in content or _FINISHED.search(content) is not None


def _places_of_usage(content: bytes) -> list[re.Match[bytes]]:
    """Where an object of usage begins: not inside of a text, where quotes are escaped."""
    return [place for place in _USAGE.finditer(content) if content[place.start() - 1 : place.start()] != b"\\"]


def _documents_at(content: bytes, places: list[int]) -> Iterator[dict[str, Any]]:
    """The JSON of the events in which these places are."""
    end = 0
    for place in places:
        if place >= end:
            begin = max(content.rfind(b"\n\n", 0, place), content.rfind(b"\r\n\r\n", 0, place))
            found = _END_OF_EVENT.search(content, place)
            end = len(content) if found is None else found.end()
            document = _document_in(content[max(begin, 0) : end])
            if document is not None:
                yield document


def _merged(before: Usage | None, said: Usage) -> Usage:
    """Anthropic states the input at the start and the output at the end; each may leave out what the other said."""
    if before is None:
        return said
    if not said.input:
        said = said._replace(input=before.input, cached=before.cached, cache_writes=before.cache_writes)
    return said if said.output else said._replace(output=before.output, reasoning=before.reasoning)


def _plain(content: bytes, encoded: bool) -> bytes:
    """The bytes without their encoding (gzip or deflate), as far as they go."""
    if not encoded:
        return content
    for window in (47, -15):  # gzip or zlib by its header, else a raw deflate
        try:
            return zlib.decompressobj(window).decompress(content)
        except zlib.error:
            continue
    return b""


def stated_in(content: bytes) -> Usage | None:
    """The usage that a whole answer states. If there is one place that looks like it, the rest is not parsed."""
    places = _places_of_usage(content)
    if not places:
        return None
    if len(places) == 1:
        try:
            # From the place on: nothing before it is decoded, and nothing behind the object.
            said, _ = _DECODER.raw_decode(content[places[0].end() :].decode("utf-8", "replace"))
        except ValueError:
            return None
        return read_usage(said) if isinstance(said, dict) else None
    try:
        document = json.loads(content)
    except ValueError:
        return None
    if isinstance(document, list):  # Gemini streams as one array where events were not asked for
        document = next((part for part in reversed(document) if isinstance(part, dict) and usage_in(part)), None)
    return usage_in(document) if isinstance(document, dict) else None


def _document_in(event: bytes) -> dict[str, Any] | None:
    """The JSON of one event."""
    data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
    try:
        document = json.loads(data)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def characters_in(event: Mapping[str, Any]) -> int:
    """The characters of output that one event of a stream brings."""
    delta = event.get("delta")
    if isinstance(delta, str):  # OpenAI's responses: response.output_text.delta and its kin
        return len(delta)
    if isinstance(delta, Mapping):  # Anthropic: text_delta, thinking_delta, input_json_delta
        return _lengths(delta, ("text", "thinking", "partial_json"))
    counted = 0
    for choice in _list(event, "choices"):
        counted += _lengths(choice, ("text",)) + _of_chat(choice.get("delta"))
    for candidate in _list(event, "candidates"):
        content = candidate.get("content")
        if isinstance(content, Mapping):
            counted += sum(_lengths(part, ("text",)) for part in _list(content, "parts"))
    return counted


def _of_chat(delta: object) -> int:
    if not isinstance(delta, Mapping):
        return 0
    counted = _lengths(delta, ("content", "refusal", "reasoning_content", "reasoning"))
    for tool in _list(delta, "tool_calls"):
        function = tool.get("function")
        if isinstance(function, Mapping):
            counted += _lengths(function, ("name", "arguments"))
    return counted


def _list(found: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    parts = found.get(name)
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _lengths(found: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return sum(len(text) for name in names if isinstance(text := found.get(name), str))
