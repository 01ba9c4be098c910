"""Pulses: one partition for all processes of a namespace, sorted by the minute in which they expire.

A process writes the same item for a minute, then the next one; the table's expiry removes the old ones, some day. A
reader asks for those that have not expired, so it never meets the old ones, however many there are.
"""

from __future__ import annotations

from typing import Final

from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import decoder
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import encode_item, number_in, pk_pulses, pulse_key
from zae_limiter.stores.dynamodb.table_client import verb

EXPIRY_MARGIN_S: Final = 600
"""How long an item is kept after its pulse has expired: clocks differ."""

PAGE: Final = 100


class Pulses:
    """The verbs on pulses."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.client = namespace.client

    @verb
    def put_pulse(self, process: str, text: str, expires_at: int, now: int) -> Plan[None]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        key = pulse_key(ns, expires_at, process)
        item = encode_item(
            {
                "PK": key.pk,
                "SK": key.sk,
                "exp": expires_at,
                "body": text,
                "ttl": deadline.epoch_s + max(expires_at - now, 0) // 1000 + EXPIRY_MARGIN_S,
            }
        )
        params = {"TableName": self.client.table, "Item": item}
        yield from self.client.ask("PutItem", params, deadline, repeatable=True)

    @verb
    def pulses(self, most: int, now: int) -> Plan[tuple[str, ...]]:
        ns = yield from self.namespace.checked_ns()
        latest: dict[str, tuple[int, str]] = {}
        between = pulse_key(ns, now, "").sk, pulse_key(ns, LAST_MOMENT_MS, "").sk
        start: Item | None = None
        while len(latest) < most:
            deadline = yield from self.client.new_deadline()
            found = yield from self.client.query(
                pk_pulses(ns), deadline, between=between, start=start, limit=PAGE, consistent=False
            )
            for item in found.items:
                process, expires_at, text = _pulse_of(item)
                if expires_at > now and expires_at >= latest.get(process, (0, ""))[0]:
                    latest[process] = expires_at, text
            start = found.next_key
            if start is None:
                break
        return tuple(text for _, text in list(latest.values())[:most])


@decoder("a pulse")
def _pulse_of(item: Item) -> tuple[str, int, str]:
    """The process, when it expires, and what it says. Raises ``BrokenItem``."""
    process = item["SK"]["S"].rpartition("#")[2]
    return process, number_in(item["exp"], 0, LAST_MOMENT_MS), item["body"]["S"]
