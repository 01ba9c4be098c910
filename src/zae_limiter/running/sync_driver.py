"""Runs plans in the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter.running.clocks import Clock, WaitingClock, timer_of
from zae_limiter.running.plan import (
    UNKNOWN,
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
    is_over,
)

Result = TypeVar("Result")


class SyncDriver:
    """Answers a plan's requests one by one, waiting where it must."""

    __slots__ = ("_clock", "_perform", "_timer")

    def __init__(self, clock: Clock, perform: Performer) -> None:
        self._clock = clock
        self._timer = timer_of(clock)
        self._perform = perform

    def run(self, plan: Plan[Result], *, to_the_end: bool = False) -> Result:
        """The plan's result.

        An interrupt (``KeyboardInterrupt`` and its kin) is thrown into the plan, which gives back what it
        took. With ``to_the_end`` the plan is not interrupted: it sees an ordinary error for the request that
        was cut short, goes on as it would after any error, and the interrupt is raised when it is done.
        """
        interrupt: BaseException | None = None
        reply: Any = None
        error: BaseException | None = None
        request: Request[Any] | None = None
        while True:
            try:
                while True:
                    # What the plan asks next may never get here: nothing must look like the answer to it.
                    sent, reply, request = reply, UNKNOWN, None
                    request = plan.send(sent) if error is None else plan.throw(error)
                    error = None
                    reply = self._answer(request) if interrupt is None else self._answer_sheltered(request)
            except StopIteration as finished:
                if interrupt is not None:
                    raise interrupt from None
                result: Result = finished.value
                return result
            except BaseException as caught:
                if is_over(plan):
                    cause = caught.cause if isinstance(caught, Interrupted) else caught
                    raise (interrupt or cause) from cause.__cause__
                if isinstance(caught, Exception):
                    error = caught
                else:
                    interrupt, reply, error = told_of(caught, request, reply, to_the_end)

    def _answer(self, request: Request[Any]) -> Any:
        kind = type(request)
        if kind is ReadClock:
            return self._clock()
        if kind is ReadTimer:
            return self._timer()
        if kind is AwaitWakeUp:
            return self._wait(request.wake_up, request.milliseconds)  # type: ignore[attr-defined]
        if kind is Pause:
            return self._wait(WakeUp(), request.milliseconds)  # type: ignore[attr-defined]
        return self._perform(request)

    def _wait(self, wake_up: WakeUp, milliseconds: int) -> None:
        event = threading.Event()
        wake_up.listen(event.set)
        try:
            if isinstance(self._clock, WaitingClock):
                call_off = self._clock.call_later(milliseconds, event.set)
                try:
                    event.wait()
                finally:
                    call_off()
            else:
                event.wait(milliseconds / 1000)
        finally:
            wake_up.listen(None)
            wake_up.is_set = False

    def _answer_sheltered(self, request: Request[Any]) -> Any:
        return sheltered(lambda: self._answer(request))

    def run_sheltered(self, plan: Plan[Result]) -> Result:
        """The plan's result, after an interrupt: run where no further one can reach."""
        return sheltered(lambda: self.run(plan))


def told_of(
    caught: BaseException, request: Request[Any] | None, reply: Any, to_the_end: bool
) -> tuple[BaseException, Any, BaseException | None]:
    """How a plan is told of an interrupt: the interrupt itself, what the plan is sent, or what is thrown into it.

    ``reply`` is what had been answered by then, if anything.
    """
    if isinstance(caught, Interrupted):  # the store knows how far the request got
        interrupt, reply = caught.cause, caught.reply
    else:  # it may have hit right after the answer came
        interrupt, caught = caught, Interrupted(caught, reply=reply)
    if not to_the_end:
        return interrupt, reply, caught
    if reply is not UNKNOWN:
        return interrupt, reply, None
    if isinstance(request, (Pause, AwaitWakeUp)):
        return interrupt, None, None  # a wait cut short has still been waited for
    return interrupt, UNKNOWN, CutShort("interrupted")


def sheltered(work: Callable[[], Result]) -> Result:
    """Do it where no interrupt can reach: signals are delivered to the main thread only."""
    outcome: list[Any] = []

    def do() -> None:
        try:
            outcome.extend((True, work()))
        except BaseException as error:
            outcome.extend((False, error))

    thread = threading.Thread(target=do, name="zae-limiter-compensation", daemon=True)
    while not thread.ident:
        try:
            thread.start()
        except KeyboardInterrupt:
            continue
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt:
            continue
    succeeded, value = outcome
    if succeeded:
        result: Result = value
        return result
    raise value
