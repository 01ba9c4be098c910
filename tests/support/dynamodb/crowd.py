"""One process of a crowd: threads that acquire, and what they were granted. Run as a script by ``test_crowds``."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from zae_limiter import RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter

GRANTED, DENIED, KEPT, UNAVAILABLE, UNRESOLVED = "granted", "denied", "kept", "unavailable", "unresolved"


def crowd(url: str, entities: list[str], threads: int, calls: int, place: int) -> dict[str, int]:
    """Let threads acquire ``rpd`` 1 and ``tpd`` 10 each, some failing, some settling; the sums of all."""
    tally = dict.fromkeys((GRANTED, DENIED, KEPT, UNAVAILABLE, UNRESOLVED), 0)
    lock = threading.Lock()
    with SyncRateLimiter.open(url, deadline=20) as limiter:

        def work(thread: int) -> None:
            mine: dict[str, int] = dict.fromkeys(tally, 0)
            for number in range(calls):
                turn = number + thread * 7 + place * 13
                try:
                    with limiter.acquire(entities[turn % len(entities)], "gpt", {"rpd": 1, "tpd": 10}) as lease:
                        mine[GRANTED] += 1
                        if turn % 5 == 0:
                            raise ZeroDivisionError
                        if turn % 5 == 1:
                            lease.adjust(tpd=7)
                        if turn % 5 == 2:
                            lease.adjust(tpd=-3)
                        mine[KEPT] += lease.consumed["tpd"]
                except ZeroDivisionError:
                    pass
                except RateLimitExceeded:
                    mine[DENIED] += 1
                except RateLimiterUnavailable:
                    mine[UNAVAILABLE] += 1
            with lock:
                for name, amount in mine.items():
                    tally[name] += amount

        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        tally[UNRESOLVED] = limiter.repository.unresolved
    return tally


if __name__ == "__main__":
    task: dict[str, Any] = json.loads(sys.argv[1])
    print(json.dumps(crowd(**task)))
