"""Where Lambda begins: ``zae_limiter_aggregator.handler.handler``, behind the stream of the table ``ZAEL_TABLE``.

The event source should report batch item failures: then Lambda brings again what follows from the first record that
was not counted, and what was counted among it changes nothing. Nothing third-party is needed. The store is opened with
the first batch and kept for the next ones.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.telling import answer_of, lines_of

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.store import DynamoStore

TABLE_VARIABLE: Final = "ZAEL_TABLE"
DEADLINE_S: Final = 10.0
"""How long one snapshot may take to be written, with all its tries."""

_kept: dict[str, DynamoStore] = {}


def handler(event: dict[str, Any], context: Any) -> dict[str, list[dict[str, str]]]:
    """Count a batch of the stream; which of its records Lambda should bring again."""
    table = os.environ.get(TABLE_VARIABLE)
    if not table:
        raise ZAELimiterError(f"{TABLE_VARIABLE} must name the table whose stream this is")
    store = _kept.get(table)
    if store is None:
        store = _kept[table] = open_table(table)
    records = event.get("Records") or []
    processed = SyncDriver(machine_clock, store.perform).run(Processor(store.asking).process(records))
    request_id = getattr(context, "aws_request_id", None)
    for line in lines_of(table, records, processed, round(time.time() * 1_000), request_id):
        print(line, flush=True)
    return answer_of(processed)


def open_table(table: str) -> DynamoStore:
    """The table as this environment reaches it, over our own transport.

    The rest of this package knows no transport, and a contract of imports keeps it so. Here the two come together,
    with the first batch.
    """
    from zae_limiter.stores.dynamodb.store import DynamoStore

    return DynamoStore(table, deadline=DEADLINE_S)
