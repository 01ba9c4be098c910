"""The drivers, with toy plans: what is answered, what is thrown in, and what cannot be interrupted."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

from zae_limiter.running.async_driver import AsyncDriver
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import (
    READ_CLOCK,
    READ_TIMER,
    UNKNOWN,
    AwaitWakeUp,
    CutShort,
    Interrupted,
    Pause,
    Plan,
    Request,
    WakeUp,
)
from zae_limiter.running.sync_driver import SyncDriver


class Take(Request[str]):
    """Take one thing from the ledger below."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class GiveBack(Request[None]):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Shelf:
    """A store of things, for both worlds. ``interrupt_at`` says where the world breaks in."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.steps = 0
        self.interrupts: dict[int, BaseException] = {}
        self.started = asyncio.Event()

    def perform(self, request: Request[Any]) -> Any:
        self.steps += 1
        interrupt = self.interrupts.pop(self.steps, None)
        if isinstance(request, Take):
            if interrupt is not None:
                raise interrupt
            if request.name == "broken":
                raise OSError("broken")
            self.taken.append(request.name)
            return f"got {request.name}"
        if isinstance(request, GiveBack):
            if interrupt is not None:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                time.sleep(0.02)
            self.taken.remove(request.name)
        return None

    async def perform_async(self, request: Request[Any]) -> Any:
        self.started.set()
        await asyncio.sleep(0.002)
        reply = self.perform(request)
        await asyncio.sleep(0.002)
        return reply


def take_all(*names: str) -> Plan[list[str]]:
    """Take several things one by one; if that does not work out, give all of them back."""
    taken: list[str] = []
    try:
        for name in names:
            try:
                yield from Take(name)
            except Interrupted as stop:
                if stop.error is None and stop.reply is not UNKNOWN:
                    taken.append(name)
                raise
            taken.append(name)
        return taken
    except BaseException:
        for name in reversed(taken):
            yield from GiveBack(name)
        raise


def test_a_plan_is_answered_until_it_returns() -> None:
    shelf = Shelf()
    assert SyncDriver(machine_clock, shelf.perform).run(take_all("a", "b")) == ["a", "b"]
    assert shelf.taken == ["a", "b"]


def test_the_reply_has_the_type_of_its_request() -> None:
    def plan() -> Plan[str]:
        return (yield from Take("a"))

    assert SyncDriver(machine_clock, Shelf().perform).run(plan()) == "got a"


def test_time_comes_from_the_clock_and_the_timer() -> None:
    def plan() -> Plan[tuple[int, int, int]]:
        now = yield from READ_CLOCK
        before = yield from READ_TIMER
        yield from Pause(10)
        return now, before, (yield from READ_TIMER)

    now, before, after = SyncDriver(lambda: 42, Shelf().perform).run(plan())
    assert now == 42
    assert after - before >= 9
    now, before, after = asyncio.run(AsyncDriver(lambda: 42, Shelf().perform_async).run(plan()))
    assert now == 42
    assert after - before >= 9


def test_a_store_error_is_thrown_into_the_plan_which_compensates() -> None:
    shelf = Shelf()
    with pytest.raises(OSError, match="broken"):
        SyncDriver(machine_clock, shelf.perform).run(take_all("a", "broken", "c"))
    assert shelf.taken == []
    with pytest.raises(OSError, match="broken"):
        asyncio.run(AsyncDriver(machine_clock, shelf.perform_async).run(take_all("a", "broken", "c")))
    assert shelf.taken == []


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("again", [False, True])
def test_a_keyboard_interrupt_at_any_request_gives_back_what_was_taken(step: int, again: bool) -> None:
    shelf = Shelf()
    shelf.interrupts[step] = KeyboardInterrupt()
    if again:
        shelf.interrupts[step + 1] = KeyboardInterrupt("during compensation")
    with pytest.raises(KeyboardInterrupt):
        SyncDriver(machine_clock, shelf.perform).run(take_all("a", "b", "c"))
    assert shelf.taken == []


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_a_cancelled_plan_finishes_its_request_and_gives_everything_back(step: int, cancels: int) -> None:
    async def scenario() -> list[str]:
        shelf = Shelf()
        task = asyncio.create_task(AsyncDriver(machine_clock, shelf.perform_async).run(take_all("a", "b", "c")))
        for _ in range(step + 1):
            await shelf.started.wait()
            shelf.started.clear()
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0.001)
        with pytest.raises(asyncio.CancelledError):
            await task
        return shelf.taken

    assert asyncio.run(scenario()) == []


def test_a_cancel_before_the_first_step_takes_nothing() -> None:
    async def scenario() -> list[str]:
        shelf = Shelf()
        task = asyncio.create_task(AsyncDriver(machine_clock, shelf.perform_async).run(take_all("a")))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return shelf.taken

    assert asyncio.run(scenario()) == []


def test_a_plan_that_runs_to_the_end_is_not_interrupted_but_the_cancel_is_not_lost() -> None:
    async def scenario() -> list[str]:
        shelf = Shelf()
        driver = AsyncDriver(machine_clock, shelf.perform_async)
        task = asyncio.create_task(driver.run(take_all("a", "b"), to_the_end=True))
        await shelf.started.wait()
        task.cancel()
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return shelf.taken

    assert asyncio.run(scenario()) == ["a", "b"]


def test_a_sync_plan_that_runs_to_the_end_sees_an_error_and_the_interrupt_comes_afterwards() -> None:
    shelf = Shelf()
    shelf.interrupts[1] = KeyboardInterrupt()

    def stubborn() -> Plan[str]:
        for _ in range(3):
            try:
                return (yield from Take("a"))
            except CutShort:
                continue
        return "never"

    with pytest.raises(KeyboardInterrupt):
        SyncDriver(machine_clock, shelf.perform).run(stubborn(), to_the_end=True)
    assert shelf.taken == ["a"]


def test_timeout_scopes_see_their_own_cancel() -> None:
    async def scenario() -> list[str]:
        shelf = Shelf()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await AsyncDriver(machine_clock, shelf.perform_async).run(take_all(*"abcdef"))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return shelf.taken

    assert asyncio.run(scenario()) == []


def test_a_wake_up_before_the_wait_ends_it_at_once_and_only_once() -> None:
    wake_up = WakeUp()
    wake_up.wake()

    def plan() -> Plan[int]:
        before = yield from READ_TIMER
        yield from AwaitWakeUp(wake_up, 10_000)
        between = yield from READ_TIMER
        assert between - before < 5_000
        assert not wake_up.is_set
        yield from AwaitWakeUp(wake_up, 20)
        return (yield from READ_TIMER) - between

    assert SyncDriver(machine_clock, Shelf().perform).run(plan()) >= 19
    wake_up.wake()
    assert asyncio.run(AsyncDriver(machine_clock, Shelf().perform_async).run(plan())) >= 19
