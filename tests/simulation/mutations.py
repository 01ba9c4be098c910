"""Corrections undone: how shards and joint writes would be without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from zae_limiter.bucket import MILLI, Balance, share
from zae_limiter.stores.dynamodb import (
    batches,
    batching,
    bucket_cache,
    bucket_write,
    limit_forms,
    slot_work,
    write_forms,
    write_load,
)
from zae_limiter.stores.dynamodb.bucket_cache import BucketCache
from zae_limiter.stores.dynamodb.bucket_write import SeenBucket
from zae_limiter.stores.dynamodb.config_versions import adopted
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import Intent
from zae_limiter.stores.dynamodb.operations import (
    acquire,
    acquire_legs,
    acquire_sharded,
    acquire_writes,
    namespaces,
    propagate,
    settle,
    shard_life,
)
from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg
from zae_limiter.stores.dynamodb.requests import CheckedClock, MachineTime
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.protocol import Leg


def every_write_is_told_in_full(patch: pytest.MonkeyPatch) -> None:
    """No correction: plain writes are told in short, held by a test against the long way, and here go the long way."""

    def draw_in_full(snapshot: Any, taken: Any, needed: Any, *, tallies: Any, **named: Any) -> Any:
        write = bucket_write.update(snapshot, Intent(taken, needed, grants=1, tallies=tallies), **named)
        return write.shape(), write._values

    def settlement_in_full(snapshot: Any, deltas: Any, *, grants: int, tallies: Any, **named: Any) -> Any:
        write = bucket_write.update(snapshot, Intent(deltas, grants=grants, tallies=tallies), **named)
        return write.shape(), write._values

    patch.setattr(acquire_writes, "plain_draw", draw_in_full)
    patch.setattr(settle, "plain_settlement", settlement_in_full)


# C7


def the_gauge_does_not_refill(patch: pytest.MonkeyPatch) -> None:
    for module in (write_load, write_forms):
        patch.setattr(module, "load_level_at", lambda image, now: image.load_level)


def old_refusals_weigh_as_much_as_new_ones(patch: pytest.MonkeyPatch) -> None:
    from zae_limiter.stores.dynamodb.bucket_cache import CachedBucket

    patch.setattr(CachedBucket, "failed", lambda self, now: self.refused)


def there_is_no_pause_between_splits(patch: pytest.MonkeyPatch) -> None:
    for module in (acquire_sharded, shard_life):
        patch.setattr(module, "may_split", lambda first, now: first.shards < write_load.MOST_SHARDS)


# C8


def dividing_mints(patch: pytest.MonkeyPatch) -> None:
    original = shard_life.split_in_two

    def split_in_two(item: Any, **named: Any) -> Any:
        write, key, new = original(item, **named)
        image = shard_life.snapshot_of(item)
        full = {
            f"b_{name}_tk": {
                "N": str(share(balance.limit.burst * MILLI, image.shard + image.shards, 2 * image.shards))
            }
            for name, balance in image.balances.items()
        }
        return write, key, {**new, **full}

    patch.setattr(shard_life, "split_in_two", split_in_two)


def only_the_old_shard_knows_of_the_division(patch: pytest.MonkeyPatch) -> None:
    original = shard_life.split_in_two

    def split_in_two(item: Any, **named: Any) -> Any:
        write, key, new = original(item, **named)
        return write, key, {**new, "shard_count": item["shard_count"]}

    patch.setattr(shard_life, "split_in_two", split_in_two)


def every_shard_is_asked_alone(patch: pytest.MonkeyPatch) -> None:
    def whole(self: AcquireLeg, images: BucketCache, now: int) -> tuple[Balance, ...]:
        return adopted(self.snapshot, self.terms, now)

    def look_elsewhere(taking: Any, leg: AcquireLeg) -> Iterator[Any]:
        return False
        yield

    patch.setattr(AcquireLeg, "whole", whole)
    patch.setattr(acquire, "look_elsewhere", look_elsewhere)


def everything_is_settled_on_the_first_shard(patch: pytest.MonkeyPatch) -> None:
    def shared_out(leg: Leg, owed: Mapping[str, int]) -> Iterator[tuple[int, Leg, Mapping[str, int]]]:
        yield 0, leg, owed

    patch.setattr(settle, "shared_out", shared_out)


# Operators


def a_deletion_says_not_which_life_it_means(patch: pytest.MonkeyPatch) -> None:
    original = shard_life.deletion

    def deletion(table: str, key: Any, seen: Any) -> dict[str, Any]:
        params = original(table, key, seen)
        return {name: params[name] for name in ("TableName", "Key")}

    patch.setattr(shard_life, "deletion", deletion)


def a_deletion_ignores_what_was_written_since(patch: pytest.MonkeyPatch) -> None:
    original = shard_life.deletion

    def deletion(table: str, key: Any, seen: Any) -> dict[str, Any]:
        return original(table, key, {"inc": seen["inc"]})

    patch.setattr(shard_life, "deletion", deletion)


def a_reset_leaves_the_baseline(patch: pytest.MonkeyPatch) -> None:
    original = propagate.update

    def update(image: Any, wish: Any, **named: Any) -> Any:
        return original(image, wish._replace(rebase=False) if wish.fill else wish, **named)

    patch.setattr(propagate, "update", update)


def a_namespace_is_deleted_without_fences(patch: pytest.MonkeyPatch) -> None:
    def fence(self: Any, ns: str) -> Iterator[Any]:
        yield from ()

    patch.setattr(namespaces.Namespaces, "_fence", fence)


def a_shard_bears_its_debts_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle, "fits", lambda snapshot, deltas, owed, now: True)
    patch.setattr(settle, "Intent", lambda *deltas, **named: Intent(*deltas, **{**named, "held": False}))


def new_terms_reach_one_shard_before_a_denial(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AcquireLeg, "is_stale_anywhere", lambda self, images: self.is_stale)


def load_is_an_outage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acquire.Acquire, "_is_load", lambda self, failure: False)


# Coalescing


def a_caller_left_out_is_told_it_was_done(patch: pytest.MonkeyPatch) -> None:
    original = batching.batch_of

    def joined(image: Any, bookings: Any, *rest: Any) -> Any:
        return original(image, bookings, *rest)._replace(writes=bookings)

    patch.setattr(batching, "batch_of", joined)


def a_joint_draw_demands_only_what_the_largest_needs(patch: pytest.MonkeyPatch) -> None:
    original = batching.batch_of

    def joined(image: Any, bookings: Any, *rest: Any) -> Any:
        lot = original(image, bookings, *rest)
        draws = [one.needed for one in lot.writes if one.needed is not None]
        if lot.intent.needed is None or len(draws) < 2:
            return lot
        largest = {name: max(needed.get(name, 0) for needed in draws) for name in lot.intent.needed}
        return lot._replace(intent=lot.intent._replace(needed=largest))

    patch.setattr(batching, "batch_of", joined)


def a_lost_joint_write_is_repeated_at_once(patch: pytest.MonkeyPatch) -> None:
    def resolve(self: Any, lot: Any, image: Any, nonce: str, now: int, until: Any, silence: Any) -> Iterator[Any]:
        for one in lot.writes:
            one.begin_anew(self.write_ids.write_id(one.now))
        return SeenBucket(image, False)
        yield

    patch.setattr(batching.BatchingWriter, "_resolve", resolve)


def a_leader_never_leaves(patch: pytest.MonkeyPatch) -> None:
    original = batching.WriteQueues.leave

    def leave(self: Any, one: Any) -> None:
        desk = one.queue
        if desk:
            desk.popleft()
        original(self, one)

    patch.setattr(batching.WriteQueues, "leave", leave)


# Doubts


def a_refused_creation_forgets_its_doubt(patch: pytest.MonkeyPatch) -> None:
    """A transaction that creates a bucket is refused, after the answer to its first try was lost."""
    original = TableClient.transact

    def transact(self: Any, writes: Any, until: Any, doubts: Any = None) -> Iterator[Any]:
        reasons = yield from original(self, writes, until, doubts)
        if doubts is not None:
            doubts.clear()
        return reasons

    patch.setattr(TableClient, "transact", transact)


# Expiry


def the_expiry_ignores_limits_that_rest(patch: pytest.MonkeyPatch) -> None:
    every_write_is_told_in_full(patch)
    original = write_forms.move

    def move(*arguments: Any, active: bool, **named: Any) -> int:
        longest = original(*arguments, active=active, **named)
        return longest if active else 0

    patch.setattr(write_forms, "move", move)


# Clocks


def every_clock_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Writes go by a clock that no reply has confirmed: before the first one, and after it was set."""

    def machine_time(self: CheckedClock, wall_ms: int, timer_ms: int) -> MachineTime:
        last = self._last
        error = 0 if last is None else last.error_ms
        return MachineTime(timer_ms, (wall_ms + error) // 1000, error, checked=True)

    patch.setattr(CheckedClock, "machine_time", machine_time)


def nothing_is_brought_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bucket_cache, "FURTHEST_AHEAD_MS", 10**15)


def what_is_brought_back_is_full(patch: pytest.MonkeyPatch) -> None:
    original = propagate.brought_back

    def full(image: Any, **named: Any) -> Any:
        return original(image, **{**named, "ahead": named["ahead"] + 10**12})

    patch.setattr(propagate, "brought_back", full)


def old_marks_tell_the_time_of_a_bucket_that_was_brought_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bucket_cache, "BROUGHT_BACK", "never")


# Counting


def no_leg_knows_of_others(patch: pytest.MonkeyPatch) -> None:
    """A call that cascades counts on every level as if it was made there."""
    for module in (bucket_write, acquire_legs, acquire_sharded, settle):
        patch.setattr(module, "cascaded_tallies", lambda leg, deltas, grants: {})


def denials_that_were_written_are_kept(patch: pytest.MonkeyPatch) -> None:
    def keep(self: Any, write: Any, deadline: Any) -> None:
        self.denials.add(write.key, write.leg, write.denials, deadline.started)
        write.denials = {}

    patch.setattr(batching.BatchingWriter, "keep_denials", keep)


def denials_that_were_not_written_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batching.BatchingWriter, "keep_denials", lambda self, write, deadline: setattr(write, "denials", {}))


# Calendars


def new_amounts_clamp(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limit_forms, "raised_by", lambda balance, fresh: 0)


def calendars_expire_at_once(patch: pytest.MonkeyPatch) -> None:
    original = limit_forms.time_to_fill

    def time_to_fill(limit: Any, *rest: Any) -> int:
        return 0 if limit.periods is not None else original(limit, *rest)

    patch.setattr(limit_forms, "time_to_fill", time_to_fill)


def a_split_of_a_debt_demands_nothing(patch: pytest.MonkeyPatch) -> None:
    original = shard_life.split_in_two

    def split_in_two(item: Any, **named: Any) -> Any:
        demand = Update.demand
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                Update,
                "demand",
                lambda write, attribute, comparison, value: (
                    None
                    if comparison == "=" and attribute.endswith("_tk")
                    else demand(write, attribute, comparison, value)
                ),
            )
            return original(item, **named)

    patch.setattr(shard_life, "split_in_two", split_in_two)


# Limits that only watch


def a_watching_limit_is_taken_from_below_nothing(patch: pytest.MonkeyPatch) -> None:
    """Its verdict is that it has enough, and the write does not ask."""
    patch.setattr(slot_work, "level_by", lambda balance, guesses, now: 10**12)
    patch.setattr(batches, "level_by", lambda balance, guesses, now: 10**12)
    original = limit_forms._needed_of

    def needed_of(name: str, intent: Any, *, active: bool) -> int | None:
        return None if name in intent.watched else original(name, intent, active=active)

    patch.setattr(limit_forms, "_needed_of", needed_of)


def a_watching_limit_counts_without_asking(patch: pytest.MonkeyPatch) -> None:
    """Its verdict goes by an old snapshot: the write does not demand that it lacks."""
    patch.setattr(slot_work, "level_by", lambda balance, guesses, now: -1)
    original = limit_forms._watch

    def watch(write: Any, balance: Any, intent: Any, more: int, ceiling: int) -> None:
        watched = intent.watched.get(balance.name)
        known = {} if watched is None else {balance.name: watched._replace(below=None)}
        original(write, balance, intent._replace(watched=known), more, ceiling)

    patch.setattr(limit_forms, "_watch", watch)


def refusals_are_not_written(patch: pytest.MonkeyPatch) -> None:
    original = limit_forms._watch

    def watch(write: Any, balance: Any, intent: Any, more: int, ceiling: int) -> None:
        known = {name: watched._replace(refusals=0) for name, watched in intent.watched.items()}
        original(write, balance, intent._replace(watched=known), more, ceiling)

    patch.setattr(limit_forms, "_watch", watch)
