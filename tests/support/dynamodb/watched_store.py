"""A DynamoDB store that counts its calls, and can be told to hold a write back until the test lets it go."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from zae_limiter.running.plan import NOT_YET, Request
from zae_limiter.stores.dynamodb.requests import Call, Together
from zae_limiter.stores.dynamodb.store import DynamoStore

PATIENCE_S = 20.0


class Watched(DynamoStore):
    """Counts calls. While ``holding`` is set, the next write stays in flight until it is let go."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: Counter[str] = Counter()
        self.held = threading.Event()
        self._hold = False
        self._let_go = threading.Event()

    def hold_next_write(self) -> None:
        self.held.clear()
        self._let_go.clear()
        self._hold = True

    def let_go(self) -> None:
        self._let_go.set()

    def attempt(self, request: Request[Any], /) -> Any:
        """No call is begun at once, so that every one comes by below."""
        return NOT_YET if isinstance(request, Call) else super().attempt(request)

    def perform(self, request: Request[Any], /) -> Any:
        if self._sees(request):
            assert self._let_go.wait(PATIENCE_S), "a write was held for ever"
        return super().perform(request)

    async def perform_async(self, request: Request[Any], /) -> Any:
        if self._sees(request):
            while not self._let_go.is_set():
                await asyncio.sleep(0.001)
        return await super().perform_async(request)

    def _sees(self, request: Request[Any]) -> bool:
        """Whether it is to be held."""
        calls: Iterable[Call] = request.calls if isinstance(request, Together) else (request,)  # type: ignore[assignment]
        for call in calls:
            if isinstance(call, Call) and not (
                isinstance(request, Call) and threading.current_thread().name[:3] == "zae"
            ):
                self.calls[call.operation] += 1
        writes = any(isinstance(call, Call) and call.operation == "UpdateItem" for call in calls)
        if not (writes and self._hold):
            return False
        self._hold = False
        self.held.set()
        return True

    def waiting_in_queue(self) -> int:
        """How many wait in the write queues of the default namespace."""
        queues = self.space("default", corrected=True).batching.queues
        return sum(len(queue) for queue in list(queues._queues.values()))


def until(condition: Callable[[], bool]) -> None:
    """Wait until it is so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.001)


async def until_async(condition: Callable[[], bool]) -> None:
    """Likewise, in a loop."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        await asyncio.sleep(0.001)
