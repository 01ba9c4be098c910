"""The output of the Lambda for a batch: the records to retry, the lines of the log, and the metrics in them.

Everything is a line of JSON. The one with the numbers is in CloudWatch's embedded format: the log has them, and
CloudWatch makes metrics of them without being called. The pressure of shards is one metric with a value for each: a
metric for each shard would cost more than the shards. Which ones are hot is in lines of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from zae_limiter_aggregator.proactive_split import Load
from zae_limiter_aggregator.processor import Processed
from zae_limiter_aggregator.stream_records import PoisonousRecord, Record, last_written

NAMESPACE: Final = "zae-limiter"
METRICS: Final = {
    "Records": "Count",
    "Snapshots": "Count",
    "PoisonousRecords": "Count",
    "UnwrittenRecords": "Count",
    "ArchivedEvents": "Count",
    "Splits": "Count",
    "ShardPressure": "Percent",
    "Lag": "Milliseconds",
}

MOST_VALUES: Final = 100
"""How many values a metric may have in one line. The highest are reported."""

HOT_TOLD: Final = 10


def batch_response(processed: Processed) -> dict[str, list[dict[str, str]]]:
    """What Lambda is answered: the records that it should bring again, by their numbers.

    Those are the ones that could not be written, and poisonous ones that could not be put aside: after all tries
    Lambda puts them aside itself. One without a number cannot be named (an empty name would mean the whole batch); it
    is only logged.
    """
    wanted = processed.unwritten if processed.put_aside else processed.failures
    sequences = dict.fromkeys(failure.sequence for failure in wanted if failure.sequence)
    return {"batchItemFailures": [{"itemIdentifier": sequence} for sequence in sequences]}


def log_lines(
    table: str, records: Sequence[Record], processed: Processed, now_ms: int, request_id: str | None
) -> Iterator[str]:
    """What is logged: a line for every record that was not counted and for every hot shard, one with the numbers."""
    for failure in processed.failures:
        yield _line(
            "ERROR",
            "poisonous record" if isinstance(failure.error, PoisonousRecord) else "record not counted yet",
            now_ms,
            request_id,
            {"table": table, "sequence": failure.sequence, "error": str(failure.error)},
        )
    for load in [load for load in processed.loads if load.is_hot][:HOT_TOLD]:
        yield _line("WARN", "hot shard", now_ms, request_id, {"table": table, **load_fields(load)})
    for failed in processed.failed_splits:
        on_page = {"table": table, **load_fields(failed.load), "error": str(failed.error)}
        yield _line("WARN", "hot bucket not split", now_ms, request_id, on_page)
    numbers: dict[str, int | list[int]] = {
        "Records": processed.records,
        "Snapshots": processed.snapshots,
        "PoisonousRecords": len(processed.poisonous),
        "UnwrittenRecords": len(processed.unwritten),
        "ArchivedEvents": processed.archived,
        "Splits": processed.splits,
    }
    if processed.loads:
        numbers["ShardPressure"] = [max(load.percent, 0) for load in processed.loads[:MOST_VALUES]]
    written_s = last_written(records) if records else None
    if written_s is not None:
        numbers["Lag"] = max(0, now_ms - round(written_s * 1_000))
    metrics = [{"Name": name, "Unit": METRICS[name]} for name in numbers]
    embedded = {"Namespace": NAMESPACE, "Dimensions": [["Table"]], "Metrics": metrics}
    numbered = {"_aws": {"Timestamp": now_ms, "CloudWatchMetrics": [embedded]}, "Table": table, **numbers}
    yield _line("INFO", "batch counted", now_ms, request_id, numbered)


def load_fields(load: Load) -> dict[str, Any]:
    """A shard and its pressure."""
    life = load.life
    return {
        "namespace_id": life.ns,
        "entity_id": life.entity_id,
        "resource": life.resource,
        "shard": life.shard,
        "shards": load.shards,
        "pressure_percent": load.percent,
    }


def _line(level: str, message: str, now_ms: int, request_id: str | None, on_page: Mapping[str, Any]) -> str:
    head = {"level": level, "message": message, "time_ms": now_ms, "request_id": request_id}
    return json.dumps({**head, **on_page}, ensure_ascii=False)
