"""Each undoes one rule by which slots are conserved, and the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulation.lease_worlds import played
from simulation.slots import PROFILES, SlotWorld, Violation, share
from zae_limiter.bucket import HeldBalance
from zae_limiter.stores.dynamodb import write_forms
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.operations import shard_life
from zae_limiter.stores.dynamodb.slot_work import SettleWork

Patch = pytest.MonkeyPatch
SEEDS = range(70_000, 70_030)


def _demand_all_but(patch: Patch, ignored: Callable[[str, str], bool]) -> None:
    exact = Update.demand

    def demand(self: Update, attribute: str, comparison: str, value: int | str) -> None:
        if not ignored(attribute, comparison):
            exact(self, attribute, comparison, value)

    patch.setattr(Update, "demand", demand)


def new_terms_clamp(patch: Patch) -> None:
    exact = write_forms.move_slots
    patch.setattr(
        write_forms,
        "move_slots",
        lambda write, balance, limit, change: exact(write, balance, balance.limit, change),
    )


def another_life_gets_slots_back(patch: Patch) -> None:
    _demand_all_but(patch, lambda name, sign: name == "inc" or (name[:2] == "x_" and sign == ">="))
    patch.setattr(SettleWork, "_is_there", lambda self, *arguments: True)


def what_was_rolled_comes_back_again(patch: Patch) -> None:
    _demand_all_but(patch, lambda name, sign: name[:2] in ("x_", "h_") and (sign in (">=", "<")) and "_tk" not in name)
    patch.setattr(SettleWork, "_is_there", lambda self, *arguments: True)


def a_split_goes_by_ceilings(patch: Patch) -> None:
    exact = shard_life.split_in_two

    def split_in_two(item: Any, **named: Any) -> Any:
        write, key, new = exact(item, **named)
        seen = shard_life.snapshot_of(item)
        for name, lending in seen.holds.items():
            slots = share(lending.limit.burst, seen.shard + seen.shards, 2 * seen.shards)
            new = {**new, f"h_{name}_tk": {"N": str(slots * 1000)}}
        return write, key, new

    patch.setattr(shard_life, "split_in_two", split_in_two)


def a_draw_asks_for_nothing(patch: Patch) -> None:
    _demand_all_but(patch, lambda name, sign: name[:2] == "h_" and name.endswith("_tk") and sign == ">=")
    patch.setattr(HeldBalance, "level", lambda self, now: self.bx)


def an_undone_leg_stays_counted(patch: Patch) -> None:
    exact = SettleWork.__init__

    def begin(self: SettleWork, *arguments: Any, **named: Any) -> None:
        exact(self, *arguments, **{**named, "unrefused": frozenset()})

    patch.setattr(SettleWork, "__init__", begin)


MUTATIONS: dict[Callable[[Patch], None], tuple[str, str]] = {
    new_terms_clamp: ("changed", "minted|lost"),
    another_life_gets_slots_back: ("removed", "has x_|minted|lost|are free"),
    what_was_rolled_comes_back_again: ("overstaying", "has x_|minted|lost|in flight"),
    a_split_goes_by_ceilings: ("divided", "minted|lost"),
    a_draw_asks_for_nothing: ("plain", "in flight"),
    an_undone_leg_stays_counted: ("plain", "was told"),
}


def play_mutated(mutation: Callable[[Patch], None], profile: str) -> None:
    """Schedule after schedule, until one is noticed."""
    for seed in SEEDS:
        with pytest.MonkeyPatch.context() as patched:
            mutation(patched)
            played(SlotWorld(profile, seed))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_the_simulation_notices(mutation: Callable[[Patch], None]) -> None:
    profile, message = MUTATIONS[mutation]
    assert profile in PROFILES
    with pytest.raises(Violation, match=message):
        play_mutated(mutation, profile)
