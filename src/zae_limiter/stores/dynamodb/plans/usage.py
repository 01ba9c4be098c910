"""Reading usage: hours from their snapshots, days and months as sums of hours.

The snapshots of an entity are in its own partition, in the order of resources and hours, and are read there with
consistent reads, also when a resource is asked about: then its index only tells which entities there are. The index
is in the order of hours, the list in that of entities. So every page goes over the index for the hours it is about,
and keeps the names of the next few entities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.reports import Page, UsageSnapshot
from zae_limiter.naming import check_entity_id, check_resource
from zae_limiter.running.plan import Plan
from zae_limiter.stores.cursors import Key as Place
from zae_limiter.stores.cursors import decode_cursor, page_of
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.items import unless_broken
from zae_limiter.stores.dynamodb.keys import GSI2, pk_entity, pk_resource
from zae_limiter.stores.dynamodb.plans.asking import Asking
from zae_limiter.stores.dynamodb.plans.base import Namespace
from zae_limiter.stores.dynamodb.plans.listing import LAST, side_by_side
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.snapshots import LAST_HOUR, WINDOW, hour_text, span_of, used_by_hour
from zae_limiter.stores.protocol import UsageQuery
from zae_limiter.stores.windows import HOUR_MS, HourOfUse, hour_of, hours_within, position, windows_of

USAGE = "#USAGE#"

BEYOND = "$"
"""Sorts after ``#`` and before every character of a name. A name followed by it is just beyond all keys of it."""

ENTITIES_AT_ONCE = 16
"""The partitions of so many entities are read at the same time."""

ENTITIES_KEPT = 1_000
"""So many names are kept of those that one pass over the index finds."""


class UsageWindows:
    """Reading usage."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.asking = namespace.asking

    @verb
    def usage(self, query: UsageQuery, limit: int, cursor: str | None) -> Plan[Page[UsageSnapshot]]:
        """Usage windows, by entity, resource, window type and start."""
        after = place_after(cursor)
        ns = yield from self.namespace.checked_ns()
        pairs = pairs_from(self.asking, ns, query, after)
        rows: list[UsageSnapshot] = []
        while len(rows) <= limit:
            found = yield from pairs.take(limit + 1 - len(rows))
            if not found:
                break
            listed = yield from side_by_side([windows_read(self.asking, ns, query, *pair) for pair in found])
            rows += [row for windows in listed for row in windows if after is None or position(row) > after]
        return page_of(rows, limit, position)


def place_after(cursor: str | None) -> Place | None:
    """The place a cursor continues after; names that DynamoDB can look for."""
    after = decode_cursor(cursor, str, str, int, int)
    if after is not None:
        try:
            check_entity_id(after[0])
            check_resource(after[1])
        except ValidationError:
            raise ValidationError("cursor", cursor, "must be the next_cursor of a page of this same list") from None
    return after


# Whose windows


class Pairs(Protocol):
    """The entities and resources that a query concerns, in order."""

    def take(self, count: int) -> Plan[list[tuple[str, str]]]:
        """Some more of them, at most ``count``; none at the end."""
        ...


def pairs_from(asking: Asking, ns: str, query: UsageQuery, after: Place | None) -> Pairs:
    """Those that a query concerns, from the one on in which the cursor stands."""
    entity_id, resource = query.entity_id, query.resource
    first = ("", "") if after is None else (str(after[0]), str(after[1]))
    if entity_id is None:
        assert resource is not None
        return EntitiesOn(asking, ns, resource, hours_within(query), first)
    if resource is None:
        return ResourcesOf(asking, ns, entity_id, first)
    return OnePair((entity_id, resource), first)


class OnePair:
    """One entity on one resource."""

    def __init__(self, pair: tuple[str, str], first: tuple[str, str]) -> None:
        self._left = [pair] if pair >= first else []

    def take(self, count: int) -> Plan[list[tuple[str, str]]]:
        yield from ()
        taken, self._left = self._left, []
        return taken


class ResourcesOf:
    """The resources that an entity used, each found behind the keys of the one before."""

    def __init__(self, asking: Asking, ns: str, entity_id: str, first: tuple[str, str]) -> None:
        self._asking = asking
        self._pk = pk_entity(ns, entity_id)
        self._entity_id = entity_id
        self._from: str | None = USAGE
        if first[0] >= entity_id:
            self._from = f"{USAGE}{first[1]}" if first[0] == entity_id else None

    def take(self, count: int) -> Plan[list[tuple[str, str]]]:
        """One, because its windows may well fill the page."""
        if self._from is None:
            return []
        until = yield from self._asking.window()
        found = yield from self._asking.query(self._pk, until, between=(self._from, f"{USAGE}{LAST}"), limit=1)
        if not found.items:
            self._from = None
            return []
        resource = found.items[0]["SK"]["S"].split("#")[2]
        self._from = f"{USAGE}{resource}{BEYOND}"
        return [(self._entity_id, resource)]


class EntitiesOn:
    """The entities that used a resource in some hours."""

    def __init__(self, asking: Asking, ns: str, resource: str, hours: tuple[int, int], first: tuple[str, str]) -> None:
        self._asking = asking
        self._pk = pk_resource(ns, resource)
        self._resource = resource
        self._between = keys_between(f"USAGE#{WINDOW}#", *hours)
        self._from = first[0] if first[1] <= resource else f"{first[0]}{BEYOND}"
        self._names: list[str] = []
        self._over = self._between is None

    def take(self, count: int) -> Plan[list[tuple[str, str]]]:
        if not self._names and not self._over:
            yield from self._read_on()
        some = min(count, ENTITIES_AT_ONCE)
        taken, self._names = self._names[:some], self._names[some:]
        return [(entity_id, self._resource) for entity_id in taken]

    def _read_on(self) -> Plan[None]:
        """Go over the index once for the next names."""
        names: set[str] = set()
        self._over = True
        start: Item | None = None
        while True:
            until = yield from self._asking.window()
            found = yield from self._asking.query(self._pk, until, index=GSI2, between=self._between, start=start)
            names.update(name for name in entities_in(found.items) if name >= self._from)
            if len(names) > ENTITIES_KEPT:
                self._over = False
                names = set(sorted(names)[:ENTITIES_KEPT])
            start = found.next_key
            if start is None:
                break
        self._names = sorted(names)
        if self._names:
            self._from = f"{self._names[-1]}{BEYOND}"


def entities_in(keys: Iterable[Item]) -> Iterable[str]:
    """The entities of usage by resource."""
    return (item["GSI2SK"]["S"].split("#")[3] for item in keys)


# The windows of one entity on one resource


def windows_read(
    asking: Asking, ns: str, query: UsageQuery, entity_id: str, resource: str
) -> Plan[list[UsageSnapshot]]:
    """Its windows, by type and start."""
    hours = yield from hours_read(asking, ns, entity_id, resource, *hours_within(query))
    return list(windows_of(query, entity_id, resource, hours))


def hours_read(asking: Asking, ns: str, entity_id: str, resource: str, start: int, end: int) -> Plan[list[HourOfUse]]:
    """What was taken in each hour from ``start`` on and before ``end``.

    The hours before and after are read too: what clocks that differ put on both sides of a full hour is settled
    between the two.
    """
    between = keys_between(f"{USAGE}{resource}#{WINDOW}#", start - HOUR_MS, end + HOUR_MS)
    if between is None:
        return []
    items = yield from asking.query_all(pk_entity(ns, entity_id), between=between)
    spans = [span for item in items if (span := unless_broken(span_of, item)) is not None]
    return [hour for hour in used_by_hour(spans) if start <= hour.hour < end]


def keys_between(prefix: str, start: int, end: int) -> tuple[str, str] | None:
    """Between which keys the hours are that begin from ``start`` on and before ``end``; nothing if there are none."""
    first = hour_of(max(start, 0) + HOUR_MS - 1)
    last = hour_of(min(end - 1, LAST_HOUR))
    return (f"{prefix}{hour_text(first)}", f"{prefix}{hour_text(last)}{LAST}") if first <= last else None
