"""Ctrl-C while a lease ends, at every line and at every instruction: what it owes is booked once, on every leg.

Where that cannot be, because no code of ours has begun yet, it is counted in ``repository.unresolved``.
"""

from __future__ import annotations

import asyncio
import gc
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zae_limiter
from zae_limiter import Limit, RateLimiter, Repository, SyncLease, SyncRateLimiter
from zae_limiter.testing import FakeClock

LIBRARY = str(Path(zae_limiter.__file__).parent)
TAKEN = 10
BURST = 10**6

NEVER_THERE = (
    *("with ", "try:", "finally:", "return connection", "connection.close()", "gate.leave()"),
    *(
        "return (yield from self._write(work))",
        "return (yield from work(now, proven))",
        "outcome = yield from ",
        "if outcome.__class__ is Grant",
        "receipt._",
    ),
    *("def __exit__", "async def __aexit__"),
)
"""Tracing stops at these lines, CPython does not: it takes signals after calls, and there is none between what such a
line does and where it is noted. But for the beginning of ``__exit__``, which has a test of its own.
"""


class BodyFailed(Exception):
    pass


def fails(lease: SyncLease) -> None:
    raise BodyFailed


def adjusts_up(lease: SyncLease) -> None:
    lease.adjust(a=5, b=1)


def adjusts_down(lease: SyncLease) -> None:
    lease.adjust(a=-4, b=-1)


def fails_after_settling(lease: SyncLease) -> None:
    lease.settle(a=7)
    raise BodyFailed


def flushes_and_goes_on(lease: SyncLease) -> None:
    lease.adjust(a=5)
    lease.flush()
    lease.adjust(a=-3)


def flushes_and_fails(lease: SyncLease) -> None:
    lease.adjust(a=-5)
    lease.flush()
    raise BodyFailed


def takes_more(lease: SyncLease) -> None:
    lease.consume(a=3, b=2)


def takes_more_and_fails(lease: SyncLease) -> None:
    lease.consume(a=3, b=2)
    raise BodyFailed


BODIES = {
    fails: 0,
    adjusts_up: 15,
    adjusts_down: 6,
    fails_after_settling: 7,
    flushes_and_goes_on: 12,
    flushes_and_fails: 0,
    takes_more: 13,
    takes_more_and_fails: 0,
}
"""What may happen in the block, and what each leg has paid after it."""

every_body = pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)


class Interrupter:
    """Raises a KeyboardInterrupt at one place of our own code. ``event`` says what is a place: a line, an opcode."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._seen = self._at = 0
        self.where = ""

    def begin(self, at: int) -> None:
        self._seen, self._at = 0, at

    @property
    def came(self) -> bool:
        return self._seen > self._at

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if self.came or not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if event == self._event and not is_never_there(frame):
            self._seen += 1
            if self._seen > self._at:
                sys.settrace(None)
                self.where = f"{frame.f_code.co_filename[len(LIBRARY) :]}:{frame.f_lineno} {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self.trace


def is_never_there(frame: FrameType) -> bool:
    if frame.f_lineno is None:  # what the compiler adds to end a block
        return True
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith(NEVER_THERE)


class World:
    """A child and its parent, and what both have paid."""

    def __init__(self, url: str, **options: Any) -> None:
        self.clock = FakeClock()
        self.limiter = SyncRateLimiter.open(url, clock=self.clock, deadline=5, **options)
        self.limiter.set_system_defaults([Limit.custom(name, BURST, 1, 31_000_000) for name in "ab"])
        self.limiter.create_entity("org")
        self.limiter.create_entity("key", parent_id="org", cascade=True)
        with self.limiter.acquire("key", "gpt", {"a": 0}):
            pass

    def paid(self) -> list[int]:
        """What the counters of both legs have, and what their levels lack: all four are to be the same."""
        counted = [self.limiter.get_status(entity).buckets[0].limits[0].total_consumed for entity in ("key", "org")]
        return [*counted, *(BURST - self.limiter.available(entity, "gpt")["a"] for entity in ("key", "org"))]

    @property
    def unresolved(self) -> int:
        gc.collect(0)
        return self.limiter.repository.unresolved

    def use(self, body: Callable[[SyncLease], None], trace: Any, *, whole: bool) -> None:
        """A lease whose end (or, with it, whose ``whole`` block) is traced."""

        def work() -> None:
            with self.limiter.acquire("key", "gpt", {"a": TAKEN, "b": 1}) as lease:
                if whole:
                    sys.settrace(trace)
                try:
                    body(lease)
                finally:
                    sys.settrace(trace)

        try:
            work()
        except (KeyboardInterrupt, BodyFailed):
            pass
        finally:
            sys.settrace(None)


def interrupted_everywhere(world: World, body: Any, event: str, *, whole: bool) -> int:
    interrupter = Interrupter(event)
    at = 0
    right = {BODIES[body], 0} if whole else {BODIES[body]}
    before, unresolved = world.paid(), world.unresolved
    while True:
        interrupter.begin(at)
        world.use(body, interrupter.trace, whole=whole)
        after = world.paid()
        paid = {now - earlier for now, earlier in zip(after, before, strict=True)}
        assert len(paid) == 1, f"the legs are apart after an interrupt at {interrupter.where}: {before}, {after}"
        assert paid <= right, f"{paid} instead of {right} after an interrupt at {interrupter.where}"
        assert world.unresolved == unresolved, f"counted, though it is booked, at {interrupter.where}"
        if not interrupter.came:
            return at
        before = after
        at += 1


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    store, observed = request.param
    seen: list[Any] = []
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/limits.db"
    world = World(url, observer=seen.append if observed else None)
    yield world
    world.limiter.close()


def in_worlds(*worlds: tuple[str, bool]) -> pytest.MarkDecorator:
    ids = [store + (", observed" if observed else "") for store, observed in worlds]
    return pytest.mark.parametrize("world", worlds, ids=ids, indirect=True)


in_memory = in_worlds(("memory", False), ("memory", True))
on_sqlite = in_worlds(("sqlite", False))
both_stores = in_worlds(("memory", False), ("sqlite", False))


@every_body
@in_memory
def test_an_interrupt_at_any_line_of_the_end_loses_nothing_in_memory(world: World, body: Any) -> None:
    assert interrupted_everywhere(world, body, "line", whole=False) > (1 if body is takes_more else 15)


@pytest.mark.parametrize("body", [fails, adjusts_up, flushes_and_fails], ids=lambda body: body.__name__)
@on_sqlite
def test_an_interrupt_at_any_line_of_the_end_loses_nothing_on_sqlite(world: World, body: Any) -> None:
    assert interrupted_everywhere(world, body, "line", whole=False) > 15


@pytest.mark.parametrize("body", [fails, adjusts_up], ids=lambda body: body.__name__)
@both_stores
def test_an_interrupt_at_any_instruction_of_the_end_loses_nothing(world: World, body: Any) -> None:
    assert interrupted_everywhere(world, body, "opcode", whole=False) > 80


@every_body
@in_memory
def test_an_interrupt_at_any_line_of_the_block_loses_nothing_in_memory(world: World, body: Any) -> None:
    assert interrupted_everywhere(world, body, "line", whole=True) > 15


@pytest.mark.parametrize("body", [flushes_and_goes_on, takes_more_and_fails], ids=lambda body: body.__name__)
@on_sqlite
def test_an_interrupt_at_any_line_of_the_block_loses_nothing_on_sqlite(world: World, body: Any) -> None:
    assert interrupted_everywhere(world, body, "line", whole=True) > 15


@in_worlds(("memory", False))
def test_an_interrupt_at_any_instruction_of_taking_more_loses_nothing(world: World) -> None:
    assert interrupted_everywhere(world, takes_more_and_fails, "opcode", whole=True) > 500


@both_stores
def test_an_interrupt_before_the_end_begins_is_counted(world: World) -> None:
    """No code of ours has run yet, and none will: all that is left is to count when the lease is dropped."""

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is SyncLease.__exit__.__code__:
            sys.settrace(None)
            raise KeyboardInterrupt

    before = world.paid()
    world.use(adjusts_up, trace, whole=False)
    assert [now - earlier for now, earlier in zip(world.paid(), before, strict=True)] == [TAKEN] * 4
    assert world.unresolved == 1


def test_a_lease_that_ended_leaves_nothing_that_runs_when_it_is_dropped() -> None:
    """Else an interrupt that came just then would be swallowed."""
    world = World("memory://")
    leases = []
    for body in BODIES:
        with suppress(BodyFailed), world.limiter.acquire("key", "gpt", {"a": TAKEN, "b": 1}) as lease:
            leases.append(lease)
            body(lease)
    for lease in leases:
        held = [lease, *gc.get_referents(lease), *gc.get_referents(lease._ledger)]
        assert not [one for one in held if hasattr(type(one), "__del__") and not isinstance(one, SyncRateLimiter)]
    assert any(lease._ledger is not None for lease in leases)


def test_an_interrupt_in_the_event_loop_loses_nothing_either(tmp_path: Path) -> None:
    """Where a loop is run without ``asyncio.run``, Ctrl-C is an exception in whatever task is running."""
    for url in ("memory://", f"sqlite:///{tmp_path}/limits.db"):
        world = World(url)
        limiter = RateLimiter(Repository(world.limiter._core.store, clock=world.clock))
        interrupter = Interrupter("line")

        async def use(limiter: RateLimiter = limiter, trace: Any = interrupter.trace) -> None:
            async with limiter.acquire("key", "gpt", {"a": TAKEN, "b": 1}):
                sys.settrace(trace)
                raise BodyFailed

        at = 0
        while True:
            gc.disable()  # what the last interrupt left behind is not to be dropped while this one is due
            interrupter.begin(at)
            loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(use())
            except (KeyboardInterrupt, BodyFailed):
                pass
            finally:
                sys.settrace(None)
                gc.enable()
                loop.close()
            assert world.paid() == [0] * 4, interrupter.where
            assert limiter.repository.unresolved == 0, interrupter.where
            if not interrupter.came:
                break
            at += 1
        assert at > 15
        world.limiter.close()
