"""One call of the API, as tests draw it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Drawn(NamedTuple):
    """A call, and what is special about it (a key of ``engine_differences.DIFFERENCES``, perhaps)."""

    operation: str
    params: dict[str, Any]
    trait: str | None = None


class Part(NamedTuple):
    """One write, as part of a transaction or as a call of its own."""

    kind: str
    params: dict[str, Any]
    trait: str | None = None
