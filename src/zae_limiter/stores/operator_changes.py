"""What an operator does to the tokens of an entity: give some, or fill its buckets again. Under a key, once.

What was done under a key is recorded like a lease (``lease_records.py``), in the step that does it: a repetition finds
the record, and does nothing. Neither is usage: balances change, counters do not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.lease_records import KEYED, LeaseRecord, RecordState
from zae_limiter.stores.windows import DAY_MS, DAYS_KEPT

KEYS_KEPT_MS = DAYS_KEPT * DAY_MS
"""For how long a key is remembered: as long as the audit trail has what was done under it."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Give an entity so many whole tokens on a resource, in its own bucket, up to the ceiling of each limit.

    ``above``: lift the ceiling by them as well, for the period that a calendar limit stands in.
    """

    entity_id: str
    resource: str
    amounts: Mapping[str, int]
    key: str
    principal: str | None = None
    above: bool = False

    @property
    def audited(self) -> dict[str, Any]:
        """What the audit trail says of it."""
        details: dict[str, Any] = {"amounts": dict(self.amounts), "key": self.key}
        if self.above:
            details["above"] = True
        return details


@dataclass(frozen=True, slots=True)
class Reset:
    """Fill the live buckets of an entity: on one resource or on all, all limits or some, under a key or not."""

    entity_id: str
    resource: str | None = None
    limits: tuple[str, ...] | None = None
    key: str | None = None
    principal: str | None = None

    def concerns(self, limit_name: str) -> bool:
        """Whether it fills this limit."""
        return self.limits is None or limit_name in self.limits

    def audited(self, buckets: int) -> dict[str, Any]:
        """What the audit trail says of it."""
        details: dict[str, Any] = {"buckets": buckets}
        if self.limits is not None:
            details["limits"] = list(self.limits)
        if self.key is not None:
            details["key"] = self.key
        return details


def record_id_of_key(key: str) -> str:
    """Under which id it is recorded what was done under a key."""
    return KEYED + key


def key_record(change: Credit | Reset, key: str, result: int, now: int) -> LeaseRecord:
    """The record of a change that is done under a key. ``result``: what its caller is told."""
    return LeaseRecord(
        id=record_id_of_key(key),
        entity_id=change.entity_id,
        resource=change.resource or "",
        fingerprint=_fingerprint(change),
        legs=(),
        granted={},
        written={"result": result},
        granted_at=now,
        expires_at=now + KEYS_KEPT_MS,
        state=RecordState.DONE,
    )


def earlier_result(change: Credit | Reset, record: LeaseRecord | None) -> int | None:
    """What came of the same change when it was done under its key. ``None``: it was not."""
    if record is None:
        return None
    if record.fingerprint != _fingerprint(change):
        raise ValidationError(
            "key",
            change.key,
            f"something else was done under it, to {record.entity_id!r}: give every change a key of its own",
        )
    return record.written["result"]


def _fingerprint(change: Credit | Reset) -> str:
    asked: list[Any] = [type(change).__name__, change.entity_id, change.resource]
    asked.append(dict(change.amounts) if isinstance(change, Credit) else sorted(change.limits or ()))
    if isinstance(change, Credit) and change.above:
        asked.append("above")
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]
