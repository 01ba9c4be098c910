"""What a table's stream has to tell, read from its oldest record on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_PAGES = 1_000


def records_in_stream(call: Callable[..., Any], table: str) -> list[dict[str, Any]]:
    """Everything by now, as the engine says it. ``call`` is given an operation and its parameters by name."""
    stream = call("DescribeTable", TableName=table)["Table"]["LatestStreamArn"]
    found: list[dict[str, Any]] = []
    for shard in call("DescribeStream", StreamArn=stream)["StreamDescription"]["Shards"]:
        where = {"StreamArn": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = call("GetShardIterator", **where)["ShardIterator"]
        for _ in range(MOST_PAGES):
            page = call("GetRecords", ShardIterator=iterator)
            found += page["Records"]
            iterator = page.get("NextShardIterator")
            if not page["Records"] or iterator is None:
                break
    return found
