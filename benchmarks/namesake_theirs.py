"""The other project's client, as ``namesake.py`` runs it in an environment of its own: nothing here is of this one.

It is used as its documentation says, with a table that it makes itself. Calls and capacity are read from botocore's
own events.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from importlib.metadata import version
from typing import Any

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository  # type: ignore[attr-defined]

REGION = "us-east-1"
LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
TAKEN = {"rpm": 1, "tpm": 500}
READS = ("GetItem", "BatchGetItem", "Query")
WRITES = ("UpdateItem", "PutItem", "TransactWriteItems", "BatchWriteItem", "DeleteItem")


class Count:
    """What botocore says of each call. A condition that is refused costs one write unit, which no answer says."""

    def __init__(self, client: Any) -> None:
        self.totals: Counter[str] = Counter()
        for operation in (*READS, *WRITES):
            client.meta.events.register(f"provide-client-params.dynamodb.{operation}", self._ask)
            client.meta.events.register(f"after-call.dynamodb.{operation}", self._note)

    def _ask(self, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**params, "ReturnConsumedCapacity": "INDEXES"}

    def _note(self, model: Any, parsed: dict[str, Any], **_: Any) -> None:
        self.totals["calls"] += 1
        consumed = parsed.get("ConsumedCapacity", {})
        parts = consumed if isinstance(consumed, list) else [consumed]
        units = sum(part.get("CapacityUnits", 0.0) for part in parts)
        if "Error" in parsed:
            units = units or 1.0
        self.totals["read_units" if model.name in READS else "write_units"] += units

    def figures(self) -> dict[str, float]:
        return {what: self.totals[what] for what in ("calls", "write_units", "read_units")}


def opened(url: str) -> tuple[Any, Any]:
    repository = SyncRepository("theirs", region=REGION, endpoint_url=url, _skip_deprecation_warning=True)
    return SyncRateLimiter(repository=repository), repository


def run(limiter: Any, situation: str, times: int) -> None:
    entity = {"two levels": "child", "denied": "poor"}.get(situation, "key")
    for _ in range(times):
        try:
            with limiter.acquire(entity_id=entity, resource="gpt-4", consume=TAKEN) as lease:
                if situation == "acquire and settle":
                    lease.adjust(tpm=-100)
        except RateLimitExceeded:
            assert situation == "denied"


def main() -> None:
    url = sys.argv[1]
    limiter, repository = opened(url)
    repository.create_table()
    limiter.set_system_defaults(LIMITS)
    limiter.create_entity(entity_id="org")
    limiter.create_entity(entity_id="child", parent_id="org", cascade=True)
    limiter.set_limits("poor", [Limit.per_day("rpm", 1), Limit.per_day("tpm", 500)])
    counting, counted = opened(url)
    count = Count(counted._get_client())
    for line in sys.stdin:
        what, situation, times = json.loads(line)
        if what == "version":
            print(json.dumps({"version": version("zae-limiter")}), flush=True)
        elif what == "run":
            began = time.process_time()
            run(limiter, situation, times)
            print(json.dumps({"cpu_seconds": time.process_time() - began}), flush=True)
        else:
            run(counting, situation, 3)
            count.totals.clear()
            run(counting, situation, times)
            print(json.dumps(count.figures()), flush=True)


if __name__ == "__main__":
    main()
