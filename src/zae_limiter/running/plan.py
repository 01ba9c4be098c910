"""Plans: decisions written once, run sync and async.

A plan is a generator. It yields *requests* ("read the clock", "write this item"), is sent the replies, and
returns its result. It never waits, reads a clock or does I/O itself, so a test can drive every path of it
by sending replies, and the same plan serves both worlds.

**Interruption.** When the caller is cancelled (async) or gets a ``KeyboardInterrupt`` (sync) while a
request is in flight, the driver throws :class:`Interrupted` into the plan. A plan that has taken something
catches it, gives back with further requests, and raises it again; from then on the driver lets nothing
interrupt the plan. Asynchronously the request in flight is always allowed to finish first, and its answer
comes with the exception. Synchronously it is not known how far it got: the reply is :data:`UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

Reply = TypeVar("Reply")
Result = TypeVar("Result")


class Request(Generic[Reply]):
    """Something a plan wants done. ``reply = yield from request`` has the reply's exact type."""

    __slots__ = ()

    def __iter__(self) -> Generator[Request[Any], Any, Reply]:
        reply: Reply = yield self
        return reply


Plan: TypeAlias = Generator[Request[Any], Any, Result]
"""A decision in progress: yields requests, is sent replies, returns its result."""


class ReadClock(Request[int]):
    """Bucket time: milliseconds since the epoch."""

    __slots__ = ()


class ReadTimer(Request[int]):
    """Milliseconds of a timer that only moves forward, for measuring how long something takes."""

    __slots__ = ()


class Pause(Request[None]):
    """Do nothing for a while."""

    __slots__ = ("milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds


class WakeUp:
    """A wake-up call that a plan can wait for, and that any thread may give: before, during or after."""

    __slots__ = ("_is_gone", "_wake", "calls", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self.calls = 0
        """How often it was given: a plan that waited can tell whether it was woken."""
        self._wake: Callable[[], object] | None = None
        self._is_gone: Callable[[], bool] | None = None

    def wake(self) -> None:
        """Wake the plan that waits, or the next that does."""
        self.is_set = True
        self.calls += 1
        wake = self._wake
        if wake is not None:
            wake()

    @property
    def is_abandoned(self) -> bool:
        """Whether the plan that waits can never wake up: its event loop is closed."""
        is_gone = self._is_gone
        return is_gone is not None and is_gone()

    def listen(self, wake: Callable[[], object] | None, is_gone: Callable[[], bool] | None = None) -> None:
        """Call ``wake`` at the wake-up; at once if it has come. ``is_gone``: whether that is of no use any more."""
        self._is_gone = is_gone
        self._wake = wake
        if wake is not None and self.is_set:
            wake()


class AwaitWakeUp(Request[None]):
    """Wait for the wake-up, or until ``milliseconds`` have passed. Then it can be waited for again."""

    __slots__ = ("milliseconds", "wake_up")

    def __init__(self, wake_up: WakeUp, milliseconds: int) -> None:
        self.wake_up = wake_up
        self.milliseconds = milliseconds


READ_CLOCK: Final = ReadClock()
READ_TIMER: Final = ReadTimer()
UNKNOWN: Final[Any] = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN"})()


NOT_YET: Final[Any] = type("NotYet", (), {"__repr__": lambda self: "NOT_YET"})()
"""The answer of a store that could not do something without waiting."""


class Interrupted(BaseException):
    """The caller no longer wants the result. Give back what was taken, then raise this again.

    ``reply`` is what the request in flight answered (:data:`UNKNOWN` if that cannot be known), ``error``
    what it raised, ``cause`` the cancellation itself.
    """

    def __init__(self, cause: BaseException, *, reply: Any = UNKNOWN, error: BaseException | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.reply = reply
        self.error = error


class CutShort(Exception):
    """An interrupt hit the request in flight of a plan that runs to its end. It may have been done."""


class Performer(Protocol):
    """Does what a store's own requests ask. A store has one for each world."""

    def __call__(self, request: Request[Reply], /) -> Reply: ...


def assign(objects: Iterable[object], names: Iterable[str], values: Iterable[object]) -> None:
    """Set attributes of plain objects, all of them or none, whatever interrupts.

    CPython runs signal handlers between instructions of Python code, and there are none here between two attributes.
    """
    any(map(setattr, objects, names, values))  # what setattr returns is never true


def is_over(plan: Plan[Any]) -> bool:
    """Whether a plan has returned or raised, and cannot be told anything any more."""
    return getattr(plan, "gi_frame", None) is None
