"""Kills workers at random, thousands of times if you like, and then holds the file against their journals.

    python tests/sqlite/crash_harness.py --kills 2000 --seconds 300 --seed 1

Workers acquire, settle, fail and reconfigure on one file. They are killed at random moments, by ``SIGKILL`` (one
or all at once) or by a timer of their own, and replaced; now and then one is stopped for a second. In the end:

- what every bucket counted is what the workers were told, and at most what was in flight at the kills besides;
- taken and left add up to burst and accrual, to the millitoken;
- a parent counted exactly what its children did, because all legs are one transaction;
- the hours of usage add up to the buckets;
- SQLite's integrity check passes, no worker waited long, and the file is as usable as ever.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash_workers import (
    LEAVES,
    ORG,
    TASKS,
    TEAMS,
    TIGHT,
    TIGHT_LIMITS,
    VISITORS,
    HurriedClock,
    Notes,
    Worker,
    ordinary,
)

from support.sqlite_files import buckets_in, check_integrity
from zae_limiter import SyncRateLimiter
from zae_limiter.bucket import Bucket

WORKERS = 5
BETWEEN_KILLS_S = 0.03
STOPPED_S = 1.0
DEADLINE_S = 2.0
TOO_LONG_S = DEADLINE_S + STOPPED_S + 2.0
"""An acquire may take its deadline, on a worker that was itself stopped meanwhile, on a busy machine."""

PATIENCE_S = 30.0
LIMITS = ("calls", "tokens")


@dataclass
class Crashes:
    """The workers of one file, and what is done to them."""

    path: Path
    seed: int
    clock: HurriedClock = field(default_factory=HurriedClock)
    notes: Notes = field(default_factory=Notes)
    kills: int = 0
    massacres: int = 0
    stops: int = 0
    born: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.alive: dict[int, Path] = {}
        self.stopped: dict[int, float] = {}

    def set_up(self) -> None:
        """A hierarchy in which every bucket has been drawn from, and so never reaches its ceiling again."""
        with SyncRateLimiter.open(f"sqlite:///{self.path}", clock=self.clock) as limiter:
            limiter.set_system_defaults(ordinary())
            limiter.create_entity(ORG)
            for team, keys in TEAMS.items():
                limiter.create_entity(team, parent_id=ORG, cascade=True)
                for key in keys:
                    limiter.create_entity(key, parent_id=team, cascade=True)
            limiter.create_entity(TIGHT, parent_id=ORG, cascade=True)
            limiter.set_limits(TIGHT, TIGHT_LIMITS)
            for leaf in LEAVES:
                calls = 400 if leaf == TIGHT else 10**5
                with limiter.acquire(leaf, "gpt", {"calls": calls, "tokens": 10**6}):
                    pass
                self.notes.told.update({(leaf, "events"): 1, (leaf, "calls"): calls, (leaf, "tokens"): 10**6})
        self.at_first = {entity_id: whole(bucket) for (entity_id, _), bucket in buckets_in(self.path).items()}

    def kill_until(self, kills: int, seconds: float) -> None:
        """Keep the workers coming and going."""
        now = time.monotonic()
        give_up, next_kill, next_stop = now + seconds, now, now + STOPPED_S
        while self.kills < kills and (now := time.monotonic()) < give_up:
            self._wake_the_stopped()
            self._notice_the_dead()
            while len(self.alive) < WORKERS:
                self._employ()
            if now > next_stop:
                next_stop = now + self.chance.uniform(2, 4) * STOPPED_S
                self._stop(self.chance.choice(list(self.alive)))
            if now > next_kill:
                next_kill = now + self.chance.expovariate(1 / BETWEEN_KILLS_S)
                self._kill_one_or_all()
            time.sleep(0.003)

    def finish(self) -> None:
        """Let those who are left end in their own time. None of them may be stuck."""
        self._wake_the_stopped(all_of_them=True)
        for worker in self.alive:
            os.kill(worker, signal.SIGTERM)
        give_up = time.monotonic() + PATIENCE_S
        while self.alive:
            self._notice_the_dead()
            assert time.monotonic() < give_up, "a survivor is stuck"
            time.sleep(0.005)

    def clear_away(self) -> None:
        """Whatever went wrong, leave no process behind."""
        for worker in self.alive:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
        self.alive.clear()

    def _employ(self) -> None:
        self.born += 1
        journal = self.path.parent / f"journal-{self.born}"
        seed = self.chance.getrandbits(32)
        worker = os.fork()
        if worker == 0:
            try:
                Worker(self.path, self.clock, journal, seed).run()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        self.alive[worker] = journal

    def _kill_one_or_all(self) -> None:
        chosen = list(self.alive)
        if self.chance.random() < 0.01:
            self.massacres += 1
        else:
            chosen = [self.chance.choice(chosen)]
        for worker in chosen:
            self._kill(worker)

    def _kill(self, worker: int) -> None:
        os.kill(worker, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        assert code in (-signal.SIGKILL, -signal.SIGPROF), f"a worker failed with {code}; see above"
        self.kills += 1
        self.stopped.pop(worker, None)
        self._read(self.alive.pop(worker))

    def _stop(self, worker: int) -> None:
        os.kill(worker, signal.SIGSTOP)
        self.stopped[worker] = time.monotonic() + STOPPED_S
        self.stops += 1

    def _wake_the_stopped(self, all_of_them: bool = False) -> None:
        for worker, until in list(self.stopped.items()):
            if all_of_them or time.monotonic() > until:
                os.kill(worker, signal.SIGCONT)
                del self.stopped[worker]

    def _notice_the_dead(self) -> None:
        for worker, journal in list(self.alive.items()):
            pid, status = os.waitpid(worker, os.WNOHANG)
            if pid:
                del self.alive[worker]
                self.stopped.pop(worker, None)
                code = os.waitstatus_to_exitcode(status)
                # One that was just born may be told that it is over before it can listen.
                assert code in (0, -signal.SIGTERM, -signal.SIGPROF), f"a worker failed with {code}; see above"
                self.kills += code == -signal.SIGPROF
                self._read(journal)

    def _read(self, journal: Path) -> None:
        if journal.exists():  # it may have been killed before it wrote anything
            self.notes.read(journal)
            journal.unlink()

    # Holding the file against the journals

    def check(self) -> None:
        """Everything that must be so."""
        check_integrity(self.path)
        buckets = {entity_id: bucket for (entity_id, _), bucket in buckets_in(self.path).items()}
        self._check_conservation(buckets)
        self._check_families(buckets)
        with SyncRateLimiter.open(f"sqlite:///{self.path}", clock=self.clock) as limiter:
            for entity_id in (*LEAVES, *VISITORS):
                self._check_told(entity_id, limiter)
            for entity_id in (ORG, *TEAMS, *LEAVES):
                self._check_usage(buckets[entity_id], limiter)
            with limiter.acquire(LEAVES[0], "gpt", {"calls": 1}):
                pass
        assert self.notes.longest_wait < TOO_LONG_S, f"a worker waited {self.notes.longest_wait} s"
        check_integrity(self.path)

    def _check_conservation(self, buckets: dict[str, Bucket]) -> None:
        for entity_id, before in self.at_first.items():
            assert whole(buckets[entity_id]) == before, f"{entity_id}: not burst and accrual any more"

    def _check_families(self, buckets: dict[str, Bucket]) -> None:
        for parent, children in ((ORG, LEAVES), *TEAMS.items()):
            assert buckets[parent].events == sum(buckets[child].events for child in children), parent
            for place in range(len(LIMITS)):
                paid = sum(buckets[child].balances[place].tc for child in children)
                assert buckets[parent].balances[place].tc == paid, (parent, LIMITS[place])

    def _check_told(self, entity_id: str, limiter: SyncRateLimiter) -> None:
        """By the usage, which outlives buckets that expire."""
        usage = limiter.get_usage_summary(entity_id, "gpt")
        counted = {"events": usage.total_events} | {name: usage.total.get(name, 0) for name in LIMITS}
        for name, found in counted.items():
            told, most = self.notes.told[entity_id, name], self.notes.open[entity_id, name]
            assert told <= found, f"{entity_id}: {told - found} {name} minted"
            assert found <= told + most, f"{entity_id}: {found - told - most} {name} charged that no worker took"

    def _check_usage(self, bucket: Bucket, limiter: SyncRateLimiter) -> None:
        usage = limiter.get_usage_summary(bucket.entity_id, "gpt")
        assert usage.total_events == bucket.events, bucket.entity_id
        assert usage.total == {balance.name: balance.tc // 1_000 for balance in bucket.balances}

    def report(self) -> dict[str, float]:
        """What happened, in figures."""
        notes = self.notes
        return {
            "kills": self.kills,
            "of all at once": self.massacres,
            "stops": self.stops,
            "workers": self.born,
            "calls that ended": notes.calls,
            "calls in flight at a kill": notes.in_flight,
            "calls that found the store unavailable": notes.unavailable,
            "longest wait in seconds": round(notes.longest_wait, 3),
            "hours of usage": round((self.clock() - self.clock.begun) / 3_600_000, 1),
        }


def whole(bucket: Bucket) -> list[int]:
    """Taken and left of every limit, refill aside: the same for ever, because rates do not change here."""
    return [balance.tk + balance.tc - balance.at_rf for balance in bucket.balances]


def crash(kills: int, seconds: float, seed: int, folder: Path) -> dict[str, float]:
    """Do all of it; raises ``AssertionError`` if anything is not as it must be."""
    crashes = Crashes(folder / "limits.db", seed)
    crashes.set_up()
    try:
        crashes.kill_until(kills, seconds)
        crashes.finish()
    finally:
        crashes.clear_away()
    crashes.check()
    return crashes.report()


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=2_000, help="how many kills are enough")
    parser.add_argument("--seconds", type=float, default=300, help="how long to go on at most")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}, {WORKERS} workers, some of them with {TASKS} tasks", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(crash(given.kills, given.seconds, given.seed, Path(folder)), indent=2))


if __name__ == "__main__":
    main()
