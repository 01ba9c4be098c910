"""Records of the table's stream: what one change says about a bucket.

A record counts if it is about a bucket and what the bucket has counted changed. Removed buckets took nothing, and
everything else in the table is not about usage: such records are passed over. One under a bucket's key that does not
make sense is *poisonous*: it is put aside, because an operator should look at it, and never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import SK_STATE
from zae_limiter.stores.dynamodb.usage_items import (
    LAST_HOUR,
    Life,
    counters_in,
    life_of,
    sequence_key,
)
from zae_limiter.stores.dynamodb.write_ids import write_id_time
from zae_limiter.stores.windows import NOTHING_COUNTED, Counters, hour_of
from zae_limiter_aggregator.proactive_split import Load, load_of

Record: TypeAlias = Mapping[str, Any]
"""One record, as GetRecords returns it and as Lambda is given it."""

LONGEST_REASON = 300

_MARK = re.compile(r"[0-9a-f]{1,12}\..+").fullmatch


class PoisonousRecord(Exception):
    """A record that does not make sense. ``sequence`` is its number; empty if it has none."""

    def __init__(self, sequence: str, reason: str) -> None:
        self.sequence = sequence
        super().__init__(f"record {sequence or 'without a number'}: {reason[:LONGEST_REASON]}")


class Failure(NamedTuple):
    """A record that was not dealt with: its sequence number as the stream has it, why, and (of poison) the record."""

    sequence: str
    error: Exception
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class ParsedBucketRecord:
    """One change of a bucket: when its writer wrote it, and the counters before and after.

    ``sequence`` is its number as the stream has it, ``place`` the same in a form that sorts. ``earlier_ms`` is when
    the change before it was written; ``None`` if the bucket's life began with this one. ``load`` is how hard it is
    written to; ``None`` for one that does not tell. ``mark`` is its writer's. ``shard_count`` says of how many shards
    it is one, as it knows.
    """

    sequence: str
    place: str
    life: Life
    written_ms: int
    earlier_ms: int | None
    before: Counters
    after: Counters
    load: Load | None = None
    mark: str = ""
    shard_count: int = 1

    @property
    def shard_id(self) -> int:
        """Which shard of its bucket it changed."""
        return self.life.shard

    @property
    def grants(self) -> int:
        """How many grants it counts; less than none if one was undone."""
        return self.after.events - self.before.events

    @property
    def denials(self) -> int:
        """How many denials it counts."""
        return sum(self.after.since(self.before).denials.values())

    @property
    def hour(self) -> int:
        """The start of the hour it belongs to."""
        return hour_of(self.written_ms)

    @property
    def begins_hour(self) -> bool:
        """Whether the bucket was not yet written to in this hour, as far as the record tells."""
        return self.earlier_ms is None or hour_of(self.earlier_ms) != self.hour


@dataclass(frozen=True, slots=True)
class ConsumptionDelta:
    """What one change took of one limit, in millitokens; negative if it gave back."""

    entity_id: str
    resource: str
    limit_name: str
    tokens_delta: int
    timestamp_ms: int


def extract_deltas(record: ParsedBucketRecord | Record) -> list[ConsumptionDelta]:
    """What a change took, by limit; nothing of limits whose counter stands still, and nothing of the write load.

    It takes a record of the stream too, as Lambda is given it; one that is not about a bucket took nothing. Raises
    :class:`PoisonousRecord`.
    """
    parsed = record if isinstance(record, ParsedBucketRecord) else parse_record(record)
    if parsed is None:
        return []
    life, before = parsed.life, parsed.before.milli
    return [
        ConsumptionDelta(life.entity_id, life.resource, name, delta, parsed.written_ms)
        for name, total in parsed.after.milli.items()
        if (delta := total - before.get(name, 0))
    ]


def parse_record(record: Record) -> ParsedBucketRecord | None:
    """A change of a bucket; ``None`` for anything else. Raises :class:`PoisonousRecord`."""
    sequence = ""
    try:
        change = record["dynamodb"]
        sequence = str(change.get("SequenceNumber", ""))
        keys = change["Keys"]
        pk = keys.get("PK", {}).get("S", "")
        is_bucket = keys.get("SK", {}).get("S") == SK_STATE and pk.partition("/")[2].startswith("BUCKET#")
        if not is_bucket or record["eventName"] == "REMOVE":
            return None
        return _parse(record["eventName"], sequence, pk, change)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PoisonousRecord(sequence, f"{type(error).__name__}: {error}") from error


def _parse(event: str, sequence: str, pk: str, change: Mapping[str, Any]) -> ParsedBucketRecord:
    if event not in ("INSERT", "MODIFY"):
        raise ValueError(f"unknown event {event!r}")
    new = change["NewImage"]
    life = life_of(pk, new)
    place, written = sequence_key(sequence), _written(new)
    hour = hour_of(written)
    before, earlier = NOTHING_COUNTED, None
    if event == "MODIFY":
        old = change["OldImage"]
        if life_of(pk, old) == life:
            before, earlier = counters_in(old, hour), _written(old)
    load = _load(life, new, written)
    return ParsedBucketRecord(
        sequence,
        place,
        life,
        written,
        earlier,
        before,
        counters_in(new, hour),
        load,
        new["w0"]["S"],
        _shard_count(new),
    )


def _written(image: Item) -> int:
    """When the last writer wrote, by its own clock."""
    mark = image["w0"]["S"]
    written = write_id_time(mark) if _MARK(mark) else LAST_HOUR + 1
    if written > LAST_HOUR:
        raise ValueError(f"{mark!r} is no writer's mark")
    return written


def _shard_count(image: Item) -> int:
    return int(image["shard_count"]["N"]) if "shard_count" in image else 1


def _load(life: Life, image: Item, written_ms: int) -> Load | None:
    """The load of a shard; ``None`` if it cannot be read, which is no reason not to count."""
    try:
        return load_of(life, image, written_ms)
    except (KeyError, TypeError, ValueError):
        return None


def last_written(records: Sequence[Record]) -> float | None:
    """About when the last record was written, in seconds since the epoch, if it tells."""
    moment = (records[-1].get("dynamodb") or {}).get("ApproximateCreationDateTime")
    if moment is None:
        return None
    return float(moment if isinstance(moment, (int, float)) else moment.timestamp())
