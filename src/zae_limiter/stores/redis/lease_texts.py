"""Records of leases as Redis keeps them: a text under the id, which expires by itself, and a list of all.

What only the script knows that takes, it writes beside: ``h`` has the slots that it lent, ``refused`` has by leg the
limits that only watch and would have refused. The next version of a record has both where they belong.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from zae_limiter.exceptions import VersionError
from zae_limiter.stores.lease_records import LeaseRecord, RecordState, record_from_text, record_to_text
from zae_limiter.stores.protocol import with_refusals
from zae_limiter.stores.redis.keys import lease_key


def text_of(record: LeaseRecord) -> str:
    """A record as it is kept."""
    stored = {"st": str(record.state), "ver": record.version, "exp": record.expires_at, "body": record_to_text(record)}
    return json.dumps(stored, separators=(",", ":"))


def record_in(record_id: str, text: bytes) -> LeaseRecord:
    """The record in a text."""
    try:
        stored = json.loads(text)
        record = record_from_text(record_id, stored["st"], stored["ver"], stored["exp"], stored["body"])
        if "h" not in stored:
            return record
        refused = {place: set(names) for place, names in enumerate(stored["refused"]) if names}
        holds = tuple(tuple(one) for one in stored["h"])
        return replace(record, holds=holds, legs=with_refusals(record.legs, refused))
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
        "done": record.state is RecordState.DONE,  # such a one is no lease, and is not listed
    }


def member_of(record: LeaseRecord) -> str:
    """How a record is listed."""
    return f"{record.entity_id}#{record.id}"
