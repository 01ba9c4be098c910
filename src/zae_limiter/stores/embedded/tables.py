"""What the verbs need of a namespace's data: look up, put, drop, list in key order.

Lists take the key to continue after (``None`` from the start) and a number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from zae_limiter.bucket import Bucket
from zae_limiter.models.access import Access
from zae_limiter.models.entity import Entity
from zae_limiter.models.reports import AuditEvent
from zae_limiter.running.plan import Plan
from zae_limiter.stores.embedded.routes import LevelLimits, Routes
from zae_limiter.stores.lease_records import LeaseRecord
from zae_limiter.stores.protocol import Config, Scope
from zae_limiter.stores.windows import DAY_MS, DAYS_KEPT, Counters

USAGE_RETENTION_MS = DAYS_KEPT * DAY_MS
AUDIT_RETENTION_MS = DAYS_KEPT * DAY_MS

BUCKET_MARGIN_MS = 60_000
"""How long a bucket that is full again is kept: being gone and being full are the same to a caller."""


class UsageRow(NamedTuple):
    """One hour of one bucket: its counters at the start and at the end. No end yet: the bucket has it."""

    entity_id: str
    resource: str
    hour: int
    start: Counters
    end: Counters | None


def begin_hour(bucket: Bucket, start: Counters) -> Counters:
    """The counters a new hour begins with, of those before it: limits that ended by then are counted no longer."""
    ended, bucket.carried = bucket.carried, {}
    if not ended:
        return start
    for name in ended:
        bucket.cascaded.pop(name, None)
        bucket.denials.pop(name, None)
    return start.without(ended)


class LeaseSlot:
    """Where the record of one lease stands, if there is one."""

    __slots__ = ("record",)

    def __init__(self, record: LeaseRecord | None = None) -> None:
        self.record = record


class SharedTables(Protocol):
    """One namespace's data, inside one transaction, but for writes to buckets: what Redis has of it too, where scripts
    do those."""

    routes: Routes
    """What was resolved from these tables; kept between transactions, and checked by the epoch."""

    def epoch(self) -> int:
        """Grows whenever an entity or a limit changes: what was resolved under another epoch is stale."""

    def advance_epoch(self) -> None:
        """Say that an entity or a limit changed."""

    def entity(self, entity_id: str) -> Entity | None: ...
    def put_entity(self, entity: Entity) -> None: ...
    def drop_entity(self, entity_id: str) -> None: ...
    def entities(self, after: str | None, count: int) -> list[Entity]: ...
    def children(self, parent_id: str, after: str | None, count: int) -> list[Entity]: ...

    def config(self, scope: Scope) -> Config | None: ...
    def limits_in(self, scopes: Sequence[Scope]) -> LevelLimits:
        """Those of these levels that have limits, in this order, and their limits."""

    def put_config(self, scope: Scope, config: Config) -> None: ...
    def drop_config(self, scope: Scope) -> None: ...
    def scopes_of(self, entity_id: str) -> list[Scope]:
        """The levels of an entity that say anything: limits, or access."""

    def switches(self, after: tuple[str, str] | None, count: int) -> list[Access]:
        """The access switches, those without an entity first, by entity and resource."""

    def resources_with_limits(self, after: str | None, count: int) -> list[str]: ...
    def entities_with_limits(self, resource: str, after: str | None, count: int) -> list[str]: ...

    def bucket(self, entity_id: str, resource: str) -> Bucket | None: ...
    def drop_bucket(self, bucket: Bucket) -> None: ...
    def buckets_of(self, entity_id: str) -> list[Bucket]: ...

    def close_usage(self, bucket: Bucket, end: Counters) -> None: ...
    def usage_rows(self, entity_id: str, resource: str, start: int, end: int) -> list[UsageRow]: ...
    def usage_pairs(
        self, entity_id: str | None, resource: str | None, after: tuple[str, str] | None, count: int
    ) -> list[tuple[str, str]]: ...

    def lease_slot(self, record_id: str) -> LeaseSlot: ...
    def put_lease(self, slot: LeaseSlot, record: LeaseRecord) -> None:
        """Keep the record of this slot."""

    def lease_records(self, entity_id: str | None, after: str | None, count: int, now: int) -> list[LeaseRecord]:
        """Those that have not expired, by id; of one entity, or of all."""

    def add_audit(
        self,
        subject: str,
        action: str,
        resource: str | None,
        principal: str | None,
        details: Mapping[str, Any],
        now: int,
    ) -> None: ...
    def audit(
        self, subject: str | None, start: int | None, end: int | None, before: str | None, count: int
    ) -> list[AuditEvent]: ...


class Tables(SharedTables, Protocol):
    """One namespace's data, inside one transaction."""

    usage_dropped: int
    """How many rows of usage were dropped before their time, to keep within a bound."""
    in_place: bool
    """Whether the buckets it gives are the data itself, so that they are stored when they are changed."""
    corrected_at: dict[tuple[str, str], int]
    """When a bucket that a wrong clock had written to was last brought back by this process."""

    def put_bucket(self, bucket: Bucket) -> None: ...
    def buckets(self, after: tuple[str, str] | None, count: int) -> list[Bucket]: ...
    def buckets_on(self, resource: str, after: str | None, count: int) -> list[Bucket]: ...

    def open_usage(self, bucket: Bucket, hour: int, start: Counters) -> int:
        """Begin a row, or go on with the last one if it is of that hour; the hour of the open row."""

    def last_usage(self, entity_id: str, resource: str) -> UsageRow | None: ...

    def put_pulse(self, process: str, text: str, expires_at: int, now: int) -> None:
        """Keep the pulse of a process in place of its last one; those that have expired go."""

    def pulses(self, most: int, now: int) -> list[str]:
        """Those that have not expired."""


class Transacting(Protocol):
    """Runs a function on the tables as one transaction. Which tables these are, the store knows."""

    def _read(self, work: Callable[[Any], Result]) -> Plan[Result]: ...
    def _scan(self, work: Callable[[Any], Result]) -> Plan[Result]: ...
    def _write(self, work: Callable[[Any], Result]) -> Plan[Result]: ...


Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Self = TypeVar("Self", bound=Transacting)


class VerbDecorator(Protocol):
    """Turns a function on tables into a verb, which runs it as one transaction."""

    def __call__(
        self, verb: Callable[Concatenate[Self, Tables, Arguments], Result], /
    ) -> Callable[Concatenate[Self, Arguments], Plan[Result]]: ...


def _verb_by(transact: Callable[[Transacting, Callable[[Tables], Any]], Plan[Any]]) -> VerbDecorator:
    def decorate(
        verb: Callable[Concatenate[Self, Tables, Arguments], Result],
    ) -> Callable[Concatenate[Self, Arguments], Plan[Result]]:
        def plan(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Plan[Result]:
            return transact(self, lambda tables: verb(self, tables, *args, **kwargs))

        return plan

    return decorate


reads = _verb_by(lambda verbs, work: verbs._read(work))
"""For a verb that reads a few rows."""

scans = _verb_by(lambda verbs, work: verbs._scan(work))
"""For a verb that may read many rows, and take its time."""

writes = _verb_by(lambda verbs, work: verbs._write(work))
"""For a verb that changes something."""
