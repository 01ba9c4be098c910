"""Marks that tell one write, one bucket's life, one client from another. Unique without asking anybody."""

from __future__ import annotations

import os
import secrets
from functools import lru_cache
from itertools import count
from weakref import WeakSet

_ALL: WeakSet[Marks] = WeakSet()

BROUGHT_BACK = "!"
"""Ends the mark of a write that brought a bucket back from the future: what older marks say of the time is void."""


class Marks:
    """One client's source of marks: a name of its own, and a count."""

    __slots__ = ("__weakref__", "_client", "_count")

    def __init__(self, client: str | None = None) -> None:
        self._begin(client or secrets.token_hex(5))
        _ALL.add(self)

    def _begin(self, client: str) -> None:
        self._client = client
        self._count = count(1)

    def nonce(self, now: int) -> str:
        """Of one write. It begins with the write's ``now``, by which other clients tell how late it is."""
        return f"{now:x}.{self._client}{next(self._count):x}"

    def incarnation(self) -> str:
        """Of one life of a bucket."""
        return f"{self._client}{next(self._count):x}"

    token = incarnation
    """Of one transaction."""

    def number(self) -> int:
        """To tell audit events of one millisecond apart, in their order."""
        return next(self._count) << 40 | int(self._client, 16) & 0xFF_FFFF_FFFF


@lru_cache(1024)
def nonce_time(nonce: str) -> int:
    """The ``now`` a write was computed for."""
    head = nonce.partition(".")[0]
    try:
        return int(head, 16)
    except ValueError:
        return 0


def _after_fork_in_child() -> None:
    """A child must not repeat its parent's marks."""
    for marks in list(_ALL):
        marks._begin(secrets.token_hex(5))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
