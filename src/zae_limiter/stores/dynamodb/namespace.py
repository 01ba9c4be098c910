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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zae_limiter.exceptions import NamespaceNotFoundError, VersionError
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.bucket_cache import BucketCache
from zae_limiter.stores.dynamodb.items import key_of, ns_in
from zae_limiter.stores.dynamodb.requests import READ_MACHINE_TIME, Item, Refused
from zae_limiter.stores.dynamodb.schema import REGISTRY, SK_VERSION, Key, is_of, namespace_key, number_in, version_key
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient
from zae_limiter.stores.dynamodb.tallies import DenialTally
from zae_limiter.version import __version__

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
