"""Plans of the DynamoDB store, with the answer to every call in the hands of the test.

A :class:`Script` runs one plan of a client over a table of the model (see ``scripted_tables``) and answers it as a
driver would, except where the test says otherwise: the *fate* of the n-th call is not to arrive, not to be answered,
to arrive late, to be refused, to be interrupted; or something happens just before it. So a test can run a scenario
once, count its calls, and then run it again for every call and every fate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.running.plan import (
    UNKNOWN,
    AwaitWakeUp,
    CutShort,
    Interrupted,
    Pause,
    Plan,
    ReadClock,
    ReadTimer,
    Request,
)
from zae_limiter.stores.dynamodb.performer import LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS
from zae_limiter.stores.dynamodb.requests import (
    KEY_THROTTLED,
    TRANSACTION_CANCELED,
    TRANSACTION_CONFLICT,
    AwaitNews,
    Backoff,
    Call,
    DeadlineOver,
    MachineTime,
    NoAnswer,
    ReadMachineTime,
    Reason,
    Refused,
    Together,
)

if TYPE_CHECKING:
    from scripted_tables import Table

TRIP_MS = 3
MOST_STEPS = 20_000


class Fate(StrEnum):
    """What becomes of one call, instead of its being done and answered."""

    LOST = "it never arrives, and there is no answer"
    UNHEARD = "it is done, and its answer is lost"
    LATE = "there is no answer, and it is done after the next call"
    LATEST = "there is no answer, and it is done when the plan is over"
    UNSENT = "there is no connection"
    THROTTLED = "the key is throttled"
    CONFLICT = "a transaction is at the item"
    FORBIDDEN = "a permission lacks"
    CANCELLED = "it is done, and the task is cancelled meanwhile"
    INTERRUPTED_DONE = "it is done, and the thread is interrupted meanwhile"
    INTERRUPTED_UNDONE = "it never arrives, and the thread is interrupted meanwhile"
    INTERRUPTED_LATEST = "the thread is interrupted meanwhile, and it is done when the plan is over"


SILENCES = (Fate.LOST, Fate.UNHEARD, Fate.LATE, Fate.LATEST, Fate.UNSENT)
REFUSALS = (Fate.THROTTLED, Fate.CONFLICT, Fate.FORBIDDEN)
INTERRUPTS = (Fate.CANCELLED, Fate.INTERRUPTED_DONE, Fate.INTERRUPTED_UNDONE, Fate.INTERRUPTED_LATEST)
EVERY_FATE = (*SILENCES, *REFUSALS, *INTERRUPTS)


class Stopped(BaseException):
    """The cancellation or interrupt of a script."""


class Ended(NamedTuple):
    """How a plan ended: with a result, or with an error (the interrupt itself, if there was one).

    ``finished``: the plan itself returned. ``ambiguous``: the error it raised says so.
    """

    result: Any
    error: BaseException | None
    calls: list[Call]
    finished: bool = True
    ambiguous: bool = False

    @property
    def operations(self) -> list[str]:
        return [call.operation for call in self.calls]


class Script:
    """Runs plans; ``fates`` and ``meanwhile`` are by the number of the call, from 0.

    ``silent_from``: from that call on there is no answer within any deadline, and ``heard`` says whether calls arrive.
    """

    def __init__(
        self,
        table: Table,
        fates: Mapping[int, Fate] | None = None,
        *,
        meanwhile: Mapping[int, Callable[[], object]] | None = None,
        silent_from: int | None = None,
        heard: bool = False,
    ) -> None:
        self.table = table
        self.fates = fates or {}
        self.meanwhile = meanwhile or {}
        self.silent_from = silent_from
        self.heard = heard
        self.calls: list[Call] = []
        self.effects: Counter[tuple[str, str]] = Counter()
        """What the calls of this plan took, net, by entity and limit, in millitokens."""
        self.minted: list[str] = []
        """Writes of this plan that left more in a bucket than was there, less what they took."""
        self._late: list[tuple[int, Call]] = []
        self._interrupt: BaseException | None = None
        self._to_the_end = False

    def run(self, plan: Plan[Any], *, to_the_end: bool = False) -> Ended:
        """Run a plan to its end. ``to_the_end`` as with a driver: it is not interrupted."""
        self._to_the_end = to_the_end
        result: Any = None
        error: BaseException | None = None
        step, argument = plan.send, None
        for _ in range(MOST_STEPS):
            try:
                request = step(argument)  # type: ignore[arg-type]
            except StopIteration as finished:
                result = finished.value
                break
            except BaseException as raised:
                error = raised.cause if isinstance(raised, Interrupted) else raised
                break
            try:
                step, argument = plan.send, self._answer(request)  # type: ignore[assignment]
            except (Exception, Interrupted) as raised:
                step, argument = plan.throw, raised  # type: ignore[assignment]
        else:
            raise AssertionError("a plan that does not end")
        self._let_arrive(None)
        finished, ambiguous = error is None, bool(getattr(error, "ambiguous", False))
        if self._interrupt is not None:
            result, error = None, self._interrupt
        return Ended(result, error, self.calls, finished, ambiguous)

    def _answer(self, request: Request[Any]) -> Any:
        table = self.table
        if isinstance(request, Together):
            return self._answer_all(request.calls, several=True)
        if isinstance(request, Call):
            return self._answer_all([request], several=False)
        if isinstance(request, ReadMachineTime):
            return MachineTime(table.timer, table.now // 1000)
        if isinstance(request, ReadClock):
            return table.now
        if isinstance(request, ReadTimer):
            return table.timer
        if isinstance(request, (Pause, AwaitWakeUp)):
            table.timer += request.milliseconds
            return None
        if isinstance(request, AwaitNews):
            table.timer = max(table.timer, request.give_up_at)
            return None
        assert isinstance(request, Backoff)
        pause = min(SHORTEST_PAUSE_MS * 2**request.tries, LONGEST_PAUSE_MS)
        if table.timer + pause >= request.give_up_at:
            raise DeadlineOver
        table.timer += pause
        return None

    def _answer_all(self, calls: Sequence[Call], *, several: bool) -> Any:
        answers = []
        fates = []
        for call in calls:
            number = len(self.calls)
            self.calls.append(call)
            if number in self.meanwhile:
                self.meanwhile[number]()
            fate = self.fates.get(number)
            if fate in INTERRUPTS and self._interrupt is not None:
                fate = None  # drivers let nothing interrupt a plan for the second time
            fates.append(fate)
            answers.append(self._fulfil(call, number, fates[-1]))
        stop = next((fate for fate in fates if fate in INTERRUPTS), None)
        if stop is not None:
            self._interrupt = self._interrupt or Stopped(stop)
            reply = UNKNOWN if stop is not Fate.CANCELLED else answers if several else answers[0]
            if not self._to_the_end:
                failure = reply if isinstance(reply, (Refused, NoAnswer)) else None
                raise Interrupted(self._interrupt, reply=None if failure else reply, error=failure)
            if reply is UNKNOWN:
                raise CutShort("interrupted")
        if not several and isinstance(answers[0], (Refused, NoAnswer)):
            raise answers[0]
        return answers if several else answers[0]

    def _fulfil(self, call: Call, number: int, fate: Fate | None) -> Any:
        self._let_arrive(number)
        table = self.table
        if table.timer >= call.give_up_at:
            return DeadlineOver()
        if self.silent_from is not None and number >= self.silent_from:
            table.timer = call.give_up_at
            if self.heard:
                self._apply(call)
            return NoAnswer("silence")
        table.timer += TRIP_MS
        if fate in (Fate.LOST, Fate.INTERRUPTED_UNDONE):
            return NoAnswer("lost")
        if fate is Fate.UNSENT:
            return NoAnswer("no connection", sent=False)
        if fate is Fate.THROTTLED:
            return Refused(KEY_THROTTLED)
        if fate is Fate.FORBIDDEN:
            return Refused("AccessDeniedException")
        if fate is Fate.CONFLICT:
            return self._conflict(call)
        if fate in (Fate.LATE, Fate.LATEST, Fate.INTERRUPTED_LATEST):
            self._late.append((number + 1 if fate is Fate.LATE else MOST_STEPS, call))
            return NoAnswer("late")
        reply = self._apply(call)
        return NoAnswer("unheard") if fate is Fate.UNHEARD else reply

    def _conflict(self, call: Call) -> Refused:
        if call.operation != "TransactWriteItems":
            return Refused(TRANSACTION_CONFLICT)
        others = [Reason(None)] * (len(call.params["TransactItems"]) - 1)
        return Refused(TRANSACTION_CANCELED, reasons=[Reason("TransactionConflict"), *others])

    def _let_arrive(self, number: int | None) -> None:
        """Do the late calls whose time has come; all of them at the end."""
        due = [call for after, call in self._late if number is None or number > after]
        self._late = [(after, call) for after, call in self._late if not (number is None or number > after)]
        for call in due:
            self._apply(call)

    def _apply(self, call: Call) -> Any:
        if call.operation not in ("PutItem", "UpdateItem", "TransactWriteItems"):
            return self._done(call)
        before = self.table.contents()
        reply = self._done(call)
        after = self.table.contents()
        for place, held in after.items():
            was = before.get(place)
            taken = held.taken - (was.taken if was else 0)
            self.effects[place] += taken
            if was is not None and held.level > was.level - taken:
                self.minted.append(f"{place}: {was} became {held}")
            if held.level > held.burst:
                self.minted.append(f"{place}: {held} is above its ceiling")
        return reply

    def _done(self, call: Call) -> Any:
        try:
            return self.table.call(call.operation, call.params)
        except Refused as refusal:
            return refusal


def steps(plan: Plan[Any], table: Table) -> Generator[Call | Together, Any, Ended]:
    """Run a plan up to each of its calls, to be answered from outside (send the answer, or throw).

    For tests that interleave several plans by hand.
    """
    script = Script(table)
    step, argument = plan.send, None
    while True:
        try:
            request = step(argument)  # type: ignore[arg-type]
        except StopIteration as finished:
            return Ended(finished.value, None, [])
        except BaseException as raised:
            return Ended(None, raised, [])
        try:
            reply = (yield request) if isinstance(request, (Call, Together)) else script._answer(request)
            step, argument = plan.send, reply
        except (Exception, Interrupted) as raised:
            step, argument = plan.throw, raised  # type: ignore[assignment]


def go_on(plan: Generator[Call | Together, Any, Ended], reply: Any = None) -> Call | Together | Ended:
    """Let a plan that is run by :func:`steps` hear an answer: its next call, or how it ended."""
    try:
        if isinstance(reply, (Refused, NoAnswer)):
            return plan.throw(reply)
        return plan.send(reply)
    except StopIteration as finished:
        ended: Ended = finished.value
        return ended


def finish(plan: Generator[Call | Together, Any, Ended], table: Table, reply: Any = None) -> Ended:
    """Let it hear an answer, and then run it to its end."""
    request = go_on(plan, reply)
    while not isinstance(request, Ended):
        answers = answer(table, request)
        request = go_on(plan, answers if isinstance(request, Together) else answers[0])
    return request


def answer(table: Table, request: Call | Together) -> Any:
    """What the model says, refusals as values."""
    script = Script(table)
    return script._answer_all(request.calls if isinstance(request, Together) else [request], several=True)


def run_hearing(plan: Plan[Any], table: Table, hear: Callable[[Call], Any]) -> Ended:
    """Run a plan whose calls are answered by ``hear``; by the model, where that says nothing."""
    stepping = steps(plan, table)
    request = go_on(stepping)
    while not isinstance(request, Ended):
        calls = request.calls if isinstance(request, Together) else [request]
        answers = [heard if (heard := hear(call)) is not None else answer(table, call)[0] for call in calls]
        request = go_on(stepping, answers if isinstance(request, Together) else answers[0])
    return request


def arrives(table: Table, call: Call) -> None:
    Script(table)._done(call)
