"""Counting a batch of records into the table's snapshots: normally one write per hour of a bucket.

The batch is first joined in memory, then each of its spans is joined with the snapshot that is there. A snapshot that
is not there yet is *begun* with both edges at once; one that is there has an edge moved, if the batch knows of an
earlier first change or a later last one. Which of the two to try first is guessed from the first record: it tells
whether the bucket was written to before in the same hour. A wrong guess is refused and brings the snapshot as it is.

Every write moves edges outwards only, so writes may be repeated, overtake each other and be cut off at any point:
processing the same records again finishes what was left.

Beside counting, a batch says which audit events have expired, for an archive, and which shards are under pressure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import EVENTS_CASCADED
from zae_limiter.stores.dynamodb.items import BrokenItem
from zae_limiter.stores.dynamodb.operations.paging import side_by_side
from zae_limiter.stores.dynamodb.requests import Item, NoAnswer, Refused
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.usage_items import (
    RETENTION_S,
    Edge,
    Life,
    Span,
    first_attributes,
    first_edge,
    last_attributes,
    last_edge,
)
from zae_limiter_aggregator.archiver import NOTHING_ARCHIVED, archive, put_aside
from zae_limiter_aggregator.proactive_split import Load, highest, should_split
from zae_limiter_aggregator.stream_records import (
    Failure,
    ParsedBucketRecord,
    PoisonousRecord,
    Record,
    extract_deltas,
    parse_record,
)

SNAPSHOTS_AT_ONCE = 16


NEVER_VALID: Final = "ValidationException"
"""What DynamoDB calls a write that it will never do: one too large, for example."""


class Uncountable(Exception):
    """What a batch says about an hour cannot be written, now or later."""


SplitBucket: TypeAlias = Callable[[Load], Plan[bool]]
"""Splits a bucket because of one shard of it; whether it was split (see ``proactive_split``)."""


class FailedSplit(NamedTuple):
    """A hot shard whose bucket could not be split, and why."""

    load: Load
    error: Exception


class Processed(NamedTuple):
    """What became of a batch.

    ``records`` is how many of it counted, in ``snapshots`` hours of buckets. The ``poisonous`` ones will never count;
    ``put_aside`` says that they are in the archive and need not be brought again. The ``unwritten`` ones will count if
    they are processed again. ``archived`` is how many audit events are in the archive now. ``loads`` has the highest
    load of every shard, ``splits`` says how many buckets were split for that, and
    ``failed_splits`` which could not be.
    """

    records: int
    snapshots: int
    poisonous: tuple[Failure, ...]
    unwritten: tuple[Failure, ...]
    archived: int = 0
    loads: tuple[Load, ...] = ()
    splits: int = 0
    failed_splits: tuple[FailedSplit, ...] = ()
    put_aside: bool = False

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All records that were not counted."""
        return self.poisonous + self.unwritten


class BucketHour(NamedTuple):
    """What a batch says about one hour of a bucket, and which records say it."""

    span: Span
    begins_hour: bool
    sequences: tuple[str, ...]


class ParsedBatch(NamedTuple):
    """What a batch says: of each hour of each bucket once, its poisonous records, and the loads of shards in order."""

    bucket_hours: list[BucketHour]
    poisonous: list[Failure]
    loads: list[Load]


def read(records: Iterable[Record]) -> ParsedBatch:
    """What a batch says."""
    hours: dict[tuple[Life, int], list[ParsedBucketRecord]] = {}
    poisonous = []
    loads = []
    for record in records:
        try:
            parsed = parse_record(record)
        except PoisonousRecord as error:
            poisonous.append(Failure(error.sequence, error, record))
            continue
        if parsed is None:
            continue
        if parsed.load is not None:
            loads.append(parsed.load)
        if extract_deltas(parsed) or parsed.grants or parsed.denials:
            hours.setdefault((parsed.life, parsed.hour), []).append(parsed)
    return ParsedBatch([join_changes(changes) for changes in hours.values()], poisonous, loads)


def join_changes(changes: Sequence[ParsedBucketRecord]) -> BucketHour:
    """What several changes of one hour say together."""
    first = min(changes, key=lambda change: change.place)
    last = max(changes, key=lambda change: change.place)
    span = Span(first.life, first.hour, Edge(first.place, first.before), Edge(last.place, last.after, last.mark))
    return BucketHour(span, first.begins_hour, tuple(change.sequence for change in changes))


class Processor:
    """Counts batches of one table's records. Any number of them may work at the same time.

    With ``archiving`` it also archives audit events that expire, by the requests of ``archives``. ``split_bucket``
    splits the buckets whose shards are hot.
    """

    def __init__(
        self, client: TableClient, *, archiving: bool = False, split_bucket: SplitBucket | None = None
    ) -> None:
        self._client = client
        self._archiving = archiving
        self._split_bucket = split_bucket

    def process(self, records: Sequence[Record]) -> Plan[Processed]:
        """Count a batch. What cannot be counted is told, and does not keep the rest from counting."""
        bucket_hours, poisonous, loads = read(records)
        counted = snapshots = 0
        unwritten: list[Failure] = []
        for start in range(0, len(bucket_hours), SNAPSHOTS_AT_ONCE):
            some = bucket_hours[start : start + SNAPSHOTS_AT_ONCE]
            errors = yield from side_by_side([self._count(bucket_hour) for bucket_hour in some])
            for bucket_hour, error in zip(some, errors, strict=True):
                if error is None:
                    counted, snapshots = counted + len(bucket_hour.sequences), snapshots + 1
                elif isinstance(error, Uncountable):
                    poisonous += _poison(bucket_hour, error, records)
                else:
                    unwritten += [Failure(sequence, error) for sequence in bucket_hour.sequences]
        archived = (yield from archive(records)) if self._archiving else NOTHING_ARCHIVED
        poisonous += archived.poisonous
        is_put_aside = self._archiving and bool(poisonous) and (yield from put_aside(poisonous))
        splits, failed_splits = yield from self._split_hot_buckets(loads)
        return Processed(
            counted,
            snapshots,
            tuple(poisonous),
            (*unwritten, *archived.unwritten),
            archived.events,
            tuple(highest(loads)),
            splits,
            failed_splits,
            is_put_aside,
        )

    def _split_hot_buckets(self, loads: Sequence[Load]) -> Plan[tuple[int, tuple[FailedSplit, ...]]]:
        """Have buckets split that are hot, each once and for its latest record: an earlier one may tell of how it was
        before the last split. What fails is tried again with later records."""
        splits = 0
        failed: list[FailedSplit] = []
        buckets: set[tuple[str, str, str]] = set()
        for load in reversed(loads):
            life = load.life
            bucket = (life.ns, life.entity_id, life.resource)
            if self._split_bucket is None or bucket in buckets or not should_split(load):
                continue
            buckets.add(bucket)
            try:
                splits += yield from self._split_bucket(load)
            except (Refused, NoAnswer, BrokenItem) as error:
                failed.append(FailedSplit(load, error))
        return splits, tuple(failed)

    def _count(self, bucket_hour: BucketHour) -> Plan[Refused | NoAnswer | Uncountable | None]:
        """Join a finding with its snapshot. Returns what kept it from that."""
        span = bucket_hour.span
        until = yield from self._client.new_deadline()
        ttl = until.epoch_s + RETENTION_S
        write: Update | None = begin(span, ttl) if bucket_hour.begins_hour else move_last_edge(span)
        while write is not None:
            params = {**write.params(self._client.table, span.key), "ReturnValues": "ALL_NEW"}
            item: Item | None
            try:
                reply = yield from self._client.ask("UpdateItem", params, until, repeatable=True)
                item = reply["Attributes"]
            except Refused as refusal:
                if refusal.code == NEVER_VALID:
                    return Uncountable(str(refusal))
                if not refusal.by_condition:
                    return refusal
                item = refusal.item
            except NoAnswer as silence:
                return silence
            try:
                write = begin(span, ttl) if item is None else remaining_write(span, item)
            except (LookupError, TypeError, ValueError) as error:
                return Uncountable(f"its snapshot cannot be read: {type(error).__name__}: {error}")
        return None


def _poison(bucket_hour: BucketHour, error: Uncountable, records: Sequence[Record]) -> list[Failure]:
    """The records that say what no snapshot can hold."""
    wanted = set(bucket_hour.sequences)
    by_number = {str(record["dynamodb"]["SequenceNumber"]): record for record in records if _number(record) in wanted}
    return [
        Failure(sequence, PoisonousRecord(sequence, str(error)), by_number.get(sequence))
        for sequence in bucket_hour.sequences
    ]


def _number(record: Record) -> str | None:
    try:
        return str(record["dynamodb"]["SequenceNumber"])
    except (LookupError, TypeError, AttributeError):
        return None


# The writes


def begin(span: Span, ttl: int) -> Update:
    """Begin the snapshot, unless it is there."""
    write = Update()
    write.demand_absent("ls")
    _set_all(write, {**span.fixed_attributes(), **first_attributes(span.first), **last_attributes(span.last)})
    write.set("ttl", ttl)
    return write


def move_last_edge(span: Span) -> Update:
    """Move the last edge of a snapshot that is there, unless it is as late already."""
    write = Update()
    write.demand("ls", "<", span.last.sequence)
    _set_all(write, last_attributes(span.last))
    if not span.last.counters.cascaded_events:
        write.remove(EVENTS_CASCADED)  # grants that cascaded may have been undone
    return write


def remaining_write(span: Span, item: Item) -> Update | None:
    """The write that joins a span with a snapshot as it was just seen; ``None`` if that tells nothing new."""
    seen_first, seen_last = first_edge(item), last_edge(item)
    write = move_last_edge(span) if span.last.sequence > seen_last.sequence else None
    if span.first.sequence < seen_first.sequence:
        write = write or Update()
        write.demand("fs", "=", seen_first.sequence)
        earlier = first_attributes(span.first)
        _set_all(write, earlier)
        for attribute in first_attributes(seen_first).keys() - earlier.keys():
            write.remove(attribute)
    return write


def _set_all(write: Update, attributes: dict[str, str | int]) -> None:
    for name, value in attributes.items():
        write.set(name, value)
