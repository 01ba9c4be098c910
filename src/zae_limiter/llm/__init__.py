"""What a call of a language model will cost, and what it did cost. Pure: bytes in, numbers out.

:func:`read_call` reads a request, :class:`Meter` the answer to it as it passes, and charges say what a usage is to
each limit. The integrations put them between a client and its provider.
"""

from __future__ import annotations

from zae_limiter.llm.calls import Call, read_call
from zae_limiter.llm.charges import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    Charges,
    input_tokens,
    output_tokens,
    requests,
    total_tokens,
    uncached_input_tokens,
)
from zae_limiter.llm.meter import Meter
from zae_limiter.llm.usage import Usage

__all__ = [
    "ANTHROPIC",
    "GEMINI",
    "OPENAI",
    "Call",
    "Charges",
    "Meter",
    "Usage",
    "input_tokens",
    "output_tokens",
    "read_call",
    "requests",
    "total_tokens",
    "uncached_input_tokens",
]
