"""Schedules for hours, and single ones again."""

from __future__ import annotations

import gc
import logging
import random
import time
from collections.abc import Sequence

from simulation.profiles import PROFILES
from simulation.schedule import Schedule, Summary
from simulation.trace import FailedSchedule

TELL_EVERY_S = 30
GARBAGE = 200_000
"""After so many new objects the collector looks for cycles: a schedule leaves few, and every look costs time."""


def replay(profile: str, seed: int) -> int:
    """Run one schedule and say what happened; 1 if it failed."""
    try:
        summary = Schedule(PROFILES[profile], seed).run()
    except FailedSchedule as failure:
        print(failure)
        return 1
    print(f"{profile} {seed} holds: {summary}")
    return 0


def soak(minutes: float, seed: int | None, profiles: Sequence[str] | None) -> int:
    """Run schedules of every profile in turn until the time is over; 1 if any failed."""
    logging.getLogger("zae_limiter").setLevel(logging.CRITICAL)  # clocks that are wrong say so, each time
    gc.freeze()
    gc.set_threshold(GARBAGE)
    first = random.SystemRandom().randrange(10**9) if seed is None else seed
    names = list(profiles or PROFILES)
    print(f"from seed {first}, {minutes} minutes, {', '.join(names)}", flush=True)
    summary, failures = Summary(), 0
    ends = time.monotonic() + minutes * 60
    tell_at = time.monotonic() + TELL_EVERY_S
    number = 0
    while time.monotonic() < ends:
        try:
            Schedule(PROFILES[names[number % len(names)]], first + number // len(names)).run(summary)
        except FailedSchedule as failure:
            failures += 1
            print(failure, flush=True)
        number += 1
        if time.monotonic() > tell_at:
            tell_at = time.monotonic() + TELL_EVERY_S
            print(f"{number} schedules, {summary.granted} grants, {failures} failed", flush=True)
    print(f"{number} schedules, {failures} failed; {summary}")
    return 1 if failures else 0
