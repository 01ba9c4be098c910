"""Crowds at one bucket, without faults: how many calls a grant costs, and whether everything the limit has is given.

A crowd is *open*: requests come at random, at so many percent of the limit in all, whether earlier ones have been
answered or not. A *lone* client is closed: it asks again as soon as it may.

The calls of a grant are what its caller asks of the bucket: writes, whether they are done or refused, and looks, calls
that read nothing but buckets. Those of denials are counted apart, and what is asked for the limits is not counted. A
client that has never met the bucket has to learn how it is, so in a short run of many clients that weighs a lot. The
goals of the report have these looks in them: at 5 % of the limit there is nothing else, and 200 clients who ask 100
times in ten seconds are about 79 different ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulation.clients import Client, Task
from simulation.faults import Faults
from simulation.fleet import Fleet
from simulation.violations import BOOKS, PROGRESS, Verb, Violation
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import READ_CLOCK, Pause, Plan
from zae_limiter.stores.protocol import Draw, Grant, Scope

ENTITY, RESOURCE = "e0", "r0"
ROUND_TRIP = Faults(fastest_trip=2, slowest_trip=4)
CLIENTS = (1, 8, 32, 200)
LOADS = (5, 50, 100, 300)
SECONDS = 10
RUNS = 4


@dataclass(slots=True)
class Crowd:
    """What became of a crowd."""

    clients: int
    percent: int
    seconds: int
    rate: int
    runs: int = 1
    granted: int = 0
    denied: int = 0
    writes_granted: int = 0
    looks_granted: int = 0
    writes_denied: int = 0
    worst: int = 0
    """The most writes that one grant took."""

    @property
    def calls_per_grant(self) -> float:
        """Writes to the bucket and looks at it, per grant."""
        return (self.writes_granted + self.looks_granted) / max(self.granted, 1)

    @property
    def writes_per_grant(self) -> float:
        """Writes to the bucket per grant, done and refused: write units."""
        return self.writes_granted / max(self.granted, 1)

    @property
    def calls_per_denial(self) -> float:
        """Writes to the bucket per denial."""
        return self.writes_denied / max(self.denied, 1)

    @property
    def share(self) -> float:
        """What was granted, of what was asked and the limit had."""
        asked = self.granted + self.denied
        return self.granted / min(asked, self.runs * self.rate * (1 + self.seconds))

    def add(self, other: Crowd) -> None:
        """Count another run of the same crowd too."""
        self.runs += other.runs
        self.granted += other.granted
        self.denied += other.denied
        self.writes_granted += other.writes_granted
        self.looks_granted += other.looks_granted
        self.writes_denied += other.writes_denied
        self.worst = max(self.worst, other.worst)


class Caller:
    """One request of a crowd."""

    def __init__(self, crowd: Crowd, client: Client) -> None:
        self.crowd = crowd
        self.client = client

    def life(self, task: Task) -> Plan[None]:
        """One draw of one token."""
        crowd, fleet = self.crowd, self.client.fleet
        task.verb = Verb("draw", self.client.name, fleet.now)
        draw = Draw(ENTITY, RESOURCE, {"rps": 1})
        try:
            outcome = yield from self.client.space.draw(draw, (yield from READ_CLOCK))
        except RateLimiterUnavailable as error:
            raise Violation(PROGRESS, None, f"a draw was unavailable without any fault: {error}") from error
        writes = task.writes
        if isinstance(outcome, Grant):
            crowd.granted += 1
            crowd.writes_granted += writes
            crowd.looks_granted += task.looks
            crowd.worst = max(crowd.worst, writes)
            fleet.books.know((ENTITY, RESOURCE), {"rps": 1000, "ev": 1})
        else:
            crowd.denied += 1
            crowd.writes_denied += writes


def measured(clients: int, percent: int, *, seed: int = 1, rate: int = 200, seconds: int = SECONDS) -> Crowd:
    """A crowd that asks for ``percent`` of a limit of ``rate`` per second, with a burst of one second."""
    fleet = _fleet(seed, rate)
    crowd = Crowd(clients, percent, seconds, rate)
    members = [fleet.client() for _ in range(clients)]
    for at in _arrivals(fleet, rate * percent / 100, seconds):
        member = fleet.rng.choice(members)
        fleet.after(at, member.start, Caller(crowd, member).life)
    fleet.run()
    _compare(fleet)
    return crowd


def measured_often(clients: int, percent: int, *, runs: int = RUNS, rate: int = 200, seconds: int = SECONDS) -> Crowd:
    """The same over several runs: one alone may be off by a tenth of a call."""
    first, *others = (measured(clients, percent, seed=1 + run, rate=rate, seconds=seconds) for run in range(runs))
    for other in others:
        first.add(other)
    return first


def _fleet(seed: int, rate: int) -> Fleet:
    fleet = Fleet(seed, ROUND_TRIP)
    limits = (Limit.per_second("rps", rate),)
    fleet.at_once(fleet.client().space.set_config(Scope(), limits, None, None, False, fleet.now))
    return fleet


def _arrivals(fleet: Fleet, per_second: float, seconds: int) -> Iterator[int]:
    at = 0.0
    while True:
        at += fleet.rng.expovariate(per_second)
        if at >= seconds:
            return
        yield int(at * 1_000_000)


def _compare(fleet: Fleet) -> None:
    """The bucket has counted what the callers were told, exactly."""
    applied = fleet.oracle.applied[(ENTITY, RESOURCE)]
    known = fleet.books.least[(ENTITY, RESOURCE)]
    if applied != known:
        raise Violation(BOOKS, None, f"{dict(applied)} was charged, the clients know of {dict(known)}")


def lone_share(*, rate: int = 50, seconds: int = 30, amount: int = 1, seed: int = 1) -> float:
    """What one client gets that takes all it can, of burst and accrual."""
    fleet = _fleet(seed, rate)
    client = fleet.client()
    taken = 0
    began = fleet.now

    def life(task: Task) -> Plan[None]:
        nonlocal taken
        task.verb = Verb("draw", client.name, fleet.now)
        while fleet.now < began + seconds * 1000:
            outcome = yield from client.space.draw(Draw(ENTITY, RESOURCE, {"rps": amount}), (yield from READ_CLOCK))
            if isinstance(outcome, Grant):
                taken += amount
            else:
                yield from Pause(outcome.wait_ms or 1)

    client.start(life)
    fleet.run()
    return taken / (rate + rate * seconds)


def table(*, runs: int = RUNS, seconds: int = SECONDS, rate: int = 200) -> str:
    """Calls per grant by the size of the crowd and by what it asks for, and how many of them are writes."""
    header = "| clients on one bucket | " + " | ".join(f"{load} %" for load in LOADS)
    lines = [f"{header} | writes per denial at 300 % | given at 300 % |", "|---" * (len(LOADS) + 3) + "|"]
    for clients in CLIENTS:
        crowds = [measured_often(clients, load, runs=runs, seconds=seconds, rate=rate) for load in LOADS]
        cells = " | ".join(f"{crowd.calls_per_grant:.2f} ({crowd.writes_per_grant:.2f})" for crowd in crowds)
        last = crowds[-1]
        lines.append(f"| {clients} | {cells} | {last.calls_per_denial:.1f} | {100 * last.share:.2f} % |")
    return "\n".join(lines)
