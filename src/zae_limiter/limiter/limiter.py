"""The limiter for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from zae_limiter.lease.base import DEFAULT_OPTIONS, lease_options
from zae_limiter.lease.lease import Lease
from zae_limiter.limiter.verbs import LimiterVerbs
from zae_limiter.models.choices import OnError, OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter.repository.repository import AsyncData, Repository
from zae_limiter.running.twins import awaited

new_object = object.__new__


class RateLimiter(LimiterVerbs, AsyncData):
    """Takes tokens from buckets. Open one with :meth:`open`, or give it a repository."""

    def __init__(self, repository: Repository) -> None:
        """A limiter on a repository, which the caller closes."""
        self.repository = repository
        self._core = repository._core
        self._driver = repository._driver
        self._owns_repository = False

    @classmethod
    async def open(cls, url: str | None = None, *, namespace: str = DEFAULT_NAMESPACE, **options: Any) -> Self:
        """A limiter on the store that ``url`` names, else ``ZAEL_URL``, else the embedded default.

        Takes the options of ``Repository.open``. Closing the limiter closes the store.
        """
        limiter = cls(await Repository.open(url, namespace=namespace, **options))
        limiter._owns_repository = True
        return limiter

    def acquire(
        self,
        entity_id: str,
        resource: str,
        consume: Mapping[str, int],
        *,
        limits: Iterable[Limit] | None = None,
        timeout: float = 0,
        on_unavailable: OnUnavailable | str | None = None,
        on_error: OnError | str = OnError.REFUND,
    ) -> Lease:
        """Take ``consume`` from the entity and every ancestor it cascades to, all or nothing.

        Use it as a context manager; the tokens are taken on entry::

            async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
                answer = await call_llm()
                await lease.adjust(tpm=answer.total_tokens - 500)

        ``limits`` override the stored limits of this entity. ``timeout`` is how many seconds to wait in line.
        ``on_unavailable`` is ``"block"`` or ``"allow"``. If the body raises, what was taken and not settled
        is given back, unless ``on_error="keep"``.

        Entering raises ``RateLimitExceeded`` (``RequestExceedsBurst`` if it can never fit),
        ``RateLimiterUnavailable`` and ``ValidationError``; in every case nothing is taken.
        """
        options = DEFAULT_OPTIONS
        if limits is not None or timeout or on_unavailable is not None or on_error is not OnError.REFUND:
            options = lease_options(limits, timeout, on_unavailable, on_error)
        lease: Lease = new_object(Lease)  # as Lease(…) would, without the price of a call
        lease._core = self._core
        lease._driver = self._driver
        lease._entity_id = entity_id
        lease._resource = resource
        lease._consume = consume
        lease._options = options
        lease._grant = None
        lease._ledger = None
        lease._open = False
        return lease

    available = awaited(LimiterVerbs._available)
    time_until_available = awaited(LimiterVerbs._time_until_available)
    get_status = awaited(LimiterVerbs._get_status)
    reset = awaited(LimiterVerbs._reset)

    async def is_available(self) -> bool:
        """Whether the store answers within its deadline."""
        return await self.repository.is_available()

    async def close(self) -> None:
        """Close the store, if :meth:`open` opened it. Closing twice is fine."""
        if self._owns_repository:
            await self.repository.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.repository!r}>"
