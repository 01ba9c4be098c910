"""Denials are kept until there is a write to their bucket."""

from __future__ import annotations

from zae_limiter import Limit
from zae_limiter.stores.dynamodb.intents import denial_tallies
from zae_limiter.stores.dynamodb.namespace import MOST_BUCKETS, WRITTEN_EVERY_MS, DenialTally
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.protocol import Leg

KEY, SHARD = (Key(f"ns/BUCKET#key#gpt#{shard}", "#STATE") for shard in (0, 3))


def leg(entity_id: str, *names: str) -> Leg:
    return Leg(entity_id, "gpt", tuple(Limit.per_minute(name, 10) for name in names), "system")


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
