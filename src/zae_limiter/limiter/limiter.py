"""The limiter for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack, overload

from zae_limiter.lease.hold_keeper import keep_holds_of
from zae_limiter.lease.lease import Lease
from zae_limiter.limiter.limited_functions import CallTerms, Function, limited_for_tasks
from zae_limiter.limiter.limiter_verbs import LimiterVerbs
from zae_limiter.models.choices import OnError, OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import Check
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter.repository.opening import Opening, OpenOptions
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
        keep_holds_of(self._core)

    @classmethod
    def open(
        cls, url: str | None = None, *, namespace: str = DEFAULT_NAMESPACE, **options: Unpack[OpenOptions]
    ) -> Opening[Self]:
        """A limiter on the store that ``url`` names, else ``ZAEL_URL``, else the embedded default.

        Takes the options of ``Repository.open``. Closing the limiter closes the store. Await it, or enter it:
        ``async with RateLimiter.open(url) as limiter``.
        """
        return Opening(cls._opened(Repository.open(url, namespace=namespace, **options)))

    @classmethod
    async def _opened(cls, opening: Opening[Repository]) -> Self:
        limiter = cls(await opening)
        limiter._owns_repository = True
        return limiter

    available = async_method(LimiterVerbs._available)
    time_until_available = async_method(LimiterVerbs._time_until_available)
    get_status = async_method(LimiterVerbs._get_status)
    reset = async_method(LimiterVerbs._reset)
    grant = async_method(LimiterVerbs._grant)
    get_lease = async_method(LimiterVerbs._get_lease)
    list_leases = async_method(LimiterVerbs._list_leases)
    lower = async_method(LimiterVerbs._lower)

    @overload
    async def check(self) -> None: ...

    @overload
    async def check(
        self, entity_id: str, resource: str, consume: Mapping[str, int], *, limits: Iterable[Limit] | None = None
    ) -> Check: ...

    async def check(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        consume: Mapping[str, int] | None = None,
        *,
        limits: Iterable[Limit] | None = None,
    ) -> Check | None:
        """Whether the store is there for this limiter; with arguments, whether an acquire would be granted.

        ``check()`` raises the reason if the store does not answer, or has no such namespace: for start-up and
        readiness. ``check(entity_id, resource, consume)`` looks at all legs and switches, and takes nothing.
        """
        found: Check | None = await self._driver.run(self._check(entity_id, resource, consume, limits))
        return found

    def limit(
        self,
        resource: str | Callable[..., str],
        consume: Mapping[str, int | Callable[..., int]] | Callable[..., Mapping[str, int]] | None = None,
        *,
        entity: str | Callable[..., str],
        settle: Callable[[Any], Mapping[str, int]] | None = None,
        limits: Iterable[Limit] | None = None,
        timeout: float = 0,
        on_unavailable: OnUnavailable | str | None = None,
        on_error: OnError | str = OnError.REFUND,
    ) -> Callable[[Function], Function]:
        """A decorator: every call of the function takes ``consume`` first (one of ``requests`` if nothing is said).

        Entity, resource and amounts are values, ``"{argument}"``, or functions of named arguments. ``settle`` says
        from the result what was really used. A parameter called ``lease`` gets the lease. A ``RateLimiter`` limits
        coroutine functions and async generators, a ``SyncRateLimiter`` functions and generators.
        """
        options = {"limits": limits, "timeout": timeout, "on_unavailable": on_unavailable, "on_error": on_error}

        def decorate(function: Function) -> Function:
            terms = partial(CallTerms, self, resource=resource, consume=consume, entity=entity, options=options)
            limited: Function = limited_for_tasks(terms, function, settle)
            return limited

        return decorate

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
