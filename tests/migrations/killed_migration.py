"""A migration that is killed by itself: ``python killed_migration.py URL NOW PAGE CALLS``, after so many calls."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from zae_limiter.migrations import DEADLINE_S, migrate_store
from zae_limiter.stores.dynamodb.requests import Call, NoAnswer, Refused, Together
from zae_limiter.stores.open_store import open_store

WRITES = ("TransactWriteItems", "PutItem", "UpdateItem", "DeleteItem")


class Doomed:
    """A store whose process ends right after, or right before, its n-th write."""

    def __init__(self, store: Any, writes: int) -> None:
        self.client = store.client
        self._store = store
        self._left = writes

    def perform(self, request: Any) -> Any:
        return (
            [self._answer(call) for call in request.calls] if isinstance(request, Together) else self._perform(request)
        )

    def _answer(self, call: Call) -> Any:
        try:
            return self._perform(call)
        except (Refused, NoAnswer) as failure:
            return failure

    def _perform(self, request: Any) -> Any:
        writes = isinstance(request, Call) and request.operation in WRITES
        if writes and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = self._store.perform(request)
        self._left -= writes
        return answer


def main(url: str, now: int, page: int, writes: int) -> None:
    store = open_store(url, deadline=DEADLINE_S, config_cache_ttl=0, options={})
    migrate_store(Doomed(store, writes), clock=lambda: now, page=page)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
