"""The proof that usage equals what was taken: a chain of counters, from hour to hour to the live bucket.

On DynamoDB an hour has two edges, the counters before its first change and after its last one. Each life of each
shard of a bucket is a chain of its own: every hour must begin where the one before ended, and the last must end where
the bucket is now. A bucket that is further is not a break: the aggregator is behind, and it is told by how much. Hours
that overlap, because the clocks of two writers differed, join where the later one begins (see ``snapshots``).

What an embedded store keeps is read in sums. There the proof is that all hours add up to what the bucket counted,
which needs no chain to be whole; but if they do not, it cannot tell where.

A chain that does not begin at nothing has lost its beginning. If its oldest hour is old, that is expiry and no break.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from zae_limiter.bucket import MILLI
from zae_limiter.models.choices import WindowType
from zae_limiter.models.moments import milliseconds_at
from zae_limiter.models.reports import UsageSnapshot
from zae_limiter.models.status import BucketStatus
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.items import key_of
from zae_limiter.stores.dynamodb.keys import GSI3, Key, bucket_key, pk_entity
from zae_limiter.stores.dynamodb.plans.asking import Asking
from zae_limiter.stores.dynamodb.plans.listing import fetch
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.snapshots import Counters, Life, Span, max_edge, min_edge, span_of
from zae_limiter.stores.protocol import Space, UsageQuery
from zae_limiter.stores.windows import HOUR_MS
from zae_limiter_aggregator.records import NOTHING_COUNTED, counters_in, life_of

OLD_MS: Final = 30 * 24 * HOUR_MS
"""If the oldest hour is younger, none before it has expired: windows stay for 90 days, and no bucket that is in use
rests for 60."""

PAGE: Final = 1_000


class Gap(NamedTuple):
    """What was taken after one hour ended and before the next one began, and is in neither. Hours in milliseconds;
    ``after`` is ``None`` at the beginning of a chain, and both are where it cannot be told."""

    after: int | None
    before: int | None
    amount: int


class Link(NamedTuple):
    """The chain of one limit (``None``: of the grants) of one life of one shard of a bucket, in whole tokens.

    ``counted`` is what its hours say. ``expired`` was taken before the oldest hour that is kept. ``behind`` is what
    the live bucket has counted since; ``None`` if that life is over.
    """

    entity_id: str
    resource: str
    limit_name: str | None
    shard: int
    life: str | None
    hours: int
    counted: int
    expired: int
    behind: int | None
    gaps: tuple[Gap, ...]


class Proof(NamedTuple):
    """What was found. ``chained`` is false where only sums could be compared."""

    links: tuple[Link, ...]
    chained: bool

    @property
    def holds(self) -> bool:
        """Whether nothing is broken."""
        return not any(link.gaps for link in self.links)


def verify_usage(space: Space, entity_id: str, resource: str | None = None) -> Plan[Proof]:
    """Compare the usage of an entity with what its buckets counted, on one resource or on all."""
    asking: Asking | None = getattr(space, "asking", None)
    now = yield from READ_CLOCK
    if asking is None:
        return (yield from _verify_sums(space, entity_id, resource, now))
    return (yield from _Chains(asking, space).verify(entity_id, resource, now))


# On DynamoDB


class _Chains:
    """Reads what chains are made of."""

    def __init__(self, asking: Asking, space: Any) -> None:
        self._asking = asking
        self._space = space

    @verb
    def verify(self, entity_id: str, resource: str | None, now: int) -> Plan[Proof]:
        ns: str = yield from self._space.checked_ns()
        spans = yield from self._spans(ns, entity_id, resource)
        live = yield from self._live(ns, entity_id, resource, {span.life for span in spans})
        return Proof(tuple(links_of(spans, live, now)), chained=True)

    def _spans(self, ns: str, entity_id: str, resource: str | None) -> Plan[list[Span]]:
        prefix = "#USAGE#" if resource is None else f"#USAGE#{resource}#"
        items = yield from self._all(pk_entity(ns, entity_id), prefix)
        return [span_of(item) for item in items]

    def _live(self, ns: str, entity_id: str, resource: str | None, lives: set[Life]) -> Plan[dict[Life, Counters]]:
        """What the live buckets have counted. They are read after the snapshots, and are never behind them."""
        prefix = "BUCKET#" if resource is None else f"BUCKET#{resource}#"
        found = yield from self._all(pk_entity(ns, entity_id), prefix, index=GSI3)
        keys: dict[Key, None] = dict.fromkeys(key_of(item) for item in found)
        keys |= dict.fromkeys(bucket_key(ns, entity_id, life.resource, life.shard) for life in sorted(lives))
        items = yield from fetch(self._asking, list(keys))
        return {life_of(key.pk, item): counters_in(item) for key, item in items.items()}

    def _all(self, pk: str, prefix: str, *, index: str | None = None) -> Plan[list[Item]]:
        items: list[Item] = []
        start: Item | None = None
        while True:
            until = yield from self._asking.window()
            found = yield from self._asking.query(pk, until, index=index, prefix=prefix, start=start)
            items += found.items
            start = found.next_key
            if start is None:
                return items


def links_of(spans: Iterable[Span], live: Mapping[Life, Counters], now: int) -> list[Link]:
    """The chains of every life, limit by limit, the grants first."""
    lives: dict[Life, list[Span]] = {life: [] for life in live}
    for span in spans:
        lives.setdefault(span.life, []).append(span)
    return [
        _link(life, name, _joints(sorted(hours, key=lambda span: span.hour)), len(hours), live.get(life), now)
        for life, hours in sorted(lives.items())
        for name in _names(hours, live.get(life))
    ]


class _Joint(NamedTuple):
    """Where one hour ends and the next begins: the hours, and the counters on both sides."""

    after: int | None
    before: int | None
    ended: Counters
    begun: Counters


def _joints(spans: Sequence[Span]) -> list[_Joint]:
    """All joints of a life, with its beginning and its end."""
    if not spans:
        return []
    begins = list(accumulate([span.first for span in reversed(spans)], min_edge))[::-1]
    ends = list(accumulate([span.last for span in spans], max_edge))
    joints = [_Joint(None, spans[0].hour, NOTHING_COUNTED, begins[0].counters)]
    for place in range(1, len(spans)):
        ended, begun = ends[place - 1], begins[place]
        if begun.sequence <= ended.sequence:
            ended = begun  # they overlap, and join where the later one begins
        joints.append(_Joint(spans[place - 1].hour, spans[place].hour, ended.counters, begun.counters))
    joints.append(_Joint(spans[-1].hour, None, ends[-1].counters, ends[-1].counters))
    return joints


def _link(life: Life, name: str | None, joints: Sequence[_Joint], hours: int, live: Counters | None, now: int) -> Link:
    gaps = []
    expired = lost = 0
    for joint in joints:
        missing = _amount(joint.begun, name) - _amount(joint.ended, name)
        lost += missing
        if missing and joint.after is None and joint.before is not None and now - joint.before >= OLD_MS:
            expired = missing
        elif missing:
            gaps.append(Gap(joint.after, joint.before, _tokens(missing, name)))
    last = _amount(joints[-1].ended, name) if joints else 0
    behind = None if live is None else _tokens(_amount(live, name) - last, name)
    return Link(
        life.entity_id,
        life.resource,
        name,
        life.shard,
        life.inc,
        hours,
        _tokens(last - lost, name),
        _tokens(expired, name),
        behind,
        tuple(gaps),
    )


def _names(spans: Iterable[Span], live: Counters | None) -> list[str | None]:
    counted = [span.last.counters for span in spans] + ([] if live is None else [live])
    return [None, *sorted({name for counters in counted for name in counters.milli})]


def _amount(counters: Counters, name: str | None) -> int:
    return counters.events if name is None else counters.milli.get(name, 0)


def _tokens(amount: int, name: str | None) -> int:
    """Whole tokens, where millitokens are counted; parts of one are rounded away from nothing."""
    if name is None:
        return amount
    whole = -(-abs(amount) // MILLI)
    return whole if amount >= 0 else -whole


# On embedded stores


def _verify_sums(space: Space, entity_id: str, resource: str | None, now: int) -> Plan[Proof]:
    """The hours are read first. Whatever is taken meanwhile makes the bucket differ, so it is looked at twice."""
    proof = Proof((), chained=False)
    for _ in range(3):
        before = yield from space.status(entity_id, resource, now)
        hours = yield from _hours(space, entity_id, resource)
        status = yield from space.status(entity_id, resource, now)
        links = [link for bucket in status.buckets for link in _sums_of(bucket, hours, now)]
        proof = Proof(tuple(links), chained=False)
        if proof.holds or _totals(before.buckets) == _totals(status.buckets):
            break
    return proof


def _hours(space: Space, entity_id: str, resource: str | None) -> Plan[list[UsageSnapshot]]:
    query = UsageQuery(entity_id, resource, WindowType.HOURLY, None, None)
    found: list[UsageSnapshot] = []
    cursor: str | None = None
    while True:
        page = yield from space.usage(query, PAGE, cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def _totals(buckets: Iterable[BucketStatus]) -> list[tuple[str, int, list[int]]]:
    return [(bucket.resource, bucket.total_events, [x.total_consumed for x in bucket.limits]) for bucket in buckets]


def _sums_of(bucket: BucketStatus, found: Iterable[UsageSnapshot], now: int) -> list[Link]:
    hours = [hour for hour in found if hour.resource == bucket.resource]
    old = bool(hours) and now - min(milliseconds_at(hour.window_start) for hour in hours) >= OLD_MS
    wanted: dict[str | None, int] = {None: bucket.total_events}
    wanted |= {level.limit_name: level.total_consumed for level in bucket.limits}
    links = []
    for name, total in wanted.items():
        counted = sum(hour.total_events if name is None else hour.counters.get(name, 0) for hour in hours)
        missing = total - counted
        gaps = () if not missing or (old and missing > 0) else (Gap(None, None, missing),)
        expired = missing if missing and not gaps else 0
        here = (bucket.entity_id, bucket.resource, name, 0, None)
        links.append(Link(*here, len(hours), counted, expired, 0, gaps))
    return links
