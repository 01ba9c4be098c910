"""Records of leases as Redis keeps them: a text under the id, which expires by itself, and a list of all."""

from __future__ import annotations

import json
from typing import Any

from zae_limiter.exceptions import VersionError
from zae_limiter.stores.lease_records import LeaseRecord, record_from_text, record_to_text
from zae_limiter.stores.redis.keys import lease_key


def text_of(record: LeaseRecord) -> str:
    """A record as it is kept."""
    stored = {"st": str(record.state), "ver": record.version, "exp": record.expires_at, "body": record_to_text(record)}
    return json.dumps(stored, separators=(",", ":"))


def record_in(record_id: str, text: bytes) -> LeaseRecord:
    """The record in a text."""
    try:
        stored = json.loads(text)
        return record_from_text(record_id, stored["st"], stored["ver"], stored["exp"], stored["body"])
    except (LookupError, TypeError, ValueError) as error:
        raise VersionError(f"the record of the lease {record_id!r} cannot be read ({error!r})") from error


def told_record(prefix: str, record: LeaseRecord, expected: int, now: int) -> dict[str, Any]:
    """A record as a script is told it: written if the one that is there has the version that is expected."""
    return {
        "key": lease_key(prefix, record.id),
        "text": text_of(record),
        "expected": expected,
        "px": max(record.expires_at - now, 1),
        "expires": str(record.expires_at),
        "now": str(now),
        "member": member_of(record),
    }


def member_of(record: LeaseRecord) -> str:
    """How a record is listed."""
    return f"{record.entity_id}#{record.id}"
