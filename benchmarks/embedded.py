"""What the embedded stores cost, against the libraries people use today. Ratios in one run.

    .venv/bin/python benchmarks/embedded.py [--quick]

A note on fairness. Ours takes from two limits in one call, all or nothing, counts usage, and gives back if the
body fails. The others know one limit per call, so they are called once per limit; nothing is added to make them
all or nothing, which they are not. In memory every contender has one process, one thread, limits that
never run out (except where a denial is measured), objects made beforehand, and checks the answer as users do.
What is measured on SQLite, and how, stands in ``embedded_processes.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import aiolimiter
import limits
import limits.storage
import limits.strategies
import throttled
import token_bucket
from comparing import Comparison, Goal, find
from embedded_processes import measure_sqlite
from measuring import QUICK, THOROUGH, Contender, Import, Run, measure, measure_imports
from presenting import circumstances, show, show_waits, write

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter

PACKAGES = ["zae-limiter", "limits", "throttled-py", "token-bucket", "aiolimiter", "pyrate-limiter", "filelock"]
RPM, TPM = 10**9, 10**12
"""Per minute: never runs out while we measure."""

IMPORTS = 25
"""Each is a process; more would say the same."""

KEYS = [f"key-{number}" for number in range(1000)]
RUNNER = asyncio.Runner()


class Refused(Exception):
    """What a user of a library that answers False would raise."""


def in_the_loop(work: Callable[[int], Coroutine[Any, Any, object]]) -> Run:
    """Run async work in one event loop that stays."""
    return lambda times: RUNNER.run(work(times))


# Ours


def our_limiter(**options: Any) -> SyncRateLimiter:
    limiter = SyncRateLimiter.open("memory://", **options)
    limiter.set_system_defaults([Limit.per_minute("rpm", RPM), Limit.per_minute("tpm", TPM)])
    return limiter


def ours_granted() -> Contender:
    limiter = our_limiter()

    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                pass

    return Contender("zae-limiter", "with acquire, two limits of one bucket", run)


def ours_over_time() -> Contender:
    # In a tight loop many calls fall into one millisecond, and what accrued is remembered within it. In life most
    # calls have a millisecond of their own: this clock gives every call the next one.
    limiter = our_limiter(clock=count(1_750_000_000_000).__next__)

    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                pass

    return Contender("zae-limiter, time passing", "with acquire, every call in the next millisecond", run)


def ours_many_keys() -> Contender:
    limiter = our_limiter()

    def run(times: int) -> None:
        for number in range(times):
            with limiter.acquire(KEYS[number % 1000], "gpt-4", {"rpm": 1, "tpm": 500}):
                pass

    return Contender("zae-limiter, 1000 keys", "with acquire, two limits, the keys in turn", run)


def ours_denied() -> Contender:
    limiter = our_limiter()
    limiter.set_limits("key-1", [Limit.per_day("rpm", 1), Limit.per_day("tpm", 1000)])

    def run(times: int) -> None:
        refused = 0
        for _ in range(times):
            try:
                with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                    pass
            except RateLimitExceeded as error:
                refused += error.retry_after_seconds is not None
        assert refused >= times - 1

    return Contender("zae-limiter, denied", "acquire raises with every status; the wait is read", run)


def ours_settled() -> Contender:
    limiter = our_limiter()

    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
                lease.settle(tpm=620)

    return Contender("zae-limiter, settled", "with acquire, two limits, settled and written at the end", run)


def ours_given_back() -> Contender:
    limiter = our_limiter()

    def run(times: int) -> None:
        for _ in range(times):
            try:
                with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                    raise Refused
            except Refused:
                pass

    return Contender("zae-limiter, body raises", "with acquire, two limits, the body raises: both come back", run)


def ours_observed() -> Contender:
    limiter = our_limiter(observer=lambda event: None)

    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                pass

    return Contender("zae-limiter, observed", "with acquire, two limits, an observer that does nothing", run)


def ours_in_a_hierarchy() -> Contender:
    limiter = our_limiter()
    limiter.create_entity("org-1")
    limiter.create_entity("project-1", parent_id="org-1", cascade=True)
    limiter.create_entity("key-1", parent_id="project-1", cascade=True)

    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                pass

    return Contender("zae-limiter, three levels", "with acquire, two limits on key, project and organisation", run)


def ours_with_a_third(third: Limit, name: str) -> Contender:
    """Two plain limits and one more of any kind."""
    limiter = our_limiter()
    limiter.set_system_defaults([Limit.per_minute("rpm", RPM), Limit.per_minute("tpm", TPM), third])

    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500, "third": 1}):
                pass

    return Contender(name, "with acquire, three limits of one bucket", run)


def our_async_limiter() -> RateLimiter:
    async def opened() -> RateLimiter:
        limiter = await RateLimiter.open("memory://")
        await limiter.set_system_defaults([Limit.per_minute("rpm", RPM), Limit.per_minute("tpm", TPM)])
        return limiter

    return RUNNER.run(opened())


def ours_async() -> Contender:
    limiter = our_async_limiter()

    async def work(times: int) -> None:
        for _ in range(times):
            async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                pass

    return Contender("zae-limiter, async", "async with acquire, two limits of one bucket", in_the_loop(work))


def ours_settled_async() -> Contender:
    limiter = our_async_limiter()

    async def work(times: int) -> None:
        for _ in range(times):
            async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
                await lease.settle(tpm=620)

    return Contender("zae-limiter, settled, async", "async with acquire, two limits, settled", in_the_loop(work))


# limits: fixed windows, the cheapest of its strategies. A hit adds to a counter and compares it.


def limits_limiter() -> tuple[Callable[..., bool], limits.RateLimitItem, limits.RateLimitItem]:
    """Its hit function, and the two limits. The namespace "tpm" keeps them apart, as its users do."""
    strategy = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
    return strategy.hit, limits.RateLimitItemPerMinute(RPM), limits.RateLimitItemPerMinute(TPM, 1, "tpm")


def limits_twice() -> Contender:
    hit, rpm, tpm = limits_limiter()

    def run(times: int) -> None:
        for _ in range(times):
            if not (hit(rpm, "key-1", "gpt-4") and hit(tpm, "key-1", "gpt-4", cost=500)):
                raise Refused

    return Contender("limits, twice", "FixedWindow hit for each of the two limits", run)


def limits_many_keys() -> Contender:
    hit, rpm, tpm = limits_limiter()

    def run(times: int) -> None:
        for number in range(times):
            key = KEYS[number % 1000]
            if not (hit(rpm, key, "gpt-4") and hit(tpm, key, "gpt-4", cost=500)):
                raise Refused

    return Contender("limits, twice, 1000 keys", "FixedWindow hit for each of the two limits, the keys in turn", run)


def limits_three_times() -> Contender:
    # It cannot correct a hit; its users hit again for the difference (and cannot when they took too much).
    hit, rpm, tpm = limits_limiter()

    def run(times: int) -> None:
        for _ in range(times):
            if not (hit(rpm, "key-1", "gpt-4") and hit(tpm, "key-1", "gpt-4", cost=500)):
                raise Refused
            hit(tpm, "key-1", "gpt-4", cost=120)

    return Contender("limits, three times", "FixedWindow hit for both limits, and again for the difference", run)


def limits_in_a_hierarchy() -> Contender:
    hit, rpm, tpm = limits_limiter()

    def run(times: int) -> None:
        for _ in range(times):
            if not (
                hit(rpm, "key-1", "gpt-4")
                and hit(tpm, "key-1", "gpt-4", cost=500)
                and hit(rpm, "project-1", "gpt-4")
                and hit(tpm, "project-1", "gpt-4", cost=500)
                and hit(rpm, "org-1", "gpt-4")
                and hit(tpm, "org-1", "gpt-4", cost=500)
            ):
                raise Refused

    return Contender("limits, six times", "FixedWindow hit for two limits of three keys", run)


def limits_denied(*, with_wait: bool) -> Contender:
    strategy = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
    rpm = limits.RateLimitItemPerDay(1)
    strategy.hit(rpm, "key-1", "gpt-4")

    def run(times: int) -> None:
        for _ in range(times):
            if strategy.hit(rpm, "key-1", "gpt-4"):
                raise AssertionError
            if with_wait:
                strategy.get_window_stats(rpm, "key-1", "gpt-4")

    if with_wait:
        return Contender("limits, denied, and when", "a failing hit, then get_window_stats for the wait", run)
    return Contender("limits, denied", "a failing hit of the first limit; False says neither why nor when", run)


# throttled-py and token_bucket: token buckets like ours, one limit per call.


def throttled_twice() -> Contender:
    store = throttled.store.MemoryStore()
    rpm = throttled.Throttled(using="token_bucket", quota=throttled.rate_limiter.per_min(RPM), store=store)
    tpm = throttled.Throttled(using="token_bucket", quota=throttled.rate_limiter.per_min(TPM), store=store)

    def run(times: int) -> None:
        for _ in range(times):
            if rpm.limit("key-1:gpt-4:rpm").limited or tpm.limit("key-1:gpt-4:tpm", cost=500).limited:
                raise Refused

    return Contender("throttled-py, twice", "token bucket limit() for each of the two limits", run)


def token_bucket_twice() -> Contender:
    # Without locks, in floats; its documentation says that threads may lose it some tokens.
    storage = token_bucket.MemoryStorage()
    rpm, tpm = token_bucket.Limiter(RPM / 60, RPM, storage), token_bucket.Limiter(TPM / 60, TPM, storage)

    def run(times: int) -> None:
        for _ in range(times):
            if not (rpm.consume("key-1:gpt-4:rpm") and tpm.consume("key-1:gpt-4:tpm", 500)):
                raise Refused

    return Contender("token_bucket, twice", "replenish and consume for each of the two limits", run)


# aiolimiter: one limit, in the event loop only, so without a lock; `async with` knows neither keys nor amounts.


def aiolimiter_once() -> Contender:
    limiter = aiolimiter.AsyncLimiter(RPM, 60)

    async def work(times: int) -> None:
        for _ in range(times):
            async with limiter:
                pass

    return Contender("aiolimiter, once", "async with, one leaky bucket", in_the_loop(work))


def comparisons() -> list[Comparison]:
    """The rows, in the order they are shown."""
    granted, twice, denied = ours_granted(), limits_twice(), ours_denied()
    three_times = limits_three_times()
    speed = Goal(6, first_step=3)
    return [
        Comparison("acquire, two limits", granted, twice, speed),
        Comparison("the same while time passes", ours_over_time(), twice, speed),
        Comparison("the same, 1000 keys in turn", ours_many_keys(), limits_many_keys()),
        Comparison("acquire, two limits", granted, throttled_twice()),
        Comparison("acquire, two limits", granted, token_bucket_twice()),
        Comparison("async acquire, two limits", ours_async(), aiolimiter_once(), Goal(1, first_step=0.8)),
        Comparison("acquire and settle", ours_settled(), three_times, Goal(2.5)),
        Comparison("acquire and settle, async", ours_settled_async(), three_times, Goal(2)),
        Comparison("the body raises, all comes back", ours_given_back(), three_times, Goal(2)),
        Comparison("denied", denied, limits_denied(with_wait=False)),
        Comparison("denied, and when to retry", denied, limits_denied(with_wait=True), Goal(2)),
        Comparison("with an observer", ours_observed(), granted, Goal(3, at_most=True), cost_ratio=True),
        Comparison("a hierarchy of three levels", ours_in_a_hierarchy(), limits_in_a_hierarchy()),
        *kind_comparisons(),
    ]


def kind_comparisons() -> list[Comparison]:
    """What a third limit of each kind costs, by a third plain one."""
    plain = ours_with_a_third(Limit.per_hour("third", RPM), "zae-limiter, three plain limits")
    month = ours_with_a_third(Limit.per_month("third", RPM, tz="Europe/Berlin"), "zae-limiter, a monthly budget")
    flight = ours_with_a_third(Limit.concurrent("third", 1_000), "zae-limiter, calls in flight")
    watching = ours_with_a_third(Limit.per_hour("third", RPM, enforce=False), "zae-limiter, a limit that watches")
    goal = Goal(2, at_most=True)
    return [
        Comparison("a monthly budget beside two limits", month, plain, goal, cost_ratio=True),
        Comparison("calls in flight beside two limits", flight, plain, goal, cost_ratio=True),
        Comparison("a limit that watches beside two limits", watching, plain, goal, cost_ratio=True),
    ]


def import_comparisons() -> tuple[list[Import], list[Comparison]]:
    """The imports to time, and their rows."""
    package, limiter, theirs = (
        Import(statement)
        for statement in ("import zae_limiter", "from zae_limiter import SyncRateLimiter", "import limits")
    )
    rows = [
        Comparison("import", package.contender, theirs.contender, Goal(0.25, at_most=True), cost_ratio=True),
        Comparison("import what one uses", limiter.contender, theirs.contender, cost_ratio=True),
    ]
    return [package, limiter, theirs], rows


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few short rounds: for trying out, not for quoting")
    pace = QUICK if parser.parse_args().quick else THOROUGH

    def tell(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text:<40}", end="", file=sys.stderr, flush=True)

    about = circumstances(PACKAGES)
    rows = comparisons()
    contenders = list({id(one): one for row in rows for one in (row.ours, row.theirs)}.values())
    costs = measure(contenders, pace, tell)
    imports, import_rows = import_comparisons()
    import_costs = measure_imports(imports, min(pace.rounds, IMPORTS), tell)
    with tempfile.TemporaryDirectory() as folder:
        on_sqlite, waits = measure_sqlite(Path(folder), pace, RUNNER, tell)
    tell("")
    in_memory = [find(row, costs) for row in rows] + [find(row, import_costs) for row in import_rows]
    findings = in_memory + on_sqlite
    show(in_memory, about)
    show(on_sqlite, about, counted="Time on the wall")
    show_waits(waits)
    print(f"written: {write('embedded', findings, about, waits)}")
    RUNNER.close()


if __name__ == "__main__":
    main()
