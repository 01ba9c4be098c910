"""The simulator notices when one of the thirteen mistakes is made again, and says which promise that breaks.

The mistakes and their numbers are in ``docs/how-it-stays-exact.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from simulation import crowds, violations
from simulation.mutations import (
    a_caller_left_out_is_told_it_was_done,
    a_deletion_says_not_which_life_it_means,
    a_joint_draw_demands_only_what_the_largest_needs,
    a_leader_never_leaves,
    a_lost_joint_write_is_repeated_at_once,
    a_namespace_is_deleted_without_fences,
    a_reset_leaves_the_baseline,
    a_shard_bears_its_debts_alone,
    a_split_of_a_debt_demands_nothing,
    a_watching_limit_counts_without_asking,
    a_watching_limit_is_taken_from_below_nothing,
    calendars_expire_at_once,
    denials_that_were_not_written_are_forgotten,
    denials_that_were_written_are_kept,
    dividing_mints,
    every_clock_is_believed,
    every_shard_is_asked_alone,
    every_write_is_told_in_full,
    everything_is_settled_on_the_first_shard,
    load_is_an_outage,
    new_amounts_clamp,
    new_terms_reach_one_shard_before_a_denial,
    no_leg_knows_of_others,
    nothing_is_brought_back,
    old_marks_tell_the_time_of_a_bucket_that_was_brought_back,
    old_refusals_weigh_as_much_as_new_ones,
    only_the_old_shard_knows_of_the_division,
    refusals_are_not_written,
    the_gauge_does_not_refill,
    there_is_no_pause_between_splits,
    what_is_brought_back_is_full,
)
from simulation.profiles import PROFILES
from simulation.schedule import Schedule, run_schedules
from simulation.trace import STEPS_TOLD, FailedSchedule
from zae_limiter.bucket import Balance
from zae_limiter.stores.dynamodb import bucket_write, limit_forms, write_forms
from zae_limiter.stores.dynamodb.operations import acquire, propagate

Mutation = Callable[[pytest.MonkeyPatch], None]

MOST_SCHEDULES = 60


class Without:
    """A write in the making that forgets to make some demands."""

    def __init__(self, write: Any, forgotten: Callable[[str, str], bool]) -> None:
        self._write = write
        self._forgotten = forgotten

    def __getattr__(self, name: str) -> Any:
        return getattr(self._write, name)

    def demand(self, attribute: str, comparison: str, value: Any) -> None:
        if not self._forgotten(attribute, comparison):
            self._write.demand(attribute, comparison, value)


def _moves(
    patch: pytest.MonkeyPatch, change: Callable[[Callable[..., int], Any, Any, Any, dict[str, Any]], int]
) -> None:
    """Change how one limit of a write is moved."""
    every_write_is_told_in_full(patch)
    original = write_forms.move

    def move(write: Any, balance: Any, limit: Any, moved: Any, **named: Any) -> int:
        return change(
            lambda write: original(write, balance, limit, moved, **named), write, balance, moved.intent, named
        )

    patch.setattr(write_forms, "move", move)


def a_draw_ignores_the_ceiling(patch: pytest.MonkeyPatch) -> None:
    def change(move: Any, write: Any, balance: Any, wish: Any, named: dict[str, Any]) -> int:
        if wish.needed is None:
            return move(write)
        named["guess"] = -(10**18)
        return move(Without(write, lambda _, comparison: comparison == "<="))

    _moves(patch, change)


def a_draw_has_no_token_condition(patch: pytest.MonkeyPatch) -> None:
    def change(move: Any, write: Any, balance: Any, wish: Any, named: dict[str, Any]) -> int:
        return move(write if wish.needed is None else Without(write, lambda _, comparison: comparison == ">="))

    _moves(patch, change)


def accrual_is_floored(patch: pytest.MonkeyPatch) -> None:
    original = Balance.since_rf
    patch.setattr(Balance, "since_rf", lambda self, now: original(self, now) // 1000 * 1000)


def every_write_moves_the_baseline(patch: pytest.MonkeyPatch) -> None:
    _updates(patch, lambda wish: True, lambda wish, named: (wish._replace(rebase=True), named))


def _updates(
    patch: pytest.MonkeyPatch, concerned: Callable[[Any], bool], change: Callable[[Any, dict[str, Any]], Any]
) -> None:
    """Change those writes to buckets whose intent is ``concerned``."""
    every_write_is_told_in_full(patch)
    original = bucket_write.update

    def update(image: Any, wish: Any, **named: Any) -> Any:
        if concerned(wish):
            wish, named = change(wish, named)
        return original(image, wish, **named)

    patch.setattr(bucket_write, "update", update)


def a_credit_ignores_the_ceiling(patch: pytest.MonkeyPatch) -> None:
    def change(move: Any, write: Any, balance: Any, wish: Any, named: dict[str, Any]) -> int:
        if wish.deltas.get(balance.name, 0) >= 0:
            return move(write)
        named["guess"] = -(10**18)
        return move(Without(write, lambda _, comparison: comparison == "<="))

    _moves(patch, change)


def every_try_of_a_draw_has_a_mark_of_its_own(patch: pytest.MonkeyPatch) -> None:
    _updates(patch, lambda wish: wish.needed is not None, _with_new_marks())


def every_try_of_a_credit_has_a_mark_of_its_own(patch: pytest.MonkeyPatch) -> None:
    _updates(patch, lambda wish: wish.needed is None and bool(wish.deltas), _with_new_marks())


def _with_new_marks() -> Callable[[Any, dict[str, Any]], Any]:
    numbers = count(1)

    def change(wish: Any, named: dict[str, Any]) -> Any:
        return wish, {**named, "write_id": f"{named['now']:x}.again{next(numbers):x}"}

    return change


def old_limits_may_follow_new_ones(patch: pytest.MonkeyPatch) -> None:
    for module in (propagate, acquire):
        patch.setattr(module, "may_follow", lambda *_, **__: True)


def writes_are_not_guarded_by_the_version(patch: pytest.MonkeyPatch) -> None:
    every_write_is_told_in_full(patch)
    original = write_forms.Update.demand

    def demand(self: Any, attribute: str, comparison: str, value: Any) -> None:
        if attribute != "cv":
            original(self, attribute, comparison, value)

    patch.setattr(write_forms.Update, "demand", demand)


def buckets_expire_too_early(patch: pytest.MonkeyPatch) -> None:
    every_write_is_told_in_full(patch)
    original = limit_forms.time_to_fill
    patch.setattr(limit_forms, "time_to_fill", lambda *arguments: original(*arguments) // 4)


def compensation_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def undo(self: Any, until: Any) -> Any:
        for leg in self.legs:
            leg.done = False
        yield from ()

    patch.setattr(acquire.Acquire, "undo", undo)


MUTATIONS: list[tuple[str, Mutation, str, frozenset[str]]] = [
    ("C1", a_draw_ignores_the_ceiling, "lone", frozenset({violations.CEILING, violations.EXACT})),
    ("C2", a_draw_has_no_token_condition, "contention", frozenset({violations.OVERDRAFT})),
    ("C3", accrual_is_floored, "speeds", frozenset({violations.EXACT})),
    ("C9", a_credit_ignores_the_ceiling, "lone", frozenset({violations.CEILING})),
    ("C11", every_try_of_a_draw_has_a_mark_of_its_own, "losses", frozenset({violations.TOLD})),
    ("C11", every_try_of_a_credit_has_a_mark_of_its_own, "losses up a tree", frozenset({violations.BOOKS})),
    ("C12", old_limits_may_follow_new_ones, "changes", frozenset({violations.NEWEST})),
    ("C12", writes_are_not_guarded_by_the_version, "changes", frozenset({violations.NEWEST, violations.EXACT})),
    ("ttl", buckets_expire_too_early, "expiry", frozenset({violations.EXPIRY})),
    ("all or nothing", compensation_is_forgotten, "cascade", frozenset({violations.BOOKS})),
    ("C7", the_gauge_does_not_refill, "patient", frozenset({violations.PRESSURE})),
    ("C7", old_refusals_weigh_as_much_as_new_ones, "patient", frozenset({violations.PRESSURE})),
    ("C7", there_is_no_pause_between_splits, "spread", frozenset({violations.PAUSE})),
    ("C8", dividing_mints, "spread", frozenset({violations.CONSERVED})),
    ("C8", only_the_old_shard_knows_of_the_division, "spread", frozenset({violations.CONSERVED})),
    ("C8", every_shard_is_asked_alone, "lone over shards", frozenset({violations.WAIT, violations.NEVER_FOR_EVER})),
    ("C8", everything_is_settled_on_the_first_shard, "lone over shards", frozenset({violations.PAID})),
    ("operators", a_deletion_says_not_which_life_it_means, "operators", frozenset({violations.MEANT})),
    ("operators", a_reset_leaves_the_baseline, "operators", frozenset({violations.MEANT})),
    ("operators", a_namespace_is_deleted_without_fences, "namespaces", frozenset({violations.NOTICE})),
    ("clocks", every_clock_is_believed, "hours", frozenset({violations.CLOCKS})),
    ("clocks", nothing_is_brought_back, "given clocks", frozenset({violations.NEVER_FOR_EVER})),
    ("clocks", what_is_brought_back_is_full, "given clocks", frozenset({violations.MENDED})),
    (
        "clocks",
        old_marks_tell_the_time_of_a_bucket_that_was_brought_back,
        "given clocks",
        frozenset({violations.MENDED}),
    ),
    ("debts", a_shard_bears_its_debts_alone, "spread", frozenset({violations.SOLVENT})),
    (
        "terms",
        new_terms_reach_one_shard_before_a_denial,
        "overrides over shards",
        frozenset({violations.NEVER_FOR_EVER}),
    ),
    ("counting", no_leg_knows_of_others, "cascade", frozenset({violations.EACH_ONCE})),
    ("counting", denials_that_were_written_are_kept, "contention", frozenset({violations.DENIALS})),
    ("counting", denials_that_were_not_written_are_forgotten, "contention", frozenset({violations.DENIALS})),
    ("calendars", new_amounts_clamp, "calendars", frozenset({violations.EXACT})),
    ("calendars", calendars_expire_at_once, "calendars", frozenset({violations.EXPIRY})),
    ("watching", a_watching_limit_is_taken_from_below_nothing, "watching", frozenset({violations.OVERDRAFT})),
    ("watching", a_watching_limit_counts_without_asking, "lone watching", frozenset({violations.WATCHED})),
    ("watching", refusals_are_not_written, "watching", frozenset({violations.BOOKS})),
    ("debts", a_split_of_a_debt_demands_nothing, "shards", frozenset({violations.CEILING, violations.SOLVENT})),
    ("load", load_is_an_outage, "overload", frozenset({violations.GATE})),
    ("joining", a_caller_left_out_is_told_it_was_done, "joined", frozenset({violations.BOOKS})),
    ("joining", a_joint_draw_demands_only_what_the_largest_needs, "joined", frozenset({violations.OVERDRAFT})),
    ("joining", a_lost_joint_write_is_repeated_at_once, "crowded", frozenset({violations.BOOKS, violations.TOLD})),
    ("joining", a_leader_never_leaves, "joined", frozenset({violations.GATE, violations.DESKS})),
]


@pytest.mark.parametrize(
    ("mutation", "profile", "broken"),
    [pytest.param(*rest, id=f"{correction} undone: {rest[0].__name__}") for correction, *rest in MUTATIONS],
)
def test_undoing_a_correction_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutation: Mutation, profile: str, broken: frozenset[str]
) -> None:
    run_schedules(profile, range(3))
    mutation(monkeypatch)
    assert any(failure.invariant in broken for failure in failures(profile)), "no invariant noticed"


def failures(profile: str) -> Iterator[FailedSchedule]:
    """Those of so many schedules that break an invariant. An error of another kind is one of the mutation itself."""
    for seed in range(MOST_SCHEDULES):
        try:
            Schedule(PROFILES[profile], seed).run()
        except FailedSchedule as failure:
            if failure.invariant is None and isinstance(failure.__cause__, (AttributeError, NameError, TypeError)):
                raise
            yield failure


def test_undoing_c4_makes_the_fleet_fight_over_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = crowds.measured(200, 100, seconds=3)
    assert crowd.worst < 8
    assert crowd.denied == 0
    every_write_moves_the_baseline(monkeypatch)
    fighting = crowds.measured(200, 100, seconds=3)
    assert fighting.worst > 8
    assert fighting.denied > 0, "there was enough for all of them"


def test_a_failure_tells_the_story_of_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    a_draw_has_no_token_condition(monkeypatch)
    with pytest.raises(FailedSchedule) as caught:
        run_schedules("contention", range(MOST_SCHEDULES))
    headline, command, *story = str(caught.value).splitlines()
    assert headline.startswith("Violation at ")
    assert violations.OVERDRAFT in headline
    assert command.endswith(f"python tests/simulation replay contention {caught.value.seed}")
    assert 1 < len(story) <= STEPS_TOLD
    assert all(" ms " in line and " cv=" in line for line in story[1:])
    assert "draw take" in story[-1]
