"""The limiter for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from zae_limiter.lease.lease import Lease
from zae_limiter.limiter.limiter_verbs import LimiterVerbs
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter.repository.repository import AsyncData, Repository
from zae_limiter.running.sync_async import async_method


class RateLimiter(LimiterVerbs[Lease], AsyncData):
    """Takes tokens from buckets. Open one with :meth:`open`, or give it a repository."""

    def __init__(self, repository: Repository) -> None:
        """A limiter on a repository, which the caller closes."""
        self.repository = repository
        self._core = repository._core
        self._driver = repository._driver
        self._lease_type = Lease
        self._owns_repository = False

    @classmethod
    async def open(cls, url: str | None = None, *, namespace: str = DEFAULT_NAMESPACE, **options: Any) -> Self:
        """A limiter on the store that ``url`` names, else ``ZAEL_URL``, else the embedded default.

        Takes the options of ``Repository.open``. Closing the limiter closes the store.
        """
        limiter = cls(await Repository.open(url, namespace=namespace, **options))
        limiter._owns_repository = True
        return limiter

    available = async_method(LimiterVerbs._available)
    time_until_available = async_method(LimiterVerbs._time_until_available)
    get_status = async_method(LimiterVerbs._get_status)
    reset = async_method(LimiterVerbs._reset)

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
