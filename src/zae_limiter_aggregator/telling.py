"""What is told about a batch: to Lambda what to bring again, to the log what happened, to CloudWatch how much.

Everything is a line of JSON. The one with the numbers is in CloudWatch's embedded format: whoever reads the log finds
them there, and CloudWatch makes metrics of them without being called.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from zae_limiter_aggregator.follower import last_written
from zae_limiter_aggregator.processor import Processed
from zae_limiter_aggregator.records import PoisonousRecord, Record

NAMESPACE: Final = "zae-limiter"
METRICS: Final = {
    "Records": "Count",
    "Snapshots": "Count",
    "PoisonousRecords": "Count",
    "UnwrittenRecords": "Count",
    "Lag": "Milliseconds",
}


def answer_of(processed: Processed) -> dict[str, list[dict[str, str]]]:
    """What Lambda is answered: the records that were not counted, by their numbers.

    One without a number cannot be named (an empty name would mean the whole batch); it is only logged.
    """
    sequences = dict.fromkeys(failure.sequence for failure in processed.failures if failure.sequence)
    return {"batchItemFailures": [{"itemIdentifier": sequence} for sequence in sequences]}


def lines_of(
    table: str, records: Sequence[Record], processed: Processed, now_ms: int, request_id: str | None
) -> Iterator[str]:
    """What is logged: a line for every record that was not counted, then one with the numbers."""
    for failure in processed.failures:
        yield _line(
            "ERROR",
            "poisonous record" if isinstance(failure.error, PoisonousRecord) else "record not counted yet",
            now_ms,
            request_id,
            {"table": table, "sequence": failure.sequence, "error": str(failure.error)},
        )
    numbers = {
        "Records": processed.records,
        "Snapshots": processed.snapshots,
        "PoisonousRecords": len(processed.poisonous),
        "UnwrittenRecords": len(processed.unwritten),
    }
    written_s = last_written(records) if records else None
    if written_s is not None:
        numbers["Lag"] = max(0, now_ms - round(written_s * 1_000))
    metrics = [{"Name": name, "Unit": METRICS[name]} for name in numbers]
    embedded = {"Namespace": NAMESPACE, "Dimensions": [["Table"]], "Metrics": metrics}
    told = {"_aws": {"Timestamp": now_ms, "CloudWatchMetrics": [embedded]}, "Table": table, **numbers}
    yield _line("INFO", "batch counted", now_ms, request_id, told)


def _line(level: str, message: str, now_ms: int, request_id: str | None, told: Mapping[str, Any]) -> str:
    head = {"level": level, "message": message, "time_ms": now_ms, "request_id": request_id}
    return json.dumps({**head, **told}, ensure_ascii=False)
