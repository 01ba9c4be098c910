"""Records of leases: what a store keeps so that a lease is granted once, and settled once, wherever that happens.

A lease that was asked for with a request id, or that was detached from its ``with`` block, has a record. It says which
legs paid, and what of it is booked. Three rules make every lease charged once and settled once:

1. The record of a request is written in the step that takes the tokens. A request that comes again finds it, and is
   answered by it.
2. A record has a version, and what is booked for the lease is booked in the step that moves the record from the
   version it was read at to the next. Of two settlers one moves it; the other one finds that it moved.
3. What moves a record names itself in it (``writer``). A settler whose answer was lost and that asks again finds its
   own record, and knows that it is done.

A record is *open* until the lease ends, then *closed*. It is *void* if everything that was taken came back because the
work failed: then the same request may be granted anew. Past ``expires_at`` it is as if it were not there: the charge
stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.stores.limit_fields import fields_of, limit_from
from zae_limiter.stores.protocol import BucketPlace, Draw, Grant, Leg, Posting, Settlement

TOKEN_PREFIX = "zl1."
DETACHED = "_"
"""Begins the id of a lease that was detached without a request id; no request id begins so."""

KEYED = "_key:"
"""Begins the id of what an operator did under a key (``operator_changes.py``)."""


class RecordState(StrEnum):
    """Where a lease with a record is in its life."""

    OPEN = "open"
    CLOSED = "closed"
    VOID = "void"
    DONE = "done"
    """No lease, but what an operator did under a key."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One lease. Amounts are whole tokens per limit; ``paid_by_leg`` is by bucket and limit."""

    id: str
    entity_id: str
    resource: str
    fingerprint: str
    legs: tuple[Leg, ...] = field(compare=False)  # what differs there differs in the version, too
    granted: Mapping[str, int]
    written: Mapping[str, int]
    granted_at: int
    expires_at: int
    settled: Mapping[str, int] = field(default_factory=dict)
    keep: bool = False
    paid_by_leg: Mapping[tuple[BucketPlace, str], int] = field(default_factory=dict)
    state: RecordState = RecordState.OPEN
    version: int = 1
    writer: str = ""
    holds: tuple[tuple[Any, ...], ...] = ()
    """Slots of calls in flight that it holds, as the arguments of :class:`Hold`."""

    @property
    def token(self) -> str:
        """What another process resumes the lease with."""
        return TOKEN_PREFIX + self.id

    def moved(self, **changes: Any) -> LeaseRecord:
        """The next version of it."""
        return replace(self, version=self.version + 1, **changes)

    def grant(self) -> Grant:
        """The grant that it records. It does not say what is left in the buckets now."""
        holds = tuple(Hold(*one) for one in self.holds)
        return Grant(self.legs, self.granted, (), (), self.granted_at, holds=holds, record=self)


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """Asks that a draw be recorded under an id, or answered by the record that is there."""

    id: str
    fingerprint: str
    lifetime_ms: int
    writer: str


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A record to write if it is still at ``expected_version``; 0: if there is none, or a void one."""

    expected_version: int
    record: LeaseRecord


class RecordedSettlement(Settlement):
    """A settlement that goes with a change of the lease's record."""

    __slots__ = ("_change",)

    def __init__(self, postings: Sequence[Posting], change: RecordChange | None) -> None:
        super().__init__(postings)
        self._change = change

    @property
    def change(self) -> RecordChange | None:
        """What changes in the record of the lease."""
        return self._change


class RecordMoved(Exception):
    """A record is not at the version that was expected, and nothing was booked. ``found``: what is there, if any."""

    def __init__(self, record_id: str, found: LeaseRecord | None) -> None:
        self.found = found
        super().__init__(record_id, found)


def fingerprint_of(entity_id: str, resource: str, wanted: Mapping[str, int], limits: Sequence[Limit] | None) -> str:
    """A digest of a request: another one under the same id is told from a repeated one by it."""
    described = None if limits is None else [limit.as_dict() for limit in limits]
    asked = json.dumps([entity_id, resource, dict(wanted), described], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def new_record(request: RecordRequest, draw: Draw, grant: Grant, now: int, known: LeaseRecord | None) -> LeaseRecord:
    """The record of a draw that is granted. ``known`` is the void one that is there, if any."""
    return LeaseRecord(
        id=request.id,
        entity_id=draw.entity_id,
        resource=draw.resource,
        fingerprint=request.fingerprint,
        legs=grant.legs,
        granted=grant.wanted,
        written=grant.wanted,
        granted_at=now,
        expires_at=now + request.lifetime_ms,
        version=1 if known is None else known.version + 1,
        writer=request.writer,
        holds=held_by(grant.holds),
    )


def held_by(holds: Sequence[Hold]) -> tuple[tuple[Any, ...], ...]:
    """Holds as a record has them; those that were given back are none."""
    return tuple(
        (hold.entity_id, hold.resource, hold.limit_name, hold.amount, hold.due, hold.ttl, hold.life)
        for hold in holds
        if hold.amount
    )


def answer_from(record: LeaseRecord | None, request: RecordRequest) -> Grant | None:
    """The grant for a request that was granted before. ``None``: it has to draw."""
    if record is None or record.state is RecordState.VOID:
        return None
    if record.fingerprint != request.fingerprint:
        raise ValidationError(
            "request_id",
            request.id,
            f"was used for another request, by {record.entity_id!r} on {record.resource!r}: "
            "give every request an id of its own",
        )
    return record.grant()


class DrawRecord:
    """The record of one draw, as far as its client knows it. Pure: a store does what it decides.

    ``seen`` is what is there and is no answer: void, or expired. The draw's own record replaces it.
    """

    __slots__ = ("draw", "request", "seen")

    def __init__(self, request: RecordRequest, draw: Draw) -> None:
        self.request = request
        self.draw = draw
        self.seen: LeaseRecord | None = None

    @property
    def expected_version(self) -> int | None:
        """At which version the record that is there must be; ``None``: there must be none."""
        return None if self.seen is None else self.seen.version

    def granting(self, grant: Grant, now: int) -> LeaseRecord:
        """What is to be written in the step that takes."""
        return new_record(self.request, self.draw, grant, now, self.seen)

    def fencing(self, now: int) -> LeaseRecord:
        """A void record, in whose place no earlier try of this draw can be written any more."""
        record = self.granting(Grant((), {}, (), (), now), now)
        return replace(record, state=RecordState.VOID, granted={}, written={})

    def heard(self, found: LeaseRecord | None, now: int) -> Grant | None:
        """The grant, if what was found there answers the request. ``None``: it is to be drawn over what was found."""
        grant = answer_from(found if found is not None and found.expires_at > now else None, self.request)
        if grant is None:
            self.seen = found
        return grant

    def is_own_fence(self) -> bool:
        """Whether what was seen is the void record of an earlier try of this draw."""
        seen = self.seen
        return seen is not None and seen.writer == self.request.writer and seen.state is RecordState.VOID

    def undoing(self, record: LeaseRecord | None) -> RecordChange | None:
        """What undoes the draw, if this record is its own and the lease is open: then its grant is given back."""
        if record is None or record.writer != self.request.writer or record.state is not RecordState.OPEN:
            return None
        return void_change(record)


def void_change(record: LeaseRecord | None) -> RecordChange | None:
    """What becomes of the record of a draw that is undone, if it has one."""
    if record is None:
        return None
    return RecordChange(record.version, record.moved(state=RecordState.VOID, written={}))


def check_change(change: RecordChange, found: LeaseRecord | None) -> bool:
    """Whether a change is still to be made. ``False``: it is what is there. Raises ``RecordMoved`` if it cannot be."""
    if found == change.record:
        return False
    expected = change.expected_version
    if found is None:
        if expected:
            raise RecordMoved(change.record.id, None)
    elif found.state is RecordState.VOID:
        if expected:
            raise RecordMoved(change.record.id, found)
    elif found.version != expected or found.state is RecordState.CLOSED:
        raise RecordMoved(change.record.id, found)
    return True


def record_to_text(record: LeaseRecord) -> str:
    """How a record looks in a row or an item."""
    return json.dumps(
        {
            "e": record.entity_id,
            "r": record.resource,
            "f": record.fingerprint,
            "l": [_leg_to_json(leg) for leg in record.legs],
            "g": dict(record.granted),
            "w": dict(record.written),
            "at": record.granted_at,
            "s": dict(record.settled),
            "k": int(record.keep),
            "p": [[*place, name, paid] for (place, name), paid in record.paid_by_leg.items()],
            "by": record.writer,
            **({"h": [list(one) for one in record.holds]} if record.holds else {}),
        },
        separators=(",", ":"),
    )


def record_from_text(record_id: str, state: str, version: int, expires_at: int, text: str) -> LeaseRecord:
    """The record that :func:`record_to_text` wrote. Raises ``ValueError`` and its kin for what is none."""
    stored = json.loads(text)
    return LeaseRecord(
        id=record_id,
        entity_id=stored["e"],
        resource=stored["r"],
        fingerprint=stored["f"],
        legs=tuple(_leg_from_json(leg) for leg in stored["l"]),
        granted=stored["g"],
        written=stored["w"],
        granted_at=stored["at"],
        expires_at=expires_at,
        settled=stored["s"],
        keep=bool(stored["k"]),
        paid_by_leg={((entity_id, on), name): paid for entity_id, on, name, paid in stored["p"]},
        state=RecordState(state),
        version=version,
        writer=stored["by"],
        holds=tuple(tuple(one) for one in stored.get("h", ())),
    )


def _leg_to_json(leg: Leg) -> list[Any]:
    limits = [fields_of(limit) for limit in leg.limits]
    paid = [[shard, dict(amounts)] for shard, amounts in leg.paid]
    cascaded = None if leg.cascaded is None else sorted(leg.cascaded)
    known = sorted(leg.known - leg.names)
    return [leg.entity_id, leg.resource, leg.source, limits, paid, cascaded, sorted(leg.refused), known]


def _leg_from_json(stored: Sequence[Any]) -> Leg:
    entity_id, resource, source, limits, paid, cascaded, refused, known = stored
    by_shard = tuple((shard, amounts) for shard, amounts in paid)
    counted = None if cascaded is None else frozenset(cascaded)
    terms = tuple(limit_from(fields) for fields in limits)
    names = frozenset(known)
    return Leg(entity_id, resource, terms, source, by_shard, known=names, cascaded=counted, refused=frozenset(refused))
