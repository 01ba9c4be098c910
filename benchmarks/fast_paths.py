"""What every fast path saves: each is switched off and on again, round by round, on the operation that takes it.

    .venv/bin/python benchmarks/fast_paths.py            every fast path (docs/adr/0035-fast-paths.md has the figures)
    .venv/bin/python benchmarks/fast_paths.py memory     those whose name begins so

CPU time of this process, medians over interleaved rounds. DynamoDB's writes are answered by a server that always says
the same, so that only the client is measured.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from answering import answering

from dynamodb import KEYS, REGION, SECONDS, TABLE, recorded, split_store
from engines.servers import Engine, dynoxide_engine
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.bucket import MILLI, Balance, force_consume, would_refill_satisfy
from zae_limiter.lease.sync_lease import SyncLease
from zae_limiter.stores.dynamodb import items
from zae_limiter.stores.dynamodb.intents import Intent
from zae_limiter.stores.dynamodb.operations import acquire, acquire_writes, settle
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.write_forms import update
from zae_limiter.stores.embedded import bucket_verbs
from zae_limiter.stores.memory.fast_path import DeferredDenial
from zae_limiter.stores.protocol import Denial
from zae_limiter.stores.sqlite.optimistic_draw import DrawRequest
from zae_limiter.stores.sqlite.optimistic_write import SettleRequest
from zae_limiter.stores.sqlite.tables import SqliteTables

ROUNDS, SECONDS_PER_ROUND = 21, 0.05
KEPT_FROM = 0.15
"""A fast path that saves less than this of its operation goes."""

LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
AMOUNTS = {"rpm": 1, "tpm": 500}
TOO_MUCH = {"rpm": 10**9 + 1, "tpm": 500}

Run = Callable[[int], object]
Switch = Callable[[], Any]
"""Makes a context in which the fast path is switched off."""


class FastPath(NamedTuple):
    """A fast path, the operation that takes it, and how it is switched off."""

    name: str
    operation: str
    run: Run
    off: Switch


def cpu_per_call(run: Run, times: int) -> float:
    started = time.process_time_ns()
    run(times)
    return (time.process_time_ns() - started) / times


def compare(path: FastPath) -> tuple[float, float]:
    """Nanoseconds with the fast path and without it."""
    path.run(20)
    times = max(int(SECONDS_PER_ROUND * 1e9 / cpu_per_call(path.run, 20)), 20)
    with_it, without = [], []
    for number in range(ROUNDS):
        for is_on in (True, False) if number % 2 else (False, True):
            if is_on:
                with_it.append(cpu_per_call(path.run, times))
            else:
                with path.off():
                    path.run(3)
                    without.append(cpu_per_call(path.run, times))
    return statistics.median(with_it), statistics.median(without)


# Operations


def granted(limiter: SyncRateLimiter) -> Run:
    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", AMOUNTS):
                pass

    return run


def settled(limiter: SyncRateLimiter) -> Run:
    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", AMOUNTS) as lease:
                lease.settle(tpm=400)

    return run


def denied(limiter: SyncRateLimiter) -> Run:
    granted(limiter)(1)  # only a route that was granted once has a fast path

    def run(times: int) -> None:
        for _ in range(times):
            try:
                with limiter.acquire("key-1", "gpt-4", TOO_MUCH):
                    pass
            except RateLimitExceeded as error:
                _ = error.retry_after_seconds

    return run


def granted_in(runner: asyncio.Runner, limiter: RateLimiter) -> Run:
    async def work(times: int) -> None:
        for _ in range(times):
            async with limiter.acquire("key-1", "gpt-4", AMOUNTS):
                pass

    return lambda times: runner.run(work(times))


def settled_in(runner: asyncio.Runner, limiter: RateLimiter) -> Run:
    async def work(times: int) -> None:
        for _ in range(times):
            async with limiter.acquire("key-1", "gpt-4", AMOUNTS) as lease:
                await lease.settle(tpm=400)

    return lambda times: runner.run(work(times))


# What a fast path stands for, written the other way


def end_by_plan(self: SyncLease, kind: Any, error: Any, trace: Any) -> None:
    self._driver.run(self._end(failed=kind is not None), to_the_end=True)


def would_take_by_parts(
    balances: Sequence[Balance], wanted: Mapping[str, int], now: int
) -> tuple[list[int], list[int]] | None:
    amounts = [wanted.get(balance.name, 0) * MILLI for balance in balances]
    if not all(would_refill_satisfy(balance, amount, now) for balance, amount in zip(balances, amounts, strict=True)):
        return None
    left = [
        force_consume(balance, amount, now) if amount else balance.tk
        for balance, amount in zip(balances, amounts, strict=True)
    ]
    return left, amounts


def draw_by_forms(snapshot: Any, taken: Any, needed: Any, **named: Any) -> Any:
    write = update(snapshot, Intent(taken, needed, grants=1), **named)
    return write.shape(), write._values


def settlement_by_forms(snapshot: Any, deltas: Any, *, grants: int, **named: Any) -> Any:
    write = update(snapshot, Intent(deltas, grants=grants), **named)
    return write.shape(), write._values


def embedded(folder: str, stack: ExitStack) -> Iterator[FastPath]:
    def opened(url: str) -> SyncRateLimiter:
        limiter = stack.enter_context(SyncRateLimiter.open(url, create=True))
        limiter.set_system_defaults(LIMITS)
        return limiter

    def by_plan(limiter: SyncRateLimiter) -> Switch:
        return lambda: patch.object(limiter._core, "fast_paths", {})

    memory, sqlite = opened("memory://"), opened(f"sqlite:///{folder}/sync.db")
    yield FastPath("memory: fast path", "grant", granted(memory), by_plan(memory))
    yield FastPath("memory: fast path", "grant and settle", settled(memory), by_plan(memory))
    yield FastPath(
        "memory: settlement without a plan",
        "grant and settle",
        settled(memory),
        lambda: patch.object(SyncLease, "_end_at_once", lambda lease, failed: False),
    )
    yield FastPath(
        "memory: deferred denial",
        "denial",
        denied(memory),
        lambda: patch.object(DeferredDenial, "wait_ms", Denial.wait_ms),
    )

    def entered(self: SyncLease) -> SyncLease:
        enter(self)
        _ = self._granted
        return self

    enter = SyncLease.__enter__
    yield FastPath(
        "memory: deferred grant", "grant", granted(memory), lambda: patch.object(SyncLease, "__enter__", entered)
    )
    yield FastPath(
        "lease: end without a plan", "grant", granted(memory), lambda: patch.object(SyncLease, "__exit__", end_by_plan)
    )
    planned = opened("memory://")
    planned._core.fast_paths = {}
    by_parts = lambda: patch.object(bucket_verbs, "would_take", would_take_by_parts)  # noqa: E731
    yield FastPath("bucket: would_take written out", "grant by plan", granted(planned), by_parts)

    no_cache = lambda: patch.object(DrawRequest, "_draw_optimistically", lambda *_: None)  # noqa: E731
    no_settling = lambda: patch.object(SettleRequest, "_settle_optimistically", lambda *_: False)  # noqa: E731
    yield FastPath("sqlite: optimistic draw", "grant", granted(sqlite), no_cache)
    yield FastPath("sqlite: optimistic draw, without a plan", "grant", granted(sqlite), by_plan(sqlite))
    yield FastPath("sqlite: optimistic settlement", "grant and settle", settled(sqlite), no_settling)

    def forgetful(limiter: SyncRateLimiter) -> Run:
        def run(times: int) -> None:
            for _ in range(times):
                limiter._core.space.fast_paths.clear()  # type: ignore[attr-defined]
                tables = limiter._core.space._used_last  # type: ignore[attr-defined]
                tables.row_cache.clear()
                tables.routes._known.clear()
                with limiter.acquire("key-1", "gpt-4", AMOUNTS):
                    pass

        return run

    unfound = lambda: patch.object(SqliteTables, "read_route_and_row", lambda *_: None)  # noqa: E731
    yield FastPath("sqlite: route and row in one statement", "grant, not met of late", forgetful(sqlite), unfound)


def asynchronous(folder: str, stack: ExitStack) -> Iterator[FastPath]:
    runner = stack.enter_context(asyncio.Runner())
    limiter = runner.run(RateLimiter.open(f"sqlite:///{folder}/async.db", create=True))
    runner.run(limiter.set_system_defaults(LIMITS))
    stack.callback(lambda: runner.run(limiter.close()))

    def in_tasks() -> Any:
        return patch.object(limiter._driver, "_attempt", None)

    yield FastPath("async driver: answers at once", "SQLite, grant and settle", settled_in(runner, limiter), in_tasks)


def on_dynamodb(engine: Engine, stack: ExitStack) -> Iterator[FastPath]:
    target = Target(REGION, engine.endpoint_url, KEYS)
    with SyncRepository(DynamoStore(TABLE, target, deadline=SECONDS)) as repository:
        repository._driver.run(repository._create())
        repository.set_system_defaults(LIMITS)
    url = stack.enter_context(answering(recorded(engine)))
    limiter = SyncRateLimiter(SyncRepository(split_store(engine, url, "own")))
    run = granted(limiter)
    yield FastPath("dynamodb: warm legs", "grant", run, lambda: patch.object(acquire, "warm_legs", lambda _: ()))
    yield FastPath(
        "dynamodb: plain draw", "grant", run, lambda: patch.object(acquire_writes, "plain_draw", draw_by_forms)
    )
    yield FastPath(
        "dynamodb: plain settlement",
        "grant and settle",
        settled(limiter),
        lambda: patch.object(settle, "plain_settlement", settlement_by_forms),
    )

    @contextmanager
    def read_whole() -> Iterator[None]:
        with (
            patch.object(items, "_snapshot_in_text", lambda before, text: None),
            patch.object(items, "_snapshot_after", lambda before, item: None),
        ):
            yield

    yield FastPath("dynamodb: only the numbers of a reply", "grant", run, read_whole)
    runner = stack.enter_context(asyncio.Runner())
    awaited = RateLimiter(Repository(split_store(engine, url, "own")))
    yield FastPath(
        "async driver: requests in flight",
        "DynamoDB, grant",
        granted_in(runner, awaited),
        lambda: patch.object(awaited._driver, "_attempt", None),
    )


def main() -> None:
    """Print a row for every fast path."""
    chosen = sys.argv[1:]
    print(f"{'fast path':42} {'operation':26} {'with':>9} {'without':>9} {'saves':>6}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        sources = [lambda: asynchronous(folder, stack), lambda: embedded(folder, stack)]
        if not chosen or any(name.startswith(("dynamodb", "async")) for name in chosen):
            engine = stack.enter_context(dynoxide_engine())
            sources.insert(0, lambda: on_dynamodb(engine, stack))
        for source in sources:
            for path in source():
                if chosen and not path.name.startswith(tuple(chosen)):
                    continue
                with_it, without = compare(path)
                saved = 1 - with_it / without
                verdict = "" if saved >= KEPT_FROM else "  less than it must"
                print(
                    f"{path.name:42} {path.operation:26} {with_it / 1000:6.2f} µs {without / 1000:6.2f} µs"
                    f" {100 * saved:5.0f} %{verdict}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
