"""Records of leases (``stores.lease_records``): found, listed, and written in the transaction that takes or books."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.models.reports import Page
from zae_limiter.stores.cursors import name_after, page_of
from zae_limiter.stores.embedded.tables import SharedTables, Transacting, reads, scans
from zae_limiter.stores.lease_records import (
    LeaseRecord,
    RecordChange,
    answer_from,
    check_change,
    new_record,
)
from zae_limiter.stores.protocol import Draw, Grant, Posting


class LeaseVerbs(Transacting):
    """The verbs on records of leases."""

    @reads
    def lease_record(self, tables: SharedTables, record_id: str, now: int) -> LeaseRecord | None:
        return live_record(tables, record_id, now)

    @scans
    def lease_records(
        self, tables: SharedTables, entity_id: str | None, limit: int, cursor: str | None, now: int
    ) -> Page[LeaseRecord]:
        rows = tables.lease_records(entity_id, name_after(cursor), limit + 1, now)
        return page_of(rows, limit, lambda record: (record.id,))


def live_record(tables: SharedTables, record_id: str, now: int) -> LeaseRecord | None:
    """The record of a lease, if it has not expired."""
    record = tables.lease_slot(record_id).record
    return record if record is not None and record.expires_at > now else None


def recorded_grant(tables: SharedTables, draw: Draw, now: int) -> Grant | None:
    """The grant of a request that was granted before. ``None``: it is to draw."""
    request = draw.record
    return None if request is None else answer_from(live_record(tables, request.id, now), request)


def recorded(tables: SharedTables, draw: Draw, grant: Grant, now: int) -> Grant:
    """The grant, with the record that is to be written with it if the draw asked for one."""
    request = draw.record
    if request is None:
        return grant
    return grant._replace(record=new_record(request, draw, grant, now, live_record(tables, request.id, now)))


def to_book(
    tables: SharedTables, postings: Sequence[Posting], change: RecordChange | None, now: int
) -> tuple[Sequence[Posting], LeaseRecord | None]:
    """What is still to be booked, and the record to write with it. Nothing, if an earlier try has made the change.

    Raises ``RecordMoved`` if it cannot be made.
    """
    if change is None:
        return postings, None
    if check_change(change, live_record(tables, change.record.id, now)):
        return postings, change.record
    return (), None
