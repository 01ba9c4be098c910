"""How many functions, in how many files, one operation crosses: what a reader has to follow to understand it.

python benchmarks/path_length.py             a table of every store and path
python benchmarks/path_length.py --list dynamodb grant      the functions themselves, as they are first entered

Warm: limits are resolved, buckets are known, connections are open. DynamoDB is dynoxide, and its transport counts too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines.servers import dynoxide_engine
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter

RESOURCE = "gpt-4"
SOURCES = str(Path(__file__).parents[1] / "src")
LIMITS = [Limit.per_day("rpm", 1_000_000), Limit.per_day("tpm", 1_000_000_000)]
WANTED = {"rpm": 1, "tpm": 500}
TOO_MUCH = {"rpm": 1_000_000, "tpm": 500}


class Crossed(NamedTuple):
    """The functions of one operation, each once, and how many calls there were."""

    functions: tuple[tuple[str, str], ...]
    calls: int

    @property
    def files(self) -> int:
        return len({file for file, _ in self.functions})


def crossed_by(operation: Callable[[], object]) -> Crossed:
    """What of this library an operation crosses."""
    seen: dict[tuple[str, str], int] = {}

    def profile(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCES):
            where = file.removeprefix(f"{SOURCES}/"), frame.f_code.co_qualname
            seen[where] = seen.get(where, 0) + 1

    sys.setprofile(profile)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return Crossed(tuple(seen), sum(seen.values()))


def grant(limiter: SyncRateLimiter) -> None:
    """An acquire that is granted, and ends well."""
    with limiter.acquire("key-0", RESOURCE, WANTED):
        pass


def grant_and_settle(limiter: SyncRateLimiter) -> None:
    """An acquire whose real cost is known at its end."""
    with limiter.acquire("key-0", RESOURCE, WANTED) as lease:
        lease.settle(tpm=700)


def grant_and_fail(limiter: SyncRateLimiter) -> None:
    """An acquire whose body raises: what it took comes back."""
    try:
        with limiter.acquire("key-0", RESOURCE, WANTED):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


def denial(limiter: SyncRateLimiter) -> None:
    """An acquire that is refused, and the wait it is told."""
    try:
        with limiter.acquire("key-0", RESOURCE, TOO_MUCH):
            raise AssertionError("it was granted")
    except RateLimitExceeded as refused:
        _ = refused.retry_after_seconds


PATHS: dict[str, Callable[[SyncRateLimiter], None]] = {
    "grant": grant,
    "grant and settle": grant_and_settle,
    "grant, body raises": grant_and_fail,
    "denial": denial,
}


def warm(url: str, levels: int = 1) -> SyncRateLimiter:
    """A limiter whose ``key-0`` has so many levels."""
    limiter = SyncRateLimiter.open(url, create=True)
    limiter.set_system_defaults(LIMITS)
    for level in range(levels - 1, -1, -1):
        parent = f"key-{level + 1}" if level + 1 < levels else None
        limiter.create_entity(f"key-{level}", parent_id=parent, cascade=parent is not None)
    return limiter


def measure(limiter: SyncRateLimiter, path: str) -> Crossed:
    """One warm operation on one store."""
    for _ in range(3):
        grant(limiter)
        PATHS[path](limiter)
    if path == "denial":
        grant(limiter)  # it is asked for anew, not remembered
    return crossed_by(lambda: PATHS[path](limiter))


@contextmanager
def warm_stores() -> Iterator[dict[str, Callable[[], SyncRateLimiter]]]:
    """Every store and depth, each made anew."""
    number = count()
    with tempfile.TemporaryDirectory() as folder, dynoxide_engine() as engine:

        def on_dynamodb(levels: int) -> SyncRateLimiter:
            table = f"path-length-{next(number)}"
            return warm(f"dynamodb://{table}?region={engine.region}&endpoint_url={engine.endpoint_url}", levels)

        yield {
            "memory": lambda: warm("memory://"),
            "memory, two levels": lambda: warm("memory://", 2),
            "sqlite": lambda: warm(f"sqlite:///{folder}/{next(number)}.db"),
            "sqlite, two levels": lambda: warm(f"sqlite:///{folder}/{next(number)}.db", 2),
            "dynamodb": lambda: on_dynamodb(1),
            "dynamodb, two levels": lambda: on_dynamodb(2),
        }


def crossed_on(store: str, path: str) -> Crossed:
    """What one warm operation on one store crosses."""
    with warm_stores() as stores, stores[store]() as limiter:
        return measure(limiter, path)


def main() -> None:
    """Print the table, or one path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs=2, metavar=("STORE", "PATH"), help="the functions of one path")
    chosen = parser.parse_args()
    if chosen.list:
        for file, function in crossed_on(*chosen.list).functions:
            print(f"{file:60} {function}")
        return
    print(f"{'store':24} {'path':20} {'functions':>9} {'files':>6} {'calls':>6}")
    with warm_stores() as stores:
        for store, opened in stores.items():
            for path in PATHS:
                with opened() as limiter:
                    crossed = measure(limiter, path)
                print(f"{store:24} {path:20} {len(crossed.functions):9} {crossed.files:6} {crossed.calls:6}")


if __name__ == "__main__":
    main()
