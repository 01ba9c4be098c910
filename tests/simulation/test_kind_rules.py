"""Every rule of budgets by the calendar, calls in flight and limits that only watch, undone, is noticed.

====  =====================================================  =====================================================
rule  undone by                                              noticed by
====  =====================================================  =====================================================
1     ``steps_are_shared_as_a_sum``                          ``a_period_begins_with_the_whole_amount``
2     ``the_period_is_computed_from_the_baseline``           ``a_period_is_credited_once_whichever_client_begins_it``
2     ``a_period_begins_without_moving_the_baseline``        ``a_period_does_not_begin_twice_in_a_millisecond``
3     ``new_amounts_clamp``                                  ``test_mutations``, "calendars"
3     ``new_terms_clamp``                                    ``test_slot_mutations``, "changed"
4     ``a_repetition_is_decided_anew``                       ``what_a_lost_draw_was_told_stays_so``
4     ``what_is_impossible_is_repeated``                     ``a_lost_draw_that_cannot_be_repeated_is_voided``
5     ``only_those_in_doubt_look_for_their_write_id``        ``a_draw_that_arrives_twice_is_charged_once``
6     ``another_life_gets_slots_back``                       ``test_slot_mutations``, "removed"
6     ``what_was_rolled_comes_back_again``                   ``test_slot_mutations``, "overstaying"
7     ``a_roll_demands_no_counts``                           ``what_was_given_back_is_not_returned_again``
8     ``a_split_goes_by_ceilings``                           ``test_slot_mutations``, "divided"
9     ``what_comes_back_is_repeated``                        ``nothing_comes_back_twice``
9     ``slots_that_come_back_are_repeated``                  ``no_slot_of_another_call_comes_back``
10    ``a_renewal_lasts_as_long_as_before``                  ``a_renewal_lasts_as_long_as_is_in_force``
10    ``the_keeper_goes_by_the_limit``                       ``the_keeper_goes_by_the_due_time``
11    ``a_denial_writes_no_terms``                           ``a_raised_limit_does_not_stay_refused``
12    ``the_expiry_goes_by_what_was_seen``                   ``a_budget_that_expires_is_full``
12    ``calendars_expire_at_once``                           ``test_mutations``, "calendars"
13    ``a_split_of_a_debt_demands_nothing``                  ``test_mutations``, "shards"
14    ``an_old_snapshot_is_believed``                        ``a_call_that_ends_elsewhere_gives_back``
15    ``an_undone_leg_stays_counted``                        ``test_slot_mutations``, "plain"
====  =====================================================  =====================================================

The rules: (1) steps are shared per step; (2) the number of the period is stored with the baseline, and never changes
under it; (3) new amounts shift, they do not clamp; (4) a repetition of a doubtful write is the same write, and what
cannot be repeated is voided first; (5) one's own write id in any snapshot means done; (6) who gives back names the
life of the bucket, and a due time that was not returned yet; (7) a roll demands every count it takes; (8) a split
halves what is free, and leaves the holds; (9) nothing that comes back is repeated without proof; (10) a renewal takes
the time in force, and the keeper goes by the due time; (11) new terms are written even if the draw is refused;
(12) the expiry goes by the least that may be there; (13) a split of a limit in debt demands what was seen; (14) only
a snapshot that was read since may say that a hold is over; (15) undoing a leg undoes what was counted.

Of rule 6 one guard has no mutant of its own: that a due time counts at least what is given back (``x_d >= c``). With
the life and ``hb`` in place it is a belt: what it refuses, a request delivered twice long after, our transports never
send, and ``another_life_gets_slots_back`` drops it with the life.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from simulation.kind_rules import (
    TTL,
    a_budget_that_expires_is_full,
    a_call_that_ends_elsewhere_gives_back,
    a_draw_that_arrives_twice_is_charged_once,
    a_lost_draw_that_cannot_be_repeated_is_voided,
    a_period_begins_with_the_whole_amount,
    a_period_does_not_begin_twice_in_a_millisecond,
    a_period_is_credited_once_whichever_client_begins_it,
    a_raised_limit_does_not_stay_refused,
    a_renewal_lasts_as_long_as_is_in_force,
    no_slot_of_another_call_comes_back,
    nothing_comes_back_twice,
    the_keeper_goes_by_the_due_time,
    what_a_lost_draw_was_told_stays_so,
    what_was_given_back_is_not_returned_again,
)
from zae_limiter.bucket import SteppedBalance, share
from zae_limiter.lease import hold_keeper
from zae_limiter.stores.dynamodb import limit_forms, write_forms
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.operations import acquire
from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg
from zae_limiter.stores.dynamodb.slot_work import SettleWork

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]
Scenario = Callable[[], None]


def edit(patch: Patch, owner: Any, name: str, before: str, after: str) -> None:
    """Let a function of a module or a class be as if ``before`` read ``after`` in its source."""
    function = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(before) == 1, f"{name} says {before!r} {source.count(before)} times"
    made: dict[str, Any] = {}
    exec(compile(source.replace(before, after), f"{name}, edited", "exec"), function.__globals__, made)
    patch.setattr(owner, name, made[name])


# Calendars


def steps_are_shared_as_a_sum(patch: Patch) -> None:
    def accrued(self: SteppedBalance, t: int) -> int:
        amount = self.limit.refill_amount * 1000
        return share(amount * self.calendar.ordinal(t), self.shard, self.shards)

    def since_rf(self: SteppedBalance, now: int) -> int:
        amount = self.limit.refill_amount * 1000
        return max(accrued(self, now) - share(amount * self.pn, self.shard, self.shards), 0)

    patch.setattr(SteppedBalance, "accrued", accrued)
    patch.setattr(SteppedBalance, "since_rf", since_rf)


def the_period_is_computed_from_the_baseline(patch: Patch) -> None:
    edit(
        patch,
        SteppedBalance,
        "__init__",
        "self.calendar.ordinal(rf) if pn is None else pn",
        "self.calendar.ordinal(rf)",
    )


def a_period_begins_without_moving_the_baseline(patch: Patch) -> None:
    edit(patch, write_forms, "update", "snapshot.rf + (moves and (begun or terms is not None))", "snapshot.rf")
    patch.setattr("zae_limiter.stores.dynamodb.bucket_write.update", write_forms.update)


def the_expiry_goes_by_what_was_seen(patch: Patch) -> None:
    least = "(ceiling if floor is None else floor) + a"
    edit(patch, limit_forms, "_move_by_form", f"least = {least}", "least = balance.tk + a")


# Lost answers


def a_repetition_is_decided_anew(patch: Patch) -> None:
    edit(patch, AcquireLeg, "judge", "not self.doubtful and ", "")
    patch.setattr(AcquireLeg, "is_possible", lambda self, now: True)


def what_is_impossible_is_repeated(patch: Patch) -> None:
    patch.setattr(AcquireLeg, "is_possible", lambda self, now: True)


def only_those_in_doubt_look_for_their_write_id(patch: Patch) -> None:
    edit(patch, BucketWrite, "recognise", "if self.is_in(snapshot):", "if self.doubtful and self.is_in(snapshot):")


def what_comes_back_is_repeated(patch: Patch) -> None:
    edit(patch, BucketWrite, "let_credits_go", " if delta > 0", "")


def slots_that_come_back_are_repeated(patch: Patch) -> None:
    patch.setattr(SettleWork, "let_go", lambda self: True)


# Slots


def a_roll_demands_no_counts(patch: Patch) -> None:
    exact = Update.demand

    def demand(self: Update, attribute: str, comparison: str, value: int | str) -> None:
        if not (attribute.startswith("x_") and comparison == "="):
            exact(self, attribute, comparison, value)

    patch.setattr(Update, "demand", demand)


def an_old_snapshot_is_believed(patch: Patch) -> None:
    edit(patch, SettleWork, "_is_there", "if not self.fresh:", "if not snapshot:")


# Changes of limits


def a_renewal_lasts_as_long_as_before(patch: Patch) -> None:
    edit(patch, SettleWork, "_renew", "max(balance.due_time(now), hold.due)", "max(now // 1000 + hold.ttl, hold.due)")


def the_keeper_goes_by_the_limit(patch: Patch) -> None:
    """It plans half of the time ahead that the limit says, from when the hold was taken."""
    patch.setattr(hold_keeper, "renewal_at", lambda hold: hold.due * 1000 - hold.ttl * 1000 + TTL * 500)


def a_denial_writes_no_terms(patch: Patch) -> None:
    def adopt_all(*_: Any) -> Any:
        yield from ()

    patch.setattr(acquire, "adopt_all", adopt_all)


RULES: list[tuple[int, Mutation, Scenario]] = [
    (1, steps_are_shared_as_a_sum, a_period_begins_with_the_whole_amount),
    (2, the_period_is_computed_from_the_baseline, a_period_is_credited_once_whichever_client_begins_it),
    (2, a_period_begins_without_moving_the_baseline, a_period_does_not_begin_twice_in_a_millisecond),
    (4, a_repetition_is_decided_anew, what_a_lost_draw_was_told_stays_so),
    (4, what_is_impossible_is_repeated, a_lost_draw_that_cannot_be_repeated_is_voided),
    (5, only_those_in_doubt_look_for_their_write_id, a_draw_that_arrives_twice_is_charged_once),
    (7, a_roll_demands_no_counts, what_was_given_back_is_not_returned_again),
    (9, what_comes_back_is_repeated, nothing_comes_back_twice),
    (9, slots_that_come_back_are_repeated, no_slot_of_another_call_comes_back),
    (10, a_renewal_lasts_as_long_as_before, a_renewal_lasts_as_long_as_is_in_force),
    (10, the_keeper_goes_by_the_limit, the_keeper_goes_by_the_due_time),
    (11, a_denial_writes_no_terms, a_raised_limit_does_not_stay_refused),
    (12, the_expiry_goes_by_what_was_seen, a_budget_that_expires_is_full),
    (14, an_old_snapshot_is_believed, a_call_that_ends_elsewhere_gives_back),
]


@pytest.mark.parametrize(
    ("mutation", "scenario"),
    [pytest.param(*rest, id=f"rule {rule}, {rest[0].__name__}") for rule, *rest in RULES],
)
def test_a_rule_undone_is_noticed(mutation: Mutation, scenario: Scenario, monkeypatch: Patch) -> None:
    scenario()
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        scenario()
