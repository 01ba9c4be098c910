"""Between the clients and the model: calls travel, are applied at one moment, and are answered, or not.

A transaction holds its items for a moment: a client that writes to them meanwhile is refused, as DynamoDB does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from simulation.faults import Faults
from simulation.violations import Verb
from simulation.words import places_written
from zae_limiter.stores.dynamodb.requests import (
    KEY_THROTTLED,
    TRANSACTION_CANCELED,
    TRANSACTION_CONFLICT,
    TRANSACTION_IN_PROGRESS,
    Answer,
    Call,
    DeadlineOver,
    NoAnswer,
    Reason,
    Refused,
)

if TYPE_CHECKING:
    from simulation.clients import Task
    from simulation.fleet import Fleet

BATCHES = ("BatchGetItem", "BatchWriteItem")
FATES = ("lost", "unanswered", "late", "slow", "throttled", "conflict")


class Flight:
    """One call under way: whose, and which of the calls its plan waits for."""

    __slots__ = ("call", "debts", "slot", "task", "turn", "unanswered", "verb")

    def __init__(self, task: Task, turn: int, slot: int, call: Call) -> None:
        self.task = task
        self.turn = turn
        self.slot = slot
        self.call = call
        self.verb: Verb | None = task.verb
        self.debts = task.client.debts()
        self.unanswered = False

    @property
    def is_setters(self) -> bool:
        """Whether it is of a verb that changes what holds."""
        return self.verb is not None and self.verb.kind not in ("draw", "settle")


class Network:
    """Carries calls to the model and answers back."""

    def __init__(self, fleet: Fleet, faults: Faults) -> None:
        self.fleet = fleet
        self.rng = fleet.rng
        self.faults = faults
        self.calls: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()
        self._fastest, self._spread = faults.fastest_trip * 1000, (faults.slowest_trip - faults.fastest_trip) * 1000
        self._thresholds = list(accumulate(getattr(faults, fate) for fate in FATES))
        self._held: set[tuple[str, str]] = set()
        self._in_progress: set[str] = set()
        self._partitions: dict[str, tuple[float, int]] = {}

    def send(self, flight: Flight) -> None:
        """Let a call begin its way."""
        fleet, call = self.fleet, flight.call
        self.calls[call.operation] += 1
        give_up = call.give_up_at * 1000
        if fleet.now_us >= give_up:
            fleet.after(0, self._deliver, flight, DeadlineOver())
            return
        trip = self._trip()
        fate = self._fate() if self._thresholds[-1] else None
        if fate == "lost":
            self._leave_unanswered(flight)
            return
        if fate == "late":
            self._leave_unanswered(flight)
            trip += int(self.rng.expovariate(1 / 300_000))
        elif fate == "slow":
            trip += int(self.rng.expovariate(1 / 1_000_000))
        if not flight.unanswered and (fate == "unanswered" or fleet.now_us + trip >= give_up):
            self._leave_unanswered(flight, at_once=fate == "unanswered")
        fleet.after(trip, self._arrive, flight, fate)
        if self.faults.twice and flight.is_setters and self.rng.random() < self.faults.twice:
            self.fates["twice"] += 1
            again = Flight(flight.task, flight.turn, flight.slot, call)
            again.unanswered = True
            fleet.after(trip + int(self.rng.expovariate(1 / 300_000)), self._arrive, again, None)

    def _trip(self) -> int:
        return self._fastest + int(self.rng.random() * self._spread)

    def _fate(self) -> str | None:
        draw = self.rng.random()
        for fate, threshold in zip(FATES, self._thresholds, strict=True):
            if draw < threshold:
                self.fates[fate] += 1
                return fate
        return None

    def _leave_unanswered(self, flight: Flight, *, at_once: bool = True) -> None:
        """The caller learns nothing: the connection breaks soon, or the deadline comes."""
        flight.unanswered = True
        fleet = self.fleet
        left = flight.call.give_up_at * 1000 - fleet.now_us
        wait = left
        if at_once and self.rng.random() < 0.8:
            wait = min(left, int(self.rng.random() * 30_000))
        fleet.doubt(flight.call, flight.verb)
        fleet.after(wait, self._deliver, flight, NoAnswer("simulated"))

    def _deliver(self, flight: Flight, answer: Answer) -> None:
        flight.task.answered(flight, answer)

    # Arrived

    def _arrive(self, flight: Flight, fate: str | None) -> None:
        refusal = self._refusal(flight.call, fate)
        if refusal is not None:
            self.fleet.note(flight.call, flight.verb, refusal)
            self._answer(flight, refusal)
        elif flight.call.operation == "TransactWriteItems":
            places = places_written(flight.call)
            token = flight.call.params["ClientRequestToken"]
            self._held.update(places)
            self._in_progress.add(token)
            self.fleet.after(1000 + int(self.rng.random() * 3000), self._finish, flight, places, token)
        else:
            self._apply(flight)

    def _finish(self, flight: Flight, places: list[tuple[str, str]], token: str) -> None:
        self._held.difference_update(places)
        self._in_progress.discard(token)
        self._apply(flight)

    def _apply(self, flight: Flight) -> None:
        self._answer(
            flight, self.fleet.apply(flight.call, flight.verb, unanswered=flight.unanswered, debts=flight.debts)
        )

    def _answer(self, flight: Flight, answer: Answer) -> None:
        if flight.unanswered:
            return
        fleet = self.fleet
        trip = self._trip()
        if fleet.now_us + trip >= flight.call.give_up_at * 1000:
            self._leave_unanswered(flight, at_once=False)
            return
        fleet.after(trip, self._deliver, flight, answer)

    def _refusal(self, call: Call, fate: str | None) -> Refused | None:
        """Why the call is not even looked at, if so."""
        operation = call.operation
        if fate == "throttled":
            return Refused(KEY_THROTTLED, "simulated")
        if operation in BATCHES:
            if self.faults.unprocessed and self.rng.random() < self.faults.unprocessed:
                self.fleet.model.leave_unprocessed(1 + int(self.rng.random() * 3))
            return None
        places = places_written(call)
        if not places:
            return None
        whole = operation == "TransactWriteItems"
        if whole and call.params["ClientRequestToken"] in self._in_progress:
            return Refused(TRANSACTION_IN_PROGRESS, "simulated")
        held = [place in self._held for place in places]
        if fate == "conflict":
            held[int(self.rng.random() * len(held))] = True
        if any(held):
            if not whole:
                return Refused(TRANSACTION_CONFLICT, "simulated")
            reasons = [Reason("TransactionConflict" if one else None) for one in held]
            return Refused(TRANSACTION_CANCELED, "simulated", reasons=reasons)
        if self.faults.partition_wcu and not self._affordable(places, 2 if whole else 1):
            return Refused(KEY_THROTTLED, "simulated")
        return None

    def _affordable(self, places: list[tuple[str, str]], cost: int) -> bool:
        """Whether every partition has the capacity left, which is then used."""
        rate = self.faults.partition_wcu
        now = self.fleet.now_us
        left: dict[str, float] = {}
        for pk, _ in places:
            saved, since = self._partitions.get(pk, (rate, now))
            left[pk] = left.get(pk, min(rate, saved + (now - since) * rate / 1e6)) - cost
        if any(amount < 0 for amount in left.values()):
            return False
        for pk, amount in left.items():
            self._partitions[pk] = (amount, now)
        return True

    def shortened(self, call: Call) -> Mapping[str, Any]:
        """The parameters of a query as the model gets them: a page may be shorter than asked."""
        if self.faults.short_page and self.rng.random() < self.faults.short_page:
            return {**call.params, "Limit": min(call.params.get("Limit", 3), 1 + int(self.rng.random() * 3))}
        return call.params
