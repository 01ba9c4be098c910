"""Usage snapshots: what a bucket had counted at the two ends of an hour. Pure.

A bucket counts what is taken from it for as long as it lives: ``tc`` per limit, ``ev`` for grants. The table's stream
tells of every change with the counters before and after it, and with a sequence number that grows along the bucket's
life. So an hour needs no sums. Its snapshot keeps two *edges*: the counters before its first change, and those after
its last one, each with the sequence number of that change. Two findings about one hour are joined by keeping the
earlier first edge and the later last one. That is commutative, associative and idempotent. Therefore records may come
in any order, in any batches, any number of times, to several readers at once; and one that is lost is made good by
any later one of its hour.

An edge is always written as a whole. A limit that an edge does not have was not in the bucket then: it counts as 0.

**Whose hour.** A change belongs to the hour its writer's clock showed. Clocks differ and writes overtake each other,
so around the full hour the changes of two hours may be mixed, and their snapshots overlap. Readers settle that the
way embedded stores do while they count: once a later hour has begun, whatever follows belongs to it. Nothing is then
counted twice, and the hours of a bucket add up to what was taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from zae_limiter.bucket import WOULD_REFUSE
from zae_limiter.models.moments import at, milliseconds_at
from zae_limiter.naming import RESERVED_LIMIT_NAME, check_bucket_resource, check_entity_id, check_limit_name
from zae_limiter.stores.dynamodb.bucket_items import LONGEST_WRITE_ID
from zae_limiter.stores.dynamodb.intents import CASCADED, DENIED, EVENTS_CASCADED
from zae_limiter.stores.dynamodb.items import LENT, REFILLED, decoder
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import MOST_SHARDS, Key, gsi2_usage, gsi4, number_in, pk_entity, sk_usage
from zae_limiter.stores.windows import DAYS_KEPT, NOTHING_COUNTED, Counters, HourOfUse

WINDOW = "hourly"
"""The only windows that are stored."""

RETENTION_S = DAYS_KEPT * 86_400
"""How long a snapshot is kept, by the machine's clock: DynamoDB's expiry knows no other."""

SEQUENCE_DIGITS = 40
"""The most digits a sequence number has. It is stored with leading zeros, so that strings compare like numbers."""

LAST_HOUR = milliseconds_at(datetime.fromisoformat("9000-01-01T00:00Z"))
"""The last hour that a caller may ask about."""

_BUCKET_KEY = re.compile(r"([^/#]+)/BUCKET#([^#]+)#([^#]+)#(0|[1-9][0-9]?)").fullmatch


class Edge(NamedTuple):
    """One end of a span: the change that is there, and the counters just outside of it.

    ``write_id`` is that of the change, as the bucket then has it in ``w0``: a bucket that still has it there was not
    written to since. Only last edges have one.
    """

    sequence: str
    counters: Counters
    write_id: str = ""


class Life(NamedTuple):
    """One incarnation of one shard of a bucket. Its counters never start again."""

    ns: str
    entity_id: str
    resource: str
    shard: int
    inc: str


class Span(NamedTuple):
    """What is known about one hour of one life: the first change in it, and the last."""

    life: Life
    hour: int
    first: Edge
    last: Edge

    @property
    def key(self) -> Key:
        """Where its snapshot is."""
        life = self.life
        sort_key = sk_usage(life.resource, WINDOW, hour_text(self.hour), life.shard, life.inc)
        return Key(pk_entity(life.ns, life.entity_id), sort_key)

    def fixed_attributes(self) -> dict[str, str]:
        """What its snapshot has from its beginning to its end."""
        life, pk = self.life, self.key.pk
        start = hour_text(self.hour)
        return {
            "entity_id": life.entity_id,
            "resource": life.resource,
            **gsi2_usage(life.ns, life.resource, WINDOW, start, life.entity_id, life.shard),
            **gsi4(life.ns, pk, "USAGE"),
        }


def hour_text(hour: int) -> str:
    """The start of an hour as keys have it: ``2026-01-31T23``, all of one length."""
    return f"{at(hour):%Y-%m-%dT%H}"


def sequence_key(sequence: str) -> str:
    """A sequence number as it is stored. Raises ``ValueError`` for anything that is none."""
    if not (sequence.isascii() and sequence.isdigit() and len(sequence) <= SEQUENCE_DIGITS):
        raise ValueError(f"not a sequence number: {sequence[:SEQUENCE_DIGITS]!r}")
    return sequence.zfill(SEQUENCE_DIGITS)


# What a bucket says


def life_of(pk: str, snapshot: Item) -> Life:
    """Whose life a bucket shows. Raises ``KeyError`` or ``ValueError`` for anything that is none."""
    parts = _BUCKET_KEY(pk)
    entity_id, resource, inc = snapshot["entity_id"]["S"], snapshot["resource"]["S"], snapshot["inc"]["S"]
    if parts is None or parts.group(2, 3) != (entity_id, resource):
        raise ValueError(f"{pk!r} is not the key of this bucket")
    return checked_life(parts[1], entity_id, resource, int(parts[4]), inc)


def checked_life(ns: str, entity_id: str, resource: str, shard: int, inc: str) -> Life:
    """A life that a snapshot can have in its key. Raises ``ValueError`` for any other."""
    check_entity_id(entity_id)
    check_bucket_resource(resource)
    if shard >= MOST_SHARDS or not inc or "#" in inc or len(inc) > LONGEST_WRITE_ID:
        raise ValueError(f"shard {shard} of the life {inc[:LONGEST_WRITE_ID]!r} is none")
    return Life(ns, entity_id, resource, shard, inc)


def counters_in(snapshot: Item, hour: int | None = None) -> Counters:
    """What a bucket has counted, without its write load; also of limits that have ended in ``hour``, or later."""
    milli = (
        {} if hour is None or "eh" not in snapshot or number_in(snapshot["eh"]) < hour else _amounts(snapshot, "e_")
    )
    for attribute, value in snapshot.items():
        if (name := _limit_counted_by(attribute)) is not None:
            milli[name] = milli.get(name, 0) + number_in(value)
    cascaded_events = number_in(snapshot[EVENTS_CASCADED]) if EVENTS_CASCADED in snapshot else 0
    return Counters(
        number_in(snapshot["ev"]), milli, cascaded_events, _amounts(snapshot, CASCADED), _amounts(snapshot, DENIED)
    )


@lru_cache(4096)
def _limit_counted_by(attribute: str) -> str | None:
    """The limit whose counter an attribute of a bucket is; with a mark, where it counts what would be refused."""
    if attribute[:2] not in (REFILLED, LENT) or attribute[-3:] not in ("_tc", "_sn"):
        return None
    name = attribute[2:-3]
    if name == RESERVED_LIMIT_NAME:
        return None
    return check_limit_name(name) + (WOULD_REFUSE if attribute.endswith("_sn") else "")


# Edges, from and to the attributes of an item


def first_attributes(edge: Edge) -> dict[str, Any]:
    """The first edge as attributes."""
    return {
        "fs": edge.sequence,
        "ev_st": edge.counters.events,
        **_attributes(edge.counters, "st_", "cs_", "ds_", "ecs"),
    }


def last_attributes(edge: Edge) -> dict[str, Any]:
    """The last edge as attributes."""
    write_id = {"lw": edge.write_id} if edge.write_id else {}
    ended = _attributes(edge.counters, "tc_", CASCADED, DENIED, EVENTS_CASCADED)
    return {"ls": edge.sequence, "ev": edge.counters.events, **ended, **write_id}


def _attributes(counters: Counters, taken: str, cascaded: str, denied: str, events_cascaded: str) -> dict[str, int]:
    """The counters of an edge but its grants, under these names. What came back to nothing is told as nothing."""
    found = {taken + name: milli for name, milli in counters.milli.items()}
    found |= {cascaded + name: milli for name, milli in counters.cascaded.items()}
    found |= {denied + name: number for name, number in counters.denials.items()}
    if counters.cascaded_events:
        found[events_cascaded] = counters.cascaded_events
    return found


def _counters(item: Item, events: str, taken: str, cascaded: str, denied: str, events_cascaded: str) -> Counters:
    return Counters(
        number_in(item[events]),
        _amounts(item, taken),
        number_in(item[events_cascaded]) if events_cascaded in item else 0,
        _amounts(item, cascaded),
        _amounts(item, denied),
    )


def first_edge(item: Item) -> Edge:
    """The first edge of a snapshot."""
    return Edge(_sequence_in(item["fs"]), _counters(item, "ev_st", "st_", "cs_", "ds_", "ecs"))


def last_edge(item: Item) -> Edge:
    """The last edge of a snapshot."""
    counters = _counters(item, "ev", "tc_", CASCADED, DENIED, EVENTS_CASCADED)
    return Edge(_sequence_in(item["ls"]), counters, item["lw"]["S"] if "lw" in item else "")


def _sequence_in(attribute: Item) -> str:
    sequence: str = attribute["S"]
    if sequence != sequence_key(sequence):
        raise ValueError(f"not a sequence number: {sequence[:SEQUENCE_DIGITS]!r}")
    return sequence


def _amounts(item: Item, prefix: str) -> dict[str, int]:
    return {
        _limit_named(name[len(prefix) :]): number_in(value) for name, value in item.items() if name.startswith(prefix)
    }


@lru_cache(4096)
def _limit_named(name: str) -> str:
    """A name in a usage item: that of a limit, perhaps with the mark of what it would have refused."""
    check_limit_name(name.removesuffix(WOULD_REFUSE))
    return name


@decoder("a usage snapshot")
def span_of(item: Item) -> Span:
    """A span from its snapshot. Raises ``BrokenItem``."""
    pk, sk = item["PK"]["S"], item["SK"]["S"]
    _, _, resource, _, start, shard, inc = sk.split("#")
    hour = milliseconds_at(datetime.fromisoformat(f"{start}:00Z"))
    life = checked_life(pk.partition("/")[0], item["entity_id"]["S"], resource, int(shard), inc)
    span = Span(life, hour, first_edge(item), last_edge(item))
    if span.key != (pk, sk):
        raise ValueError("it has the key of another one")
    return span


# Reading


def used_by_hour(spans: Iterable[Span]) -> list[HourOfUse]:
    """What was taken in each hour, all lives together. Hours in which everything came back are left out."""
    lives: dict[Life, list[Span]] = {}
    for span in spans:
        lives.setdefault(span.life, []).append(span)
    sums: dict[int, Counters] = {}
    for life in lives.values():
        for hour, used in _used_in_life(sorted(life, key=lambda span: span.hour)):
            sums[hour] = sums.get(hour, NOTHING_COUNTED).plus(used)
    return [HourOfUse(hour, used) for hour, used in sorted(sums.items()) if not used.is_nothing]


def _used_in_life(spans: Sequence[Span]) -> Iterator[HourOfUse]:
    """What one life took in each hour, from where the hour or a later one first began to where the next did."""
    begins = list(accumulate([span.first for span in reversed(spans)], min_edge))[::-1]
    ends = list(accumulate([span.last for span in spans], max_edge))
    for place, span in enumerate(spans):
        before, after = begins[place].counters, ends[place].counters
        if place + 1 < len(spans) and begins[place + 1].sequence <= ends[place].sequence:
            after = met(ends[place], begins[place + 1], ends[place + 1])
        yield HourOfUse(span.hour, after.since(before))


def met(end: Edge, following: Edge, following_end: Edge) -> Counters:
    """Where an hour ends that the ``following`` one overlaps: where that begins.

    What the following hour has at neither end are limits that ended before it.
    """
    later = following_end.counters.milli
    ended, begun = end.counters.without(later), following.counters
    return Counters(
        begun.events,
        {**ended.milli, **begun.milli},
        begun.cascaded_events,
        {**ended.cascaded, **begun.cascaded},
        {**ended.denials, **begun.denials},
    )


def min_edge(one: Edge, other: Edge) -> Edge:
    """The edge that is earlier in the life."""
    return min(one, other, key=lambda edge: edge.sequence)


def max_edge(one: Edge, other: Edge) -> Edge:
    """The edge that is later in the life."""
    return max(one, other, key=lambda edge: edge.sequence)
