"""Counters that ride on writes: what cascaded."""

from __future__ import annotations

from zae_limiter import Limit
from zae_limiter.stores.dynamodb.intents import cascaded_tallies
from zae_limiter.stores.protocol import Leg, in_order


def leg(entity_id: str, *names: str) -> Leg:
    return Leg(entity_id, "gpt", tuple(Limit.per_minute(name, 10) for name in names), "system")


def test_each_leg_knows_what_those_before_it_count() -> None:
    legs = in_order([leg("key", "rpm"), leg("project", "tpm"), leg("org", "rpm", "tpm", "usd")])
    assert [one.cascaded for one in legs] == [None, frozenset(), {"rpm", "tpm"}]
    assert in_order(legs) == legs
    assert in_order(legs[1:])[0].cascaded is None


def test_only_what_another_leg_counts_is_tallied() -> None:
    key, project, org = in_order([leg("key", "rpm"), leg("project", "tpm"), leg("org", "rpm", "tpm", "usd")])
    deltas = {"rpm": 1_000, "tpm": -500, "usd": 7}
    assert cascaded_tallies(key, deltas, 1) == {}
    assert cascaded_tallies(project, deltas, 1) == {"evc": 1}
    assert cascaded_tallies(org, deltas, 1) == {"c_rpm": 1_000, "c_tpm": -500, "evc": 1}
    assert cascaded_tallies(org, {"rpm": 0}, 0) == {}
