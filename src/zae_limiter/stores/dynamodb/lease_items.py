"""Records of leases as items of the table (see ``stores.lease_records``).

A record is written on the condition that it is as it was seen: not there, or at the version that was read. Versions
only grow, also when a record that is void or has expired is replaced. So a write that arrives late is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.stores.dynamodb.expressions import Write
from zae_limiter.stores.dynamodb.items import decoder
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import encode_item, gsi4, lease_filed_as, lease_key, number_in
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient
from zae_limiter.stores.lease_records import LeaseRecord, record_from_text, record_to_text

EXPIRY_MARGIN_S = 3_600
"""How long an item is kept after its record has expired: clocks differ."""


def put_record(
    client: TableClient, ns: str, record: LeaseRecord, seen: int | None, now: int, deadline: Deadline
) -> Write:
    """The write of a record that was ``seen`` at this version, or not seen at all."""
    key = lease_key(ns, record.id)
    item = encode_item(
        {
            "PK": key.pk,
            "SK": key.sk,
            "st": str(record.state),
            "ver": record.version,
            "exp": record.expires_at,
            "body": record_to_text(record),
            "ttl": deadline.epoch_s + max(record.expires_at - now, 0) // 1000 + EXPIRY_MARGIN_S,
            **gsi4(ns, key.pk, f"LEASE#{record.entity_id}#{lease_filed_as(record.entity_id, record.id)}"),
        }
    )
    condition: Mapping[str, Any] = {"ConditionExpression": "attribute_not_exists(PK)"}
    if seen is not None:
        condition = {"ConditionExpression": "ver = :seen", "ExpressionAttributeValues": {":seen": {"N": str(seen)}}}
    return {
        "Put": {
            "TableName": client.table,
            "Item": item,
            **condition,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


@decoder("the record of a lease")
def record_of(item: Item) -> LeaseRecord:
    """The record in an item. Raises ``BrokenItem``."""
    record_id = item["PK"]["S"].partition("/LEASE#")[2]
    version, expires_at = number_in(item["ver"], 0), number_in(item["exp"], 0, LAST_MOMENT_MS)
    return record_from_text(record_id, item["st"]["S"], version, expires_at, item["body"]["S"])
