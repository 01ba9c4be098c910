"""How the callers call: each key has a profile, and every single call is drawn from it.

Drawing is pure: a caller's own ``random.Random`` goes in, the next :class:`Call` comes out. Each caller's generator is
seeded from the seed of the run, so that what a caller does never depends on how fast the others are.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class CallProfile:
    """What the callers of one key are like. Pairs are ranges."""

    key: str
    callers: int
    estimate: tuple[int, int]
    """Tokens a call expects to use."""
    factor: tuple[float, float]
    """What it really uses, as a multiple of the estimate: above 1 it is settled beyond what was taken."""
    pause: tuple[float, float]
    """Seconds between two calls."""
    failing: float = 0.05
    """How often the provider fails, so that the lease rolls back."""
    patient: float = 0.0
    """How often the caller waits in the queue instead of being turned away."""
    patience: float = 1.5
    """Seconds such a caller waits."""


CALL_PROFILES = (
    CallProfile("key-web", 8, (200, 700), (0.3, 1.1), (0.25, 0.6), patient=0.3),
    CallProfile("key-app", 8, (150, 500), (0.5, 1.3), (0.15, 0.5), patient=1.0),
    CallProfile("key-noisy", 8, (1_500, 6_000), (0.5, 1.0), (0.02, 0.06), failing=0.0),
    CallProfile("key-agent", 6, (300, 900), (0.5, 6.0), (0.1, 0.4), failing=0.12, patient=0.4),
    CallProfile("key-index", 6, (100, 400), (0.8, 1.0), (0.1, 0.3), failing=0.03, patient=0.5),
)

WORK_SECONDS = (0.03, 0.09)
"""How long the provider takes to answer, or to fail."""


class Caller(NamedTuple):
    """One caller: its profile, and the seed of its choices."""

    profile: CallProfile
    seed: int


class Call(NamedTuple):
    """One call as it will go, if it is admitted."""

    estimate: int
    cost: int
    work_seconds: float
    fails: bool
    timeout: float
    pause: float


def assign_callers(seed: int, groups: int) -> list[list[Caller]]:
    """All callers in so many groups, each with callers of every key."""
    rng = Random(seed)
    callers = [Caller(profile, rng.getrandbits(64)) for profile in CALL_PROFILES for _ in range(profile.callers)]
    return [callers[group::groups] for group in range(groups)]


def next_call(profile: CallProfile, rng: Random) -> Call:
    """What a caller does next."""
    estimate = rng.randint(*profile.estimate)
    return Call(
        estimate=estimate,
        cost=round(estimate * rng.uniform(*profile.factor)),
        work_seconds=rng.uniform(*WORK_SECONDS),
        fails=rng.random() < profile.failing,
        timeout=profile.patience if rng.random() < profile.patient else 0,
        pause=rng.uniform(*profile.pause),
    )
