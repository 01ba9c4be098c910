"""The switches of the system and of resources, as one client knows them.

They concern more buckets than could be told, so no bucket carries them. All of them are in one item, which every
active process reads again every :data:`LOOK_EVERY_MS`: beside the write of an acquire, not before it, so that none
takes longer for it. An acquire that learns by its look that it is blocked gives back what it took. A process that was
idle knows nothing recent, and learns by the look of its first acquire.

What is read may lag behind by some moments; an older state never replaces a newer one that was seen of late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zae_limiter.models.access import Access
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import BrokenItem, address, decoder, version_in
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.requests import Answer, Call, Item, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import access_key
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.protocol import Scope, access_from_text, access_to_text

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
