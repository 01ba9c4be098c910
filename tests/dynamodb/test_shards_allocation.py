"""What each shard of a sharded bucket bears of what is settled on one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from zae_limiter.bucket import Balance, share
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.intents import Intent
from zae_limiter.stores.dynamodb.schema import Key, bucket_key
from zae_limiter.stores.dynamodb.shards import fits, placed
from zae_limiter.stores.dynamodb.write_forms import update

NOW = 1_700_000_000_000
LIMIT = Limit.per_minute("tpm", 60)
TREES = ((2, 2), (4, 4, 4, 4), (4, 2, 4), (8, 4, 4, 4, 8))
"""Of how many shards each shard of a bucket knows: some were split further than others."""


def shard_of(shard: int, shards: int, level: int | None) -> BucketSnapshot:
    """A shard that holds so much; one that does not have the limit, if that is nothing."""
    balances = {}
    if level is not None:
        balances["tpm"] = Balance(LIMIT, NOW, tk=level, shard=shard, shards=shards)
    return BucketSnapshot("key", "gpt", rf=NOW, cv="1", inc="1", balances=balances, shard=shard, shards=shards)


@some.composite
def families(draw: some.DrawFn) -> dict[Key, BucketSnapshot]:
    """A bucket of which all shards hold something, or all owe their share."""
    tree = draw(some.sampled_from(TREES))
    debt = draw(some.one_of(some.just(0), some.integers(1, 200_000)))
    family = {}
    for shard, shards in enumerate(tree):
        most = share(LIMIT.burst * 1000, shard, shards)
        level = -share(debt, shard, shards) if debt else draw(some.integers(0, most))
        family[bucket_key("ns", "key", "gpt", shard)] = shard_of(shard, shards, level)
    return family


@given(families(), some.integers(-200_000, 200_000), some.integers(0, 1))
def test_all_of_it_is_borne_and_a_debt_by_every_shard(family: dict[Key, BucketSnapshot], delta: int, at: int) -> None:
    home = bucket_key("ns", "key", "gpt", at)
    before = {key: snapshot.balances["tpm"].level(NOW) for key, snapshot in family.items()}
    whole = sum(before.values())
    parts, in_debt = placed(home, {"tpm": delta}, (LIMIT,), family, NOW)
    borne = {key: part["tpm"] for key, part in parts.items() if "tpm" in part}
    after = {key: level - borne.get(key, 0) for key, level in before.items()}
    assert sum(borne.values()) == delta
    assert bool(in_debt) == (min(whole, whole - delta) < 0)
    if in_debt:
        assert borne.keys() == family.keys(), "each must be as it was seen"
    if whole < delta:
        assert all(
            abs(after[key] * snapshot.shards + delta - whole) <= snapshot.shards for key, snapshot in family.items()
        ), "each owes its share"
    else:
        assert min(after.values()) >= 0
    if delta < 0 and whole - delta <= LIMIT.burst * 1000:
        assert all(after[key] <= snapshot.balances["tpm"].bx for key, snapshot in family.items()), "nothing is lost"


@given(families(), some.integers(-200_000, 200_000))
def test_a_shard_that_can_bear_it_bears_it_alone(family: dict[Key, BucketSnapshot], delta: int) -> None:
    home = bucket_key("ns", "key", "gpt", 0)
    if fits(family[home], {"tpm": delta}, (LIMIT,), NOW):
        parts, in_debt = placed(home, {"tpm": delta}, (LIMIT,), family, NOW)
        assert not in_debt
        assert {key: part for key, part in parts.items() if part} == ({home: {"tpm": delta}} if delta else {})


def test_what_comes_back_goes_to_a_shard_that_is_not_in_debt() -> None:
    """Or does not seem to be: others may have drawn later than the moment of the settlement."""
    home, other = (bucket_key("ns", "key", "gpt", shard) for shard in (0, 1))
    family = {home: shard_of(0, 2, -10), other: shard_of(1, 2, 20_000)}
    assert placed(home, {"tpm": -1_000}, (LIMIT,), family, NOW) == ({home: {}, other: {"tpm": -1_000}}, frozenset())
    family[other] = shard_of(1, 2, 30_000)
    assert placed(home, {"tpm": -1_000}, (LIMIT,), family, NOW) == (
        {home: {"tpm": -1_000}, other: {"tpm": 0}},
        {"tpm"},
    )


@given(families(), some.integers(-200_000, 200_000), some.sets(some.integers(0, 7)))
def test_a_shard_without_the_limit_bears_what_a_full_one_does(
    family: dict[Key, BucketSnapshot], delta: int, without: set[int]
) -> None:
    home = bucket_key("ns", "key", "gpt", 0)
    full, lacking = dict(family), dict(family)
    for key, snapshot in family.items():
        if snapshot.shard in without:
            full[key] = shard_of(
                snapshot.shard, snapshot.shards, share(LIMIT.burst * 1000, snapshot.shard, snapshot.shards)
            )
            lacking[key] = shard_of(snapshot.shard, snapshot.shards, None)
    deltas = {"tpm": delta} if delta else {}
    assert placed(home, deltas, (LIMIT,), lacking, NOW) == placed(home, deltas, (LIMIT,), full, NOW)
    assert fits(lacking[home], deltas, (LIMIT,), NOW) == fits(full[home], deltas, (LIMIT,), NOW)


@pytest.mark.parametrize("back", [1_000, 10_000, 30_000, 90_000])
def test_nothing_comes_back_to_a_shard_in_debt_alone(back: int) -> None:
    """However much it is: by the time it is written all shards may be in debt, which one of them must not leave."""
    write = update(
        shard_of(0, 2, 20_000),
        Intent({"tpm": -back}, held=True),
        now=NOW,
        write_id="1",
        epoch_s=NOW // 1000,
        ttl_margin_s=60,
    )
    params = write.params("table", bucket_key("ns", "key", "gpt", 0))
    names, values = params["ExpressionAttributeNames"], params["ExpressionAttributeValues"]
    demands = [condition.split(" ") for condition in params["ConditionExpression"].split(" AND ")]
    least = max(
        int(values[demand[2]]["N"]) + (demand[1] == ">")
        for demand in demands
        if len(demand) == 3 and names.get(demand[0], demand[0]) == "b_tpm_tk" and demand[1] in (">", ">=")
    )
    assert least >= 0


def test_of_a_bucket_that_has_lost_shards_the_others_owe_all() -> None:
    home, other = (bucket_key("ns", "key", "gpt", shard) for shard in (0, 1))
    family = {home: shard_of(0, 4, 0), other: shard_of(1, 4, 0)}
    parts, in_debt = placed(home, {"tpm": 1_000}, (LIMIT,), family, NOW)
    assert in_debt == {"tpm"}
    assert parts == {home: {"tpm": 500}, other: {"tpm": 500}}
