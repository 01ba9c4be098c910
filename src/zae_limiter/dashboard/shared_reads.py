"""Reads that all viewers share: one of them reads, the others get the same answer, for two seconds."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

SECONDS_KEPT = 2.0
MOST_KEPT = 2_000


class SharedReads:
    """What was read lately, by what was asked."""

    def __init__(self, seconds: float = SECONDS_KEPT) -> None:
        self._seconds = seconds
        self._answers: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a question: one that is young enough or under way, else a new one."""
        now = time.monotonic()
        known = self._answers.get(key)
        if known is None or (known[1].done() and now - known[0] > self._seconds):
            known = (now, asyncio.ensure_future(read()))
            self._answers[key] = known
            self._answers.move_to_end(key)
            while len(self._answers) > MOST_KEPT:
                self._answers.popitem(last=False)
        try:
            return await asyncio.shield(known[1])
        except Exception:
            self._answers.pop(key, None)
            raise
