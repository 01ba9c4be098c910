"""The memory store: the embedded verbs over dicts under one lock, and a fast path for warm grants."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar
from weakref import WeakSet

from zae_limiter.bucket import MILLI, untake
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.moments import at
from zae_limiter.models.reports import NamespaceInfo, Page
from zae_limiter.naming import DEFAULT_NAMESPACE, NAMESPACE_SUBJECT
from zae_limiter.running.plan import Plan, Request
from zae_limiter.stores.cursors import name_after, page_of
from zae_limiter.stores.embedded.access_verbs import AccessVerbs
from zae_limiter.stores.embedded.bucket_verbs import BucketVerbs, may_repeat, with_cascaded
from zae_limiter.stores.embedded.clock_correction import UNCORRECTED, retried_by_the_clock
from zae_limiter.stores.embedded.config_verbs import ConfigVerbs
from zae_limiter.stores.embedded.lease_verbs import LeaseVerbs
from zae_limiter.stores.embedded.operator_verbs import OperatorVerbs
from zae_limiter.stores.embedded.propagation_verbs import PropagationVerbs
from zae_limiter.stores.embedded.report_verbs import PulseVerbs, ReportVerbs
from zae_limiter.stores.embedded.tables import Tables
from zae_limiter.stores.lease_records import void_change
from zae_limiter.stores.memory.fast_path import fast_path
from zae_limiter.stores.memory.ordered_names import OrderedNames
from zae_limiter.stores.memory.tables import MemoryTables
from zae_limiter.stores.protocol import Draw, FastPath, Grant, NotedGrant, Outcome, Posting, Settlement
from zae_limiter.stores.refusals import not_deleted_yet

Result = TypeVar("Result")


LONGEST_WAIT_BEFORE_FORK_S = 5.0
"""How long a fork waits for a thread that uses a store: none takes a thousandth of that."""

_SERIALS = count()
_STORES: WeakSet[MemoryStore] = WeakSet()
_HELD_FOR_FORK: list[MemoryStore] = []


class MemorySpace(
    BucketVerbs, LeaseVerbs, OperatorVerbs, ConfigVerbs, PropagationVerbs, AccessVerbs, ReportVerbs, PulseVerbs
):
    """One namespace in memory."""

    def __init__(self, store: MemoryStore, namespace: str) -> None:
        self._store = store
        self._lock = store._lock
        self._namespace = namespace
        self.fast_paths = store._fast_paths[namespace]
        self._tables = MemoryTables(self.fast_paths)

    def remembered_on_unavailable(self) -> OnUnavailable | None:
        return self._tables.routes.on_unavailable

    def remembered_access(self, entity_id: str, resource: str, now: int) -> Access | None:
        return self._tables.routes.remembered_access(entity_id, resource, now)

    def draw(self, draw: Draw, now: int) -> Plan[Outcome]:
        return retried_by_the_clock(partial(self._draw_once, draw), now)

    def _draw_once(self, draw: Draw, now: int, proven: int | None) -> Plan[Outcome]:
        receipt = NotedGrant()

        def work(tables: Tables) -> Outcome:
            outcome, buckets = self._draw(tables, draw, now, receipt, proven)
            for bucket in buckets:
                bucket.advance(now)
            if isinstance(outcome, Grant) and not outcome.is_repeated:
                left = [balance.left(now) for balance in outcome.balances]
                outcome = outcome._replace(left=left)
                if may_repeat(tables, draw, now):
                    fast = fast_path(self._lock, outcome.legs, buckets)
                    if fast is not None:
                        self._note_path(draw.entity_id, draw.resource, fast)
            self._tables.drop_idle_buckets(now)
            return outcome

        try:
            return (yield from self._write(work))
        except BaseException:
            grant = receipt._grant
            if isinstance(grant, Grant):  # an interrupt on the way out
                with self._lock:
                    if all(leg.is_plain for leg in grant.legs):
                        untake(grant.balances, grant.wanted, now)
                        self._uncascade(grant)
                    else:
                        self._settle(self._tables, grant.give_back(), now, proven=UNCORRECTED)
                    if (change := void_change(grant.record)) is not None:
                        self._tables.lease_slot(change.record.id).record = change.record
            raise

    def _note_path(self, entity_id: str, resource: str, path: FastPath) -> None:
        before = self.fast_paths.get((entity_id, resource))
        if before is not None:
            path.shared_mark = before.shared_mark  # some of its leases may be open
        self.fast_paths[entity_id, resource] = path

    def _uncascade(self, grant: Grant) -> None:
        """Let what was taken back not be counted as taken by several legs either."""
        for leg in grant.legs:
            bucket = self._tables.bucket(leg.entity_id, leg.resource)
            if leg.cascaded and bucket is not None:
                bucket.cascaded = with_cascaded(bucket, leg.cascaded, grant.wanted, -MILLI)

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        def work(now: int, proven: int | None) -> Plan[None]:
            return self._write(lambda tables: settle(tables, now, proven))

        def settle(tables: Tables, now: int, proven: int | None) -> None:
            change = None if settlement is None else settlement.change
            for bucket in self._settle(tables, postings, now, settlement, proven, change):
                bucket.advance(now)

        return retried_by_the_clock(work, now)

    def _read(self, work: Callable[[Tables], Result]) -> Plan[Result]:
        with self._lock:
            self._tables = self._store._tables_of(self._namespace)
            return work(self._tables)
        yield  # makes this a plan

    _scan = _write = _read


class MemoryStore:
    """Every namespace in this process's memory. Gone with the object."""

    def __init__(self) -> None:
        self.identity = ("memory", next(_SERIALS))
        self._lock = threading.RLock()  # never taken twice; it knows its owner, see ``fast_path.py``
        self._names: OrderedNames[str] = OrderedNames()
        self._serial = 0
        self._namespaces: dict[str, tuple[NamespaceInfo, MemoryTables]] = {}
        self._fast_paths: defaultdict[str, dict[tuple[str, str], FastPath]] = defaultdict(dict)
        self._spaces: dict[str, MemorySpace] = {}
        self._register(DEFAULT_NAMESPACE, 0)
        _STORES.add(self)

    def __repr__(self) -> str:
        return "MemoryStore()"

    def space(self, namespace: str, *, corrected: bool = False) -> MemorySpace:
        with self._lock:
            space = self._spaces.get(namespace)
            if space is None:
                space = self._spaces[namespace] = MemorySpace(self, namespace)
            return space

    def attempt(self, request: Request[Any], /) -> Any:
        raise AssertionError(f"the memory store never asks for anything, yet {request!r} was asked")

    perform = attempt

    async def perform_async(self, request: Request[Any], /) -> Any:
        self.attempt(request)

    def create(self, now: int) -> Plan[None]:
        yield from self._at_once(lambda: None)

    def destroy(self) -> Plan[None]:
        def work() -> None:
            for name in list(self._namespaces):
                self._forget(name)
            self._register(DEFAULT_NAMESPACE, 0)

        return self._at_once(work)

    def ping(self) -> Plan[None]:
        yield from self._at_once(lambda: None)

    def close(self) -> None:
        """Nothing to let go of."""

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def register_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        def work() -> NamespaceInfo:
            if name not in self._namespaces:
                self._register(name, now)
                self._namespaces[name][1].add_audit(NAMESPACE_SUBJECT, "registered", None, principal, {}, now)
            return self._live(name)[0]

        return self._at_once(work)

    def get_namespace(self, name: str) -> Plan[NamespaceInfo]:
        return self._at_once(lambda: self._registered(name)[0])

    def list_namespaces(self, limit: int, cursor: str | None) -> Plan[Page[NamespaceInfo]]:
        def work() -> Page[NamespaceInfo]:
            names = self._names.after(name_after(cursor), limit + 1)
            return page_of([self._namespaces[name][0] for name in names], limit, lambda info: (info.name,))

        return self._at_once(work)

    def delete_namespace(self, name: str, principal: str | None, now: int) -> Plan[None]:
        def work() -> None:
            info, tables = self._live(name)
            self._namespaces[name] = (replace(info, deleted_at=at(now)), tables)
            tables.add_audit(NAMESPACE_SUBJECT, "deleted", None, principal, {}, now)
            self._fast_paths[name].clear()

        return self._at_once(work)

    def recover_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        def work() -> NamespaceInfo:
            info, tables = self._registered(name)
            if info.deleted_at is not None:
                self._namespaces[name] = (replace(info, deleted_at=None), tables)
                tables.add_audit(NAMESPACE_SUBJECT, "recovered", None, principal, {}, now)
            return self._namespaces[name][0]

        return self._at_once(work)

    def purge_namespace(self, name: str) -> Plan[int]:
        def work() -> int:
            info, tables = self._registered(name)
            if info.deleted_at is None:
                raise not_deleted_yet(name)
            self._forget(name)
            return len(tables)

        return self._at_once(work)

    def _tables_of(self, name: str) -> MemoryTables:
        return self._live(name)[1]

    def _live(self, name: str) -> tuple[NamespaceInfo, MemoryTables]:
        info, tables = self._registered(name)
        if info.deleted_at is not None:
            raise NamespaceNotFoundError(name, deleted=True)
        return info, tables

    def _registered(self, name: str) -> tuple[NamespaceInfo, MemoryTables]:
        try:
            return self._namespaces[name]
        except KeyError:
            raise NamespaceNotFoundError(name) from None

    def _register(self, name: str, now: int) -> None:
        self._serial += 1
        self._namespaces[name] = (
            NamespaceInfo(name, f"ns{self._serial}", at(now)),
            MemoryTables(self._fast_paths[name]),
        )
        self._names.add(name)

    def _forget(self, name: str) -> None:
        del self._namespaces[name]
        self._names.discard(name)
        self._fast_paths[name].clear()

    def _at_once(self, work: Callable[[], Result]) -> Plan[Result]:
        with self._lock:
            return work()
        yield  # makes this a plan


def _before_fork() -> None:
    """Let no other thread be in the middle of something: in the child no thread would release the lock."""
    for store in sorted(_STORES, key=id):
        if store._lock.acquire(timeout=LONGEST_WAIT_BEFORE_FORK_S):
            _HELD_FOR_FORK.append(store)


def _after_fork() -> None:
    while _HELD_FOR_FORK:
        _HELD_FOR_FORK.pop()._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
