"""A sharded bucket: shares add up exactly, in whatever way it was split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.bucket_model import limits, moments, rate_of, shards_of_buckets, spread, steps
from zae_limiter.bucket import Balance, force_consume, refill_bucket, share, try_consume
from zae_limiter.models.limit import Limit

Node = tuple[int, int]
"""Which shard, of how many."""

amounts = spread(0, 10**30)


def children(node: Node) -> tuple[Node, Node]:
    """What a shard becomes when it splits in two."""
    shard, shards = node
    return (shard, 2 * shards), (shard + shards, 2 * shards)


@st.composite
def split_trees(draw: st.DrawFn) -> list[Node]:
    """The leaves of a bucket that was split here and there, some parts far more often than others."""
    leaves: list[Node] = [(0, 1)]
    for choice in draw(st.lists(st.integers(0, 63), max_size=40)):
        node = leaves.pop(choice % len(leaves))
        leaves.extend(children(node) if node[1] < 64 else [node])
    return leaves


@given(amounts, st.integers(1, 64))
def test_equal_shares_add_up_to_the_whole(x: int, shards: int) -> None:
    assert sum(share(x, shard, shards) for shard in range(shards)) == x


@given(amounts, shards_of_buckets)
def test_a_share_equals_those_of_its_two_children(x: int, node: Node) -> None:
    assert share(x, *node) == sum(share(x, *child) for child in children(node))


@given(amounts, st.integers(1, 64))
def test_shares_differ_by_no_more_than_one(x: int, shards: int) -> None:
    parts = {share(x, shard, shards) for shard in range(shards)}
    assert max(parts) - min(parts) <= 1


@given(amounts, amounts, shards_of_buckets)
def test_a_share_of_more_is_not_less(x: int, more: int, node: Node) -> None:
    assert share(x + more, *node) >= share(x, *node)


@given(limits(), moments, steps, split_trees())
def test_shards_of_a_mixed_tree_hold_and_accrue_what_the_whole_bucket_does(
    limit: Limit, rf: int, later: int, leaves: list[Node]
) -> None:
    whole = Balance(limit, rf)
    parts = [Balance(limit, rf, shard=shard, shards=shards) for shard, shards in leaves]
    now = rf + later
    assert sum(part.bx for part in parts) == whole.bx
    assert sum(part.since_rf(now) for part in parts) == whole.since_rf(now)


@given(limits(), moments, steps, split_trees(), st.integers(0, 63))
def test_splitting_a_shard_between_two_looks_changes_no_sum(
    limit: Limit, rf: int, later: int, leaves: list[Node], choice: int
) -> None:
    """Accrual before the split counts for the parent, afterwards for the children: the sum never jumps."""
    parent = leaves[choice % len(leaves)]
    split_at, now = rf + later, rf + 2 * later
    before = Balance(limit, rf, shard=parent[0], shards=parent[1])
    after = [Balance(limit, split_at, shard=shard, shards=shards) for shard, shards in children(parent)]
    assert before.since_rf(split_at) + sum(child.since_rf(now) for child in after) == before.since_rf(now)


@given(limits(), moments, split_trees(), st.lists(st.tuples(st.integers(0, 63), steps), max_size=20))
def test_all_shards_together_admit_no_more_than_the_unsplit_bucket_may(
    limit: Limit, rf: int, leaves: list[Node], visits: list[tuple[int, int]]
) -> None:
    """Every visit takes all that its shard has."""
    parts = [Balance(limit, rf, shard=shard, shards=shards) for shard, shards in leaves]
    now, admitted = rf, 0
    for choice, pause in visits:
        now += pause
        part = parts[choice % len(parts)]
        level = refill_bucket(part, now)
        tk = try_consume(part, level, now)
        assert tk is not None
        part.tk, admitted = tk, admitted + level
        assert admitted < limit.burst * 1000 + rate_of(limit) * (now - rf) + 1


@given(limits(), moments, split_trees(), steps)
def test_emptied_shards_refill_together_as_the_emptied_whole_does(
    limit: Limit, rf: int, leaves: list[Node], later: int
) -> None:
    whole = Balance(limit, rf)
    whole.tk = force_consume(whole, whole.bx, rf)
    parts = [Balance(limit, rf, shard=shard, shards=shards) for shard, shards in leaves]
    for part in parts:
        part.tk = force_consume(part, part.bx, rf)
    now = rf + later
    together = sum(refill_bucket(part, now) for part in parts)
    assert together <= refill_bucket(whole, now)
    if whole.since_rf(now) < whole.bx - len(parts):
        assert together == refill_bucket(whole, now)
