"""Real limiters, leases and waiting lines in simulated time, over every store.

More of them: ``ZAEL_SIM_SCHEDULES=2000`` (per profile), from another seed: ``ZAEL_SIM_SEED=7``.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from simulation.lease_worlds import played
from simulation.real_leases import PROFILES, World

SEED = int(os.environ.get("ZAEL_SIM_SEED", "20000"))
EACH = int(os.environ.get("ZAEL_SIM_SCHEDULES", "0"))

RUNS = {"memory": 40, "sqlite": 10, "dynamodb": 12}
"""How many of each profile, by the store."""

MUST_HAPPEN = {"granted", "served", "denied", "timed out", "failed", "refused more"}
"""A profile in which one of these never happens shows nothing about it."""

KEPT_SEEDS = [
    # A waiter at its own bucket, whose parent lacked too, was not woken by what came back to the parent.
    ("memory, observed", 20018),
    # Throttled buckets are split, and one shard granted what the other owed.
    *(("dynamodb, throttled in debt", seed) for seed in (20048, 20091, 20129, 20138, 20179)),
    # A waiter waited for what a limit owed that it had not asked for: the judge looked only at those it had.
    ("memory", 1811000191),
]


@pytest.mark.parametrize("profile", PROFILES)
def test_no_limit_is_exceeded_and_nothing_is_lost(profile: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEED, SEED + (EACH or RUNS[PROFILES[profile].store])):
        happened += played(World(profile, seed, tmp_path_factory.mktemp("run"))).happened
    missing = MUST_HAPPEN - happened.keys()
    assert not missing, happened
    assert bool(happened["cancelled"]) == bool(PROFILES[profile].cancels)
    if PROFILES[profile].store != "dynamodb":
        assert happened["waited"]
        assert not happened["unresolved"]


@pytest.mark.parametrize(("profile", "seed"), KEPT_SEEDS)
def test_a_seed_that_failed_once(profile: str, seed: int, tmp_path: Path) -> None:
    played(World(profile, seed, tmp_path))


@pytest.mark.parametrize("profile", ["memory, cancelled", "sqlite, cancelled", "dynamodb, losses"])
def test_a_seed_is_a_run(profile: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    first, second, other = (played(World(profile, seed, tmp_path_factory.mktemp("run"))).log for seed in (7, 7, 8))
    assert first == second
    assert first != other
