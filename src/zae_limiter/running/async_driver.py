"""Runs plans in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

from zae_limiter.running.clocks import Clock, WaitingClock, timer_of
from zae_limiter.running.plan import (
    NOT_YET,
    AwaitBell,
    Bell,
    CutShort,
    Interrupted,
    Pause,
    Performer,
    Plan,
    ReadClock,
    ReadTimer,
    Request,
)

Result = TypeVar("Result")


ANSWERS_AT_ONCE = 3
"""How many requests of one plan are answered without letting other tasks run in between."""


class InFlight(asyncio.Future[Any]):
    """The reply to a request that is under way, and that nobody can call back.

    So it is not cancelled. A task that is cancelled while it waits for one learns that when the reply has come.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        """Never."""
        return False


class AsyncPerformer(Protocol):
    """Does what a store's own requests ask, in an event loop."""

    def __call__(self, request: Request[Any], /) -> Awaitable[Any]: ...


class AsyncDriver:
    """Answers a plan's requests one by one, awaiting where it must."""

    __slots__ = ("_attempt", "_clock", "_perform", "_timer")

    def __init__(self, clock: Clock, perform: AsyncPerformer, attempt: Performer | None = None) -> None:
        """``attempt`` answers what needs no waiting, and ``NOT_YET`` to all else: that saves a task.

        So does an :class:`InFlight`, if what is asked can be begun at once.
        """
        self._attempt = attempt
        self._clock = clock
        self._timer = timer_of(clock)
        self._perform = perform

    async def run(self, plan: Plan[Result], *, to_the_end: bool = False) -> Result:
        """The plan's result.

        On cancellation the request in flight finishes, then :class:`Interrupted` is thrown into the plan, and
        its compensation runs to the end, absorbing further cancels. With ``to_the_end`` the plan is not
        interrupted at all. In both cases the cancellation is raised when the plan is done.
        """
        cancel: BaseException | None = None
        at_once = 0
        step: Any = plan.send
        argument: Any = None
        while True:
            try:
                request = step(argument)
            except StopIteration as finished:
                if cancel is not None:
                    raise cancel from None
                result: Result = finished.value
                return result
            except Interrupted as stop:
                raise stop.cause from None
            except BaseException:
                if cancel is not None:
                    raise cancel from None
                raise
            kind = type(request)
            if kind is ReadClock:
                step, argument = plan.send, self._clock()
                continue
            if kind is ReadTimer:
                step, argument = plan.send, self._timer()
                continue
            interrupted_here = None
            task: asyncio.Future[Any] | None = None
            if self._attempt is not None and at_once < ANSWERS_AT_ONCE and kind is not AwaitBell and kind is not Pause:
                at_once += 1
                try:
                    reply = self._attempt(request)
                    if isinstance(reply, InFlight):
                        at_once, task = 0, reply
                        reply = await task
                except Exception as failure:
                    step, argument = plan.throw, failure
                    continue
                except Interrupted as stop:
                    # A signal, in a loop that lets it come anywhere; the store knows how far it got.
                    if to_the_end:
                        cancel = cancel or stop.cause
                        step, argument = plan.send, stop.reply
                    else:
                        step, argument = plan.throw, stop
                    continue
                except asyncio.CancelledError as caught:
                    if task is None:
                        raise
                    if cancel is None:
                        interrupted_here = cancel = caught
                else:
                    if reply is not NOT_YET:
                        step, argument = plan.send, reply
                        continue
            if task is None:
                task = asyncio.ensure_future(self._answer(request))
                if cancel is None:
                    # A wait takes nothing, so it may be cut short; a store's request may not.
                    try:
                        await (task if kind is AwaitBell or kind is Pause else asyncio.shield(task))
                    except asyncio.CancelledError as caught:
                        interrupted_here = cancel = caught
                    except GeneratorExit:  # the loop is closed, and the task that ran this is dropped
                        plan.close()
                        raise
                    except BaseException:
                        pass  # the task has it
            while not task.done():
                try:
                    await asyncio.wait((task,))
                except asyncio.CancelledError as caught:
                    cancel = cancel or caught
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            reply = None if error else task.result()
            if interrupted_here is not None and not to_the_end:
                step, argument = plan.throw, Interrupted(interrupted_here, reply=reply, error=error)
            elif to_the_end and task.cancelled():
                # A wait cut short has still been waited for; what else was cut short may have been done.
                waited = kind is AwaitBell or kind is Pause
                step, argument = (plan.send, None) if waited else (plan.throw, CutShort("cancelled"))
            elif error is not None:
                step, argument = plan.throw, error
            else:
                step, argument = plan.send, reply

    async def _answer(self, request: Request[Any]) -> Any:
        if isinstance(request, AwaitBell):
            return await self._wait(request.bell, request.milliseconds)
        if isinstance(request, Pause):
            return await self._wait(Bell(), request.milliseconds)
        return await self._perform(request)

    async def _wait(self, bell: Bell, milliseconds: int) -> None:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def ring() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        bell.listen(ring, loop.is_closed)
        try:
            if isinstance(self._clock, WaitingClock):
                call_off = self._clock.call_later(milliseconds, ring)
                try:
                    await event.wait()
                finally:
                    call_off()
            else:
                try:
                    async with asyncio.timeout(milliseconds / 1000):
                        await event.wait()
                except TimeoutError:
                    pass
        finally:
            bell.listen(None)
            bell.rung = False
