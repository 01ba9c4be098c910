"""The books of a lease that has a record: they follow it, so that the lease is settled once, wherever that happens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zae_limiter.exceptions import ValidationError
from zae_limiter.lease.ledger import NOTHING, Amounts, Ledger
from zae_limiter.models.holds import Hold
from zae_limiter.naming import check_request_id
from zae_limiter.stores.lease_records import (
    DETACHED,
    TOKEN_PREFIX,
    LeaseRecord,
    RecordChange,
    RecordState,
    held_by,
)
from zae_limiter.stores.protocol import Grant

if TYPE_CHECKING:
    from collections.abc import Sequence


DEFAULT_LIFETIME_S = 86_400
"""How long a record is kept after it was last written, if the caller does not say."""

MAX_LIFETIME_S = 90 * 86_400


class RecordedLedger(Ledger):
    """Books that are kept in the store as well.

    ``is_repeated``: another call was granted it before; this one took nothing, and gives nothing back if it fails.
    ``must_close``: the record is closed at the end even if nothing is owed. ``is_settled_elsewhere``: another process
    has ended the lease, and nothing is booked here any more.
    """

    __slots__ = ("is_closed", "is_detached", "is_repeated", "is_settled_elsewhere", "must_close", "record", "writer")

    def __init__(self, grant: Grant, record: LeaseRecord, writer: str) -> None:
        super().__init__(grant, record.written)
        self.writer = writer
        self.is_repeated = grant.is_repeated and record.writer != writer
        self.is_as_granted = self.is_closed = self.is_detached = self.must_close = False
        self.follow(record)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to write at the end: it was closed, detached, or ended elsewhere."""
        return self.is_closed or self.is_detached or self.is_settled_elsewhere

    def follow(self, record: LeaseRecord | None) -> None:
        """Go on from what the store has recorded. ``None``: it has expired, and what was charged stays."""
        self.is_settled_elsewhere = record is None or record.state is RecordState.CLOSED
        if self.is_settled_elsewhere:
            self.totals, self.pending_since = NOTHING, None
        if record is not None:
            self.record = record
            self._written = record.written
            self.paid_by_leg = record.paid_by_leg
            self.settled = {**record.settled, **self.settled}
            self.keep = self.keep or record.keep

    def change_for(
        self, owed: Amounts, state: RecordState, holds: Sequence[Hold], expires_at: int | None = None
    ) -> RecordChange:
        """What becomes of the record when ``owed`` is booked. ``holds``: what the lease holds then."""
        known = self.record
        after = known.moved(
            written=self._written_with(owed),
            settled=dict(self.settled),
            keep=self.keep,
            paid_by_leg=self._paid_by_leg_with(owed),
            state=state,
            writer=self.writer,
            holds=held_by(holds),
            expires_at=known.expires_at if expires_at is None else expires_at,
        )
        is_new = known.version == 0 or known.state is RecordState.VOID
        return RecordChange(0 if is_new else known.version, after)

    def moved(self, change: RecordChange) -> None:
        """The store has made the change, and booked what goes with it. Nothing is pending."""
        record = change.record
        # No signal comes between these: nothing is called.
        self.record, self._written, self.paid_by_leg = record, record.written, record.paid_by_leg
        self.totals, self.pending_since, self.flushing = NOTHING, None, None

    def state_at_end(self, totals: Amounts, failed: bool) -> RecordState:
        """Void, if all that was taken comes back because the work failed: then the request may be repeated."""
        gone = not any({**self.written, **totals}.values())
        return RecordState.VOID if failed and gone and not self.settled else RecordState.CLOSED


def ledger_to_detach(ledger: Ledger, grant: Grant, record: LeaseRecord, writer: str) -> RecordedLedger:
    """The books of a lease that gets a record now, as they stand."""
    recorded = RecordedLedger(grant, record, writer)
    recorded.is_repeated = False
    recorded.totals, recorded.settled, recorded.keep = ledger.totals, ledger.settled, ledger.keep
    recorded.paid_by_leg, recorded.pending_since = ledger.paid_by_leg, ledger.pending_since
    recorded.arrears = ledger.arrears
    ledger.close()
    return recorded


def unwritten_record(
    record_id: str, entity_id: str, resource: str, grant: Grant, written: Amounts, now: int
) -> LeaseRecord:
    """The record that a lease without one is to get."""
    return LeaseRecord(
        record_id, entity_id, resource, "", grant.legs, dict(grant.wanted), dict(written), now, now, version=0
    )


def record_id_of(token: object) -> str:
    """The id of the lease that a token stands for."""
    if not isinstance(token, str) or not token.startswith(TOKEN_PREFIX):
        raise ValidationError("token", token, f"must be what detach() returned; those begin with {TOKEN_PREFIX!r}")
    record_id = token.removeprefix(TOKEN_PREFIX)
    return record_id if is_detached(record_id) else check_request_id(record_id, "token")


is_detached = re.compile(re.escape(DETACHED) + "[A-Za-z0-9_-]{22}").fullmatch
"""Whether an id is one that ``detach()`` made."""
