"""A client of the fleet, and its tasks: plans whose requests are answered as the two drivers would.

A client has a clock of its own (true time and a skew), write ids, a bucket cache and a config cache of its own. A task
is one plan; a client may run several at a time. Interrupts come as the drivers bring them: in asyncio after the
request under way was answered and with its answer, in a thread at any moment and without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from simulation.families import Owner
from simulation.invariants import Debts
from simulation.network import Flight
from simulation.violations import PROGRESS, Verb, Violation
from simulation.words import only_looks_at_buckets
from zae_limiter.running.plan import (
    UNKNOWN,
    AwaitWakeUp,
    CutShort,
    Interrupted,
    Pause,
    Plan,
    ReadClock,
    ReadTimer,
    WakeUp,
)
from zae_limiter.stores.dynamodb.performer import LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS
from zae_limiter.stores.dynamodb.requests import (
    Answer,
    AwaitNews,
    Backoff,
    Call,
    CheckedClock,
    DeadlineOver,
    MachineTime,
    NoAnswer,
    ReadMachineTime,
    Refused,
    Together,
)
from zae_limiter.stores.dynamodb.store import DynamoSpace
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.write_ids import WriteIds

if TYPE_CHECKING:
    from simulation.fleet import Fleet

TABLE = "limits"
WRITES = ("UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems")
HOUR_MS = 3_600_000
MOST_AT_ONCE = 1000
"""So many requests a plan may make without any that takes time."""


class Cancelled(BaseException):
    """What interrupts a task."""


class Client:
    """One process of the fleet."""

    def __init__(
        self, fleet: Fleet, number: int, *, deadline_ms: int, ttl_margin_s: int, config_ttl_ms: int, wcu: int
    ) -> None:
        self.fleet = fleet
        self.name = f"{number:08x}"
        self.skew = 0
        self.lead = 0
        """How far its given clock is ahead; its machine's is not."""
        faults = fleet.faults
        self.has_given_clock = bool(faults.given_hours) and fleet.rng.random() < 1 / 3
        self.checked = CheckedClock()
        self.is_async = fleet.rng.random() < 0.5
        self.tasks: list[Task] = []
        self.vanished: list[Task] = []
        """Those that stand still for ever, in the middle of something."""
        asking = TableClient(
            TABLE, deadline_ms=deadline_ms, write_ids=WriteIds(self.name), ttl_margin_s=ttl_margin_s, wcu=wcu
        )
        corrected = not self.has_given_clock
        self.space = DynamoSpace(asking, "default", corrected=corrected, config_ttl_ms=config_ttl_ms)
        self.set_clock()

    def clock(self) -> int:
        """What the clock of its buckets says."""
        return self.fleet.now_us // 1000 + self.skew + self.lead

    def set_clock(self) -> None:
        """Set a clock that may be wrong by hours."""
        rng, faults = self.fleet.rng, self.fleet.faults
        if faults.hours:
            self.skew = rng.choice((0, rng.randint(-faults.hours, faults.hours))) * HOUR_MS
        if self.has_given_clock:
            self.lead = rng.choice((0, rng.randint(1, faults.given_hours))) * HOUR_MS
            if self.lead:
                self.fleet.oracle.astray.add(self.name)

    def machine_time(self) -> MachineTime:
        """What its machine's clocks say, corrected by the dates of replies, if they have any."""
        timer, wall = self.fleet.now_us // 1000, self.fleet.now_us // 1000 + self.skew
        if not self.fleet.faults.hours:
            return MachineTime(timer, wall // 1000)
        return self.checked.machine_time(wall, timer)

    def hear(self) -> None:
        """A reply came: it is dated, to the second."""
        now = self.fleet.now_us // 1000
        if self.fleet.faults.hours:
            self.checked.hear(now // 1000 * 1000 + 500 - (now + self.skew), now + self.skew, now)

    def debts(self) -> Debts:
        """What its tasks are taking without asking: a leader may be writing for them."""
        debts: dict[Owner, dict[str, int]] = {}
        for task in self.tasks:
            verb = task.verb
            if verb is not None and verb.kind == "settle" and not verb.over:
                for owner, stakes in verb.stakes.items():
                    account = debts.setdefault(owner, {})
                    for name, amount in stakes.items():
                        if amount > 0:
                            account[name] = account.get(name, 0) + amount
        return debts

    def start(self, life: Callable[[Task], Plan[None]], died: Callable[[Task], None] | None = None) -> Task:
        """Begin a task. ``died`` is told if the client crashes before the task is over."""
        task = Task(self, life, died)
        self.tasks.append(task)
        self.fleet.after(0, task.begin)
        return task

    def crash(self) -> None:
        """Everything it was about to do is lost; what is under way may still arrive."""
        for task in self.tasks:
            task.die()
        self.tasks = []


class Task:
    """One plan of one client, and what it waits for."""

    __slots__ = (
        "_answers",
        "_calls",
        "_died",
        "_interrupted",
        "_life",
        "_missing",
        "_plan",
        "_several",
        "alive",
        "client",
        "fleet",
        "interruptible",
        "looks",
        "to_the_end",
        "turn",
        "verb",
        "writes",
    )

    def __init__(
        self, client: Client, life: Callable[[Task], Plan[None]], died: Callable[[Task], None] | None
    ) -> None:
        self.client = client
        self.fleet = client.fleet
        self.alive = True
        self.turn = 0
        self.writes = 0
        self.looks = 0
        self.verb: Verb | None = None
        self.interruptible = False
        self.to_the_end = False
        self._plan = life(self)
        self._life = life
        self._died = died
        self._answers: list[Answer] = []
        self._calls: Sequence[Call] = ()
        self._missing = 0
        self._several = False
        self._interrupted = False

    def begin(self) -> None:
        """Run to the first request."""
        if self.alive:
            self._go_on(self._plan.send, None)

    def die(self) -> None:
        """With its client."""
        if self.alive:
            self.alive = False
            self._plan.close()
            if self._died is not None:
                self._died(self)

    def vanish(self, turn: int) -> None:
        """Its loop is stopped, or its thread: it is never told anything any more, while its client lives on."""
        if self.alive and self.turn == turn:
            self.alive = False
            self.client.vanished.append(self)
            if self._died is not None:
                self._died(self)
            self.fleet.after(20_000, self.client.start, self._life, self._died)

    def _go_on(self, step: Callable[[Any], Any], argument: Any) -> None:
        """Answer what can be answered at once, up to the first request that takes time."""
        fleet = self.fleet
        send = self._plan.send
        for _ in range(MOST_AT_ONCE):
            try:
                request = step(argument)
            except StopIteration:
                self.alive = False
                return
            self.turn += 1
            kind = type(request)
            if kind is Call:
                self._ask([request], several=False)
                return
            if kind is ReadMachineTime:
                step, argument = send, self.client.machine_time()
            elif kind is ReadClock:
                step, argument = send, self.client.clock()
            elif kind is ReadTimer:
                step, argument = send, fleet.now_us // 1000
            elif kind is Together:
                self._ask(request.calls, several=True)
                return
            elif kind is Backoff:
                pause = self._pause(request)
                if pause is None:
                    step, argument = self._plan.throw, DeadlineOver()
                    continue
                self._calls = ()
                if fleet.faults.interrupted and fleet.rng.random() < fleet.faults.interrupted:
                    self._plan_interrupt(self.turn)
                fleet.after(pause, self._wake, self.turn)
                return
            elif kind is Pause:
                fleet.after(request.milliseconds * 1000, self._wake, self.turn)
                return
            elif kind is AwaitWakeUp:
                self._await_bell(request.wake_up, request.milliseconds, once=True)
                return
            elif kind is AwaitNews:
                self._calls = ()
                if fleet.faults.interrupted and fleet.rng.random() < fleet.faults.interrupted:
                    self._plan_interrupt(self.turn)
                self._await_bell(request.wake_up, max(request.give_up_at - fleet.now_us // 1000, 0), once=False)
                return
            else:
                raise TypeError(f"no answer to {request!r}")
        raise Violation(PROGRESS, None, f"a plan goes round in circles, at {request!r}")

    def _pause(self, backoff: Backoff) -> int | None:
        """Microseconds to wait, as the store waits; nothing when there is no time left."""
        longest = min(SHORTEST_PAUSE_MS * 2**backoff.tries, LONGEST_PAUSE_MS)
        pause = int(self.fleet.rng.uniform(longest / 2, longest) * 1000)
        return None if self.fleet.now_us + pause >= backoff.give_up_at * 1000 else pause

    def _wake(self, turn: int) -> None:
        if self.alive and self.turn == turn:
            self._resume(None, None)

    def _await_bell(self, wake_up: WakeUp, milliseconds: int, *, once: bool) -> None:
        """``once``: the task it woke must wake the next one."""
        turn = self.turn

        def heard() -> None:
            self.fleet.after(0, wake)

        def wake() -> None:
            if self.alive and self.turn == turn:
                wake_up.listen(None)
                if once:
                    wake_up.is_set = False
                self._resume(None, None)

        self.fleet.after(milliseconds * 1000, wake)
        wake_up.listen(heard)

    def _ask(self, calls: Sequence[Call], *, several: bool) -> None:
        fleet = self.fleet
        self._calls = calls
        self._missing = len(calls)
        self._answers = [None] * len(calls)  # type: ignore[list-item]
        self._several = several
        turn = self.turn
        faults = fleet.faults
        if faults.interrupted and fleet.rng.random() < faults.interrupted:
            self._plan_interrupt(turn)
        if faults.crash and fleet.rng.random() < faults.crash:
            fleet.after(int(fleet.rng.random() * 16_000), fleet.crash, self, turn)
        if faults.vanish and fleet.rng.random() < faults.vanish:
            fleet.after(int(fleet.rng.random() * 16_000), self.vanish, turn)
        for slot, call in enumerate(calls):
            if call.operation in WRITES:
                self.writes += 1
            elif only_looks_at_buckets(call):
                self.looks += 1
            fleet.network.send(Flight(self, turn, slot, call))

    def answered(self, flight: Flight, answer: Answer) -> None:
        """One of the answers it waits for; the last one lets it go on."""
        if not isinstance(answer, NoAnswer):
            self.client.hear()
        if not self.alive or self.turn != flight.turn:
            return
        self._answers[flight.slot] = answer
        self._missing -= 1
        if self._missing:
            return
        reply: Any = self._answers
        error: BaseException | None = None
        if not self._several:
            (reply,) = self._answers
            if isinstance(reply, (Refused, NoAnswer)):
                reply, error = None, reply
        self._resume(reply, error)

    def _resume(self, reply: Any, error: BaseException | None) -> None:
        if self._interrupted:
            self._interrupted = self.interruptible = False
            self._go_on(self._plan.throw, Interrupted(Cancelled(), reply=reply, error=error))
        elif error is not None:
            self._go_on(self._plan.throw, error)
        else:
            self._go_on(self._plan.send, reply)

    # Interruptions

    def _plan_interrupt(self, turn: int) -> None:
        """Async: the request finishes, and its answer comes with the interrupt. Sync: it may have got anywhere."""
        if self.client.is_async:
            self._interrupted = self.interruptible
        elif self.interruptible or self.to_the_end:
            self.fleet.after(int(self.fleet.rng.random() * 16_000), self._interrupt, turn)

    def _interrupt(self, turn: int) -> None:
        if not self.alive or self.turn != turn or not (self.interruptible or self.to_the_end):
            return
        for call in self._calls:
            self.fleet.doubt(call, self.verb)
        if self.to_the_end:
            self._go_on(self._plan.throw, CutShort("simulated"))
        else:
            self.interruptible = False
            self._go_on(self._plan.throw, Interrupted(Cancelled(), reply=UNKNOWN))
