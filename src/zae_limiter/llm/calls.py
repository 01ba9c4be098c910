"""Which requests are calls of a model, which model they name, and what they may cost.

The estimate is what a caller reserves until the answer says better: the text of the request, four characters to a
token, and the output it allows. Images and other data are not counted; give an ``estimate=`` that does.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NamedTuple, TypeAlias

from zae_limiter.llm.usage import Usage, tokens_in

Dialect: TypeAlias = Literal["openai", "anthropic", "gemini"]

DEFAULT_OUTPUT = 1024
"""Tokens of output that are reserved at most, unless a client is told otherwise."""

_OPENAI_PATH = re.compile(r"(?:/deployments/([^/]+))?/(chat/completions|completions|responses|embeddings)$")
_GEMINI_PATH = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent|embedContent|batchEmbedContents)$")

_NO_TEXT = frozenset({"type", "role", "id", "cache_control", "data", "media_type", "mimeType", "model"})
"""Fields whose values are no text that a model reads, or data that is not counted in characters."""


class Call(NamedTuple):
    """One request to a model. ``body`` is the request as JSON; ``kind`` is the end of its path."""

    dialect: Dialect
    kind: str
    model: str
    estimate: Usage
    streams: bool
    body: dict[str, Any]


class _Read(NamedTuple):
    """What is read of a body: where its text is, how much output it allows, and whether it makes any."""

    dialect: Dialect
    kind: str
    model: str
    streams: bool
    texts: tuple[str, ...]
    allowed: Any
    writes: bool = True


def read_call(path: str, content: bytes, default_output: int = DEFAULT_OUTPUT) -> Call | None:
    """The call that a request is; ``None`` if it is none (a list of models, a file, a health check)."""
    openai, gemini = _OPENAI_PATH.search(path), _GEMINI_PATH.search(path)
    if openai is None and gemini is None and not path.endswith("/v1/messages"):
        return None
    try:
        body = json.loads(content or b"{}")
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    if gemini is not None:
        read = _of_gemini(body, gemini[1], gemini[2])
    elif openai is not None:
        read = _of_openai(body, openai[1], openai[2])
    else:
        read = _of_anthropic(body)
    written = _output(read, default_output)
    asked = tokens_in(sum(characters(body.get(name)) for name in read.texts))
    return Call(read.dialect, read.kind, read.model, Usage(input=asked, output=written), read.streams, body)


def characters(value: Any) -> int:
    """The characters of text in a part of a request, however deep."""
    if isinstance(value, str):
        return 0 if value.startswith("data:") else len(value)
    if isinstance(value, dict):
        return sum(characters(part) for name, part in value.items() if name not in _NO_TEXT)
    if isinstance(value, list):
        return sum(map(characters, value))
    return 0


def _of_openai(body: dict[str, Any], deployment: str | None, kind: str) -> _Read:
    allowed = body.get("max_completion_tokens") or body.get("max_output_tokens") or body.get("max_tokens")
    choices = body.get("n")
    if type(allowed) is int and type(choices) is int and choices > 1:
        allowed *= choices
    texts = ("messages", "input", "prompt", "instructions", "tools")
    model = str(body.get("model") or deployment or "")
    return _Read("openai", kind, model, body.get("stream") is True, texts, allowed, writes=kind != "embeddings")


def _of_anthropic(body: dict[str, Any]) -> _Read:
    texts = ("system", "messages", "tools")
    model = str(body.get("model") or "")
    return _Read("anthropic", "messages", model, body.get("stream") is True, texts, body.get("max_tokens"))


def _of_gemini(body: dict[str, Any], model: str, verb: str) -> _Read:
    config = body.get("generationConfig")
    allowed = config.get("maxOutputTokens") if isinstance(config, dict) else None
    texts = ("contents", "content", "requests", "systemInstruction", "tools")
    return _Read("gemini", verb, model, verb.startswith("stream"), texts, allowed, writes="mbed" not in verb)


def _output(read: _Read, default_output: int) -> int:
    """The tokens of output that are reserved."""
    if not read.writes:
        return 0
    allowed = read.allowed
    return min(allowed, default_output) if type(allowed) is int and allowed > 0 else default_output
