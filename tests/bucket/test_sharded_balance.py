"""A sharded limit, seen as one: its level and its waits are those of the unsplit limit."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import assume, given
from hypothesis import strategies as st

from support.bucket_model import NOW, limits, spread
from zae_limiter.bucket import MILLI, Balance, build_limit_status
from zae_limiter.models.limit import Limit
from zae_limiter.sharded_balance import ShardedBalance
from zae_limiter.stores.limit_statuses import limit_level

mixed_trees = st.sampled_from(
    [
        [(0, 2), (1, 2)],
        [(0, 4), (1, 2), (2, 4)],
        [(0, 8), (1, 4), (2, 4), (3, 4), (4, 8)],
        [(shard, 64) for shard in range(64)],
    ]
)


def sharded(
    limit: Limit, tree: Iterable[tuple[int, int]], taken: int, rf: int
) -> tuple[ShardedBalance, list[Balance]]:
    """A limit of which the same part was taken everywhere."""
    parts = [Balance(limit, rf, shard=shard, shards=shards) for shard, shards in tree]
    for part in parts:
        part.tk -= taken * part.bx // (limit.burst * MILLI)
    return ShardedBalance(limit, lambda: parts), parts


@given(limits(), mixed_trees, spread(0, 10**9), spread(0, 10**9))
def test_the_level_is_the_sum(limit: Limit, tree: list[tuple[int, int]], taken: int, later: int) -> None:
    whole, parts = sharded(limit, tree, taken, NOW)
    assert whole.level(NOW + later) == sum(part.level(NOW + later) for part in parts)
    assert whole.bx == sum(part.bx for part in parts)


@given(limits(), mixed_trees, spread(1, 10**9), st.integers(1, 100))
def test_what_is_due_is_there_then_and_not_a_millisecond_before(
    limit: Limit, tree: list[tuple[int, int]], taken: int, percent: int
) -> None:
    whole, _ = sharded(limit, tree, taken, NOW)
    amount = max(limit.burst * MILLI * percent // 100, 1)
    due = whole.due(amount, NOW)
    assert whole.level(due) >= amount
    assert due == NOW or whole.level(due - 1) < amount


@given(limits(), mixed_trees, spread(0, 10**9))
def test_it_is_full_when_it_says_and_not_a_millisecond_before(
    limit: Limit, tree: list[tuple[int, int]], taken: int
) -> None:
    whole, parts = sharded(limit, tree, taken, NOW)
    for balance in (whole, *parts):
        full_at = NOW + balance.full_in(balance.tk, NOW)
        assert balance.level(full_at) == balance.bx
        assert full_at == NOW or balance.level(full_at - 1) < balance.bx


@given(limits(), mixed_trees, spread(0, 10**9))
def test_a_full_bucket_that_is_split_is_as_full_and_fills_as_fast(
    limit: Limit, tree: list[tuple[int, int]], later: int
) -> None:
    """All taken at one moment: from then on the shards accrue together what the unsplit bucket does."""
    whole, parts = sharded(limit, tree, 0, NOW)
    unsplit = Balance(limit, NOW)
    for balance in (unsplit, *parts):
        balance.tk = 0
    moment = NOW + later
    assume(all(part.tk + part.since_rf(moment) <= part.bx for part in parts))
    assert whole.level(moment) == unsplit.tk + unsplit.since_rf(moment)


def test_a_caller_behind_others_may_be_due_when_more_than_everything_has_accrued() -> None:
    limit = Limit.per_second("rps", 10)
    whole, parts = sharded(limit, [(0, 2), (1, 2)], 0, NOW)
    for part in parts:
        part.tk = 0
    status = build_limit_status(
        whole, entity_id="e", resource="r", source="system", requested=10, reserved=5 * MILLI, now=NOW
    )
    assert status.retry_after_seconds == 1.5
    assert status.available == 0


@given(limits(), mixed_trees)
def test_what_was_counted_is_the_sum_in_whatever_order_it_is_asked(limit: Limit, tree: list[tuple[int, int]]) -> None:
    whole, parts = sharded(limit, tree, 0, NOW)
    for number, part in enumerate(parts):
        part.tc = number * MILLI
    assert limit_level(whole, NOW, {}).total_consumed == sum(range(len(parts)))
