"""Calls in flight, and limits that only watch, in fleets over the model of DynamoDB.

More of them: ``ZAEL_SIM_SCHEDULES=2000`` (per profile), from another seed: ``ZAEL_SIM_SEED=7``.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from simulation.slots import PROFILES, SlotWorld

SEED = int(os.environ.get("ZAEL_SIM_SEED", "50000"))
EACH = int(os.environ.get("ZAEL_SIM_SCHEDULES", "6"))


def played(profile: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> SlotWorld:
    world = SlotWorld(profile, seed)
    with monkeypatch.context() as patched:
        patched.setattr("zae_limiter.stores.dynamodb.write_load.MOST_SHARDS", 4)
        for module, name, value in world.patches():
            patched.setattr(module, name, value)
        try:
            world.play()
        except BaseException as error:
            error.add_note(f"profile {profile!r}, seed {seed}")
            raise
    return world


@pytest.mark.parametrize("profile", PROFILES)
def test_slots_are_conserved_and_come_back(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEED, SEED + EACH):
        happened += played(profile, seed, monkeypatch).happened
    habits = PROFILES[profile]
    expected = {"granted", "refused", "renewed", "would be refused", *habits.changes}
    if habits.dies:
        expected.add("died")
    assert expected <= happened.keys(), happened
