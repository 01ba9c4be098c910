"""Runs plans in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from zae_limiter.running.clocks import Clock, WaitingClock, timer_of
from zae_limiter.running.plan import (
    NOT_YET,
    AwaitWakeUp,
    CutShort,
    Interrupted,
    Pause,
    Performer,
    Plan,
    ReadClock,
    ReadTimer,
    Request,
    WakeUp,
)

Result = TypeVar("Result")


ANSWERS_AT_ONCE = 3
"""How many requests of one plan are answered without letting other tasks run in between."""

WAITS = frozenset((AwaitWakeUp, Pause))
"""The requests that take nothing, so that they may be cut short."""


class InFlight(asyncio.Future[Any]):
    """The reply to a request that is under way, and that cannot be called back.

    So it is not cancelled. A task that is cancelled while it waits for one learns that when the reply has come.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        """Never."""
        return False


class AsyncPerformer(Protocol):
    """Does what a store's own requests ask, in an event loop."""

    def __call__(self, request: Request[Any], /) -> Awaitable[Any]: ...


class Answer(NamedTuple):
    """What became of a request: a reply or an error.

    ``interrupt`` is the cancellation that is the first of its plan and came while this request was under way,
    ``cancel`` any that came by then.
    """

    reply: Any
    error: BaseException | None = None
    interrupt: BaseException | None = None
    cancel: BaseException | None = None


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
            elif kind is ReadTimer:
                step, argument = plan.send, self._timer()
            else:
                begun = self._begin(request) if at_once < ANSWERS_AT_ONCE else None
                at_once = at_once + 1 if isinstance(begun, Answer) else 0
                try:
                    answer = begun if isinstance(begun, Answer) else await self._finish(request, begun, cancel)
                except GeneratorExit:  # the loop is closed, and the task that ran this is dropped
                    plan.close()
                    raise
                cancel = cancel or answer.cancel
                step, argument = resumption(plan, request, answer, to_the_end)

    def _begin(self, request: Request[Any]) -> Answer | InFlight | None:
        """Do it at once, or begin it, if either is possible."""
        if self._attempt is None or type(request) in WAITS:
            return None
        try:
            reply = self._attempt(request)
        except Exception as failure:
            return Answer(None, failure)
        except Interrupted as stop:
            # A signal, in a loop that lets it come anywhere; the store knows how far it got.
            return Answer(stop.reply, stop.error, stop.cause, stop.cause)
        if reply is NOT_YET:
            return None
        return reply if isinstance(reply, InFlight) else Answer(reply)

    async def _finish(self, request: Request[Any], begun: InFlight | None, cancel: BaseException | None) -> Answer:
        """Wait for a request to the end, whatever is cancelled meanwhile; ``cancel`` came before."""
        task: asyncio.Future[Any] = begun or asyncio.ensure_future(self._answer(request))
        interrupt: BaseException | None = None
        if cancel is None:
            # A wait takes nothing, so it may be cut short; a store's request may not.
            direct = begun is not None or type(request) in WAITS
            try:
                await (task if direct else asyncio.shield(task))
            except asyncio.CancelledError as caught:
                interrupt = cancel = caught
            except GeneratorExit:
                raise
            except BaseException:
                pass  # the task has it
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as caught:
                cancel = cancel or caught
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        return Answer(None if error else task.result(), error, interrupt, cancel)

    async def _answer(self, request: Request[Any]) -> Any:
        if isinstance(request, AwaitWakeUp):
            return await self._wait(request.wake_up, request.milliseconds)
        if isinstance(request, Pause):
            return await self._wait(WakeUp(), request.milliseconds)
        return await self._perform(request)

    async def _wait(self, wake_up: WakeUp, milliseconds: int) -> None:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        wake_up.listen(wake, loop.is_closed)
        try:
            if isinstance(self._clock, WaitingClock):
                call_off = self._clock.call_later(milliseconds, wake)
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
            wake_up.listen(None)
            wake_up.is_set = False


def resumption(
    plan: Plan[Any], request: Request[Any], answer: Answer, to_the_end: bool
) -> tuple[Callable[[Any], Request[Any]], Any]:
    """How a plan goes on after an answer: what is called, and with what."""
    if answer.interrupt is not None and not to_the_end:
        return plan.throw, Interrupted(answer.interrupt, reply=answer.reply, error=answer.error)
    if to_the_end and isinstance(answer.error, asyncio.CancelledError):
        # A wait cut short has still been waited for; what else was cut short may have been done.
        return (plan.send, None) if type(request) in WAITS else (plan.throw, CutShort("cancelled"))
    if answer.error is not None:
        return plan.throw, answer.error
    return plan.send, answer.reply
