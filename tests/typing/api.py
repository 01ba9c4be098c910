"""The public API as a type checker sees it: every method once, sync and async. Checked by mypy, never run.

``tests/architecture/test_public_api.py`` runs ``mypy --strict`` over this file, and checks that no public name
and no public method is missing here.
"""
# ruff: noqa: F841  a variable is here for its annotation, not for its use

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, assert_type

from zae_limiter import (
    Access,
    AccessBlocked,
    AccessMode,
    AuditEvent,
    BucketStatus,
    CacheStats,
    Calendar,
    Check,
    ConfigurationError,
    Decided,
    Degraded,
    Entity,
    EntityCapacity,
    EntityChangedError,
    EntityExistsError,
    EntityNotFoundError,
    EntityStatus,
    Event,
    Hold,
    HoldLost,
    HoldsRenewed,
    Lease,
    LeaseExpiredError,
    LeaseInfo,
    LeaseNotFoundError,
    Limit,
    LimitLevel,
    LimitsChangedError,
    LimitsSet,
    LimitStatus,
    MissingExtra,
    NamespaceInfo,
    NamespaceNotFoundError,
    Observer,
    OnError,
    OnUnavailable,
    Page,
    Pulse,
    PulseLevel,
    PulseRow,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Reconciled,
    RefusedBy,
    ReplacedLimit,
    Repository,
    RequestExceedsBurst,
    ResourceCapacity,
    Settled,
    StackOperationError,
    StoreCalled,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
    UsageChain,
    UsageGap,
    UsageProof,
    UsageSnapshot,
    UsageSummary,
    UsageTotal,
    ValidationError,
    VersionError,
    WentLocal,
    WindowType,
    ZAELimiterError,
    __version__,
    limits_version,
    renew_identity,
)

version: str = __version__
version_of_limits: str = limits_version([Limit.per_minute("rpm", 100)])


def clock() -> int:
    return 1_750_000_000_000


def observe(event: Event) -> None:
    if isinstance(event, Decided):
        granted: bool = event.granted
        statuses: tuple[LimitStatus, ...] = event.statuses
        waited: float = event.waited_seconds
        would_refuse: tuple[str, ...] = event.would_refuse
    elif isinstance(event, Settled):
        deltas: Mapping[str, int] = event.deltas
        error: BaseException | None = event.error
    elif isinstance(event, StoreCalled):
        verb: str = event.verb
        duration: float = event.duration_seconds
    elif isinstance(event, HoldsRenewed):
        slots: Mapping[str, int] = event.slots
    elif isinstance(event, HoldLost):
        lost: int = event.slots
        taken_again: bool = event.taken_again
    elif isinstance(event, WentLocal):
        shares: Mapping[str, float] = event.shares
    elif isinstance(event, Reconciled):
        booked: Mapping[str, int] = event.granted
        owed: Mapping[str, int] = event.taken
    else:
        assert_type(event, Degraded)
        cause: BaseException = event.cause

    namespace: str = event.namespace
    timestamp: float = event.timestamp


observer: Observer = observe


def limits() -> list[Limit]:
    limit = Limit("rpm", 100, 100, 60, burst=150)
    name: str = limit.name
    capacity: int = limit.capacity
    refill_amount: int = limit.refill_amount
    refill_period_seconds: int | None = limit.refill_period_seconds
    calendar: Calendar | None = limit.periods
    hold_seconds: int | None = limit.hold_seconds
    enforce: bool = limit.enforce
    burst: int = limit.burst
    described: dict[str, Any] = limit.as_dict()
    return [
        limit,
        Limit.per_second("a", 1),
        Limit.per_minute("b", 1, burst=2),
        Limit.per_hour("c", 1),
        Limit.per_day("d", 1),
        Limit.custom("e", 10, 5, 2, burst=20),
        Limit.per_month("f", 500, tz="Europe/Berlin", start=15, enforce=False),
        Limit.calendar("g", 45, every="5hour", start="2026-01-05T09:00", tz="UTC"),
        Limit.concurrent("h", 20, ttl=600),
    ]


def errors(error: ZAELimiterError) -> None:
    if isinstance(error, RequestExceedsBurst):
        never: None = error.retry_after_seconds
    elif isinstance(error, RateLimitExceeded):
        statuses: tuple[LimitStatus, ...] = error.statuses
        violations: tuple[LimitStatus, ...] = error.violations
        passed: tuple[LimitStatus, ...] = error.passed
        primary: LimitStatus = error.primary_violation
        retry_after: float | None = error.retry_after_seconds
        header: str = error.retry_after_header
        body: dict[str, Any] = error.as_dict()
    elif isinstance(error, AccessBlocked):
        blocking: Access = error.access
        blocked_body: dict[str, Any] = error.as_dict()
    elif isinstance(error, ValidationError):
        field: str = error.field
        value: object = error.value
        reason: str = error.reason
    elif isinstance(error, RateLimiterUnavailable):
        hint: str | None = error.hint
        ambiguous: bool = error.ambiguous
    elif isinstance(error, ConfigurationError):
        advice: str | None = error.hint
    elif isinstance(error, EntityNotFoundError | EntityExistsError):
        entity_id: str = error.entity_id
    elif isinstance(error, EntityChangedError):
        expected: int = error.expected
        found: int = error.found
    elif isinstance(error, LimitsChangedError):
        level: str = error.level
        version: str = error.found
    elif isinstance(error, LeaseNotFoundError):
        lost: str = error.token
    elif isinstance(error, NamespaceNotFoundError):
        namespace: str = error.namespace
        deleted: bool = error.deleted
    else:
        others: tuple[type[ZAELimiterError], ...] = (
            LeaseExpiredError,
            MissingExtra,
            VersionError,
            StackOperationError,
        )
        assert isinstance(error, others)


def reads(
    status: LimitStatus, entity: Entity, buckets: EntityStatus, snapshot: UsageSnapshot, info: NamespaceInfo
) -> None:
    available: int = status.available
    wait: float | None = status.retry_after_seconds
    parent: str | None = entity.parent_id
    metadata: Mapping[str, str] = entity.metadata
    entity_version: int = entity.version
    bucket: BucketStatus = buckets.buckets[0]
    level: LimitLevel = bucket.limits[0]
    total_consumed: int = level.total_consumed
    seconds_to_full: float = level.seconds_to_full
    window_type: WindowType = snapshot.window_type
    window_start: datetime = snapshot.window_start
    counters: Mapping[str, int] = snapshot.counters
    deleted_at: datetime | None = info.deleted_at


async def use_rate_limiter() -> None:
    opened: RateLimiter = await RateLimiter.open("memory://", namespace="default", clock=clock, observer=observer)
    repository: Repository = opened.repository
    async with RateLimiter(repository) as limiter:
        acquired: Lease = limiter.acquire(
            "key-1",
            "gpt-4",
            {"rpm": 1},
            limits=limits(),
            timeout=1.5,
            on_unavailable=OnUnavailable.ALLOW,
            on_error="keep",
            request_id="req-1",
        )
        async with acquired as lease:
            assert_type(lease, Lease)
            consumed: dict[str, int] = lease.consumed
            remaining: dict[str, int] = lease.remaining
            degraded: bool = lease.degraded
            granted_locally: bool = lease.local
            refused_by: tuple[LimitStatus, ...] = lease.refused_by
            statuses: tuple[LimitStatus, ...] = lease.statuses
            holds: tuple[Hold, ...] = lease.holds
            assert_type(await lease.adjust(tpm=20), None)
            assert_type(await lease.settle(tpm=520), None)
            assert_type(await lease.settle({"tpm": 520}), None)
            assert_type(await lease.consume(tpm=1), None)
            assert_type(await lease.release(tpm=1), None)
            assert_type(await lease.flush(), None)
            assert_type(await lease.commit(), None)
            assert_type(await lease.close(refund=True), None)
            assert_type(lease.token, str | None)
            assert_type(await lease.renew(), None)
            lease_id: str | None = lease.id
            already: bool = lease.already_settled
            token: str = await lease.detach(ttl=3_600)
        resumed: Lease = limiter.resume(token)
        info: LeaseInfo = await limiter.get_lease(token)
        assert_type(await limiter.list_leases("key-1", limit=10, cursor=None), Page[LeaseInfo])
        granted: bool = await limiter.grant("key-1", "gpt-4", {"tpm": 5}, key="inv-1", principal="alice")
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="block", on_error=OnError.REFUND):
            pass
        whole: dict[str, int] = await limiter.available("key-1", "gpt-4", limits=limits())
        seconds: float = await limiter.time_until_available("key-1", "gpt-4", {"rpm": 5}, limits=None)
        status: EntityStatus = await limiter.get_status("key-1", "gpt-4")
        filled: int = await limiter.reset("key-1", "gpt-4", limits=["tpm"], key="night", principal="alice")
        assert_type(await limiter.lower("key-1", "gpt-4", {"tpm": 5_000}, principal="alice"), None)
        answers: bool = await limiter.is_available()
        assert_type(await limiter.check(), None)

        @limiter.limit("{model}", {"rpm": 1, "tpm": len}, entity="key-1", settle=lambda answer: {"tpm": 1}, timeout=1)
        async def ask(model: str) -> int:
            return 1

        assert_type(await ask("gpt-4"), int)
        assert_type(await limiter.check("key-1", "gpt-4", {"rpm": 1}, limits=limits()), Check)
        await use_limiter_data(limiter)
    assert_type(await limiter.close(), None)


async def use_limiter_data(limiter: RateLimiter) -> None:
    entity: Entity = await limiter.create_entity(
        "key-1", name="Key", parent_id=None, cascade=True, metadata={"team": "a"}, principal="alice"
    )
    entity = await limiter.get_entity("key-1")
    entity = await limiter.update_entity(
        "key-1", name=None, parent_id="org", cascade=False, metadata=None, principal="alice", expected_version=1
    )
    children: Page[Entity] = await limiter.get_children("org", limit=10, cursor=None)
    entities: Page[Entity] = await limiter.list_entities(limit=10, cursor=children.next_cursor)
    assert_type(await limiter.delete_entity("key-1", principal="alice"), None)
    told: LimitsSet = await limiter.set_limits(
        "key-1", limits(), resource="gpt-4", merge=True, principal="alice", propagate=False
    )
    replaced: tuple[ReplacedLimit, ...] = told.replaced
    own: list[Limit] = await limiter.get_limits("key-1", resource="gpt-4")
    assert_type(await limiter.delete_limits("key-1", resource="gpt-4", principal="alice", propagate=True), None)
    told = await limiter.set_resource_defaults(
        "gpt-4", tuple(limits()), merge=False, principal="alice", propagate=True
    )
    own = await limiter.get_resource_defaults("gpt-4")
    assert_type(await limiter.delete_resource_defaults("gpt-4", principal="alice", propagate=True), None)
    assert_type(
        await limiter.set_system_defaults(iter(limits()), on_unavailable="allow", principal="alice", propagate=True),
        LimitsSet,
    )
    system: tuple[list[Limit], OnUnavailable | None] = await limiter.get_system_defaults()
    assert_type(await limiter.delete_system_defaults(principal="alice", propagate=True), None)
    resources: Page[str] = await limiter.list_resources_with_defaults(limit=10, cursor=None)
    ids: Page[str] = await limiter.list_entities_with_custom_limits("gpt-4", 10, None)
    audit: Page[AuditEvent] = await limiter.get_audit_events(
        "key-1", start_time="2025-06-15", end_time=datetime(2025, 6, 16), limit=10, cursor=None
    )
    usage: Page[UsageSnapshot] = await limiter.get_usage_snapshots(
        "key-1", "gpt-4", WindowType.HOURLY, 0, None, 10, None
    )
    items: Sequence[UsageSnapshot] = usage.items
    summary: UsageSummary = await limiter.get_usage_summary("key-1", "gpt-4", "daily", None, None)
    average: Mapping[str, float] = summary.average
    top: list[UsageTotal] = await limiter.get_top_usage("resource", limit_name="tpm", limit=5)
    proof: UsageProof = await limiter.verify_usage("key-1", "gpt-4")
    chains: tuple[UsageChain, ...] = proof.chains
    gaps: tuple[UsageGap, ...] = chains[0].gaps
    capacity: ResourceCapacity = await limiter.get_resource_capacity("gpt-4", "rpm", limit=10, cursor=None)
    tightest: list[BucketStatus] = await limiter.get_tightest_buckets("gpt-4", limit=10)
    active: list[str] = await limiter.list_active_entities()
    pulse: Pulse = await limiter.get_pulse()
    row: PulseRow = pulse.rows[0]
    level: PulseLevel | None = row.level
    refused: RefusedBy = pulse.refused[0]
    assert_type(await limiter.write_pulse(), None)
    assert_type(await limiter.set_access("block", entity_id="key-1", principal="ann", until=None), None)
    switch: Access = await limiter.get_access(entity_id="key-1", resource="gpt-4")
    mode: AccessMode = switch.mode
    switches: Page[Access] = await limiter.list_access(limit=5, cursor=None)
    deciding: list[Access] = await limiter.resolve_access("key-1", "gpt-4")
    parts: Page[EntityCapacity] = capacity.entities


async def use_repository() -> None:
    opened: Repository = await Repository.open(
        "memory://",
        namespace="default",
        create=True,
        clock=clock,
        observer=observer,
        deadline=1,
        config_cache_ttl=0.5,
    )
    async with opened as repository:
        elsewhere: Repository = repository.in_namespace("tenant-1")
        namespace: str = elsewhere.namespace
        unresolved: int = elsewhere.unresolved
        resolved, on_unavailable, source = await repository.resolve_limits("key-1", "gpt-4")
        found: list[Limit] | None = resolved
        policy: OnUnavailable | None = on_unavailable
        level: str | None = source
        info: NamespaceInfo = await repository.register_namespace("tenant-1", principal="alice")
        info = await repository.get_namespace("tenant-1")
        namespaces: Page[NamespaceInfo] = await repository.list_namespaces(limit=10, cursor=None)
        assert_type(await repository.delete_namespace("tenant-1", principal="alice"), None)
        info = await repository.recover_namespace("tenant-1", principal="alice")
        removed: int = await repository.purge_namespace("tenant-1")
        repository.invalidate_config_cache()
        stats: CacheStats = repository.get_cache_stats()
        answers: bool = await repository.is_available()
        assert_type(await repository.delete_table(), None)
        entity: Entity = await repository.get_entity("key-1")
    assert_type(await repository.close(), None)


def use_sync_rate_limiter() -> None:
    opened: SyncRateLimiter = SyncRateLimiter.open("memory://", namespace="default", clock=clock, observer=observer)
    repository: SyncRepository = opened.repository
    with SyncRateLimiter(repository) as limiter:
        acquired: SyncLease = limiter.acquire(
            "key-1",
            "gpt-4",
            {"rpm": 1},
            limits=limits(),
            timeout=1.5,
            on_unavailable=OnUnavailable.ALLOW,
            on_error="keep",
            request_id="req-1",
        )
        with acquired as lease:
            assert_type(lease, SyncLease)
            consumed: dict[str, int] = lease.consumed
            remaining: dict[str, int] = lease.remaining
            degraded: bool = lease.degraded
            granted_locally: bool = lease.local
            refused_by: tuple[LimitStatus, ...] = lease.refused_by
            statuses: tuple[LimitStatus, ...] = lease.statuses
            holds: tuple[Hold, ...] = lease.holds
            assert_type(lease.adjust(tpm=20), None)
            assert_type(lease.settle(tpm=520), None)
            assert_type(lease.consume(tpm=1), None)
            assert_type(lease.release(tpm=1), None)
            assert_type(lease.flush(), None)
            assert_type(lease.commit(), None)
            assert_type(lease.close(refund=True), None)
            assert_type(lease.token, str | None)
            assert_type(lease.renew(), None)
            lease_id: str | None = lease.id
            already: bool = lease.already_settled
            token: str = lease.detach(ttl=3_600)
        resumed: SyncLease = limiter.resume(token)
        info: LeaseInfo = limiter.get_lease(token)
        assert_type(limiter.list_leases("key-1", limit=10, cursor=None), Page[LeaseInfo])
        granted: bool = limiter.grant("key-1", "gpt-4", {"tpm": 5}, key="inv-1", principal="alice")
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="block", on_error=OnError.REFUND):
            pass
        whole: dict[str, int] = limiter.available("key-1", "gpt-4", limits=limits())
        seconds: float = limiter.time_until_available("key-1", "gpt-4", {"rpm": 5}, limits=None)
        status: EntityStatus = limiter.get_status("key-1", "gpt-4")
        filled: int = limiter.reset("key-1", "gpt-4", limits=["tpm"], key="night", principal="alice")
        assert_type(limiter.lower("key-1", "gpt-4", {"tpm": 5_000}, principal="alice"), None)
        answers: bool = limiter.is_available()
        assert_type(limiter.check(), None)

        @limiter.limit("{model}", {"rpm": 1, "tpm": len}, entity="key-1", settle=lambda answer: {"tpm": 1}, timeout=1)
        def ask(model: str) -> int:
            return 1

        assert_type(ask("gpt-4"), int)
        assert_type(limiter.check("key-1", "gpt-4", {"rpm": 1}, limits=limits()), Check)
        use_sync_limiter_data(limiter)
    assert_type(limiter.close(), None)


def use_sync_limiter_data(limiter: SyncRateLimiter) -> None:
    entity: Entity = limiter.create_entity(
        "key-1", name="Key", parent_id=None, cascade=True, metadata={"team": "a"}, principal="alice"
    )
    entity = limiter.get_entity("key-1")
    entity = limiter.update_entity(
        "key-1", name=None, parent_id="org", cascade=False, metadata=None, principal="alice", expected_version=1
    )
    children: Page[Entity] = limiter.get_children("org", limit=10, cursor=None)
    entities: Page[Entity] = limiter.list_entities(limit=10, cursor=children.next_cursor)
    assert_type(limiter.delete_entity("key-1", principal="alice"), None)
    told: LimitsSet = limiter.set_limits(
        "key-1", limits(), resource="gpt-4", merge=True, principal="alice", propagate=False
    )
    replaced: tuple[ReplacedLimit, ...] = told.replaced
    own: list[Limit] = limiter.get_limits("key-1", resource="gpt-4")
    assert_type(limiter.delete_limits("key-1", resource="gpt-4", principal="alice", propagate=True), None)
    told = limiter.set_resource_defaults("gpt-4", tuple(limits()), merge=False, principal="alice", propagate=True)
    own = limiter.get_resource_defaults("gpt-4")
    assert_type(limiter.delete_resource_defaults("gpt-4", principal="alice", propagate=True), None)
    assert_type(
        limiter.set_system_defaults(iter(limits()), on_unavailable="allow", principal="alice", propagate=True),
        LimitsSet,
    )
    system: tuple[list[Limit], OnUnavailable | None] = limiter.get_system_defaults()
    assert_type(limiter.delete_system_defaults(principal="alice", propagate=True), None)
    resources: Page[str] = limiter.list_resources_with_defaults(limit=10, cursor=None)
    ids: Page[str] = limiter.list_entities_with_custom_limits("gpt-4", 10, None)
    audit: Page[AuditEvent] = limiter.get_audit_events(
        "key-1", start_time="2025-06-15", end_time=datetime(2025, 6, 16), limit=10, cursor=None
    )
    usage: Page[UsageSnapshot] = limiter.get_usage_snapshots("key-1", "gpt-4", WindowType.HOURLY, 0, None, 10, None)
    items: Sequence[UsageSnapshot] = usage.items
    summary: UsageSummary = limiter.get_usage_summary("key-1", "gpt-4", "daily", None, None)
    average: Mapping[str, float] = summary.average
    top: list[UsageTotal] = limiter.get_top_usage("resource", limit_name="tpm", limit=5)
    proof: UsageProof = limiter.verify_usage("key-1", "gpt-4")
    chains: tuple[UsageChain, ...] = proof.chains
    gaps: tuple[UsageGap, ...] = chains[0].gaps
    capacity: ResourceCapacity = limiter.get_resource_capacity("gpt-4", "rpm", limit=10, cursor=None)
    tightest: list[BucketStatus] = limiter.get_tightest_buckets("gpt-4", limit=10)
    active: list[str] = limiter.list_active_entities()
    pulse: Pulse = limiter.get_pulse()
    row: PulseRow = pulse.rows[0]
    level: PulseLevel | None = row.level
    refused: RefusedBy = pulse.refused[0]
    assert_type(limiter.write_pulse(), None)
    assert_type(limiter.set_access("block", entity_id="key-1", principal="ann", until=None), None)
    switch: Access = limiter.get_access(entity_id="key-1", resource="gpt-4")
    mode: AccessMode = switch.mode
    switches: Page[Access] = limiter.list_access(limit=5, cursor=None)
    deciding: list[Access] = limiter.resolve_access("key-1", "gpt-4")
    parts: Page[EntityCapacity] = capacity.entities


def use_sync_repository() -> None:
    opened: SyncRepository = SyncRepository.open(
        "memory://",
        namespace="default",
        create=True,
        clock=clock,
        observer=observer,
        deadline=1,
        config_cache_ttl=0.5,
    )
    with opened as repository:
        elsewhere: SyncRepository = repository.in_namespace("tenant-1")
        namespace: str = elsewhere.namespace
        unresolved: int = elsewhere.unresolved
        resolved, on_unavailable, source = repository.resolve_limits("key-1", "gpt-4")
        found: list[Limit] | None = resolved
        policy: OnUnavailable | None = on_unavailable
        level: str | None = source
        info: NamespaceInfo = repository.register_namespace("tenant-1", principal="alice")
        info = repository.get_namespace("tenant-1")
        namespaces: Page[NamespaceInfo] = repository.list_namespaces(limit=10, cursor=None)
        assert_type(repository.delete_namespace("tenant-1", principal="alice"), None)
        info = repository.recover_namespace("tenant-1", principal="alice")
        removed: int = repository.purge_namespace("tenant-1")
        repository.invalidate_config_cache()
        stats: CacheStats = repository.get_cache_stats()
        answers: bool = repository.is_available()
        assert_type(repository.delete_table(), None)
        entity: Entity = repository.get_entity("key-1")
    assert_type(repository.close(), None)


def copies() -> None:
    assert_type(renew_identity(), None)
