"""What the workers of the crash harness do until they are killed, and the journal each of them keeps.

A worker notes in its journal what it is about to take at most, and afterwards what it was told that it paid. A
kill between the two leaves an entry open. So whatever happens, for every bucket and limit::

    told  <=  counted in the file  <=  told + most of the open entries

Below would be minted, above would be charged although no worker took it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter
from zae_limiter.running.clocks import machine_clock
from zae_limiter.stores.sqlite import maintenance
from zae_limiter.testing.contract.harness import Dressed, finish

CLOCK_SPEED = 3_600
"""An hour passes in a second: hours of usage end, and idle buckets expire, while the workers die."""

ORG = "z-org"
TEAMS = {"y-team-0": ["a-key-0", "a-key-1", "a-key-2"], "y-team-1": ["a-key-3", "a-key-4"]}
TIGHT = "a-tight"
LEAVES = [key for keys in TEAMS.values() for key in keys] + [TIGHT]
VISITORS = [f"m-visitor-{number}" for number in range(300)]
"""Their rows lie between those of children and parents, so that the legs of a call are on different pages."""

BURST = 10**7
TIGHT_LIMITS = [Limit.custom("calls", 400, 1, 100), Limit.custom("tokens", BURST, 1, 100)]
PASSING = [Limit.per_second("calls", 10), Limit.per_second("tokens", 10_000)]
TASKS = 3


def ordinary(burst: int = BURST) -> list[Limit]:
    """Slow enough that a bucket that was drawn from never fills up again while we watch."""
    return [Limit.custom("calls", BURST, 1, 100, burst), Limit.custom("tokens", BURST, 1, 100)]


@dataclass(frozen=True)
class HurriedClock:
    """The same time in every process, and fast."""

    begun: int = field(default_factory=machine_clock)

    def __call__(self) -> int:
        return self.begun + (machine_clock() - self.begun) * CLOCK_SPEED


class Journal:
    """One worker's notes: appended, each in one write, so that a kill leaves none half written."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, number: int, entity_id: str, most: int) -> None:
        os.write(self._file, f"b {number} {entity_id} {most}\n".encode())

    def end(self, number: int, events: int, paid: dict[str, int], waited: float) -> None:
        calls, tokens = paid.get("calls", 0), paid.get("tokens", 0)
        os.write(self._file, f"e {number} {events} {calls} {tokens} {waited:.6f}\n".encode())

    def unavailable(self, number: int) -> None:
        os.write(self._file, f"u {number}\n".encode())


@dataclass
class Notes:
    """What journals say, added up: by entity what was told, and what may have been taken besides."""

    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    open: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: int = 0
    in_flight: int = 0
    unavailable: int = 0
    longest_wait: float = 0.0

    def read(self, path: Path) -> None:
        """Add the journal of a worker that is no more."""
        begun: dict[str, tuple[str, int]] = {}
        for line in path.read_text().splitlines():
            kind, number, *rest = line.split()
            if kind == "b":
                begun[number] = rest[0], int(rest[1])
                continue
            entity_id, _ = begun.pop(number)
            if kind == "u":
                self.unavailable += 1
                continue
            self.calls += 1
            for name, amount in zip(("events", "calls", "tokens"), rest, strict=False):
                self.told[entity_id, name] += int(amount)
            self.longest_wait = max(self.longest_wait, float(rest[3]))
        for entity_id, most in begun.values():
            self.in_flight += 1
            self.open.update({(entity_id, "events"): 2, (entity_id, "calls"): 1, (entity_id, "tokens"): most})


class Body(Exception):
    """The work went wrong."""


async def nothing(lease: Any) -> int:
    return 0


async def fails(lease: Any) -> int:
    raise Body


async def adjusts(lease: Any) -> int:
    await lease.adjust(tokens=40)
    return 0


async def settles(lease: Any) -> int:
    await lease.settle(tokens=5)
    await lease.flush()
    return 0


async def takes_more(lease: Any) -> int:
    await lease.consume(tokens=40)
    return 1


async def takes_more_and_fails(lease: Any) -> int:
    await lease.consume(tokens=20)
    await lease.adjust(tokens=20)
    await lease.flush()
    raise Body


ENDINGS: list[Callable[[Any], Awaitable[int]]] = [
    nothing,
    fails,
    adjusts,
    settles,
    takes_more,
    takes_more_and_fails,
]
MOST_MORE = 40
"""What an ending takes at most beyond what was asked for first."""


class Worker:
    """One process: a limiter, a journal, and chance."""

    def __init__(self, path: Path, clock: HurriedClock, journal: Path, seed: int) -> None:
        self.url = f"sqlite:///{path}"
        self.clock = clock
        self.journal = Journal(journal)
        self.chance = random.Random(seed)
        self.configures = self.chance.random() < 0.25
        self.number = 0
        self.over = False

    def run(self) -> None:
        """Until the harness says that it is over, or is gone itself."""
        if self.chance.random() < 0.7:
            # Dies of this after so many seconds of its own work, at any instruction: a kill from outside
            # mostly finds it waiting.
            signal.setitimer(signal.ITIMER_PROF, self.chance.uniform(0.004, 0.04))
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "over", True))
        # What happens now and then in life shall happen all the time here.
        maintenance.COMMITS_BETWEEN_LOOKS, maintenance.CHECKPOINT_AT_BYTES, maintenance.SWEEP_EVERY_S = 16, 2**18, 0.2
        if self.chance.random() < 0.3:
            asyncio.run(self._run_tasks())
        else:
            limiter = SyncRateLimiter.open(self.url, clock=self.clock)
            finish(self._live(Dressed(limiter)))
            limiter.close()

    async def _run_tasks(self) -> None:
        limiter = await RateLimiter.open(self.url, clock=self.clock)
        await asyncio.gather(*(self._live(limiter) for _ in range(TASKS)))
        await limiter.close()

    async def _live(self, limiter: Any) -> None:
        while not self.over:
            if self.configures and self.chance.random() < 0.005:
                await self._configure(limiter)
            await self._call(limiter)

    async def _configure(self, limiter: Any) -> None:
        with suppress(RateLimiterUnavailable):
            await limiter.set_system_defaults(ordinary(self.chance.choice([BURST, 2 * BURST])))

    async def _call(self, limiter: Any) -> None:
        self.number += 1
        number = self.number
        limits = None
        entity_id = self.chance.choice(LEAVES)
        if self.chance.random() < 0.1:
            entity_id, limits = self.chance.choice(VISITORS), PASSING
        tokens, ending = self.chance.randrange(5, 100), self.chance.choice(ENDINGS)
        unresolved = limiter.repository.unresolved
        self.journal.begin(number, entity_id, tokens + MOST_MORE)
        begun, waited, events = time.monotonic(), 0.0, 0
        lease = limiter.acquire(entity_id, "gpt", {"calls": 1, "tokens": tokens}, limits=limits)
        try:
            async with lease:
                waited = time.monotonic() - begun
                events = 1
                events += await ending(lease)
        except Body:
            events += ending is takes_more_and_fails
        except RateLimitExceeded:
            waited = waited or time.monotonic() - begun
        except RateLimiterUnavailable:
            if not events:
                self.journal.unavailable(number)
                return
        if (
            limiter.repository.unresolved == unresolved
        ):  # else the worker cannot know what was paid: the entry stays open
            self.journal.end(number, events, lease.consumed, waited)
