"""What the clients of a run do: acquire, hold, settle or give back; and a few who change what holds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress

from simulation.clients import Client, Task
from simulation.fleet import Fleet
from simulation.ledger import taken_by
from simulation.violations import GATE, NOTICE, PROGRESS, Verb, Violation, owner_of, shard_of
from simulation.world import NAMES, World
from zae_limiter.bucket import WOULD_REFUSE
from zae_limiter.exceptions import NamespaceNotFoundError, RateLimiterUnavailable, ValidationError
from zae_limiter.lease.ledger import Ledger, postings
from zae_limiter.running.plan import READ_CLOCK, Interrupted, Pause, Plan
from zae_limiter.stores.dynamodb.operations.shard_life import sweep
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.usage_items import Life
from zae_limiter.stores.protocol import Denial, Draw, Grant, Leg, Outcome
from zae_limiter_aggregator.proactive_split import Load, ProactiveSplit, load_of

SETTLE_PAUSES_MS = (20, 100)
"""Between the tries of a lease that ends, as leases do it."""


class Worker:
    """One task of one client: it acquires, again and again."""

    def __init__(self, world: World, client: Client, rounds: int) -> None:
        self.world = world
        self.client = client
        self.rounds = rounds
        self.granted = 0
        self.denied = 0
        self.unavailable = 0
        self._drawing: Draw | None = None
        self._unresolved = 0
        """How often its client had been unable to prove something when it began to draw."""
        self._settling: tuple[tuple[Leg, ...], Mapping[str, int]] | None = None

    @property
    def fleet(self) -> Fleet:
        return self.client.fleet

    @property
    def rng(self) -> random.Random:
        return self.client.fleet.rng

    def life(self, task: Task) -> Plan[None]:
        """All of its rounds."""
        while self.rounds > 0:
            self.rounds -= 1
            yield from Pause(self.world.idle_ms(self.rng))
            yield from self._acquire(task)

    def died(self, task: Task) -> None:
        """Its client has crashed: what it was about to do may or may not be done."""
        books = self.fleet.books
        if self._drawing is not None:
            self.fleet.call_counts.unheard += 1
            for _ in range(1 + self.client.space.unresolved - self._unresolved):  # what it has counted by then, too
                self._doubt_draw(self._drawing)
        if self._settling is not None:
            for owner, amounts in _owed(*self._settling):
                books.doubt(owner, amounts)

    def _acquire(self, task: Task) -> Plan[None]:
        world, rng = self.world, self.rng
        draw = world.draw(rng)
        grant = yield from self._draw(task, draw)
        if not isinstance(grant, Grant):
            return
        world.check_route(draw, grant)
        ledger = Ledger(grant)
        yield from Pause(world.hold_ms(rng))
        more = world.more(rng, draw, grant)
        if more is not None and isinstance((yield from self._draw(task, more)), Grant):
            ledger.took(more.wanted)
        yield from self._end(task, grant, ledger)

    def _draw(self, task: Task, draw: Draw) -> Plan[Outcome | None]:
        """The outcome; nothing if there was none."""
        fleet = self.fleet
        space = self.client.space
        unresolved = self._unresolved = space.unresolved
        self._drawing = draw
        task.verb = Verb("draw", self.client.name, fleet.now)
        task.verb.stakes.update(self._wanted(draw))
        task.interruptible = True
        now = space.cache.corrected((yield from READ_CLOCK))
        try:
            outcome = yield from space.draw(draw, self.client.clock())
        except Interrupted:
            outcome = None
            fleet.call_counts.unheard += 1
        except RateLimiterUnavailable as error:
            outcome = None
            fleet.call_counts.unheard += 1
            self.unavailable += 1
            if self.world.answered:
                raise Violation(
                    GATE, None, f"a draw was unavailable though every call was answered: {error}"
                ) from error
            if error.ambiguous:
                self._doubt_draw(draw)
        except ValidationError:
            if not self.world.limits_vary:
                raise
            outcome = None
        except NamespaceNotFoundError:
            if not self.world.namespace_varies:
                raise
            outcome = None
        task.interruptible = False
        task.verb.over = True
        self._drawing = None
        for _ in range(space.unresolved - unresolved):
            self._doubt_draw(draw)
        if isinstance(outcome, Denial):
            self.denied += 1
            fleet.call_counts.denied(outcome)
            if self.world.lone:
                self.world.check_wait(draw, outcome, now)
        if isinstance(outcome, Grant):
            self.granted += 1
            self.world.check_open(draw, outcome, task.verb.started)
            if self.world.lone:
                self.world.check_refused(draw, outcome, now)
            fleet.call_counts.took(_names_of(outcome.legs), outcome.wanted, grants=1)
            for owner, amounts in taken_by(outcome.legs, outcome.wanted):
                fleet.books.know(owner, amounts)
        return outcome

    def _doubt_draw(self, draw: Draw) -> None:
        for owner, amounts in self._wanted(draw).items():
            self.fleet.books.doubt(owner, amounts)

    def _wanted(self, draw: Draw) -> dict[tuple[str, str], dict[str, int]]:
        """What a draw may take of each bucket."""
        amounts = {name: amount * 1000 for name, amount in draw.wanted.items() if amount}
        if self.world.habits.watching:
            amounts |= {name + WOULD_REFUSE: 1000 for name in NAMES}
        places = self.world.may_take_from(draw.entity_id, draw.resource)
        return {place: {"ev": 1, **amounts} for place in places}

    def _end(self, task: Task, grant: Grant, ledger: Ledger) -> Plan[None]:
        """The end of a lease, well or not: what it owes is written, as ``LeaseBase._end`` does."""
        owed = self.world.owed(self.rng, grant, ledger)
        legs = grant.legs
        for pause in (0, *SETTLE_PAUSES_MS):
            if not owed:
                return
            if pause:
                yield from Pause(pause)
            self._settling = (legs, owed)
            unresolved = self.client.space.unresolved
            task.verb = Verb("settle", self.client.name, self.fleet.now)
            task.verb.stakes.update(_owed(legs, owed))
            task.to_the_end = True
            failure: Exception | None = None
            before, began = self.world.counted(legs), self.fleet.now
            try:
                yield from self.client.space.settle(postings(legs, owed), (yield from READ_CLOCK))
            except Exception as error:
                if not getattr(error, "ambiguous", False) and not isinstance(error, RateLimiterUnavailable):
                    raise
                failure = error
            task.to_the_end = False
            task.verb.over = True
            self._settling = None
            self.world.check_settled(legs, before, began)
            for _ in range(self.client.space.unresolved - unresolved):
                self.fleet.books.doubt_settlement(_owed(legs, owed))
            owed = self._book(legs, owed, failure)

    def _book(self, legs: tuple[Leg, ...], owed: Mapping[str, int], failure: Exception | None) -> dict[str, int]:
        """Note what a settlement did, and return what is still owed."""
        books = self.fleet.books
        if failure is None:
            self.fleet.call_counts.took(_names_of(legs), owed)
            for owner, amounts in _owed(legs, owed):
                books.know(owner, amounts)
            return {}
        if self.world.calm:
            raise Violation(PROGRESS, None, f"a settlement failed without any fault: {failure}") from failure
        if not getattr(failure, "ambiguous", False):
            return dict(owed)
        for owner, amounts in _owed(legs, owed):
            books.doubt(owner, amounts)
        return {name: delta for name, delta in owed.items() if delta > 0}


def _names_of(legs: tuple[Leg, ...]) -> set[str]:
    """The limits that an acquire is counted by: each by the first of its legs that has it, and takes it."""
    return {name for leg in legs for name in leg.settled_names}


def _owed(legs: tuple[Leg, ...], owed: Mapping[str, int]) -> list[tuple[tuple[str, str], dict[str, int]]]:
    """What a settlement does to each bucket."""
    return [
        (
            (leg.entity_id, leg.resource),
            {name: delta * 1000 for name, delta in owed.items() if name in leg.settled_names},
        )
        for leg in legs
    ]


class Keeper:
    """One task of one client, as the aggregator: it splits buckets by records it reads late, and sweeps idle ones."""

    def __init__(self, world: World, client: Client, rounds: int) -> None:
        self.world = world
        self.client = client
        self.rounds = rounds

    def life(self, task: Task) -> Plan[None]:
        """All of its rounds."""
        fleet = self.client.fleet
        asking = self.client.space.client
        while self.rounds > 0:
            self.rounds -= 1
            seen = self._record()
            yield from Pause(self.world.idle_ms(fleet.rng) * 3)
            plan: Plan[object]
            if seen is None or fleet.rng.random() < 0.5:
                task.verb = Verb("sweep", self.client.name, fleet.now)
                plan = sweep(asking, self.world.ns)
            else:
                task.verb = Verb("relieve", self.client.name, fleet.now)
                plan = ProactiveSplit(asking)(seen)
            with suppress(Refused, NoAnswer):
                yield from plan
            task.verb.over = True

    def _record(self) -> Load | None:
        """What the stream tells of some bucket now; it is read later."""
        fleet = self.client.fleet
        places = [place for place in fleet.items if place[1] == "#STATE"]
        if not places:
            return None
        place = fleet.rng.choice(places)
        item = fleet.items[place]
        entity, resource = owner_of(place)
        life = Life(self.world.ns, entity, resource, shard_of(place), item["inc"]["S"])
        return load_of(life, item, self.client.clock())

    def died(self, task: Task) -> None:
        """Nothing is lost: another one will look."""


class Setter:
    """One task of one client: it changes limits and entities."""

    def __init__(self, world: World, client: Client, rounds: int) -> None:
        self.world = world
        self.client = client
        self.rounds = rounds

    def life(self, task: Task) -> Plan[None]:
        """All of its rounds."""
        fleet = self.client.fleet
        while self.rounds > 0:
            self.rounds -= 1
            yield from Pause(self.world.idle_ms(fleet.rng) * 2)
            now = yield from READ_CLOCK
            change = self.world.change(fleet.rng, self.client.space, now)
            verb = task.verb = Verb(change.kind, self.client.name, fleet.now, change.what)
            try:
                yield from change.plan
            except change.expected:
                continue
            except NamespaceNotFoundError as error:
                if not self.world.namespace_varies:
                    raise Violation(NOTICE, None, f"{change.what} raised {error!r}") from error
                continue
            except RateLimiterUnavailable as error:
                if self.world.calm:
                    raise Violation(PROGRESS, None, f"{change.what} was unavailable without any fault") from error
                continue
            except Exception as error:
                raise Violation(NOTICE, None, f"{change.what} raised {error!r}") from error
            verb.over = True
            if change.propagates:
                fleet.oracle.returned(verb, fleet.now)
            change.done()

    def died(self, task: Task) -> None:
        """Nothing is lost but the change it was about to make."""
