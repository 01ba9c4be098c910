"""What a table's stream has to tell, as Lambda is given it."""

from __future__ import annotations

import json
from typing import Any

from engines.streams import records_in_stream
from zae_limiter.stores.dynamodb.transport.protocol import Transport

SECONDS = 20.0


def stream_records(transport: Transport, table: str) -> list[dict[str, Any]]:
    """Every record from the oldest on; times are numbers, as Lambda has them."""

    def call(operation: str, **params: Any) -> Any:
        return transport.call(operation, params, SECONDS)

    found = records_in_stream(call, table)
    records: list[dict[str, Any]] = json.loads(json.dumps(found, default=lambda moment: moment.timestamp()))
    return records
