"""The Redis store: namespaces on one server, behind sentinels, or in a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.models.proofs import UsageProof
from zae_limiter.models.reports import NamespaceInfo, Page, ResourceCapacity
from zae_limiter.models.status import BucketStatus, EntityStatus
from zae_limiter.naming import NAMESPACE_SUBJECT
from zae_limiter.running.plan import Plan, Request
from zae_limiter.stores.cursors import name_after, page_of
from zae_limiter.stores.embedded.access_verbs import AccessVerbs
from zae_limiter.stores.embedded.config_verbs import ConfigVerbs
from zae_limiter.stores.embedded.lease_verbs import LeaseVerbs
from zae_limiter.stores.embedded.operator_verbs import note_under_key, result_under_key
from zae_limiter.stores.embedded.report_verbs import HistoryVerbs
from zae_limiter.stores.embedded.tables import SharedTables
from zae_limiter.stores.limit_statuses import check_extra, check_liftable, check_not_held, check_own_names, no_limits
from zae_limiter.stores.operator_changes import Credit, Reset
from zae_limiter.stores.protocol import Denial, Draw, FastPath, Look, Outcome, Posting, Scope, Settlement
from zae_limiter.stores.redis.bucket_verbs import CLAIMED_FOR_MS, BucketScripts
from zae_limiter.stores.redis.home import Home
from zae_limiter.stores.redis.keys import REGISTRY
from zae_limiter.stores.redis.pulse_verbs import Pulses
from zae_limiter.stores.redis.registry import Registry
from zae_limiter.stores.redis.replay import Replay
from zae_limiter.stores.redis.report_verbs import BUCKETS_PER_PAGE, Reports
from zae_limiter.stores.redis.requests import Commands
from zae_limiter.stores.redis.script_calls import ScriptCalls
from zae_limiter.stores.redis.tables import RedisTables
from zae_limiter.stores.redis.urls import Servers
from zae_limiter.stores.refusals import not_deleted_yet

Result = TypeVar("Result")

NO_FAST_PATHS: Final[Mapping[tuple[str, str], FastPath]] = {}


class RedisSpace(LeaseVerbs, ConfigVerbs, AccessVerbs, HistoryVerbs):
    """One namespace of the servers."""

    fast_paths = NO_FAST_PATHS
    slot_pauses_ms = (100, 1_000)
    claims_for_ms = CLAIMED_FOR_MS

    def __init__(self, home: Home, corrected: bool, deadline: float) -> None:
        self._home = home
        self._replay = Replay(home, corrected)
        self._buckets = BucketScripts(home, corrected, deadline)
        self._reports = Reports(home, self._replay)
        pulses = Pulses(home)
        self.put_pulse, self.pulses = pulses.put_pulse, pulses.pulses

    @property
    def unresolved(self) -> int:
        return self._buckets.unresolved

    def remembered_on_unavailable(self) -> OnUnavailable | None:
        return self._buckets.policy

    def remembered_access(self, entity_id: str, resource: str, now: int) -> Access | None:
        return self._buckets.remembered_block(entity_id, resource, now)

    # Buckets: by scripts

    def draw(self, draw: Draw, now: int) -> Plan[Outcome]:
        return self._buckets.draw(draw, now)

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        return self._buckets.settle(postings, now, settlement)

    def renew(self, holds: Sequence[Hold], now: int) -> Plan[Sequence[Hold]]:
        return self._buckets.renew(holds, now)

    def count_denial(self, denial: Denial, now: int) -> Plan[None]:
        binding = denial.binding
        if binding is not None:
            yield from self._home.find()
            deny = ("@deny", binding.entity_id, binding.resource, binding.limit_name)
            yield from self._replay.commit([deny], now)

    def write_denials(self) -> Plan[None]:
        yield from ()  # each was written when it was counted

    def look(
        self, entity_id: str, resource: str, wanted: Mapping[str, int], limits: tuple[Limit, ...] | None, now: int
    ) -> Plan[Look]:
        return self._buckets.look(entity_id, resource, wanted, limits, now)

    def status(self, entity_id: str, resource: str | None, now: int) -> Plan[EntityStatus]:
        return self._reports.status(entity_id, resource, now)

    def capacity(
        self, resource: str, limit_name: str, limit: int, cursor: str | None, now: int
    ) -> Plan[ResourceCapacity]:
        return self._reports.capacity(resource, limit_name, limit, cursor, now)

    def tightest_buckets(self, resource: str | None, limit: int, now: int) -> Plan[tuple[BucketStatus, ...]]:
        return self._reports.tightest(resource, limit, now)

    def active_entities(self) -> Plan[tuple[str, ...]]:
        return self._reports.active_entities()

    def verify_usage(self, entity_id: str, resource: str | None, now: int) -> Plan[UsageProof]:
        return self._reports.verify(entity_id, resource, now)

    def reset(self, reset: Reset, now: int) -> Plan[int]:
        def work(tables: RedisTables) -> int:
            if (earlier := result_under_key(tables, reset, now)) is not None:
                return earlier
            buckets = [b for b in tables.buckets_of(reset.entity_id) if reset.resource in (None, b.resource)]
            tables.reset_buckets(reset.entity_id, reset.resource, reset.limits)
            note_under_key(tables, reset, len(buckets), now)
            details = reset.audited(len(buckets))
            tables.add_audit(reset.entity_id, "buckets_reset", reset.resource, reset.principal, details, now)
            return len(buckets)

        return self._replay.transact(work, now)

    def credit(self, credit: Credit, now: int) -> Plan[bool]:
        def work(tables: RedisTables) -> bool:
            if result_under_key(tables, credit, now) is not None:
                return False
            leg = tables.routes.leg(tables, credit.entity_id, credit.resource)
            if leg is None:
                raise no_limits(credit.entity_id, credit.resource)
            check_own_names(leg, credit.amounts)
            check_not_held(leg, credit.amounts, "consume")
            if credit.above:
                check_liftable(leg, credit.amounts)
                bucket = tables.bucket(credit.entity_id, credit.resource)
                check_extra(credit.amounts, () if bucket is None else bucket.balances, now)
                tables.lift_bucket(credit.entity_id, credit.resource, credit.amounts)
            else:
                tables.credit_bucket(credit.entity_id, credit.resource, credit.amounts)
            note_under_key(tables, credit, 1, now)
            tables.add_audit(credit.entity_id, "granted", credit.resource, credit.principal, credit.audited, now)
            return True

        return self._replay.transact(work, now)

    def lower(
        self, entity_id: str, resource: str, levels: Mapping[str, int], principal: str | None, now: int
    ) -> Plan[None]:
        look = yield from self._buckets.look(entity_id, resource, {}, None, now)
        if not look.legs[0].limits:  # another leg has some
            raise no_limits(entity_id, resource)
        check_own_names(look.legs[0], levels, "levels")
        check_not_held(look.legs[0], levels, "levels")
        yield from self._replay.commit([["@lower", entity_id, resource, dict(levels)]], now)
        if principal is not None:
            details = {"levels": dict(levels)}
            yield from self._replay.transact(
                lambda tables: tables.add_audit(entity_id, "bucket_lowered", resource, principal, details, now), now
            )

    def _propagate(self, scope: Scope, now: int) -> Plan[None]:
        """Let the live buckets that a change concerns follow it from the moment it was made, a page at a time."""
        if scope.entity_id is not None:
            yield from self._replay.commit([["@adopt", scope.entity_id]], now)
            return
        tag, prefix = self._home.tag, self._home.prefix
        (found,) = yield from Commands(tag, ("ZRANGE", prefix + "res", 0, -1))
        for resource in [name.decode() for name in found]:
            if scope.resource in (None, resource):
                yield from self._propagate_on(resource, now)

    def _propagate_on(self, resource: str, now: int) -> Plan[None]:
        low = "-"
        while True:
            key = f"{self._home.prefix}on#{resource}"
            page = ("ZRANGEBYLEX", key, low, "+", "LIMIT", 0, BUCKETS_PER_PAGE)
            (names,) = yield from Commands(self._home.tag, page)
            if names:
                yield from self._replay.commit([["@adopt", name.decode(), resource] for name in names], now)
            if len(names) < BUCKETS_PER_PAGE:
                return
            low = f"({names[-1].decode()}"

    # What is configured, and what was audited: by the shared verbs, replayed

    def _write(self, work: Callable[[SharedTables], Result]) -> Plan[Result]:
        return self._replay.transact(work)

    _read = _scan = _write


class RedisStore:
    """Every namespace of these servers."""

    def __init__(self, servers: Servers, *, deadline: float = 2.0) -> None:
        self.identity = ("redis", servers.addresses, servers.db, servers.master)
        self._shown = servers.shown
        self._deadline = deadline
        self._usage_days = servers.usage_days
        self._calls = ScriptCalls(servers, deadline)
        self._registry = Registry()
        self._spaces: dict[tuple[str, bool], RedisSpace] = {}
        self.attempt: Callable[[Request[Any]], Any] = self._calls.attempt  # type: ignore[assignment]
        self.perform: Callable[[Request[Any]], Any] = self._calls.perform  # type: ignore[assignment]
        self.perform_async: Callable[[Request[Any]], Awaitable[Any]] = self._calls.perform_async  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RedisStore({self._shown!r})"

    def space(self, namespace: str, *, corrected: bool = False) -> RedisSpace:
        known = self._spaces.get((namespace, corrected))
        if known is None:
            home = Home(self._registry, namespace, self._usage_days)
            known = self._spaces.setdefault((namespace, corrected), RedisSpace(home, corrected, self._deadline))
        return known

    def close(self) -> None:
        self._calls.close()

    async def aclose(self) -> None:
        await self._calls.aclose()

    def ping(self) -> Plan[None]:
        yield from Commands(REGISTRY, ("PING",))

    def info(self) -> Plan[str]:
        """What the server says about itself."""
        (text,) = yield from Commands(REGISTRY, ("INFO",))
        return str(text, "utf-8", "replace")

    def create(self, now: int) -> Plan[None]:
        yield from self._registry.find("default")

    def destroy(self) -> Plan[None]:
        for record in (yield from self._registry.all()):
            yield from self._registry.remove(record)
        yield from Commands(REGISTRY, ("DEL", REGISTRY))

    # Namespaces

    def register_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        record = yield from self._registry.find(name)
        if record is None:
            record = yield from self._registry.add(name, now)
            yield from self._audit(name, "registered", principal, now)
        if record.deleted_ms is not None:
            raise NamespaceNotFoundError(name, deleted=True)
        return record.info

    def get_namespace(self, name: str) -> Plan[NamespaceInfo]:
        return (yield from self._registry.registered(name)).info

    def list_namespaces(self, limit: int, cursor: str | None) -> Plan[Page[NamespaceInfo]]:
        after = name_after(cursor) or ""
        records = yield from self._registry.all()
        rows = [record.info for record in records if record.name > after][: limit + 1]
        return page_of(rows, limit, lambda info: (info.name,))

    def delete_namespace(self, name: str, principal: str | None, now: int) -> Plan[None]:
        record = yield from self._registry.registered(name)
        if record.deleted_ms is not None:
            raise NamespaceNotFoundError(name, deleted=True)
        yield from self._audit(name, "deleted", principal, now)
        yield from self._registry.change(record, now)

    def recover_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        record = yield from self._registry.registered(name)
        if record.deleted_ms is not None:
            record = yield from self._registry.change(record, None)
            yield from self._audit(name, "recovered", principal, now)
        return record.info

    def purge_namespace(self, name: str) -> Plan[int]:
        record = yield from self._registry.registered(name)
        if record.deleted_ms is None:
            raise not_deleted_yet(name)
        return (yield from self._registry.remove(record))

    def _audit(self, name: str, action: str, principal: str | None, now: int) -> Plan[None]:
        home = Home(self._registry, name)
        yield from Replay(home, corrected=True).transact(
            lambda tables: tables.add_audit(NAMESPACE_SUBJECT, action, None, principal, {}, now)
        )
