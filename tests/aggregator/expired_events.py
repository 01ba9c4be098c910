"""Records of audit events that expired, as a table wrote them, and what an archive has of them."""

from __future__ import annotations

import gzip
import json
from typing import Any

from usage_model import TABLE, empty_model, limiter_on, store_on

from zae_limiter.models.limit import Limit
from zae_limiter.testing.clock import FakeClock

EXPIRY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def removals(days: int = 1) -> list[dict[str, Any]]:
    """Two for each of some days."""
    model, clock = empty_model(), FakeClock()
    limiter = limiter_on(store_on(model), clock, create=True)
    for day in range(days):
        limiter.set_system_defaults([Limit.per_day("rpd", 10 + day)], principal="ann")
        limiter.create_entity(f"key-{day}", name="Ünïcode")
        clock.advance(86_400)
    items = [item for key, item in model.snapshot(TABLE).items() if key[1].startswith("#AUDIT#")]
    return [
        expired(item, number) for number, item in enumerate(sorted(items, key=lambda item: str(item["SK"]["S"])), 98)
    ]


def expired(item: Any, number: int) -> dict[str, Any]:
    """The record that says that an item's time was over."""
    return {
        "eventName": "REMOVE",
        "userIdentity": EXPIRY,
        "dynamodb": {
            "Keys": {"PK": item["PK"], "SK": item["SK"]},
            "SequenceNumber": str(number),
            "OldImage": dict(item),
        },
    }


def lines_in(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(body).decode().splitlines()]
