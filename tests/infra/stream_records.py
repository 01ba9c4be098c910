"""What a table's stream has to tell, as Lambda is given it."""

from __future__ import annotations

import json
from typing import Any

from zae_limiter.stores.dynamodb.transport.protocol import Transport

SECONDS = 20.0
MOST_PAGES = 50


def stream_records(transport: Transport, table: str) -> list[dict[str, Any]]:
    """Every record from the oldest on; times are numbers, as Lambda has them."""

    def call(operation: str, **params: Any) -> Any:
        return transport.call(operation, params, SECONDS)

    stream = call("DescribeTable", TableName=table)["Table"]["LatestStreamArn"]
    found: list[Any] = []
    for shard in call("DescribeStream", StreamArn=stream)["StreamDescription"]["Shards"]:
        where = {"StreamArn": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = call("GetShardIterator", **where)["ShardIterator"]
        for _ in range(MOST_PAGES):
            page = call("GetRecords", ShardIterator=iterator)
            found += page["Records"]
            iterator = page.get("NextShardIterator")
            if not page["Records"] or iterator is None:
                break
    records: list[dict[str, Any]] = json.loads(json.dumps(found, default=lambda moment: moment.timestamp()))
    return records
