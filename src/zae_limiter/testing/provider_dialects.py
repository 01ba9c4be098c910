"""What a fake provider says in each of the three APIs: answers, streams and errors. No server in here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

PIECE = "word000 "
"""Two tokens of four characters."""

MOST_PIECES = 60

_GEMINI = re.compile(r"/models/([^/:]+):(\w+)")


def conversation(path: str, body: dict[str, Any]) -> Conversation | None:
    """What there is to say to a request; ``None`` to a path that no provider has."""
    path = path.partition("?")[0]
    gemini = _GEMINI.search(path)
    if gemini is not None:
        return GeminiConversation(body, gemini[1], streams=gemini[2].startswith("stream"))
    for end, kind in _KINDS.items():
        if path.endswith(end):
            return kind(body, str(body.get("model")))
    return None


def text_length(value: Any) -> int:
    """The characters of a message: of its content, or of the texts of its parts."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(text_length(value[name]) for name in ("content", "text", "parts") if name in value)
    return sum(map(text_length, value)) if isinstance(value, list) else 0


def tokens_of(*texts: Any) -> int:
    """A token is four characters; one that is begun counts."""
    return -(-sum(map(text_length, texts)) // 4)


def sse(document: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event of a stream."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(document)}\n\n".encode()


class Conversation:
    """One request, and what is said to it, whole."""

    allowed: tuple[str, ...] = ("max_tokens", "max_completion_tokens", "max_output_tokens")

    def __init__(self, body: dict[str, Any], model: str) -> None:
        self.body = body
        self.model = model
        self.input_tokens = self.asked()
        self.pieces = self.answered() * 4 // len(PIECE)
        self.output_tokens = self.pieces * len(PIECE) // 4
        self.text = PIECE * self.pieces

    def asked(self) -> int:
        """The tokens of the request."""
        return tokens_of(self.body.get("messages"))

    def answered(self) -> int:
        """The tokens of the answer: as many as are allowed, 20 unless the request says, and not too many."""
        most = next((self.body[name] for name in self.allowed if self.body.get(name)), 20)
        return int(min(most, MOST_PIECES * len(PIECE) // 4))

    def document(self) -> dict[str, Any]:
        """The whole answer."""
        raise NotImplementedError

    def error(self, status: int) -> dict[str, Any]:
        """An answer that is an error."""
        code = "rate_limit_exceeded" if status == 429 else "error"
        return {"error": {"message": "no", "type": "error", "code": code, "param": None}}


class StreamedConversation(Conversation):
    """One that may also be answered as a stream of pieces, between an opening and a closing."""

    @property
    def streams(self) -> bool:
        """Whether the request asks for a stream."""
        return self.body.get("stream") is True

    def opening(self) -> Iterator[bytes]:
        """The events before the pieces."""
        yield from ()

    def piece(self, number: int) -> bytes:
        """One piece of the text."""
        raise NotImplementedError

    def closing(self) -> Iterator[bytes]:
        """The events after the pieces."""
        yield from ()


class ChatConversation(StreamedConversation):
    """OpenAI's chat completions. Streams state their usage only if they are asked to."""

    def _usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def document(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.text}
        return {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": self._usage(),
        }

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        found = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": self.model, "choices": choices}
        if self._is_asked:
            found["usage"] = usage
        return sse(found)

    @property
    def _is_asked(self) -> bool:
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    def piece(self, number: int) -> bytes:
        return self._chunk([{"index": 0, "delta": {"content": PIECE}, "finish_reason": None}])

    def closing(self) -> Iterator[bytes]:
        yield self._chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
        if self._is_asked:
            yield self._chunk([], self._usage())
        yield b"data: [DONE]\n\n"


class ResponsesConversation(StreamedConversation):
    """OpenAI's responses. Streams state their usage at the end, unasked."""

    def asked(self) -> int:
        return tokens_of(self.body.get("input"), self.body.get("instructions"))

    def document(self) -> dict[str, Any]:
        part = {"type": "output_text", "text": self.text, "annotations": []}
        return {
            "id": "r1",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": self.model,
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "output": [{"type": "message", "id": "m1", "status": "completed", "role": "assistant", "content": [part]}],
            "usage": {
                "input_tokens": self.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": self.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.input_tokens + self.output_tokens,
            },
        }

    def opening(self) -> Iterator[bytes]:
        begun = {**self.document(), "status": "in_progress", "usage": None, "output": []}
        yield _event("response.created", sequence_number=0, response=begun)

    def piece(self, number: int) -> bytes:
        return _event(
            "response.output_text.delta",
            sequence_number=number + 1,
            item_id="m1",
            output_index=0,
            content_index=0,
            delta=PIECE,
            logprobs=[],
        )

    def closing(self) -> Iterator[bytes]:
        yield _event("response.completed", sequence_number=self.pieces + 1, response=self.document())


class EmbeddingsConversation(Conversation):
    """OpenAI's embeddings: no output, and no streams."""

    def asked(self) -> int:
        found = self.body.get("input")
        return sum(tokens_of(text) for text in found) if isinstance(found, list) else tokens_of(found)

    def answered(self) -> int:
        return 0

    def document(self) -> dict[str, Any]:
        found = self.body.get("input")
        count = len(found) if isinstance(found, list) else 1
        data = [{"object": "embedding", "index": index, "embedding": [0.1] * 8} for index in range(count)]
        usage = {"prompt_tokens": self.input_tokens, "total_tokens": self.input_tokens}
        return {"object": "list", "model": self.model, "data": data, "usage": usage}


class MessagesConversation(StreamedConversation):
    """Anthropic's messages. A hundred tokens are read from a cache, and are not billed as input."""

    cached = 100

    def asked(self) -> int:
        return tokens_of(self.body.get("system"), self.body.get("messages"))

    def document(self) -> dict[str, Any]:
        return {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [{"type": "text", "text": self.text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": self.input_tokens,
                "cache_read_input_tokens": self.cached,
                "cache_creation_input_tokens": 0,
                "output_tokens": self.output_tokens,
            },
        }

    def opening(self) -> Iterator[bytes]:
        document = self.document()
        begun = {**document, "content": [], "stop_reason": None, "usage": {**document["usage"], "output_tokens": 1}}
        yield _event("message_start", message=begun)
        yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        yield _event("ping")

    def piece(self, number: int) -> bytes:
        return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": PIECE})

    def closing(self) -> Iterator[bytes]:
        yield _event("content_block_stop", index=0)
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage={"output_tokens": self.output_tokens})
        yield _event("message_stop")

    def error(self, status: int) -> dict[str, Any]:
        kind = "rate_limit_error" if status == 429 else "api_error"
        return {"type": "error", "error": {"type": kind, "message": "no"}}


class GeminiConversation(StreamedConversation):
    """Gemini's generateContent. Every event of a stream states the usage so far, and ends with CRLF.

    Its path says whether it streams, not its body.
    """

    def __init__(self, body: dict[str, Any], model: str, *, streams: bool) -> None:
        super().__init__(body, model)
        self._streams = streams

    @property
    def streams(self) -> bool:
        return self._streams

    def asked(self) -> int:
        return tokens_of(self.body.get("systemInstruction"), self.body.get("contents"))

    def answered(self) -> int:
        config = self.body.get("generationConfig") or {}
        return int(min(config.get("maxOutputTokens") or 20, MOST_PIECES * len(PIECE) // 4))

    def _part(self, text: str, *, pieces: int, is_last: bool) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
        if is_last:
            candidate["finishReason"] = "STOP"
        output = pieces * len(PIECE) // 4
        usage = {
            "promptTokenCount": self.input_tokens,
            "candidatesTokenCount": output,
            "totalTokenCount": self.input_tokens + output,
        }
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": self.model}

    def document(self) -> dict[str, Any]:
        return self._part(self.text, pieces=self.pieces, is_last=True)

    def piece(self, number: int) -> bytes:
        part = self._part(PIECE, pieces=number + 1, is_last=number == self.pieces - 1)
        return sse(part).replace(b"\n\n", b"\r\n\r\n")

    def error(self, status: int) -> dict[str, Any]:
        return {"error": {"code": status, "message": "no", "status": "RESOURCE_EXHAUSTED"}}


def _event(name: str, **fields: Any) -> bytes:
    return sse({"type": name, **fields}, name)


_KINDS: Mapping[str, type[Conversation]] = {
    "/chat/completions": ChatConversation,
    "/responses": ResponsesConversation,
    "/embeddings": EmbeddingsConversation,
    "/v1/messages": MessagesConversation,
}
