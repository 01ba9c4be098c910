"""What plans of this store ask for, and what may be answered instead of a reply.

A :class:`Call` is one call of DynamoDB's API in its own JSON. Its answer is the reply, or one of two errors that
say all a plan needs to know: :class:`Refused` (DynamoDB answered no: nothing was applied) and :class:`NoAnswer`
(the outcome is unknown, unless ``sent`` is false).

Plans ask for the machine's time too: that of a clock which DynamoDB's replies have checked (:class:`CheckedClock`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from zae_limiter.running.plan import Request, WakeUp

Item: TypeAlias = Mapping[str, Any]
"""An item in DynamoDB's JSON: attribute → ``{"S": …}``, ``{"N": …}``."""

Reply: TypeAlias = Mapping[str, Any]


class UnreadReply(Mapping[str, Any]):
    """A reply that has arrived whole, as its checksum says, and is parsed when a plan looks into it.

    Most replies bring a bucket that is known but for a few numbers. Those are found in the ``text``.
    """

    __slots__ = ("_read", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._read: Mapping[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._whole()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def __repr__(self) -> str:
        return f"UnreadReply({self.text!r})"

    def _whole(self) -> Mapping[str, Any]:
        if self._read is None:
            self._read = json.loads(self.text)
        return self._read


CONDITION_FAILED: Final = "ConditionalCheckFailedException"
CHECK_FAILED: Final = "ConditionalCheckFailed"  # the same, of one write of a transaction
TRANSACTION_CANCELED: Final = "TransactionCanceledException"
TRANSACTION_CONFLICT: Final = "TransactionConflictException"
TRANSACTION_IN_PROGRESS: Final = "TransactionInProgressException"
TABLE_NOT_FOUND: Final = "ResourceNotFoundException"
KEY_THROTTLED: Final = "ProvisionedThroughputExceededException"
THROTTLED: Final = frozenset({KEY_THROTTLED, "ThrottlingException", "RequestLimitExceeded", "LimitExceededException"})


_PASSING: Final = frozenset({TRANSACTION_CANCELED, TRANSACTION_IN_PROGRESS, "ResourceInUseException"})
"""Refusals that are over when another call has ended."""

THROTTLED_IN_TRANSACTION: Final = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded"})


class Reason(NamedTuple):
    """Why one item of a transaction was refused (``None``: it was not the reason), and the item as it is."""

    code: str | None
    item: Item | None = None


class Refused(Exception):
    """DynamoDB answered no, and changed nothing.

    ``item`` is the item as it is, after a failed condition that asked for it (``None``: there is none).
    ``reasons`` has one entry per item of a transaction that was canceled.
    """

    def __init__(self, code: str, message: str = "", *, item: Item | None = None, reasons: Sequence[Reason] = ()):
        self.code = code
        self.message = message
        self.item = item
        self.reasons = tuple(reasons)
        super().__init__(f"{code}: {message}" if message else code)

    @property
    def by_condition(self) -> bool:
        """Whether a condition did not hold."""
        return self.code == CONDITION_FAILED

    @property
    def by_throttling(self) -> bool:
        """Whether it was too much at once, for the key, the table or the account."""
        return self.code in THROTTLED or any(reason.code in THROTTLED_IN_TRANSACTION for reason in self.reasons)

    @property
    def by_load(self) -> bool:
        """Whether others were in the way: too much at once, or another transaction."""
        return self.by_throttling or self.by_conflict

    @property
    def by_configuration(self) -> bool:
        """Whether the same call will be refused again: the table, the credentials or the call itself are not right."""
        return not (self.by_load or self.by_condition or self.code in _PASSING)

    @property
    def by_conflict(self) -> bool:
        """Whether another transaction was at one of the items; the same again may succeed."""
        return self.code == TRANSACTION_CONFLICT or any(
            reason.code == "TransactionConflict" for reason in self.reasons
        )


class NoAnswer(Exception):
    """No answer, or none that says anything (a timeout, a reset, a 5xx).

    ``sent`` is false when the call surely never reached DynamoDB. ``final``: asking again now is of no use.
    ``misconfigured``: nor is it later, as this machine is set up: no credentials, no region, no such host.
    """

    final = False

    def __init__(self, message: str, *, sent: bool = True, misconfigured: bool = False) -> None:
        self.sent = sent
        self.misconfigured = misconfigured
        super().__init__(message)


class Contended(NoAnswer):
    """DynamoDB answers, but others were faster at every try until the deadline. Nothing was done."""

    def __init__(self, message: str = "too many others write to this bucket") -> None:
        super().__init__(message, sent=False)


class DeadlineOver(NoAnswer):
    """There was no time left to ask. Nothing was sent."""

    final = True

    def __init__(self, message: str = "the deadline has passed") -> None:
        super().__init__(message, sent=False)


class CircuitOpen(NoAnswer):
    """DynamoDB has not answered for a while, so the circuit breaker is open. Nothing was sent."""

    final = True

    def __init__(self, last: NoAnswer | None = None) -> None:
        """``last`` says what became of the last call that was sent."""
        why = f" ({last})" if last else ""
        super().__init__(
            f"it has not answered for a while{why}; trying again in the background",
            sent=False,
            misconfigured=last is not None and last.misconfigured,
        )


class Call(Request[Reply]):
    """One call of DynamoDB's API. ``give_up_at`` is in milliseconds of the machine's timer."""

    __slots__ = ("give_up_at", "operation", "params")

    def __init__(self, operation: str, params: Mapping[str, Any], give_up_at: int) -> None:
        self.operation = operation
        self.params = params
        self.give_up_at = give_up_at

    def __repr__(self) -> str:
        return f"Call({self.operation}, {dict(self.params)})"


Answer: TypeAlias = Reply | Refused | NoAnswer


class AwaitNews(Request[None]):
    """Wait for a wake-up, by machine time: for what another plan of this client is finding out."""

    __slots__ = ("give_up_at", "wake_up")

    def __init__(self, wake_up: WakeUp, give_up_at: int) -> None:
        self.wake_up = wake_up
        self.give_up_at = give_up_at


class Together(Request[Sequence[Answer]]):
    """Several calls at once. Each has its own answer; errors come as values."""

    __slots__ = ("calls",)

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls

    def __repr__(self) -> str:
        return f"Together({list(self.calls)})"


class Backoff(Request[None]):
    """Wait a little before trying again, longer and less predictably with every try. Machine time.

    Raises :class:`DeadlineOver` when there is no time left for another try.
    """

    __slots__ = ("give_up_at", "tries")

    def __init__(self, tries: int, give_up_at: int) -> None:
        self.tries = tries
        self.give_up_at = give_up_at


class MachineTime(NamedTuple):
    """The machine's time, whatever clock the buckets use."""

    timer_ms: int
    """Of a timer that only moves forward, for deadlines."""
    epoch_s: int
    """Of the wall clock, as DynamoDB's expiry sees it: corrected."""
    clock_error_ms: int = 0
    """By how much the wall clock is late, as replies show it."""
    checked: bool = True
    """Whether a reply confirms that. Until one does, nothing is written that depends on the time."""


class ReadMachineTime(Request[MachineTime]):
    """The machine's time, whatever clock the buckets use."""

    __slots__ = ()


READ_MACHINE_TIME: Final = ReadMachineTime()


LARGEST_CLOCK_ERROR_MS = 2_000
"""A machine's clock that is off by more, as DynamoDB's replies show it, is corrected. So is one that moved by more
against the machine's timer since the last reply."""


class _LastReply(NamedTuple):
    """What the last reply showed, and how far the wall clock was ahead of the timer then."""

    error_ms: int
    lead_ms: int


class CheckedClock:
    """The machine's clock, checked against DynamoDB's by the ``Date`` of its replies. It is told both, and reads none.

    A clock counts as checked from the first reply on, for as long as the wall clock keeps step with the timer. A wall
    clock that moved against the timer was set, or the machine was asleep while its timer stood still; only a reply
    tells which. Until then the time goes on along the timer, and nothing is to be written by it.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: _LastReply | None = None

    def hear(self, skew_ms: int | None, wall_ms: int, timer_ms: int) -> int | None:
        """A reply came whose ``Date`` is so far ahead of the wall clock (``None``: it has no date).

        Returns the correction if it is another one from now on. A reply without a date confirms nothing, but there is
        nothing better to wait for: then the clock is believed.
        """
        before = 0 if self._last is None else self._last.error_ms
        known = self.machine_time(wall_ms, timer_ms).clock_error_ms
        error = skew_ms or 0
        if skew_ms is not None and abs(error - known) <= LARGEST_CLOCK_ERROR_MS:
            error = known
        elif abs(error) <= LARGEST_CLOCK_ERROR_MS:
            error = 0
        self._last = _LastReply(error, wall_ms - timer_ms)
        return None if error == before else error

    def machine_time(self, wall_ms: int, timer_ms: int) -> MachineTime:
        """The time at a reading of wall clock and timer, corrected, and whether a reply confirms that."""
        error, checked, last = 0, False, self._last
        if last is not None:
            step = wall_ms - timer_ms - last.lead_ms
            checked = -LARGEST_CLOCK_ERROR_MS <= step <= LARGEST_CLOCK_ERROR_MS  # what clocks drift
            error = last.error_ms if checked else last.error_ms - step
        return MachineTime(timer_ms, (wall_ms + error) // 1000, error, checked)
