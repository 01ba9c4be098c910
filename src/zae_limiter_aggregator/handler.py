"""The entry point of the Lambda: ``zae_limiter_aggregator.handler.handler``, behind the stream of the table
``ZAEL_TABLE``.

The event source should report batch item failures: then Lambda brings again what follows from the first record that
was not counted, and what was counted among it changes nothing. Nothing third-party is needed. The store is opened with
the first batch and kept for the next ones. ``ZAEL_ARCHIVE``, if it is set, is where audit events go that expire:
``s3://BUCKET``.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter_aggregator.archives import ARCHIVE_VARIABLE, open_archive, with_archive
from zae_limiter_aggregator.lambda_output import batch_response, log_lines
from zae_limiter_aggregator.proactive_split import ProactiveSplit
from zae_limiter_aggregator.processor import Processor

if TYPE_CHECKING:
    from zae_limiter.running.plan import Performer
    from zae_limiter.stores.dynamodb.performer import RequestPerformer
    from zae_limiter_aggregator.archives import Archive

TABLE_VARIABLE: Final = "ZAEL_TABLE"
DEADLINE_S: Final = 10.0
"""How long one snapshot may take to be written, with all its tries."""

_kept: dict[str, RequestPerformer] = {}
_archives: dict[str, Archive] = {}


def handler(event: dict[str, Any], context: Any) -> dict[str, list[dict[str, str]]]:
    """Count a batch of the stream; which of its records Lambda should bring again."""
    table = os.environ.get(TABLE_VARIABLE)
    if not table:
        raise ZAELimiterError(f"{TABLE_VARIABLE} must name the table whose stream this is")
    store = _kept.get(table)
    if store is None:
        store = _kept[table] = open_table(table)
    records = event.get("Records") or []
    perform, archiving = performer_for(store)
    processor = Processor(store.client, archiving=archiving, split_bucket=ProactiveSplit(store.client))
    processed = SyncDriver(machine_clock, perform).run(processor.process(records))
    request_id = getattr(context, "aws_request_id", None)
    for line in log_lines(table, records, processed, round(time.time() * 1_000), request_id):
        print(line, flush=True)
    return batch_response(processed)


def performer_for(store: RequestPerformer) -> tuple[Performer, bool]:
    """Who does what is asked of the table, and of the archive if there is one; whether there is."""
    url = os.environ.get(ARCHIVE_VARIABLE)
    if not url:
        return store.perform, False
    archive = _archives.get(url)
    if archive is None:
        archive = _archives[url] = open_archive(url)
    return with_archive(store.perform, archive), True


def open_table(table: str) -> RequestPerformer:
    """The table as this environment reaches it, over our own transport.

    The rest of this package knows no transport, and a contract of imports keeps it so. Here the two come together,
    with the first batch.
    """
    from zae_limiter.stores.dynamodb.performer import RequestPerformer

    return RequestPerformer(table, deadline=DEADLINE_S)
