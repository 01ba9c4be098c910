"""The tokens of one call, and how each provider states them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

CHARS_PER_TOKEN = 4
"""How many characters of text are counted as a token where no provider has said better."""


class Usage(NamedTuple):
    """Tokens of one call.

    ``input`` includes what was read from a cache (``cached``) and written to one (``cache_writes``), ``output``
    includes ``reasoning``. ``exact``: the provider said so; otherwise it was counted.
    """

    input: int = 0
    cached: int = 0
    cache_writes: int = 0
    output: int = 0
    reasoning: int = 0
    requests: int = 1
    exact: bool = False

    @property
    def total(self) -> int:
        """Input and output."""
        return self.input + self.output


def tokens_in(characters: int) -> int:
    """How many tokens so many characters are, roughly."""
    return -(-characters // CHARS_PER_TOKEN)


def usage_in(document: Mapping[str, Any]) -> Usage | None:
    """The usage that an answer, or one event of a stream, states; ``None`` if it states none."""
    said = document.get("usage") or document.get("usageMetadata")
    if said is None:
        inner = document.get("response") or document.get("message")  # OpenAI's responses, Anthropic's message_start
        said = inner.get("usage") if isinstance(inner, Mapping) else None
    return read_usage(said) if isinstance(said, Mapping) else None


def read_usage(said: Mapping[str, Any]) -> Usage | None:
    """What a provider's own object of usage says; ``None`` if it is none of those that are known."""
    if "promptTokenCount" in said or "totalTokenCount" in said:
        return _of_gemini(said)
    if "prompt_tokens" in said:
        return _of_completions(said)
    if "input_tokens" in said or "output_tokens" in said:
        return _of_messages_or_responses(said)
    return None


def _of_gemini(said: Mapping[str, Any]) -> Usage:
    thoughts = _count(said, "thoughtsTokenCount")
    return Usage(
        input=_count(said, "promptTokenCount") + _count(said, "toolUsePromptTokenCount"),
        cached=_count(said, "cachedContentTokenCount"),
        output=_count(said, "candidatesTokenCount") + thoughts,
        reasoning=thoughts,
        exact=True,
    )


def _of_completions(said: Mapping[str, Any]) -> Usage:
    """OpenAI's chat, completions and embeddings: cached tokens are among those of the prompt."""
    return Usage(
        input=_count(said, "prompt_tokens"),
        cached=_count(_part(said, "prompt_tokens_details"), "cached_tokens"),
        output=_count(said, "completion_tokens"),
        reasoning=_count(_part(said, "completion_tokens_details"), "reasoning_tokens"),
        exact=True,
    )


def _of_messages_or_responses(said: Mapping[str, Any]) -> Usage:
    """Anthropic states fresh, read and written input apart from each other; OpenAI's responses state it together."""
    reads, writes = _count(said, "cache_read_input_tokens"), _count(said, "cache_creation_input_tokens")
    return Usage(
        input=_count(said, "input_tokens") + reads + writes,
        cached=reads or _count(_part(said, "input_tokens_details"), "cached_tokens"),
        cache_writes=writes,
        output=_count(said, "output_tokens"),
        reasoning=_count(_part(said, "output_tokens_details"), "reasoning_tokens"),
        exact=True,
    )


def _part(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = said.get(name)
    return part if isinstance(part, Mapping) else {}


def _count(said: Mapping[str, Any], name: str) -> int:
    """A count of tokens. What is no count is taken for none."""
    value = said.get(name)
    return value if type(value) is int and value > 0 else 0
