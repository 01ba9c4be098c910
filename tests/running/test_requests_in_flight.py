"""The async driver and requests that are begun at once: no task, and the same promises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.toy_plans import Shelf, Take, take_all
from zae_limiter.running.async_driver import AsyncDriver, InFlight
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import NOT_YET, Interrupted, Plan, Request


class Sending:
    """A shelf whose requests are begun at once, and answered a little later by the loop."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.begun = 0

    def attempt(self, request: Request[Any], /) -> Any:
        loop = asyncio.get_running_loop()
        flight = InFlight(loop=loop)
        self.begun += 1
        self.shelf.started.set()
        loop.call_later(0.004, self._answer, flight, request)
        return flight

    def _answer(self, flight: InFlight, request: Request[Any]) -> None:
        try:
            flight.set_result(self.shelf.perform(request))
        except OSError as error:
            flight.set_exception(error)

    def driver(self) -> AsyncDriver:
        return AsyncDriver(machine_clock, self.shelf.perform_async, self.attempt)


def test_what_is_begun_at_once_is_answered_without_a_task() -> None:
    async def scenario() -> tuple[list[str], int, int]:
        sending = Sending(Shelf())
        running = asyncio.create_task(sending.driver().run(take_all(*"abcde")))
        await asyncio.sleep(0.002)
        tasks = len(asyncio.all_tasks())
        return await running, sending.begun, tasks

    assert asyncio.run(scenario()) == (list("abcde"), 5, 2)


def test_its_error_is_thrown_into_the_plan() -> None:
    async def scenario() -> list[str]:
        sending = Sending(Shelf())
        with pytest.raises(OSError, match="broken"):
            await sending.driver().run(take_all("a", "broken", "c"))
        return sending.shelf.taken

    assert asyncio.run(scenario()) == []


def test_what_cannot_be_begun_is_asked_in_the_ordinary_way() -> None:
    async def scenario() -> list[str]:
        shelf = Shelf()
        return await AsyncDriver(machine_clock, shelf.perform_async, lambda request: NOT_YET).run(take_all("a", "b"))

    assert asyncio.run(scenario()) == ["a", "b"]


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_a_cancelled_plan_hears_its_reply_and_gives_everything_back(step: int, cancels: int) -> None:
    async def scenario() -> list[str]:
        sending = Sending(Shelf())
        task = asyncio.create_task(sending.driver().run(take_all("a", "b", "c")))
        for _ in range(step + 1):
            await sending.shelf.started.wait()
            sending.shelf.started.clear()
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0.001)
        with pytest.raises(asyncio.CancelledError):
            await task
        return sending.shelf.taken

    assert asyncio.run(scenario()) == []


def test_an_interrupt_brings_the_reply_that_came() -> None:
    heard: list[Any] = []

    def plan() -> Plan[None]:
        try:
            yield from Take("a")
        except Interrupted as stop:
            heard.append((stop.reply, stop.error))
            raise

    async def scenario() -> None:
        sending = Sending(Shelf())
        task = asyncio.create_task(sending.driver().run(plan()))
        await sending.shelf.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert heard == [("got a", None)]


def test_a_plan_that_runs_to_the_end_is_not_interrupted_but_the_cancel_is_not_lost() -> None:
    async def scenario() -> list[str]:
        sending = Sending(Shelf())
        task = asyncio.create_task(sending.driver().run(take_all("a", "b"), to_the_end=True))
        await sending.shelf.started.wait()
        task.cancel()
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return sending.shelf.taken

    assert asyncio.run(scenario()) == ["a", "b"]


def test_timeout_scopes_see_their_own_cancel() -> None:
    async def scenario() -> list[str]:
        sending = Sending(Shelf())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.006):
                await sending.driver().run(take_all(*"abcdef"))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return sending.shelf.taken

    assert asyncio.run(scenario()) == []
