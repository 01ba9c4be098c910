"""Many clients in one process: a scheduler that runs their plans step by step, in simulated time.

Time is true time, in microseconds, and jumps from event to event. Only the model is common to the clients. Whatever is
random comes from one seeded source, so that a seed is a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any

from simulation.call_counts import CallCounts
from simulation.clients import TABLE, Client, Task
from simulation.faults import NONE, Faults
from simulation.invariants import NO_DEBTS, Debts, Oracle
from simulation.ledger import Books
from simulation.model import Model
from simulation.network import Network
from simulation.trace import Trace
from simulation.violations import Place, Verb, owner_of
from simulation.words import creations, marked_writes, places_written
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import Answer, Call, MachineTime, ReadMachineTime, Refused, Together
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.dynamodb.write_load import PARTITION_WCU

START_MS = 1_700_000_000_000
MOST_REQUESTS = 5_000
FASTEST_CLOCK_MS = 4_000
"""How far a client follows others whose clocks are ahead (see ``bucket_cache``)."""


CORRECTED_MS = 3_000
"""How far a clock may be off that is corrected by dates, in whole seconds, when it is more than two seconds off."""


def _fastest(faults: Faults) -> int:
    """How far write ids may be ahead of true time."""
    off = max(faults.skew, CORRECTED_MS if faults.hours else 0)
    return off + FASTEST_CLOCK_MS if off else 0


class Fleet:
    """All clients, the model, and those who watch."""

    def __init__(
        self,
        seed: int,
        faults: Faults = NONE,
        *,
        deadline_ms: int = 2000,
        ttl_margin_s: int = 15,
        wcu: int = PARTITION_WCU,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.now_us = START_MS * 1000
        self.model = Model()
        self.oracle = Oracle(
            fastest_clock_ms=_fastest(faults),
            wcu=0 if faults.hides_load else wcu,
            index_lag_ms=faults.index_lag,
        )
        self.books = Books()
        self.call_counts = CallCounts()
        self.trace = Trace(START_MS)
        self.network = Network(self, faults)
        self.clients: list[Client] = []
        self.replace: Callable[[Client], None] | None = None
        self.steps = 0
        self._deadline_ms = deadline_ms
        self._ttl_margin_s = ttl_margin_s
        self._wcu = wcu
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._born = 0
        self.items: Mapping[Place, Any] = {}
        self._indexed_at: dict[Place, int] = {}
        self._create_table()

    @property
    def now(self) -> int:
        """True time in milliseconds."""
        return self.now_us // 1000

    def _create_table(self) -> None:
        """Let the store make its table, with nothing in its way."""
        store = DynamoStore(TABLE, write_ids=WriteIds("0fffffff"))
        self.at_once(store.create(self.now))
        table = self.model.tables[TABLE]
        table.streaming = False
        self.items = table.items

    def at_once(self, plan: Plan[Any]) -> Any:
        """The result of a plan to which nothing happens: no time passes, and no other client is in its way."""
        step, argument = plan.send, None
        for _ in range(MOST_REQUESTS):
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
        raise RuntimeError(f"still asking after {MOST_REQUESTS} requests, for {request!r}")

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
            wcu=self._wcu,
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

    def apply(self, call: Call, verb: Verb | None, *, unanswered: bool = False, debts: Debts = NO_DEBTS) -> Answer:
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
        changes = []
        for place, old in zip(places, before, strict=True):
            new = items.get(place)
            if new is not old:
                changes.append((place, old, new))
                if new is None and place[1] == "#STATE":
                    self.books.deleted(place)
                if old is None and self.faults.index_lag:
                    self._indexed_at[place] = self.now_us + int(self.rng.random() * self.faults.index_lag * 1000)
                if place[1] == "#STATE":
                    self.trace.note(place, at, verb, call, "unanswered" if unanswered else "done", new)
                    if new is not None:
                        self.call_counts.written(place, old, new)
        if changes:
            self._charge(places)
            self.oracle.happened(changes, verb, at, debts, together=call.operation == "TransactWriteItems")
        if self._indexed_at and "IndexName" in params:
            shown = [item for item in answer["Items"] if self._is_indexed(item)]
            answer = {**answer, "Items": shown, "Count": len(shown)}
        return answer

    def _is_indexed(self, item: Mapping[str, Any]) -> bool:
        return self._indexed_at.get((item["PK"]["S"], item["SK"]["S"]), 0) <= self.now_us

    def note(self, call: Call, verb: Verb | None, refusal: Refused) -> None:
        """Remember that a write was refused."""
        places = places_written(call)
        self._charge(places)
        for place in places:
            if place[1] == "#STATE":
                self.trace.note(place, self.now, verb, call, refusal, self.items.get(place))

    def _charge(self, places: Iterable[Place]) -> None:
        self.oracle.families.charged((place for place in places if place[1] == "#STATE"), self.now)

    def doubt(self, call: Call, verb: Verb | None) -> None:
        """The answer to a call is lost: it may be charged again, or never come back."""
        for place, amounts in creations(call):
            self.books.lose_creation(place, amounts)
        for place, _, amounts in marked_writes(call):
            self.books.lose(place, amounts)
            for stakes in self._stakes_at(place, verb):
                self.books.lose(place, stakes)

    def _stakes_at(self, place: Place, verb: Verb | None) -> list[Mapping[str, int]]:
        """What those who may have written together want of a bucket."""
        if verb is None:
            return []
        owner = owner_of(place)
        others = [task.verb for client in self.clients if client.name == verb.client for task in client.tasks]
        verbs = dict.fromkeys((verb, *(other for other in others if other is not None and not other.over)))
        return [other.stakes[owner] for other in verbs if owner in other.stakes]

    def remove(self, place: Place) -> None:
        """An operator deletes a bucket."""
        item = self.items.get(place)
        address = {"PK": {"S": place[0]}, "SK": {"S": place[1]}}
        self.model.call("DeleteItem", {"TableName": TABLE, "Key": address}, now_s=self.now // 1000)
        self.books.excuse(place)
        self.trace.note(place, self.now, None, None, "deleted", None)
        self.oracle.happened([(place, item, None)], None, self.now)

    def expire(self) -> None:
        """What has expired is gone."""
        for keys in self.model.expire(self.now_us / 1e6).values():
            for place in keys:
                if place[1] == "#STATE":
                    self.trace.note(place, self.now, None, None, "expired", None)
                    self.oracle.expired(place, self.now)
