"""Counters that ride on writes: what cascaded, and denials that are kept until there is a write."""

from __future__ import annotations

from zae_limiter import Limit
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.dynamodb.tallies import (
    MOST_BUCKETS,
    WRITTEN_EVERY_MS,
    DenialTally,
    cascaded_tallies,
    denial_tallies,
)
from zae_limiter.stores.protocol import Leg, in_order

KEY, SHARD = (Key(f"ns/BUCKET#key#gpt#{shard}", "#STATE") for shard in (0, 3))


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


def test_denials_are_kept_by_bucket_until_they_are_taken() -> None:
    tally, own = DenialTally(), leg("key", "rpm", "tpm")
    tally.add(KEY, own, {"rpm": 1}, 100)
    tally.add(SHARD, own, {"rpm": 1, "tpm": 2}, 200)
    assert not tally.is_due(KEY, 100 + WRITTEN_EVERY_MS - 1)
    assert tally.is_due(KEY, 100 + WRITTEN_EVERY_MS)
    assert denial_tallies(tally.take(SHARD)) == {"d_rpm": 2, "d_tpm": 2}
    assert tally.take(KEY) == {}
    assert not tally.is_due(KEY, 10**9)


def test_a_client_keeps_the_denials_of_so_many_buckets_and_no_more() -> None:
    tally, own = DenialTally(), leg("key", "rpm")
    for number in range(MOST_BUCKETS + 1):
        tally.add(Key(f"ns/BUCKET#key-{number}#gpt#0", "#STATE"), own, {"rpm": 1}, 0)
    assert len(tally.unwritten) == MOST_BUCKETS
