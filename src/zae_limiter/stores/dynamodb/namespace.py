"""One namespace of a table, as one client knows it; and the layout that the table's data must have.

The table's version record says two numbers. The *layout* is what all clients must agree on: keys, attributes, what
they mean. Another one is never used, because each side would break what the other wrote. The *minor* counts
additions that a client which does not know them may ignore, so any minor of the same layout is used as it is; a
lower one is raised when the table is set up again or migrated, by an operator who may write the registry anyway. A
client reads the record once, together with that of its namespace.

======  ===================================================================================================
layout  where a bucket is
======  ===================================================================================================
1       an item per limit: ``ENTITY#{id}``, ``#BUCKET#{resource}#{limit}``
2       one item per entity and resource: ``ENTITY#{id}``, ``#BUCKET#{resource}``
3       a partition of its own: ``{ns}/BUCKET#{id}#{resource}#{shard}``, ``#STATE``
======  ===================================================================================================

The first two never had a version record that this library reads; a table without one, or with one that does not
say, is as old as can be. ``zae_limiter.migrations`` brings it here.

The *access switches* of the system and of resources concern more buckets than could be told, so no bucket carries
them. All of them are in one item, which every active process reads again every :data:`LOOK_EVERY_MS`: beside the write
of an acquire, not before it, so that none takes longer for it. An acquire that learns by its look that it is blocked
gives back what it took. A process that was idle knows nothing recent, and learns by the look of its first acquire.
What is read may lag behind by some moments; an older state never replaces a newer one that was seen of late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from zae_limiter.exceptions import NamespaceNotFoundError, VersionError
from zae_limiter.models.access import Access
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.bucket_cache import BucketCache
from zae_limiter.stores.dynamodb.intents import NOTHING
from zae_limiter.stores.dynamodb.items import BrokenItem, address, decoder, key_of, ns_in, version_in
from zae_limiter.stores.dynamodb.requests import READ_MACHINE_TIME, Answer, Call, Item, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import (
    REGISTRY,
    SK_VERSION,
    Key,
    access_key,
    is_of,
    namespace_key,
    number_in,
    shard_key,
    version_key,
)
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient
from zae_limiter.stores.protocol import Leg, Scope, access_from_text, access_to_text
from zae_limiter.version import __version__

WRITTEN_EVERY_MS: Final = 60_000
"""How long denials by a bucket are kept at most before they are written, if it goes on denying."""

MOST_BUCKETS: Final = 50_000
"""So many buckets may have denials that are not written yet; what is denied by others is not counted."""

LAYOUT = 3
"""The layout of everything that is stored: keys, attributes, what they mean."""

MINOR = 1
"""Additions to this layout that older clients may ignore: 1 is limits with a calendar.

A client that does not know them refuses the items that have one, as it does every attribute of a limit that it does
not know.
"""

OLDEST_LAYOUT = 1

LOOKED_AT = 25
"""So many items of a table without a version record are looked at."""

OLD_VERSION_KEY = Key("SYSTEM#", SK_VERSION)
"""Where the version was before there were namespaces."""

VERSION_KEYS = (version_key(), OLD_VERSION_KEY)
"""What tells a table that was never set up from one that is old."""


def version_attributes(now: int) -> dict[str, Any]:
    """The record of a table that is set up by this version."""
    return {"layout_version": LAYOUT, "layout_minor": MINOR, "library_version": __version__, "created_at": now}


def layout_of(record: Item) -> int:
    """The layout a version record tells of."""
    return _told(record, "layout_version", OLDEST_LAYOUT)


def minor_of(record: Item) -> int:
    """The minor a version record tells of."""
    return _told(record, "layout_minor", 0)


def _told(record: Item, attribute: str, otherwise: int) -> int:
    try:
        return number_in(record[attribute], 0) if attribute in record else otherwise
    except (LookupError, TypeError, ValueError) as error:
        raise VersionError(f"the version record of this table cannot be read ({error!r})") from error


def lags_behind(record: Item) -> bool:
    """Whether a record of this layout should be told of additions."""
    return minor_of(record) < MINOR or "layout_minor" not in record


def record_among(items: Iterable[Item]) -> Item | None:
    """The version record that counts: the one of today's place, else one of an older place."""
    by_place = {(item["PK"]["S"], item["SK"]["S"]): item for item in items}
    return next((by_place[key] for key in VERSION_KEYS if key in by_place), None)


def check_layout(table: str, record: Item | None) -> None:
    """Refuse data of another layout, or a table that was never set up, and say what to do about it."""
    if record is None:
        raise VersionError(f"table {table!r} is not set up; deploy it, or open it once with create=True")
    found = layout_of(record)
    if found == LAYOUT:
        return
    made_by = record.get("library_version", {}).get("S")
    whose = f" (of zae-limiter {made_by})" if made_by else ""
    about = f"table {table!r} has layout {found}{whose}; zae-limiter {__version__} uses {LAYOUT}"
    if found > LAYOUT:
        raise VersionError(f"{about}. Install a newer one")
    if "migration" in record:
        raise VersionError(
            f"{about}. It is being migrated; if that was interrupted, continue it with: "
            f"zae-limiter migrate --url dynamodb://{table}"
        )
    raise VersionError(f"{about}. Bring it here with: zae-limiter migrate --url dynamodb://{table}")


def check_age(client: TableClient, record: Item | None, deadline: Deadline) -> Plan[None]:
    """Like :func:`check_layout`; a table without a record that has data is told from one that was never set up."""
    if record is None and (yield from has_old_data(client, deadline)):
        raise VersionError(
            f"table {client.table!r} has data of an older layout, before there was a version record; zae-limiter "
            f"{__version__} uses layout {LAYOUT}. Bring it here with: zae-limiter migrate --url dynamodb://{client.table}"
        )
    check_layout(client.table, record)


def has_old_data(client: TableClient, deadline: Deadline) -> Plan[bool]:
    """Whether a table without a version record has items all the same. A client that may not look finds none."""
    params = {"TableName": client.table, "Limit": LOOKED_AT, "ConsistentRead": True, "ProjectionExpression": "PK, SK"}
    try:
        reply = yield from client.ask("Scan", params, deadline, repeatable=True)
    except Refused as refusal:
        if refusal.by_load:
            raise
        return False
    items = [key_of(item) for item in reply.get("Items", ())]
    return any(not is_of(REGISTRY, key) or key == OLD_VERSION_KEY for key in items)


class Unwritten(NamedTuple):
    """Denials by a bucket that are not written yet, and since when (machine time)."""

    leg: Leg
    since: int
    denials: dict[str, int]


class DenialTally:
    """The denials of one client that are not written yet, by the first shard of each bucket.

    A denial writes nothing: it is a refused write, or none at all. So a client keeps its denials here until it writes
    to the bucket anyway. While a bucket does nothing but deny, they are written once a minute, in place of a write
    that would be refused; what is left is written when the store is closed. A process that is killed takes with it
    what it had not written.

    A write that was surely not done brings its denials back. If that cannot be known they are let go: a denial is
    counted once or not at all.
    """

    __slots__ = ("_lock", "unwritten")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.unwritten: dict[Key, Unwritten] = {}

    def add(self, key: Key, leg: Leg, denials: Mapping[str, int], started: int) -> None:
        """Keep denials, to be written with the next write to any shard of their bucket."""
        first = shard_key(key, 0)
        with self._lock:
            kept = self.unwritten.get(first)
            if kept is None:
                if len(self.unwritten) >= MOST_BUCKETS:
                    return
                kept = self.unwritten[first] = Unwritten(leg, started, {})
            for name, number in denials.items():
                kept.denials[name] = kept.denials.get(name, 0) + number

    def take(self, key: Key) -> Mapping[str, int]:
        """Those by one bucket, to be written now."""
        with self._lock:
            kept = self.unwritten.pop(shard_key(key, 0), None)
        return NOTHING if kept is None else kept.denials

    def is_due(self, first: Key, started: int) -> bool:
        """Whether the denials by a bucket have been kept for long enough."""
        kept = self.unwritten.get(first)
        return kept is not None and started - kept.since >= WRITTEN_EVERY_MS


class Namespace:
    """A namespace as one client knows it: its id, and what is remembered of its buckets."""

    def __init__(self, client: TableClient, namespace: str, *, corrected: bool) -> None:
        self.client = client
        self.write_ids = client.write_ids
        self.name = namespace
        self.cache = BucketCache(corrected=corrected)
        self.denials = DenialTally()
        self.known_ns: str | None = None
        """The id of the namespace, if it was read."""
        self._layout_fits = False
        self._when_forgotten: list[Callable[[], None]] = []

    def when_forgotten(self, forget: Callable[[], None]) -> None:
        """Call that too when nothing that was read holds any more."""
        self._when_forgotten.append(forget)

    def ns(self, deadline: Deadline | None = None) -> Plan[str]:
        """The id of the namespace; read once."""
        if self.known_ns is not None:
            return self.known_ns
        return (yield from self.checked_ns(deadline))

    def checked_ns(self, deadline: Deadline | None = None) -> Plan[str]:
        """The id of the namespace, surely not deleted as of now.

        The first time the table's version is read along with it, and data of another layout refused.
        """
        deadline = deadline or (yield from self.client.new_deadline())
        registered = namespace_key(self.name)
        if self._layout_fits:
            return self.live_ns((yield from self.client.get(registered, deadline)))
        items = yield from self.client.get_all([registered, version_key()], deadline)
        yield from check_age(self.client, items.get(version_key()), deadline)
        self._layout_fits = True
        return self.live_ns(items.get(registered))

    def checked_time(self, now: int, deadline: Deadline) -> Plan[tuple[int, Deadline]]:
        """Bucket time for what was asked at ``now``, and the deadline, by a clock that a reply has confirmed.

        The caller has just read something. Most of the time the clock was confirmed before that; if not, time is
        taken now. If even that reply said nothing new, because the clock was set since, one more is asked for.
        """
        if not deadline.checked:
            time = yield from READ_MACHINE_TIME
            if not time.checked:
                yield from self.checked_ns(deadline)
                time = yield from READ_MACHINE_TIME
            deadline = deadline._replace(epoch_s=time.epoch_s, clock_error_ms=time.clock_error_ms, checked=True)
            if self.cache.uses_machine_clock:
                now = yield from READ_CLOCK
        return self.cache.corrected(now, deadline.clock_error_ms), deadline

    def live_ns(self, item: Item | None) -> str:
        """The id in a namespace's record, unless there is none or it is deleted."""
        if item is None or "deleted_at" in item:
            self.forget_everything()
            raise NamespaceNotFoundError(self.name, deleted=item is not None)
        ns = ns_in(item)
        if ns != self.known_ns:
            self.forget_everything()
            self.known_ns = ns
        return ns

    def forget_everything(self) -> None:
        """Nothing that was read holds any more."""
        self.known_ns = None
        self.denials.unwritten.clear()
        self.cache.forget_all()
        for forget in self._when_forgotten:
            forget()


LOOK_EVERY_MS = 2_000
"""How old what is known may be before an acquire looks beside its write."""

OLDEST_MS = 4_000
"""How old it may be when an acquire ends. An index or a replica lags behind by less than what is left of 5 s."""

LAGGING_MS = 5_000
"""For so long after a change a read may still bring what was before it."""

NEVER = -LAST_MOMENT_MS

MOST_WIDE_SWITCHES = 1_000
"""So many fit into one item with room to spare."""

Switches = Mapping[str, Access]
"""By resource; the system's under the empty name."""


class AccessWatch:
    """What one client knows of the wide switches of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.forget()
        namespace.when_forgotten(self.forget)

    def forget(self) -> None:
        """Nothing is known."""
        self.switches: Switches = {}
        self._version = 0
        self.looked_at = NEVER
        """When, by the machine's timer."""
        self._changed_at = 0

    def concerning(self, resource: str) -> tuple[Access, ...]:
        """The switches that concern every entity on a resource, the nearest first."""
        if not self.switches:
            return ()
        return tuple(self.switches[name] for name in (resource, "") if name in self.switches)

    def age_ms(self, timer: int) -> int:
        """How old what is known is, by the machine's timer."""
        return timer - self.looked_at

    def is_due(self, timer: int) -> bool:
        """Whether it is time to look again."""
        return timer - self.looked_at >= LOOK_EVERY_MS

    def look_beside(self, deadline: Deadline) -> tuple[Call, Callable[[Answer], None]] | None:
        """The look that is due, to be made beside other calls, and who hears its answer.

        No answer tells nothing, and the next acquire looks again.
        """
        ns = self.namespace.known_ns
        if ns is None:
            return None
        params = {"TableName": self.client.table, "Key": address(access_key(ns)), "ConsistentRead": False}

        def hear(answer: Answer) -> None:
            if not isinstance(answer, (Refused, NoAnswer)):
                self.see(answer.get("Item"), deadline.started)

        return Call("GetItem", params, deadline.give_up_at), hear

    def see(self, item: Item | None, timer: int) -> None:
        """The item as it was at that time."""
        try:
            version, switches = (0, {}) if item is None else switches_in(item)
        except BrokenItem:
            self.looked_at = NEVER  # the next look raises it
            raise
        self.looked_at = max(self.looked_at, timer)
        if version < self._version and timer - self._changed_at < LAGGING_MS:
            return
        if version != self._version:
            self._version, self._changed_at = version, timer
        self.switches = switches

    def look(self, deadline: Deadline, *, consistent: bool = False) -> Plan[tuple[int, Switches]]:
        """Look now; what was read."""
        ns = yield from self.namespace.ns(deadline)
        item = yield from self.client.get(access_key(ns), deadline, consistent=consistent)
        self.see(item, deadline.started)
        return (0, {}) if item is None else switches_in(item)


@decoder("the access switches")
def switches_in(item: Item) -> tuple[int, Switches]:
    """The counter of changes, and the switches."""
    said = item["switches"]["M"].items()
    found = {name: access_from_text(Scope(None, name or None), text["S"]) for name, text in said}
    return version_in(item, "access_version"), found


def switches_attributes(version: int, switches: Switches) -> dict[str, Any]:
    """The same as attributes."""
    said = {name: access_to_text(access) for name, access in switches.items()}
    return {"access_version": version, "switches": said}
