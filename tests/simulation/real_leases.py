"""Real leases in simulated time: tasks that acquire with a timeout, hold, adjust, settle, fail and are cancelled.

Everything between a program and its store is the real thing: limiter, lease, waiting lines, the driver of asyncio.
Time is that of a :class:`~simulation.virtual_loop.VirtualLoop`, so every run can be repeated by its seed. The stores
are those that embed, and DynamoDB's over the model, whose calls travel, and are lost if the profile says so.

What is checked while they run: no limit is ever exceeded, no task waits longer than its timeout, and the one that
waits longest is served the moment its tokens are there. Afterwards: what was taken is what was settled, no line has a
waiter, and a fresh client gets what is there, and not more.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulation.lease_worlds import DEADLINE_MS, SimulatedTable, cancel_some, go_on_uncancelled
from simulation.model.model import Model
from simulation.virtual_loop import LoopClock, VirtualLoop, run
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.sqlite.store import SqliteStore

LIMITS = [Limit.per_minute("rpm", 600, burst=6), Limit.per_minute("tpm", 6_000, burst=120)]
ABOVE = [Limit.per_minute("rpm", 900, burst=8), Limit.per_minute("tpm", 12_000, burst=200)]
TREE = {"key-1": "org", "key-2": "org", "solo": None}
RESOURCE = "gpt"

Place = tuple[str, str]
"""Entity and limit."""


@dataclass(frozen=True)
class Habits:
    """How busy a run is, and what happens to it."""

    store: str
    clients: int = 1
    tasks: int = 12
    acts: int = 6
    cancels: int = 0
    """How many tasks are cancelled, at any moment."""
    observed: bool = False
    """With an observer there is no short way for an acquire."""
    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    throttled: float = 0.0
    debts: bool = True
    """Whether leases may use more than they took."""


PROFILES = {
    "memory": Habits("memory", clients=2),
    "memory, cancelled": Habits("memory", clients=2, cancels=20),
    "memory, observed": Habits("memory", cancels=10, observed=True),
    "sqlite": Habits("sqlite", clients=2),
    "sqlite, cancelled": Habits("sqlite", clients=2, cancels=20),
    "dynamodb": Habits("dynamodb", clients=3),
    "dynamodb, cancelled": Habits("dynamodb", clients=3, cancels=25),
    "dynamodb, throttled": Habits("dynamodb", clients=3, cancels=5, throttled=0.03, debts=False),
    "dynamodb, throttled in debt": Habits("dynamodb", clients=3, cancels=5, throttled=0.03),
    "dynamodb, losses": Habits("dynamodb", clients=3, cancels=10, lost=0.02, unanswered=0.02, late=0.01),
    "dynamodb, doubled": Habits("dynamodb", clients=3, cancels=5, twice=0.05),
}


class Failure(Exception):
    """The work of a task failed."""


class Account:
    """What was taken from one limit of one entity, as the tasks know it, against what the limit allows."""

    def __init__(self, limit: Limit, clock: LoopClock) -> None:
        self._limit = limit
        self._clock = clock
        self.net = 0
        self.debits = 0
        """What leases used beyond what they had taken: that may go into debt."""

    def took(self, amount: int, debits_before: int) -> None:
        """Something was granted: with it, no more may be out than a burst and what came since the beginning.

        Debits that were written after it was asked for do not count: it may have been granted before.
        """
        self.net += amount
        limit = self._limit
        out = self.net - (self.debits - debits_before)
        came = limit.refill_amount * self._clock.timer() / (limit.refill_period_seconds * 1000)
        assert out <= limit.burst + came, f"{out} of {limit}, {self._clock.timer()} ms after the beginning"

    def settled(self, delta: int) -> None:
        """A lease ended with more than it had taken, or with less than was given back."""
        self.net += delta
        self.debits += max(delta, 0)


@dataclass
class Held:
    """What a lease has by its own words: taken, adjusted, settled."""

    have: dict[str, int]
    written: dict[str, int]
    settled: dict[str, int] = field(default_factory=dict)
    keep: bool = False

    def final(self, failed: bool) -> dict[str, int]:
        """What it has paid when it is over."""
        if not failed or self.keep:
            return dict(self.have)
        return {name: min(self.settled.get(name, 0), amount) for name, amount in self.have.items()}


class World:
    """One run: a store, its clients, their tasks, and the accounts."""

    def __init__(self, profile: str, seed: int, folder: Path) -> None:
        self.profile, self.seed = profile, seed
        self.habits = PROFILES[profile]
        self.chance = random.Random(f"{profile} {seed}")
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.table = SimulatedTable(self.clock, self.chance, self.habits, Model())
        self.happened: Counter[str] = Counter()
        self.log: list[tuple[int, str, str]] = []
        limits = {**dict.fromkeys(TREE, LIMITS), "org": ABOVE}
        self.accounts = {
            (entity, limit.name): Account(limit, self.clock) for entity, its in limits.items() for limit in its
        }
        self.paid: Counter[Place] = Counter()
        """What finished leases kept."""
        self._stores = self._make_stores(folder)
        self._limiters: list[RateLimiter] = []

    # Stores

    def _make_stores(self, folder: Path) -> list[Any]:
        if self.habits.store == "memory":
            return [MemoryStore()]
        if self.habits.store == "sqlite":
            return [SqliteStore(str(folder / "limits.db"))]
        return [self.table.store() for _ in range(self.habits.clients)]

    # The run

    def play(self) -> None:
        """From the first acquire to the last check."""
        self._prepare()
        run(self.loop, self._main())
        self._check_afterwards()
        for store in self._stores:
            store.close()

    def _fresh(self) -> SyncRateLimiter:
        store = self.table.store() if self.habits.store == "dynamodb" else self._stores[0]
        return SyncRateLimiter(SyncRepository(store, clock=self.clock))

    def _prepare(self) -> None:
        if self.habits.store == "dynamodb":
            store = self.table.store()
            SyncDriver(self.clock, store.perform).run(store.create(self.clock()))
        limiter = self._fresh()
        limiter.set_system_defaults(LIMITS)
        limiter.create_entity("org")
        limiter.set_limits("org", ABOVE)
        for entity, parent in TREE.items():
            limiter.create_entity(entity, parent_id=parent, cascade=parent is not None)

    async def _main(self) -> None:
        observer: Callable[[Any], None] | None = (lambda event: None) if self.habits.observed else None
        for number in range(self.habits.clients):
            store = self._stores[number % len(self._stores)]
            self._limiters.append(RateLimiter(Repository(store, clock=self.clock, observer=observer)))
        if self.habits.store != "dynamodb":
            self.loop.on_idle = self._check_lines
        tasks = [
            asyncio.ensure_future(self._live(f"task {number}", self._limiters[number % len(self._limiters)]))
            for number in range(self.habits.tasks)
        ]
        cancelling = asyncio.ensure_future(cancel_some(tasks, self.chance, self.habits.cancels, 150))
        try:
            await asyncio.gather(*tasks)
        finally:
            cancelling.cancel()
            await asyncio.wait([cancelling])
            self.loop.on_idle = None
        for store in self._stores:
            if self.habits.store == "dynamodb":
                await store.aclose()

    async def _live(self, name: str, limiter: RateLimiter) -> None:
        """One task: acts one after the other. One that is cancelled goes on with the next."""
        for _ in range(self.habits.acts):
            try:
                await asyncio.sleep(self.chance.randint(0, 400) / 1000)
                await self._act(name, limiter)
            except Failure:
                self._note(name, "failed")
            except asyncio.CancelledError:
                go_on_uncancelled()
                self._note(name, "cancelled")

    async def _act(self, name: str, limiter: RateLimiter) -> None:
        chance, clock = self.chance, self.clock
        entity = chance.choice(list(TREE))
        wanted = {"rpm": chance.randint(1, 4)}
        if chance.random() < 0.5:
            wanted["tpm"] = chance.choice((10, 40, 90))
        timeout_ms = chance.choice((0, 0, 300, 1_000, 4_000))
        began, debits = clock(), self._debits(entity)
        held: Held | None = None
        failed = True
        try:
            async with limiter.acquire(entity, RESOURCE, wanted, timeout=timeout_ms / 1000) as lease:
                self._took(entity, wanted, debits)
                self._note(name, "served" if clock() > began + 50 else "granted")
                assert clock() - began <= timeout_ms + self._slack_ms
                held = Held(dict(wanted), dict(wanted))
                await self._work(entity, lease, held)
                failed = False
                self._credit(entity, held, held.final(failed=False))
        except RateLimitExceeded as refusal:
            assert clock() - began <= timeout_ms + self._slack_ms
            wait = refusal.retry_after_seconds
            assert wait > 0
            self._note(name, "timed out" if timeout_ms else "denied")
        except RateLimiterUnavailable:
            assert self.habits.lost or self.habits.throttled, "nothing was lost"
            self._note(name, "unavailable")
        finally:
            if held is not None:
                final = held.final(failed)
                self._settled(entity, held, final)

    async def _work(self, entity: str, lease: Any, held: Held) -> None:
        """What the body of a lease does. What it says is noted before it is said: it holds even if it is cut short."""
        chance = self.chance
        try:
            for _ in range(chance.randint(0, 3)):
                await asyncio.sleep(chance.choice((0, 0.01, 0.1, 0.5)))
                name = chance.choice(list(held.have))
                verb = chance.choice(("adjust", "settle", "consume", "release", "flush", "commit"))
                if verb == "adjust":
                    delta = chance.randint(-held.have[name], 5 if self.habits.debts else 0)
                    held.have[name] += delta
                    await lease.adjust(**{name: delta})
                elif verb == "settle":
                    actual = chance.randint(0, held.have[name] + (5 if self.habits.debts else 0))
                    held.have[name] = held.settled[name] = actual
                    await lease.settle(**{name: actual})
                elif verb == "release":
                    amount = chance.randint(0, held.have[name])
                    held.have[name] -= amount
                    await lease.release(**{name: amount})
                elif verb == "consume":
                    more, debits = chance.randint(1, 2), self._debits(entity)
                    try:
                        await lease.consume(**{name: more})
                    except RateLimitExceeded:
                        self.happened["refused more"] += 1
                    else:
                        self._took(entity, {name: more}, debits)
                        held.have[name] += more
                        held.written[name] += more
                elif verb == "flush":
                    self._credit(entity, held, held.have)
                    await lease.flush()
                else:
                    held.keep = True
                    self._credit(entity, held, held.have)
                    await lease.commit()
            if chance.random() < 0.15:
                raise Failure
        except BaseException:
            self._credit(entity, held, held.final(failed=True))
            raise

    # Accounts

    def _places(self, entity: str, name: str) -> list[Place]:
        parent = TREE[entity]
        return [(entity, name)] if parent is None else [(entity, name), (parent, name)]

    def _debits(self, entity: str) -> dict[Place, int]:
        return {place: self.accounts[place].debits for name in ("rpm", "tpm") for place in self._places(entity, name)}

    def _took(self, entity: str, amounts: Mapping[str, int], debits: Mapping[Place, int]) -> None:
        for name, amount in amounts.items():
            for place in self._places(entity, name):
                self.accounts[place].took(amount, debits[place])

    def _credit(self, entity: str, held: Held, becomes: Mapping[str, int]) -> None:
        """Something is about to be given back: from now on others may have it."""
        for name, amount in becomes.items():
            back = held.written[name] - amount
            if back > 0:
                held.written[name] -= back
                for place in self._places(entity, name):
                    self.accounts[place].net -= back

    def _settled(self, entity: str, held: Held, final: Mapping[str, int]) -> None:
        """A lease is over."""
        for name, amount in final.items():
            for place in self._places(entity, name):
                self.accounts[place].settled(amount - held.written[name])
                self.paid[place] += amount

    @property
    def _slack_ms(self) -> int:
        """By how much a wait may be longer than its timeout: a try that is under way is waited for."""
        return 2 * DEADLINE_MS if self.habits.store == "dynamodb" else 1

    def _note(self, name: str, what: str) -> None:
        self.happened[what] += 1
        self.log.append((self.clock.timer(), name, what))

    # Checks

    def _check_lines(self) -> None:
        """Nothing is left to do at this moment: then the oldest waiter waits for tokens that are not there."""
        tickets = [
            ticket
            for wait_queue in {
                id(limiter._core.wait_queue): limiter._core.wait_queue for limiter in self._limiters
            }.values()
            for line in wait_queue.by_bucket.values()
            for ticket in line
        ]
        if not tickets:
            return
        oldest = min(tickets, key=lambda ticket: ticket.arrival)
        entity, resource = oldest.key
        # It stands at the first bucket that lacked; any other that it takes from may lack as well. A limit that is not
        # asked for lacks what it owes.
        parent = TREE.get(entity)
        legs = [entity, parent] if parent else [entity, *(child for child in TREE if TREE[child] == entity)]
        fresh = self._fresh()
        there = {leg: fresh.available(leg, resource) for leg in legs}
        wanted = oldest.amounts
        assert any(level < wanted.get(name, 0) for leg in legs for name, level in there[leg].items()), (
            f"{self.clock.timer()} ms: {wanted} of {entity} are waited for, and {there} is there"
        )
        self.happened["waited"] += 1

    def _check_afterwards(self) -> None:
        unresolved = sum(limiter.repository.unresolved for limiter in self._limiters)
        self.happened["unresolved"] += unresolved
        for limiter in self._limiters:
            assert not limiter._core.wait_queue, "no task waits any more"
        fresh = self._fresh()
        for entity in (*TREE, "org"):
            for bucket in fresh.get_status(entity).buckets:
                for level in bucket.limits:
                    paid = self.paid[entity, level.limit_name]
                    if unresolved:
                        assert level.total_consumed >= paid, (entity, level)
                    else:
                        assert level.total_consumed == paid, (entity, level, paid)
                    assert level.available <= level.limit.burst
        for entity in TREE:
            if not fresh.get_status(entity).buckets:
                continue
            statuses = [fresh.available(who, RESOURCE) for who in filter(None, (entity, TREE[entity]))]
            most = {name: min(there[name] for there in statuses) for name in ("rpm", "tpm")}
            taking = {name: amount for name, amount in most.items() if amount}
            if taking and min(taking.values()) > 0:  # an entity in debt with one limit gets nothing of the others
                with fresh.acquire(entity, RESOURCE, taking):
                    pass
            try:
                with fresh.acquire(entity, RESOURCE, {"rpm": 1}):
                    raise AssertionError(f"{entity} gets more than {most}")
            except RateLimitExceeded:
                pass
