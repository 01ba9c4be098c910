"""Schedules for hours, and single ones again.

A soak runs every profile with one seed after the other, in as many processes as it is given. It ends after a time or
after a number of schedules, and says which seeds it has run: the same number from the same seed is the same soak.

Its profiles are those of fleets (``profiles``: even limits, calendars and limits that watch, judged beside an exact
bucket), of calls in flight with every other kind beside them (``slots: ``), and of real leases over every store
(``leases: ``).
"""

from __future__ import annotations

import gc
import json
import logging
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simulation import real_leases, slots
from simulation.lease_worlds import played
from simulation.profiles import PROFILES
from simulation.schedule import Schedule, Summary
from simulation.trace import FailedSchedule

SLOTS = "slots: "
LEASES = "leases: "
NAMES = (*PROFILES, *(SLOTS + name for name in slots.PROFILES), *(LEASES + name for name in real_leases.PROFILES))
"""Every profile that a soak runs."""

TELL_EVERY_S = 30

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "kept" / "soak.json"
"""From where the report of the benchmarks shows it."""


def run_one(name: str, seed: int, summary: Summary) -> None:
    """Run one schedule of any profile. Raises :class:`FailedSchedule` at the first thing that is wrong."""
    if name in PROFILES:
        Schedule(PROFILES[name], seed).run(summary)
        return
    try:
        happened = _play_leases(name, seed)
    except Exception as failure:
        raise FailedSchedule(name, seed, failure, "") from failure
    summary.schedules += 1
    summary.granted += happened["granted"] + happened["served"]
    summary.denied += happened["denied"] + happened["timed out"] + happened["refused"]
    summary.unavailable += happened["unavailable"]


def _play_leases(name: str, seed: int) -> Counter[str]:
    """What happened in a world of real leases."""
    if name.startswith(SLOTS):
        return played(slots.SlotWorld(name.removeprefix(SLOTS), seed)).happened
    with TemporaryDirectory() as folder:
        return played(real_leases.World(name.removeprefix(LEASES), seed, Path(folder))).happened


def replay(profile: str, seed: int) -> int:
    """Run one schedule and say what happened; 1 if it failed."""
    summary = Summary()
    try:
        run_one(profile, seed, summary)
    except FailedSchedule as failure:
        print(failure)
        return 1
    print(f"{profile} {seed} holds: {summary}")
    return 0


@dataclass(frozen=True, slots=True)
class Share:
    """What one process of a soak does: every ``step``-th schedule from the ``offset``-th on."""

    first_seed: int
    names: tuple[str, ...]
    ends_at: float
    schedules: int | None
    offset: int = 0
    step: int = 1


@dataclass(slots=True)
class Done:
    """What one process of a soak has done."""

    schedules: int = 0
    last_seed: int = 0
    granted: int = 0
    denied: int = 0
    failures: int = 0
    told: str = ""


@contextmanager
def quiet_process() -> Iterator[None]:
    """No log lines (clocks that are wrong say so, each time) and no looks for garbage, until it ends.

    Between two schedules a look costs least: what the last one has made is garbage then, and nothing else is young.
    """
    logger = logging.getLogger("zae_limiter")
    level, collects = logger.level, gc.isenabled()
    logger.setLevel(logging.CRITICAL)
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        logger.setLevel(level)
        if collects:
            gc.enable()
        gc.unfreeze()


@quiet_process()
def run_share(share: Share) -> Done:
    """Until the time is over, or the share is done."""
    summary, done = Summary(), Done(last_seed=share.first_seed)
    tell_at = time.time() + TELL_EVERY_S
    number = share.offset
    while time.time() < share.ends_at and (share.schedules is None or number < share.schedules):
        done.last_seed = share.first_seed + number // len(share.names)
        try:
            run_one(share.names[number % len(share.names)], done.last_seed, summary)
        except FailedSchedule as failure:
            done.failures += 1
            print(failure, flush=True)
        done.schedules += 1
        number += share.step
        gc.collect(0)
        if time.time() > tell_at:
            tell_at = time.time() + TELL_EVERY_S
            gc.collect()
            if share.offset == 0:
                print(f"{done.schedules * share.step:,} schedules, {done.failures} failed here", flush=True)
    done.granted, done.denied, done.told = summary.granted, summary.denied, str(summary)
    return done


def soak(
    minutes: float,
    seed: int | None,
    profiles: Sequence[str] | None,
    *,
    schedules: int | None = None,
    processes: int = 1,
    keep: bool = False,
) -> int:
    """Run schedules of every profile in turn until the time is over, or so many are done; 1 if any failed."""
    first = random.SystemRandom().randrange(10**9) if seed is None else seed
    names = tuple(profiles or NAMES)
    print(f"from seed {first}, at most {minutes:g} minutes, {processes} processes, {', '.join(names)}", flush=True)
    began = time.time()
    shares = [Share(first, names, began + minutes * 60, schedules, offset, processes) for offset in range(processes)]
    done = _run_all(shares)
    facts = {
        "schedules": sum(one.schedules for one in done),
        "first_seed": first,
        "last_seed": max(one.last_seed for one in done),
        "profiles": len(names),
        "granted": sum(one.granted for one in done),
        "denied": sum(one.denied for one in done),
        "failed": sum(one.failures for one in done),
        "minutes": round((time.time() - began) / 60, 1),
        "processes": processes,
    }
    for one in done:
        print(one.told)
    print(
        f"{facts['schedules']:,} schedules of {len(names)} profiles, seeds {first} to {facts['last_seed']}, "
        f"{facts['granted']:,} grants, {facts['denied']:,} denials, {facts['failed']} failed; "
        f"{facts['minutes']} minutes"
    )
    if keep:
        _keep(facts)
    return 1 if facts["failed"] else 0


def _run_all(shares: Sequence[Share]) -> list[Done]:
    """Each in a process of its own: what a share sets (garbage, logs) ends with it."""
    with ProcessPoolExecutor(len(shares), mp_context=get_context("fork")) as pool:
        return list(pool.map(run_share, shares))


def _keep(facts: dict[str, Any]) -> None:
    """For the report, with when and at which commit."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    about = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "python": sys.version.split()[0],
    }
    KEPT.write_text(json.dumps(about | facts, indent=2) + "\n")
    print(f"kept: {KEPT.relative_to(ROOT)}")
