"""A store that counts what it is asked, so that whoever waits can see that work goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter.running.plan import Request
    from zae_limiter.stores.protocol import Store


class SteppingStore:
    """Wraps any store; ``requests`` is how many requests of plans it has answered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests = 0

    def perform(self, request: Request[Any], /) -> Any:
        """Do what a plan asks, and count it."""
        reply = self._store.perform(request)
        self.requests += 1
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
