"""A hostile server between us and a real engine: every outcome is accounted for, and nothing is minted."""

from __future__ import annotations

import os
import random
import threading
from itertools import count

import pytest

from engines.servers import Engine
from support.hostile_proxy import hostile
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter

TABLES = count()
THREADS = 8
LEASES = int(os.environ.get("ZAEL_HOSTILE_LEASES", "120"))
"""Of each thread."""
LARGEST = 20
BUCKETS = 3


@pytest.mark.timeout(240 + 10 * LEASES)
@pytest.mark.parametrize("transport", ["own", "botocore"])
def test_after_thousands_of_faults_every_token_is_accounted_for(dynoxide: Engine, transport: str) -> None:
    seed = int(os.environ.get("ZAEL_HOSTILE_SEED", "1"))
    table = f"hostile-{next(TABLES)}"
    direct = f"dynamodb://{table}?region=us-east-1&endpoint_url={dynoxide.endpoint_url}"
    told = dict.fromkeys((f"key-{place}" for place in range(BUCKETS)), 0)
    outages = 0
    lock = threading.Lock()
    budget = Limit.custom("tpd", 10**9, 1, 86_400)
    with SyncRateLimiter.open(direct, create=True) as operator:
        operator.set_system_defaults([budget])
        operator.create_entity("org")
        for key in told:
            operator.create_entity(key, parent_id="org", cascade=True)
        with hostile(dynoxide.endpoint_url, seed) as proxy:
            url = f"dynamodb://{table}?region=us-east-1&endpoint_url={proxy.url}"
            with SyncRateLimiter.open(url, deadline=20, transport=transport) as limiter:

                def work(thread: int) -> None:
                    nonlocal outages
                    rng = random.Random(seed * 1000 + thread)
                    for _ in range(LEASES):
                        key = f"key-{rng.randrange(BUCKETS)}"
                        kept = 0
                        try:
                            with limiter.acquire(key, "gpt", {"tpd": rng.randint(1, LARGEST)}) as lease:
                                fate = rng.random()
                                if fate < 0.3:
                                    raise ZeroDivisionError
                                if fate < 0.6:
                                    lease.settle(tpd=rng.randint(1, LARGEST))
                                kept = lease.consumed["tpd"]
                        except ZeroDivisionError:
                            kept = 0
                        except (RateLimiterUnavailable, RateLimitExceeded):
                            with lock:
                                outages += 1
                        with lock:
                            told[key] += kept

                threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                unresolved = limiter.repository.unresolved
        charged = {key: consumed(operator, key) for key in told}
        org = consumed(operator, "org")
    faults = sum(proxy.fates.values()) - proxy.fates["fine"]
    print(
        f"{transport}: {sum(proxy.fates.values())} calls, {faults} faults, {outages} outages, {unresolved} unresolved"
    )
    assert faults > 200
    assert all(charged[key] >= told[key] for key in told), "a caller took more than was charged: minted"
    assert org >= sum(told.values())
    too_much = sum(charged.values()) - sum(told.values()) + org - sum(told.values())
    assert too_much <= unresolved * 2 * LARGEST
    assert unresolved <= faults


def consumed(operator: SyncRateLimiter, entity: str) -> int:
    """What was ever taken from an entity's bucket, net."""
    buckets = operator.get_status(entity, "gpt").buckets
    return sum(level.total_consumed for bucket in buckets for level in bucket.limits)
