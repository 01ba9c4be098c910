"""What the worlds of real leases have in common: processes over one table of the model, in the time of a loop.

Everything between a program and its store is the real thing: limiter, lease, waiting lines, the driver of asyncio.
Requests travel, and are lost, throttled and late as the troubles of the table say.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

import pytest

from simulation.model.model import Model
from simulation.virtual_loop import LoopClock
from zae_limiter.stores.dynamodb import performer
from zae_limiter.stores.dynamodb.requests import KEY_THROTTLED, NoAnswer, Refused
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.write_ids import WriteIds

TABLE = "limits"
DEADLINE_MS = 2_000


class Troubles(Protocol):
    """What happens to requests: the part of them that is lost, unanswered, late, delivered twice, throttled."""

    @property
    def lost(self) -> float: ...
    @property
    def unanswered(self) -> float: ...
    @property
    def late(self) -> float: ...
    @property
    def twice(self) -> float: ...
    @property
    def throttled(self) -> float: ...


class Wire:
    """Carries calls of one client to the model: they travel, and some are lost on the way there or back."""

    def __init__(self, table: SimulatedTable) -> None:
        self.table = table
        self._late: set[asyncio.Task[Any]] = set()

    async def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        """As a transport does."""
        troubles, chance = self.table.troubles, self.table.chance
        try:
            async with asyncio.timeout(seconds):
                await asyncio.sleep(chance.uniform(0.001, 0.006))
                fate = chance.random()
                if fate < troubles.lost:
                    await asyncio.sleep(chance.uniform(0.001, 0.3))
                    raise NoAnswer("lost on the way")
                fate -= troubles.lost
                if 0 <= fate < troubles.throttled:
                    raise Refused(KEY_THROTTLED, "simulated")
                fate -= troubles.throttled
                if 0 <= fate < troubles.late:
                    task = asyncio.ensure_future(self._later(operation, params))
                    self._late.add(task)
                    task.add_done_callback(self._late.discard)
                    await asyncio.sleep(chance.uniform(0.001, 0.05))
                    raise NoAnswer("late")
                fate -= troubles.late
                reply = self._deliver(operation, params)
                await asyncio.sleep(chance.uniform(0.001, 0.006))
                if 0 <= fate < troubles.unanswered:
                    raise NoAnswer("the reply was lost")
                return reply
        except TimeoutError:
            raise NoAnswer("timed out") from None

    def _deliver(self, operation: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of the model. Of two answers the client hears one or the other."""
        reply = self.table.call(operation, params)
        chance, twice = self.table.chance, self.table.troubles.twice
        if not twice or chance.random() >= twice:
            return reply
        hears_the_second = chance.random() < 0.5
        try:
            second = self.table.call(operation, params)
        except Refused:
            if hears_the_second:
                raise
            return reply
        return second if hears_the_second else reply

    async def _later(self, operation: str, params: Mapping[str, Any]) -> None:
        await asyncio.sleep(self.table.chance.uniform(0.05, 1.0))
        with suppress(Refused):
            self.table.call(operation, params)

    async def close(self) -> None:
        """When what is under way has arrived."""
        await asyncio.gather(*self._late)


class SimulatedTable:
    """A table of the model, and the stores of the processes that use it."""

    def __init__(self, clock: LoopClock, chance: random.Random, troubles: Troubles, model: Model) -> None:
        self.clock = clock
        self.chance = chance
        self.troubles = troubles
        self.model = model
        self._processes = count(1)

    def call(self, operation: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the model answers at this moment."""
        reply: Mapping[str, Any] = self.model.call(operation, params, now_s=self.clock() / 1000)
        return reply

    def store(self, **options: Any) -> DynamoStore:
        """The store of one more process. What runs without a loop (setting up, looking) arrives at once."""
        name = f"{next(self._processes):08x}"
        store = DynamoStore(
            TABLE,
            deadline=DEADLINE_MS / 1000,
            transport=SimpleNamespace(call=lambda name, params, _: self.call(name, params), close=lambda: None),
            async_transport=Wire(self),  # type: ignore[arg-type]
            write_ids=WriteIds(name),
            **options,
        )
        store.identity = ("process", name, id(self))  # waiting lines are a process's own
        return store


class LeaseWorld(Protocol):
    """One run of one profile with one seed."""

    profile: str
    seed: int
    table: SimulatedTable

    def play(self) -> None: ...


World = TypeVar("World", bound=LeaseWorld)


@contextmanager
def simulated_time(table: SimulatedTable) -> Iterator[pytest.MonkeyPatch]:
    """The store of DynamoDB, which has deadlines of its own, goes by the time of the loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(performer, "machine_timer", table.clock.timer)
        machine = SimpleNamespace(time=lambda: table.clock() / 1000, sleep=lambda seconds: None)
        patch.setattr(performer, "time", machine)
        patch.setattr(performer, "random", table.chance)
        yield patch


def played(world: World) -> World:
    """A world after its run. An error says which run it was."""
    with simulated_time(world.table):
        try:
            world.play()
        except BaseException as error:
            error.add_note(f"profile {world.profile!r}, seed {world.seed}")
            raise
    return world


async def cancel_some(
    tasks: list[asyncio.Task[None]], chance: random.Random, cancels: int, longest_pause_ms: int
) -> None:
    """Cancel so many of these tasks, at any moment."""
    for _ in range(cancels):
        await asyncio.sleep(chance.randint(1, longest_pause_ms) / 1000)
        victim = chance.choice(tasks)
        if not victim.done():
            victim.cancel()


def go_on_uncancelled() -> None:
    """The task that runs was cancelled, and goes on with what is next."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
