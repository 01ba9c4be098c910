"""Calls in flight, and limits that only watch, in fleets over the model of DynamoDB.

More of them: ``ZAEL_SIM_SCHEDULES=2000`` (per profile), from another seed: ``ZAEL_SIM_SEED=7``.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from simulation.lease_worlds import played
from simulation.slots import PROFILES, SlotWorld

SEED = int(os.environ.get("ZAEL_SIM_SEED", "50000"))
EACH = int(os.environ.get("ZAEL_SIM_SCHEDULES", "6"))


@pytest.mark.parametrize("profile", PROFILES)
def test_slots_are_conserved_and_come_back(profile: str) -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEED, SEED + EACH):
        happened += played(SlotWorld(profile, seed)).happened
    habits = PROFILES[profile]
    expected = {"granted", "refused", "renewed", "would be refused", *habits.changes}
    if habits.dies:
        expected.add("died")
    assert expected <= happened.keys(), happened
