"""What a usage is to each limit, and what a provider's own headers say about the limits it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from zae_limiter.llm.calls import Dialect
from zae_limiter.llm.usage import Usage

Charges: TypeAlias = Mapping[str, Callable[[Usage], int]]
"""By the name of a limit, how much of it a usage is."""


def requests(usage: Usage) -> int:
    """The requests that were sent."""
    return usage.requests


def total_tokens(usage: Usage) -> int:
    """Input and output."""
    return usage.input + usage.output


def input_tokens(usage: Usage) -> int:
    """Input, whether it was cached or not."""
    return usage.input


def uncached_input_tokens(usage: Usage) -> int:
    """Input without what was read from a cache: what Anthropic counts against its limit of input."""
    return max(usage.input - usage.cached, 0)


def output_tokens(usage: Usage) -> int:
    """Output, with reasoning."""
    return usage.output


OPENAI: Charges = {"rpm": requests, "tpm": total_tokens}
ANTHROPIC: Charges = {"rpm": requests, "itpm": uncached_input_tokens, "otpm": output_tokens}
GEMINI: Charges = OPENAI

CHARGES: Mapping[Dialect, Charges] = {"openai": OPENAI, "anthropic": ANTHROPIC, "gemini": GEMINI}
"""What each provider limits."""

GATE = "gate"
"""The limit that is lowered into debt when a provider refuses: ``Limit.custom("gate", 1, 1000, 1)``.

It gets one token back each millisecond, so a debt of n is a pause of n milliseconds, for every client of the entity.
"""

LONGEST_PAUSE_MS = 60_000
"""No provider pauses a fleet for longer by one answer."""

_REMAINING: Mapping[Dialect, Mapping[str, str]] = {
    "openai": {"rpm": "x-ratelimit-remaining-requests", "tpm": "x-ratelimit-remaining-tokens"},
    "anthropic": {
        "rpm": "anthropic-ratelimit-requests-remaining",
        "tpm": "anthropic-ratelimit-tokens-remaining",
        "itpm": "anthropic-ratelimit-input-tokens-remaining",
        "otpm": "anthropic-ratelimit-output-tokens-remaining",
    },
    "gemini": {},
}
"""By the name of a limit, the header in which a provider says what is left of it."""


def amounts(charges: Charges, usage: Usage) -> dict[str, int]:
    """What a usage is to each limit."""
    return {name: max(charge(usage), 0) for name, charge in charges.items()}


def levels_told(dialect: Dialect, status: int, headers: Mapping[str, str], held: Mapping[str, int]) -> dict[str, int]:
    """What a provider knows better: levels that ours, which are ``held``, must not exceed."""
    told: dict[str, int] = {}
    for name, header in _REMAINING[dialect].items():
        remaining = _number(headers.get(header))
        if remaining is not None and 0 <= remaining < held.get(name, 0):  # Azure says -1 when it says nothing
            told[name] = int(remaining)
    if status == 429 and GATE in held:
        pause = pause_told(headers)
        if pause:
            told[GATE] = -min(pause, LONGEST_PAUSE_MS)
    return told


def pause_told(headers: Mapping[str, str]) -> int:
    """The milliseconds for which a provider does not want to be asked again; 0 if it does not say."""
    for header, unit in (("retry-after-ms", 1), ("retry-after", 1000)):
        wait = _number(headers.get(header))
        if wait is not None:
            return max(math.ceil(wait * unit), 0)
    return 0


def _number(text: str | None) -> float | None:
    """A finite number in a header; dates and nonsense are none."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
