"""The books of a lease: what it consumed, what it owes, and what survives a failure."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from zae_limiter.exceptions import ValidationError
from zae_limiter.lease.ledger import Ledger, postings
from zae_limiter.models.limit import Limit
from zae_limiter.stores.protocol import Grant, Leg, Posting

NAMES = st.sampled_from(["rpm", "tpm", "images"])
amounts = st.dictionaries(NAMES, st.integers(0, 1000))
deltas = st.dictionaries(NAMES, st.integers(-1000, 1000))


def ledger_of(taken: Mapping[str, int]) -> Ledger:
    """The books of a lease that took this."""
    limits = tuple(Limit.per_minute(name, 1000) for name in ("rpm", "tpm", "images"))
    return Ledger(Grant((Leg("key", "gpt", limits, "entity"),), taken, (), (), 0))


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


class LeaseLife(RuleBasedStateMachine):
    """Any life of a lease. ``used`` and ``survives`` are kept by hand, ``store`` is what a store has booked."""

    @initialize(taken=amounts)
    def begin(self, taken: dict[str, int]) -> None:
        self.ledger = ledger_of(taken)
        self.store = dict(taken)
        self.used = dict(taken)
        self.survives: dict[str, int] = {}

    def post(self, owed: Mapping[str, int]) -> None:
        for name, delta in owed.items():
            assert delta != 0
            self.store[name] = self.store.get(name, 0) + delta
        self.ledger.booked(owed)

    @rule(changes=deltas)
    def adjust(self, changes: dict[str, int]) -> None:
        if any(self.used.get(name, 0) + delta < 0 for name, delta in changes.items()):
            before = self.ledger.consumed(), self.ledger.owed()
            with pytest.raises(ValidationError, match="gives back more than this lease took"):
                self.ledger.adjust(changes, 7)
            assert (self.ledger.consumed(), self.ledger.owed()) == before
        else:
            self.ledger.adjust(changes, 7)
            for name, delta in changes.items():
                self.used[name] = self.used.get(name, 0) + delta

    @rule(actual=amounts)
    def settle(self, actual: dict[str, int]) -> None:
        self.ledger.settle(actual, 7)
        self.used.update(actual)
        self.survives.update(actual)

    @rule(more=amounts)
    def take_more(self, more: dict[str, int]) -> None:
        self.ledger.took(more)
        for name, amount in more.items():
            self.used[name] = self.used.get(name, 0) + amount
            self.store[name] = self.store.get(name, 0) + amount

    @rule()
    def flush(self) -> None:
        self.post(self.ledger.owed())
        assert nonzero(self.store) == nonzero(self.used)
        assert self.ledger.pending_since is None
        assert self.ledger.owed() == {}

    @rule()
    def fail(self) -> None:
        kept = {name: min(self.survives.get(name, 0), total) for name, total in self.used.items()}
        self.post(self.ledger.owed_on_failure())
        self.used = kept
        assert nonzero(self.store) == nonzero(kept)
        assert self.ledger.owed_on_failure() == {}

    @invariant()
    def what_is_consumed_is_what_was_used_and_never_below_zero(self) -> None:
        if hasattr(self, "books"):
            consumed = self.ledger.consumed()
            assert nonzero(consumed) == nonzero(self.used)
            assert all(amount >= 0 for amount in consumed.values())

    @invariant()
    def the_store_never_holds_less_than_nothing(self) -> None:
        if hasattr(self, "store"):
            assert all(amount >= 0 for amount in self.store.values())


def test_any_life_of_a_lease_keeps_its_books() -> None:
    run_state_machine_as_test(LeaseLife, settings=settings(max_examples=80, stateful_step_count=25, deadline=None))


@given(amounts)
def test_a_lease_that_just_began_owes_nothing_unless_it_fails(taken: dict[str, int]) -> None:
    ledger = ledger_of(taken)
    assert ledger.consumed() == taken
    assert ledger.owed() == {}
    assert ledger.owed_on_failure() == {name: -amount for name, amount in taken.items() if amount}


@given(amounts, deltas.filter(bool))
def test_one_delta_too_many_leaves_the_whole_adjustment_out(taken: dict[str, int], changes: dict[str, int]) -> None:
    too_many = changes | {"tpm": -taken.get("tpm", 0) - 1}
    ledger = ledger_of(taken)
    with pytest.raises(ValidationError) as caught:
        ledger.adjust(too_many, 7)
    assert ledger.consumed() == taken
    assert ledger.owed() == {}
    assert ledger.pending_since is None
    assert caught.value.field in too_many


@given(amounts, amounts)
def test_what_was_settled_survives_a_failure_in_full(taken: dict[str, int], actual: dict[str, int]) -> None:
    ledger = ledger_of(taken)
    ledger.settle(actual, 7)
    ledger.booked(ledger.owed_on_failure())
    assert nonzero(ledger.consumed()) == nonzero(actual)


def test_what_is_released_after_it_was_settled_does_not_survive() -> None:
    ledger = ledger_of({"tpm": 500})
    ledger.settle({"tpm": 300}, 7)
    ledger.adjust({"tpm": -100}, 7)
    assert ledger.owed_on_failure() == {"tpm": -300}


def test_what_is_taken_after_it_was_settled_comes_back_on_failure() -> None:
    ledger = ledger_of({"tpm": 500})
    ledger.settle({"tpm": 300}, 7)
    ledger.took({"tpm": 50})
    ledger.adjust({"tpm": 5}, 7)
    assert ledger.owed() == {"tpm": -195}
    assert ledger.owed_on_failure() == {"tpm": -250}


def test_a_limit_the_lease_did_not_take_can_be_adjusted_and_settled() -> None:
    ledger = ledger_of({"rpm": 1})
    ledger.adjust({"tpm": 40}, 7)
    assert ledger.consumed() == {"rpm": 1, "tpm": 40}
    assert ledger.owed_on_failure() == {"rpm": -1}
    ledger.settle({"tpm": 60}, 7)
    assert ledger.owed_on_failure() == {"rpm": -1, "tpm": 60}


def test_adjustments_that_cancel_out_are_not_written() -> None:
    ledger = ledger_of({"tpm": 10})
    ledger.adjust({"tpm": 5}, 7)
    ledger.adjust({"tpm": -5}, 8)
    assert ledger.owed() == {}


def test_the_age_of_what_is_pending_counts_from_its_first_adjustment() -> None:
    ledger = ledger_of({"tpm": 10})
    ledger.adjust({"tpm": 5}, 1_000)
    ledger.settle({"tpm": 3}, 2_000)
    assert ledger.pending_since == 1_000
    ledger.booked(ledger.owed())
    ledger.adjust({"tpm": 5}, 3_000)
    assert ledger.pending_since == 3_000


def test_the_ledger_does_not_share_the_callers_dict() -> None:
    taken = {"tpm": 10}
    ledger = ledger_of(taken)
    ledger.took({"tpm": 5})
    assert taken == {"tpm": 10}


# Postings


def leg(entity_id: str, *names: str) -> Leg:
    return Leg(entity_id, "gpt-4", tuple(Limit.per_minute(name, 10) for name in names), "system")


def test_postings_are_in_millitokens_on_every_leg_that_has_the_limit() -> None:
    own, parent, root = leg("key-1", "rpm", "tpm"), leg("project-1", "tpm"), leg("org-1", "images")
    assert postings((own, parent, root), {"rpm": -1, "tpm": 20}) == [
        Posting(own, {"rpm": -1000, "tpm": 20_000}),
        Posting(parent, {"tpm": 20_000}),
    ]


def test_nothing_owed_is_nothing_to_post() -> None:
    assert postings((leg("key-1", "rpm"),), {}) == []
