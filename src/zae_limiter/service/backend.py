"""What the service works on: one store, its limiters by namespace, and what observes them."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeAlias

from zae_limiter import (
    NamespaceNotFoundError,
    RateLimiter,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.integrations.tally import Tally
from zae_limiter.naming import DEFAULT_NAMESPACE, check_namespace
from zae_limiter.service.event_stream import EventStream
from zae_limiter.stores.open_store import open_store, without_pulse
from zae_limiter.stores.protocol import Store

DEADLINE_S = 2.0
"""How long one request to the store may take."""

MOST_NAMESPACES = 1_000
"""So many namespaces keep their limiter open; of more, the one that was used longest ago is opened anew."""

AttentionSource: TypeAlias = Callable[[str], Awaitable[Mapping[str, Any]]]
"""What needs an operator's attention in a namespace, as a document."""


class Backend:
    """One store, as the service uses it. Also for other protocols in the same process: :meth:`sync_limiter`."""

    def __init__(
        self, store: Store, namespace: str = DEFAULT_NAMESPACE, *, tally: Tally | None = None, pulse: bool = True
    ) -> None:
        self.namespace = check_namespace(namespace)
        self.tally = tally or Tally()
        self.events = self.observer = EventStream(self.tally)
        self._store = store
        self._repository = Repository(store, namespace=namespace, observer=self.observer, pulse=pulse)
        self._has_pulse = pulse
        self._sync_repositories: list[SyncRepository] = []
        self._limiters: OrderedDict[str, RateLimiter] = OrderedDict({namespace: RateLimiter(self._repository)})
        self.attention: AttentionSource | None = None
        """What knows what needs attention, if this process has it."""
        self.answers: Counter[tuple[str, int]] = Counter()
        """How many requests were answered, by operation and status."""
        self.companion_counts: dict[str, Callable[[], Mapping[str, int]]] = {}
        """What the servers for other protocols count, by protocol: read when the metrics are asked for."""
        self.is_ending = False
        """Whether the process is about to end: load balancers are to send nothing more."""

    @classmethod
    def open(cls, url: str | None, namespace: str = DEFAULT_NAMESPACE) -> Self:
        """The backend on the store that ``url`` names. Opening reads and writes nothing."""
        address, said = without_pulse(url)
        return cls(open_store(address, deadline=DEADLINE_S, options={}), namespace, pulse=said is not False)

    def limiter(self, namespace: str | None = None) -> RateLimiter:
        """The limiter of a namespace, by default of the service's own."""
        name = self.namespace if namespace is None else namespace
        limiter = self._limiters.get(name)
        if limiter is None:
            limiter = RateLimiter(self._repository.in_namespace(check_namespace(name)))
            self._limiters[name] = limiter
            if len(self._limiters) > MOST_NAMESPACES:
                oldest = next(known for known in self._limiters if known not in (self.namespace, name))
                del self._limiters[oldest]
        return limiter

    def sync_repository(self, namespace: str | None = None) -> SyncRepository:
        """A repository for threads, on the same store. The backend closes the store."""
        name = self.namespace if namespace is None else namespace
        return SyncRepository(self._store, namespace=name, observer=self.observer)

    def sync_limiter(self, namespace: str | None = None) -> SyncRateLimiter:
        """A limiter for threads, on the same store. The backend closes the store."""
        name = self.namespace if namespace is None else namespace
        repository = SyncRepository(self._store, namespace=name, observer=self.observer, pulse=self._has_pulse)
        self._sync_repositories.append(repository)
        return SyncRateLimiter(repository)

    async def is_ready(self) -> bool:
        """Whether requests can be answered: the store does, and the process is not about to end."""
        return not self.is_ending and await self._repository.is_available()

    async def check(self) -> None:
        """Raise why the store cannot be used, if it cannot."""
        limiter = self.limiter()
        try:
            await limiter.check()
        except NamespaceNotFoundError as error:
            if error.deleted or self.namespace != DEFAULT_NAMESPACE:
                raise

    async def close(self) -> None:
        """Close the store, and what each limiter has yet to write is written before."""
        self.events.close()
        for name, limiter in self._limiters.items():
            if name != self.namespace:
                await limiter.repository.close()
        for repository in self._sync_repositories:
            await asyncio.to_thread(repository.close)
        await self._repository.close()
