"""The limiter for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack, overload

from zae_limiter.lease.hold_keeper import keep_holds_of
from zae_limiter.lease.sync_lease import SyncLease
from zae_limiter.limiter.limited_functions import CallTerms, Function, limited_for_threads
from zae_limiter.limiter.limiter_verbs import LimiterVerbs
from zae_limiter.models.choices import OnError, OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import Check
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter.repository.opening import OpenOptions
from zae_limiter.repository.sync_repository import SyncData, SyncRepository
from zae_limiter.running.sync_async import sync_method


class SyncRateLimiter(LimiterVerbs[SyncLease], SyncData):
    """Takes tokens from buckets. Open one with :meth:`open`, or give it a repository."""

    def __init__(self, repository: SyncRepository) -> None:
        """A limiter on a repository, which the caller closes."""
        self.repository = repository
        self._core = repository._core
        self._driver = repository._driver
        self._lease_type = SyncLease
        self._owns_repository = False
        keep_holds_of(self._core)

    @classmethod
    def open(
        cls, url: str | None = None, *, namespace: str = DEFAULT_NAMESPACE, **options: Unpack[OpenOptions]
    ) -> Self:
        """A limiter on the store that ``url`` names, else ``ZAEL_URL``, else the embedded default.

        Takes the options of ``SyncRepository.open``. Closing the limiter closes the store.
        """
        limiter = cls(SyncRepository.open(url, namespace=namespace, **options))
        limiter._owns_repository = True
        return limiter

    available = sync_method(LimiterVerbs._available)
    time_until_available = sync_method(LimiterVerbs._time_until_available)
    get_status = sync_method(LimiterVerbs._get_status)
    reset = sync_method(LimiterVerbs._reset)
    grant = sync_method(LimiterVerbs._grant)
    get_lease = sync_method(LimiterVerbs._get_lease)
    list_leases = sync_method(LimiterVerbs._list_leases)
    lower = sync_method(LimiterVerbs._lower)

    @overload
    def check(self) -> None: ...

    @overload
    def check(
        self, entity_id: str, resource: str, consume: Mapping[str, int], *, limits: Iterable[Limit] | None = None
    ) -> Check: ...

    def check(
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
        found: Check | None = self._driver.run(self._check(entity_id, resource, consume, limits))
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
            limited: Function = limited_for_threads(terms, function, settle)
            return limited

        return decorate

    def is_available(self) -> bool:
        """Whether the store answers within its deadline."""
        return self.repository.is_available()

    def close(self) -> None:
        """Close the store, if :meth:`open` opened it. Closing twice is fine."""
        if self._owns_repository:
            self.repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.repository!r}>"
