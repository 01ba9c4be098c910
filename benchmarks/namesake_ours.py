"""Our client, as ``namesake.py`` runs it: lines of JSON that say what to do, and what it took."""

from __future__ import annotations

import json
import sys
import time

from costs import Meter

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target, transports_for
from zae_limiter.version import __version__

TABLE, REGION = "ours", "us-east-1"
LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
TAKEN = {"rpm": 1, "tpm": 500}


def counted(url: str) -> tuple[SyncRateLimiter, Meter]:
    """A client whose calls are counted."""
    target = Target(REGION, url, Credentials("AKIDBENCHMARK", "s" * 40))
    meter = Meter(transports_for(target).sync())
    return SyncRateLimiter(SyncRepository(DynamoStore(TABLE, target, deadline=20.0, transport=meter))), meter


def run(limiter: SyncRateLimiter, situation: str, times: int) -> None:
    entity = {"two levels": "child", "denied": "poor"}.get(situation, "key")
    for _ in range(times):
        try:
            with limiter.acquire(entity, "gpt-4", TAKEN) as lease:
                if situation == "acquire and settle":
                    lease.adjust(tpm=-100)
        except RateLimitExceeded:
            assert situation == "denied"


def main() -> None:
    url = sys.argv[1]
    limiter = SyncRateLimiter.open(f"dynamodb://{TABLE}?region={REGION}&endpoint_url={url}", create=True)
    limiter.set_system_defaults(LIMITS)
    limiter.create_entity("org")
    limiter.create_entity("child", parent_id="org", cascade=True)
    limiter.set_limits("poor", [Limit.per_day("rpm", 1), Limit.per_day("tpm", 500)])
    counting, meter = counted(url)
    for line in sys.stdin:
        what, situation, times = json.loads(line)
        if what == "version":
            print(json.dumps({"version": __version__}), flush=True)
        elif what == "run":
            began = time.process_time()
            run(limiter, situation, times)
            print(json.dumps({"cpu_seconds": time.process_time() - began}), flush=True)
        else:
            run(counting, situation, 3)
            meter.reset()
            run(counting, situation, times)
            figures = {"calls": meter.operations.total(), "write_units": meter.writes, "read_units": meter.reads}
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
