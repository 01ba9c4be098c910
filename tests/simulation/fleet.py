"""Many clients in one process: a scheduler that runs their plans step by step, in simulated time.

Time is true time, in microseconds, and jumps from event to event. Every client has a clock of its own (true time and
a skew), marks, images and a config cache of its own; only the model is common. A plan is a *task*: its requests are
answered here as the two drivers would, and whatever is random comes from one seeded source, so that a seed is a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from simulation.faults import NONE, Faults
from simulation.invariants import Oracle, Place, Verb, owner_of
from simulation.ledger import Books
from simulation.model import Model
from simulation.network import Flight, Network
from simulation.trace import Trace
from simulation.words import marked_writes, places_written
from zae_limiter.running.plan import (
    UNKNOWN,
    AwaitBell,
    CutShort,
    Interrupted,
    Pause,
    Plan,
    ReadClock,
    ReadTimer,
)
from zae_limiter.stores.dynamodb.marks import Marks
from zae_limiter.stores.dynamodb.plans.asking import Asking
from zae_limiter.stores.dynamodb.requests import (
    Answer,
    AwaitNews,
    Backoff,
    Call,
    DeadlineOver,
    MachineTime,
    NoAnswer,
    ReadMachineTime,
    Refused,
    Together,
)
from zae_limiter.stores.dynamodb.store import LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS, DynamoSpace, DynamoStore

TABLE = "limits"
START_MS = 1_700_000_000_000
WRITES = ("UpdateItem", "PutItem", "TransactWriteItems")
FASTEST_CLOCK_MS = 4_000
"""How far a client follows others whose clocks are ahead (see ``images``)."""


class Cancelled(BaseException):
    """What interrupts a task."""


class Client:
    """One process of the fleet."""

    def __init__(self, fleet: Fleet, number: int, *, deadline_ms: int, ttl_margin_s: int, config_ttl_ms: int) -> None:
        self.fleet = fleet
        self.name = f"{number:08x}"
        self.skew = 0
        self.is_async = fleet.rng.random() < 0.5
        self.tasks: list[Task] = []
        asking = Asking(TABLE, deadline_ms=deadline_ms, marks=Marks(self.name), ttl_margin_s=ttl_margin_s)
        self.space = DynamoSpace(asking, "default", corrected=True, config_ttl_ms=config_ttl_ms)

    def clock(self) -> int:
        """What its wall clock says."""
        return self.fleet.now_us // 1000 + self.skew

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
        "_missing",
        "_plan",
        "_several",
        "alive",
        "client",
        "fleet",
        "interruptible",
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
        self.verb: Verb | None = None
        self.interruptible = False
        self.to_the_end = False
        self._plan = life(self)
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

    def _go_on(self, step: Callable[[Any], Any], argument: Any) -> None:
        """Answer what can be answered at once, up to the first request that takes time."""
        fleet = self.fleet
        send = self._plan.send
        while True:
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
                step, argument = send, MachineTime(fleet.now_us // 1000, self.client.clock() // 1000)
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
            elif kind is AwaitBell:
                self._await_bell(request)
                return
            elif kind is AwaitNews:
                self._await_bell(AwaitBell(request.bell, max(request.give_up_at - fleet.now_us // 1000, 0)))
                return
            else:
                raise TypeError(f"nobody answers {request!r}")

    def _pause(self, backoff: Backoff) -> int | None:
        """Microseconds to wait, as the store waits; nothing when there is no time left."""
        longest = min(SHORTEST_PAUSE_MS * 2**backoff.tries, LONGEST_PAUSE_MS)
        pause = int(self.fleet.rng.uniform(longest / 2, longest) * 1000)
        return None if self.fleet.now_us + pause >= backoff.give_up_at * 1000 else pause

    def _wake(self, turn: int) -> None:
        if self.alive and self.turn == turn:
            self._resume(None, None)

    def _await_bell(self, request: AwaitBell) -> None:
        turn, bell = self.turn, request.bell

        def heard() -> None:
            self.fleet.after(0, wake)

        def wake() -> None:
            if self.alive and self.turn == turn:
                bell.listen(None)
                bell.rung = False
                self._go_on(self._plan.send, None)

        self.fleet.after(request.milliseconds * 1000, wake)
        bell.listen(heard)

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
        for slot, call in enumerate(calls):
            if call.operation in WRITES:
                self.writes += 1
            fleet.network.send(Flight(self, turn, slot, call))

    def answered(self, flight: Flight, answer: Answer) -> None:
        """One of the answers it waits for; the last one lets it go on."""
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
        """Async: the request finishes, and its answer comes with the interrupt. Sync: nobody knows how far it got."""
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


class Fleet:
    """All clients, the model, and those who watch."""

    def __init__(self, seed: int, faults: Faults = NONE, *, deadline_ms: int = 2000, ttl_margin_s: int = 15) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.now_us = START_MS * 1000
        self.model = Model()
        self.oracle = Oracle(fastest_clock_ms=faults.skew + (FASTEST_CLOCK_MS if faults.skew else 0))
        self.books = Books()
        self.trace = Trace(START_MS)
        self.network = Network(self, faults)
        self.clients: list[Client] = []
        self.replace: Callable[[Client], None] | None = None
        self.steps = 0
        self._deadline_ms = deadline_ms
        self._ttl_margin_s = ttl_margin_s
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._born = 0
        self.items: Mapping[Place, Any] = {}
        self._create_table()

    @property
    def now(self) -> int:
        """True time in milliseconds."""
        return self.now_us // 1000

    def _create_table(self) -> None:
        """Let the store make its table, with nothing in its way."""
        store = DynamoStore(TABLE, marks=Marks("0fffffff"))
        self.at_once(store.create(self.now))
        table = self.model.tables[TABLE]
        table.streaming = False
        self.items = table.items

    def at_once(self, plan: Plan[Any]) -> Any:
        """The result of a plan to which nothing happens: no time passes, and nobody is in its way."""
        step, argument = plan.send, None
        while True:
            try:
                request: Any = step(argument)
            except StopIteration as finished:
                return finished.value
            step = plan.send
            if isinstance(request, Together):
                argument = [self.apply(call, None) for call in request.calls]
            elif isinstance(request, Call):
                argument = self.apply(request, None)
                if isinstance(argument, Refused):
                    step = plan.throw
            elif isinstance(request, ReadMachineTime):
                argument = MachineTime(self.now, self.now // 1000)
            else:
                argument = self.now

    # Time

    def after(self, microseconds: int, act: Callable[..., None], *arguments: Any) -> None:
        """Let something happen in so many microseconds."""
        self._order += 1
        heappush(self._events, (self.now_us + microseconds, self._order, act, arguments))

    def run(self, most_steps: int = 2_000_000) -> None:
        """Until nothing is left to happen."""
        events = self._events
        while events:
            self.now_us, _, act, arguments = heappop(events)
            act(*arguments)
            self.steps += 1
            if self.steps > most_steps:
                raise RuntimeError(f"still running after {most_steps} steps")

    @property
    def is_busy(self) -> bool:
        """Whether some task is not over."""
        return any(task.alive for client in self.clients for task in client.tasks)

    # Clients

    def client(self, *, config_ttl_ms: int = 60_000) -> Client:
        """One more."""
        self._born += 1
        client = Client(
            self,
            self._born,
            deadline_ms=self._deadline_ms,
            ttl_margin_s=self._ttl_margin_s,
            config_ttl_ms=config_ttl_ms,
        )
        if self.faults.skew:
            client.skew = self.rng.randint(-self.faults.skew, self.faults.skew)
        self.clients.append(client)
        return client

    def crash(self, task: Task, turn: int) -> None:
        """A client dies, if it still is at that request."""
        client = task.client
        if task.alive and task.turn == turn and client in self.clients:
            self.clients.remove(client)
            client.crash()
            if self.replace is not None:
                self.replace(client)

    # Writes

    def apply(self, call: Call, verb: Verb | None, *, unanswered: bool = False) -> Answer:
        """Do a call, at this moment, and let it be judged."""
        places = places_written(call)
        items = self.items
        before = [items.get(place) for place in places]
        params = self.network.shortened(call) if call.operation == "Query" else call.params
        answer: Answer
        try:
            answer = self.model.call(call.operation, params, now_s=self.now_us / 1e6)
        except Refused as refusal:
            self.note(call, verb, refusal)
            return refusal
        at = self.now_us // 1000
        for place, old in zip(places, before, strict=True):
            new = items.get(place)
            if new is not old:
                if place[1] == "#STATE":
                    self.trace.note(place, at, verb, call, "unanswered" if unanswered else "done", new)
                self.oracle.changed(place, old, new, verb, at)
        return answer

    def note(self, call: Call, verb: Verb | None, refusal: Refused) -> None:
        """Remember that a write was refused."""
        for place in places_written(call):
            if place[1] == "#STATE":
                self.trace.note(place, self.now, verb, call, refusal, self.items.get(place))

    def doubt(self, call: Call, verb: Verb | None) -> None:
        """The answer to a call is lost: it may be charged again, or never come back."""
        for place, mark, amounts in marked_writes(call):
            self.oracle.doubt(mark)
            stakes = {} if verb is None else verb.stakes.get(owner_of(place), {})
            self.books.lose(place, {**stakes, **amounts})

    def remove(self, place: Place) -> None:
        """Somebody deletes a bucket."""
        item = self.items.get(place)
        address = {"PK": {"S": place[0]}, "SK": {"S": place[1]}}
        self.model.call("DeleteItem", {"TableName": TABLE, "Key": address}, now_s=self.now // 1000)
        self.trace.note(place, self.now, None, None, "deleted", None)
        self.oracle.changed(place, item, None, None, self.now)

    def expire(self) -> None:
        """What has expired is gone."""
        for keys in self.model.expire(self.now_us / 1e6).values():
            for place in keys:
                if place[1] == "#STATE":
                    self.trace.note(place, self.now, None, None, "expired", None)
                    self.oracle.expired(place, self.now)
