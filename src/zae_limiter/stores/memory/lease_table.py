"""The records of leases of a namespace in memory. Those that expired are dropped as new ones come."""

from __future__ import annotations

from heapq import heappop, heappush

from zae_limiter.stores.embedded.tables import LeaseSlot
from zae_limiter.stores.lease_records import LeaseRecord, RecordState
from zae_limiter.stores.memory.ordered_names import Index, OrderedNames


class LeaseTable:
    """Slots by id, in the order of ids, of entities, and of their ends."""

    def __init__(self) -> None:
        self._slots: dict[str, LeaseSlot] = {}
        self._ids: OrderedNames[str] = OrderedNames()
        self._by_entity = Index()
        self._ends: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, record_id: str) -> LeaseSlot:
        """The slot of a record; an empty one that is not kept yet, if there is none."""
        return self._slots.get(record_id) or LeaseSlot()

    def put(self, slot: LeaseSlot, record: LeaseRecord) -> None:
        """Keep the slot of this record."""
        self._drop_expired(record.granted_at)
        self._slots[record.id] = slot
        self._ids.add(record.id)
        self._by_entity.add(record.entity_id, record.id)
        heappush(self._ends, (record.expires_at, record.id))

    def after(self, entity_id: str | None, after: str | None, count: int, now: int) -> list[LeaseRecord]:
        """Records that have not expired, by id; of one entity, or of all."""
        ids = self._ids.after(after) if entity_id is None else self._by_entity.after(entity_id, after)
        found: list[LeaseRecord] = []
        for record_id in ids:
            record = self._slots[record_id].record
            if record is not None and record.expires_at > now and record.state is not RecordState.DONE:
                found.append(record)
                if len(found) == count:
                    break
        return found

    def _drop_expired(self, now: int) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, record_id = heappop(self._ends)
            slot = self._slots.get(record_id)
            record = None if slot is None else slot.record
            if record is not None and record.expires_at <= now:
                self._slots.pop(record_id, None)
                self._ids.discard(record_id)
                self._by_entity.discard(record.entity_id, record_id)
