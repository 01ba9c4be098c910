"""Schedules for hours, and single ones again.

A soak runs every profile with one seed after the other, in as many processes as it is given. It ends after a time or
after a number of schedules, and says which seeds it has run: the same number from the same seed is the same soak.
"""

from __future__ import annotations

import gc
import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from simulation.profiles import PROFILES
from simulation.schedule import Schedule, Summary
from simulation.trace import FailedSchedule

TELL_EVERY_S = 30
GARBAGE = 200_000
"""After so many new objects the collector looks for cycles: a schedule leaves few, and every look costs time."""

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "kept" / "soak.json"
"""From where the report of the benchmarks shows it."""


def replay(profile: str, seed: int) -> int:
    """Run one schedule and say what happened; 1 if it failed."""
    try:
        summary = Schedule(PROFILES[profile], seed).run()
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
    """No log lines (clocks that are wrong say so, each time) and few looks for garbage, until it ends."""
    logger = logging.getLogger("zae_limiter")
    level, thresholds = logger.level, gc.get_threshold()
    logger.setLevel(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(GARBAGE)
    try:
        yield
    finally:
        logger.setLevel(level)
        gc.set_threshold(*thresholds)
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
            Schedule(PROFILES[share.names[number % len(share.names)]], done.last_seed).run(summary)
        except FailedSchedule as failure:
            done.failures += 1
            print(failure, flush=True)
        done.schedules += 1
        number += share.step
        if time.time() > tell_at and share.offset == 0:
            tell_at = time.time() + TELL_EVERY_S
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
    names = tuple(profiles or PROFILES)
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
