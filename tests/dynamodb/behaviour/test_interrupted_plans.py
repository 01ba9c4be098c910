"""Ctrl-C at any line of our own code, cancellation at any moment: what was taken comes back, and nothing else."""

from __future__ import annotations

import asyncio
import linecache
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from support.dynamodb.draw_scenarios import ENTITIES, hierarchy
from support.dynamodb.scripted_tables import RESOURCE, ModelStore, Table
from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.running import sync_driver

TAKEN = 3_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


ROUNDS = 2
"""So often a line is interrupted that is run again and again."""


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line of our own code that ``counts``."""

    def __init__(self, point: int, counts: Callable[[FrameType, str], bool], rounds: int) -> None:
        self.point = point
        self.rounds = rounds
        self.counts = counts
        self.hit: str | None = None
        self._seen = 0
        self._rounds: Counter[tuple[str, int]] = Counter()

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        file = frame.f_code.co_filename
        if "zae_limiter" not in file:
            return None
        # Tracing stops before these lines, but CPython does not: they do nothing that it would interrupt.
        line = linecache.getline(file, frame.f_lineno).strip()
        if event == "line" and not line.startswith(("with ", "try:")) and self.counts(frame, line):
            self._rounds[file, frame.f_lineno] += 1
            self._seen += self._rounds[file, frame.f_lineno] <= self.rounds
            if self._seen > self.point:
                self.hit = f"{file.rpartition('zae_limiter/')[2]}: {line}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def run(self, work: Callable[[], object]) -> bool:
        """Whether the work was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        return self.hit is not None


def client_of(table: Table, *, known: bool) -> SyncRateLimiter:
    limiter = SyncRateLimiter(SyncRepository(ModelStore(table), clock=lambda: table.now))
    if known:
        with limiter.acquire("key", RESOURCE, {}):
            pass
    return limiter


def taken_when_interrupted(
    height: int, known: bool, counts: Callable[[FrameType, str], bool], rounds: int = ROUNDS
) -> dict[str, list[int]]:
    """For every line: what stays taken of each leg, where that is anything and is not counted."""
    wrong: dict[str, list[int]] = {}
    for point in range(5_000):
        table = hierarchy(height)
        limiter = client_of(table, known=known)
        before = [table.counters(entity)["rpd"] for entity in ENTITIES[:height]]
        entered: list[object] = []
        interrupter = Interrupter(point, counts, rounds)
        lease = limiter.acquire("key", RESOURCE, {"rpd": 3})
        if not interrupter.run(lambda lease=lease, entered=entered: entered.append(lease.__enter__())):
            assert point, "no line was interrupted"
            return wrong
        after = [table.counters(entity)["rpd"] for entity in ENTITIES[:height]]
        left = [now - then for now, then in zip(after, before, strict=True)]
        if any(left) and not entered and not limiter.repository.unresolved:
            wrong[f"{interrupter.hit}"] = left
    raise AssertionError("it never ends")


WRITING = ("batches", "batching", "bucket_write")
PLANS_BESIDE = tuple(
    f"dynamodb/{name}.py" for name in (*WRITING, "config_resolver", "items", "namespace", "table_client")
)


def in_the_plans(frame: FrameType, line: str) -> bool:
    file = frame.f_code.co_filename
    return "dynamodb/operations/" in file or file.endswith(PLANS_BESIDE)


@pytest.mark.parametrize("height", [1, 2])
def test_an_interrupt_at_any_line_of_a_plan_leaves_nothing_taken(height: int) -> None:
    assert taken_when_interrupted(height, True, in_the_plans) == {}


def after_a_step(frame: FrameType, line: str) -> bool:
    """The plan has just asked for something, and the driver has not begun to do it."""
    return frame.f_code.co_filename == sync_driver.__file__ and line == "error = None"


def test_an_interrupt_before_a_request_is_begun_gives_nothing_back_that_was_not_taken() -> None:
    assert taken_when_interrupted(1, False, after_a_step, rounds=100) == {}


# Event loops


@pytest.mark.parametrize("fails", [True, False], ids=["the body fails", "the body ends well"])
@pytest.mark.parametrize("height", [1, 2])
@pytest.mark.parametrize("cancels", [1, 3])
def test_cancelling_at_every_call_of_a_cold_lease_leaves_nothing_taken(height: int, fails: bool, cancels: int) -> None:
    """Cancelled while the n-th call is on its way, again while the giving back is."""

    async def cancelled_during(number: int) -> bool:
        table = hierarchy(height)
        store = ModelStore(table)
        transport: Any = store._calls._async_transport
        transport.seconds = 0.001
        limiter = RateLimiter(Repository(store, clock=lambda: table.now))
        before = [table.counters(entity)["rpd"] for entity in ENTITIES[:height]]

        async def work() -> None:
            async with limiter.acquire("key", RESOURCE, {"rpd": 3}) as lease:
                await lease.adjust(rpd=1)
                if fails:
                    raise ZeroDivisionError

        task = asyncio.create_task(work())
        while len(transport.calls) <= number and not task.done():
            await asyncio.sleep(0)
        early = not task.done()
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        after = [table.counters(entity)["rpd"] for entity in ENTITIES[:height]]
        kept = {now - then for now, then in zip(after, before, strict=True)}
        if not early:
            assert kept == ({0} if fails else {TAKEN + 1_000})
            return False
        assert isinstance(outcome, asyncio.CancelledError)
        assert kept in ({0}, {TAKEN + 1_000})
        assert limiter.repository.unresolved == 0
        return True

    async def at_every_call() -> int:
        number = 0
        while await cancelled_during(number):
            number += 1
            assert number < 30
        return number

    assert asyncio.run(at_every_call()) >= 3 + height
