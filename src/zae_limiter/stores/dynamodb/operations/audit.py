"""The audit trail: who changed what. An event is written together with the change it tells of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter.models.moments import LAST_MOMENT_MS, at
from zae_limiter.models.reports import AuditEvent, Page
from zae_limiter.running.plan import Plan
from zae_limiter.stores.audit_events import ulid
from zae_limiter.stores.cursors import page_of
from zae_limiter.stores.dynamodb.expressions import NOTHING, Write, put
from zae_limiter.stores.dynamodb.items import decoder
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.paging import (
    fetched_rows_of,
    partition,
    position,
    rows_of,
    whole_namespace,
)
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import Key, gsi4, number_in, pk_audit, sk_audit
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient, verb
from zae_limiter.stores.windows import DAYS_KEPT

RETENTION_S = DAYS_KEPT * 86_400
"""How long an event is kept, by the machine's clock: DynamoDB's expiry knows no other."""

MOST_DETAILS_BYTES = 350_000
"""An item has at most 400 KB, and the rest of an event is small."""

LAST_ULID_MS = 2**48 - 1
LAST_DISTINCT = 2**80 - 1


class AuditEntry(NamedTuple):
    """What an event tells: of whom, what, and by whom."""

    subject: str
    action: str
    resource: str | None
    principal: str | None
    details: Mapping[str, Any]


def audited(client: TableClient, ns: str, entry: AuditEntry, now: int, deadline: Deadline) -> Write:
    """The write that adds an event; the later one of two within a millisecond by one client sorts later too."""
    event_id = ulid(now, client.write_ids.number())
    pk = pk_audit(ns, entry.subject)
    attributes = {
        "action": entry.action,
        "entity_id": entry.subject,
        "resource": entry.resource,
        "principal": entry.principal,
        "details": details_text(entry.details),
        "timestamp": now,
        "ttl": deadline.epoch_s + RETENTION_S,
        **gsi4(ns, pk, f"AUDIT#{event_id}"),
    }
    return put(client.table, Key(pk, sk_audit(event_id)), attributes, NOTHING)


def details_text(details: Mapping[str, Any]) -> str:
    """Details as they are stored. How it was is left out if an item cannot hold both: how it is can be read nowhere
    else once it is changed again."""
    text = as_json(details)
    if len(text.encode()) <= MOST_DETAILS_BYTES or "from" not in details:
        return text
    return as_json({**details, "from": {"left_out": f"{len(text.encode()):,} bytes"}})


def as_json(details: Mapping[str, Any]) -> str:
    """Details as they are stored."""
    return json.dumps(dict(details), ensure_ascii=False, separators=(",", ":"))


class AuditTrail:
    """Reading the trail."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.client = namespace.client

    @verb
    def audit_events(
        self,
        entity_id: str | None,
        start_ms: int | None,
        end_ms: int | None,
        limit: int,
        cursor: str | None,
    ) -> Plan[Page[AuditEvent]]:
        """Changes, newest first: of one subject, or of all."""
        ns = yield from self.namespace.checked_ns()
        before = position(cursor)
        first, last = ids_between(start_ms, end_ms)
        if before is not None:
            last = min(last, before)
        if first > last:
            return Page([], None)

        def older(item: Item) -> AuditEvent | None:
            if not is_event_key(item["SK"]["S"]):
                return None  # of an older layout, whose events had the time as their id
            event = event_of(item)
            return None if event.event_id == before else event

        if entity_id is not None:
            between = (sk_audit(first), sk_audit(last))
            trail = partition(self.client, pk_audit(ns, entity_id), between, newest_first=True)
            rows = yield from rows_of(trail, limit, older)
        else:
            between = (f"AUDIT#{first}", f"AUDIT#{last}")
            trails = whole_namespace(self.client, ns, between=between, newest_first=True)
            rows = yield from fetched_rows_of(self.client, trails, limit, older)
        return page_of(rows, limit, lambda event: (event.event_id,))


def ids_between(start_ms: int | None, end_ms: int | None) -> tuple[str, str]:
    """The least and the greatest id of events from ``start_ms`` on and before ``end_ms``."""
    first = 0 if start_ms is None else min(start_ms, LAST_ULID_MS)
    last = LAST_ULID_MS if end_ms is None else min(end_ms - 1, LAST_ULID_MS)
    if last < 0:
        return ulid(1, 0), ulid(0, 0)
    return ulid(first, 0), ulid(last, LAST_DISTINCT)


@decoder("an audit event")
def event_of(item: Item) -> AuditEvent:
    """An event from its item. Raises ``BrokenItem``."""
    subject = item["entity_id"]["S"]
    if item["PK"]["S"].partition("/")[2] != f"AUDIT#{subject}" or not is_event_key(item["SK"]["S"]):
        raise ValueError("it has the key of another one")
    details = json.loads(item["details"]["S"])
    if not isinstance(details, dict):
        raise ValueError("its details are none")
    return AuditEvent(
        event_id=item["SK"]["S"].removeprefix(sk_audit("")),
        timestamp=at(number_in(item["timestamp"], 0, LAST_MOMENT_MS)),
        action=item["action"]["S"],
        entity_id=subject,
        resource=item["resource"]["S"] if "resource" in item else None,
        principal=item["principal"]["S"] if "principal" in item else None,
        details=details,
    )


is_event_key = re.compile(rf"{sk_audit('')}[0-9A-HJKMNP-TV-Z]{{26}}").fullmatch
"""Whether a sort key is that of an event."""
