"""The data facade for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.events import Observer
from zae_limiter.models.limit import Limit
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter.repository.access_verbs import AccessVerbs
from zae_limiter.repository.core import DEFAULT_DEADLINE, Core, check_clock
from zae_limiter.repository.data_verbs import DataVerbs
from zae_limiter.repository.opening import Opening, StoreOptions
from zae_limiter.repository.pulse_verbs import PulseVerbs
from zae_limiter.repository.pulse_writer import PulseWriter
from zae_limiter.repository.repository_verbs import RepositoryVerbs
from zae_limiter.running.async_driver import AsyncDriver
from zae_limiter.running.clocks import Clock
from zae_limiter.running.sync_async import async_method
from zae_limiter.stores.open_store import DEFAULT_CONFIG_CACHE_TTL
from zae_limiter.stores.protocol import Store


class AsyncData(DataVerbs, AccessVerbs, PulseVerbs):
    """The data methods, awaited."""

    __slots__ = ()

    create_entity = async_method(DataVerbs._create_entity)
    get_entity = async_method(DataVerbs._get_entity)
    update_entity = async_method(DataVerbs._update_entity)
    delete_entity = async_method(DataVerbs._delete_entity)
    get_children = async_method(DataVerbs._get_children)
    list_entities = async_method(DataVerbs._list_entities)
    set_limits = async_method(DataVerbs._set_limits)
    get_limits = async_method(DataVerbs._get_limits)
    delete_limits = async_method(DataVerbs._delete_limits)
    set_resource_defaults = async_method(DataVerbs._set_resource_defaults)
    get_resource_defaults = async_method(DataVerbs._get_resource_defaults)
    delete_resource_defaults = async_method(DataVerbs._delete_resource_defaults)
    set_system_defaults = async_method(DataVerbs._set_system_defaults)
    get_system_defaults = async_method(DataVerbs._get_system_defaults)
    delete_system_defaults = async_method(DataVerbs._delete_system_defaults)
    list_resources_with_defaults = async_method(DataVerbs._list_resources_with_defaults)
    list_entities_with_custom_limits = async_method(DataVerbs._list_entities_with_custom_limits)
    get_audit_events = async_method(DataVerbs._get_audit_events)
    get_usage_snapshots = async_method(DataVerbs._get_usage_snapshots)
    get_usage_summary = async_method(DataVerbs._get_usage_summary)
    verify_usage = async_method(DataVerbs._verify_usage)
    get_resource_capacity = async_method(DataVerbs._get_resource_capacity)
    get_top_usage = async_method(DataVerbs._get_top_usage)
    get_tightest_buckets = async_method(DataVerbs._get_tightest_buckets)
    list_active_entities = async_method(DataVerbs._list_active_entities)
    get_pulse = async_method(PulseVerbs._get_pulse)
    write_pulse = async_method(PulseVerbs._write_pulse)
    set_access = async_method(AccessVerbs._set_access)
    get_access = async_method(AccessVerbs._get_access)
    list_access = async_method(AccessVerbs._list_access)
    resolve_access = async_method(AccessVerbs._resolve_access)


class Repository(RepositoryVerbs, AsyncData):
    """Entities, limits, namespaces and reports of one store. Open one with :meth:`open`."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        clock: Clock | None = None,
        observer: Observer | None = None,
        limits: Iterable[Limit] | None = None,
        pulse: bool = False,
        on_unavailable: OnUnavailable | str | None = None,
        local_share: float | None = None,
    ) -> None:
        """A repository on a store object; ``await Repository.open(url)`` is the usual way."""
        writer = PulseWriter(store, check_clock(clock)) if pulse else None
        core = Core(
            store,
            namespace=namespace,
            clock=clock,
            observer=observer,
            limits=limits,
            pulse_writer=writer,
            on_unavailable=on_unavailable,
            local_share=local_share,
        )
        self._bind(core)

    def _bind(self, core: Core) -> Self:
        self._core = core
        self._driver = AsyncDriver(core.clock, core.store.perform_async, core.store.attempt)
        return self

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        create: bool = False,
        clock: Clock | None = None,
        observer: Observer | None = None,
        deadline: float = DEFAULT_DEADLINE,
        config_cache_ttl: float = DEFAULT_CONFIG_CACHE_TTL,
        limits: Iterable[Limit] | None = None,
        keep_holds: bool = True,
        pulse: bool | None = None,
        on_unavailable: OnUnavailable | str | None = None,
        local_share: float | None = None,
        **options: Unpack[StoreOptions],
    ) -> Opening[Self]:
        """A repository on the store that ``url`` names, else ``ZAEL_URL``, else the embedded default.

        Opening reads and writes nothing; ``create=True`` makes what the store needs first.

        ``clock`` returns milliseconds since the epoch; ``observer`` is called with one event per decision,
        settlement, store call and degradation; ``deadline`` is how many seconds one call may spend on the
        store; ``config_cache_ttl`` how many seconds resolved limits may be remembered. With ``keep_holds=False``
        calls in flight that last long are not renewed by themselves: for a process that does not run in between.
        ``limits`` hold for an entity and resource for which no level has any, in this process; they are not stored.
        With ``pulse=True`` (or ``?pulse=on`` in the URL) the process tells every ten seconds who is refused, near a
        limit and in debt, for ``get_pulse`` and the dashboard.

        ``on_unavailable`` says what acquires do while the store is away, if neither the call says it nor, without it,
        the stored policy: ``"block"`` (raise), ``"allow"`` (let through, uncounted), or ``"local"``: grant from this
        process's share of what it last knew, and book that on return. ``local_share`` is that share of every limit,
        above 0 and up to 1; unless given it is measured.

        Await it, or enter it: ``async with Repository.open(url) as repository``.
        """
        core = Core.open(
            url,
            namespace=namespace,
            clock=clock,
            observer=observer,
            deadline=deadline,
            config_cache_ttl=config_cache_ttl,
            limits=limits,
            keep_holds=keep_holds,
            pulse=pulse,
            on_unavailable=on_unavailable,
            local_share=local_share,
            options=options,
        )
        return Opening(cls._opened(core, create))

    @classmethod
    async def _opened(cls, core: Core, create: bool) -> Self:
        repository = cls.__new__(cls)._bind(core)
        if create:
            await repository._driver.run(repository._create())
        return repository

    def in_namespace(self, namespace: str) -> Repository:
        """Another namespace of the same store. Closing either closes the store."""
        return Repository.__new__(Repository)._bind(self._core.in_namespace(namespace))

    resolve_limits = async_method(RepositoryVerbs._resolve_limits)
    register_namespace = async_method(RepositoryVerbs._register_namespace)
    get_namespace = async_method(RepositoryVerbs._get_namespace)
    list_namespaces = async_method(RepositoryVerbs._list_namespaces)
    delete_namespace = async_method(RepositoryVerbs._delete_namespace)
    recover_namespace = async_method(RepositoryVerbs._recover_namespace)
    purge_namespace = async_method(RepositoryVerbs._purge_namespace)
    delete_table = async_method(RepositoryVerbs._delete_table)
    is_available = async_method(RepositoryVerbs._is_available)

    async def close(self) -> None:
        """Write denials that are not counted yet, and let go of files and connections. Closing twice is fine."""
        if self._core.has_threads:
            await asyncio.to_thread(self._core.stop_threads)
        await self._driver.run(self._finish())
        await self._core.store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
