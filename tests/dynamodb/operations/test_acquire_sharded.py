"""A bucket that was split is still one bucket to every caller.

Time stands still here (a clock of the tests), except where a test moves it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from support.dynamodb.sharded_tables import Stage
from zae_limiter import (
    Limit,
    RateLimitExceeded,
    RequestExceedsBurst,
    SyncRateLimiter,
    ValidationError,
)
from zae_limiter.bucket import share
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.running.clocks import machine_clock, machine_timer
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.operations.shard_life import split
from zae_limiter.stores.dynamodb.requests import Call
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing import FakeClock

TABLES = count()
RPM, TPM = Limit.per_minute("rpm", 64), Limit.per_minute("tpm", 6_400)


@pytest.fixture
def stage(engine: Engine) -> Iterator[Stage]:
    stage = Stage(f"shards-{os.getpid()}-{next(TABLES)}", Target("us-east-1", engine.endpoint_url), FakeClock(), [])
    limiter = stage.client()
    store = stage.opened[0]
    driver = SyncDriver(machine_clock, store.perform)
    driver.run(store.create(0))
    limiter.set_system_defaults([RPM, TPM])
    yield stage
    driver.run(store.destroy())
    for opened in stage.opened:
        opened.close()


@pytest.fixture
def limiter(stage: Stage) -> SyncRateLimiter:
    """A client whose bucket of ``key`` has four shards."""
    limiter = SyncRateLimiter(SyncRepository(stage.opened[0], clock=stage.clock))
    stage.split_into(limiter, 4)
    return limiter


def levels(limiter: SyncRateLimiter, entity_id: str = "key") -> tuple[dict[str, int], dict[str, int]]:
    """What is left, and what was taken."""
    bucket = limiter.get_status(entity_id, "gpt").buckets[0]
    return (
        {level.limit_name: level.available for level in bucket.limits},
        {level.limit_name: level.total_consumed for level in bucket.limits},
    )


def test_status_is_the_sum_of_the_shards(stage: Stage, limiter: SyncRateLimiter) -> None:
    for _ in range(20):
        with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}):
            pass
    items = stage.items()
    assert sum(item["b_rpm_tc"] for item in items.values()) == 20_000
    assert levels(limiter) == ({"rpm": 44, "tpm": 4_400}, {"rpm": 20, "tpm": 2_000})
    assert levels(stage.client()) == levels(limiter), "a client that comes later sees the same"
    assert limiter.available("key", "gpt") == {"rpm": 44, "tpm": 4_400}
    assert stage.shards_add_up(RPM, TPM)
    assert not [item for item in items.values() if "ttl" in item]


def test_the_whole_burst_is_granted_and_not_one_more(stage: Stage, limiter: SyncRateLimiter) -> None:
    clients = [limiter, stage.client(), stage.client()]
    for turn in range(64):
        with clients[turn % 3].acquire("key", "gpt", {"rpm": 1}):
            pass
    for client in clients:
        with pytest.raises(RateLimitExceeded) as denied:
            client.acquire("key", "gpt", {"rpm": 1}).__enter__()
        assert denied.value.retry_after_seconds == pytest.approx(60 / 64, abs=0.001)
    assert levels(limiter)[0]["rpm"] == 0


def test_a_denial_names_the_very_millisecond(stage: Stage, limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "gpt", {"rpm": 64}):
        pass
    with pytest.raises(RateLimitExceeded) as denied:
        limiter.acquire("key", "gpt", {"rpm": 5}).__enter__()
    wait = round((denied.value.retry_after_seconds or 0) * 1000)
    other = stage.client()
    stage.clock.advance(milliseconds=wait - 1)
    with pytest.raises(RateLimitExceeded):
        other.acquire("key", "gpt", {"rpm": 5}).__enter__()
    stage.clock.advance(milliseconds=1)
    with limiter.acquire("key", "gpt", {"rpm": 5}):
        pass


def test_a_request_larger_than_a_share_is_paid_by_several_shards(stage: Stage, limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "gpt", {"rpm": 50, "tpm": 6_000}) as lease:
        assert lease.consumed == {"rpm": 50, "tpm": 6_000}
        assert all(item["b_tpm_tc"] > 0 for item in stage.items().values())
    assert levels(limiter)[0] == {"rpm": 14, "tpm": 400}
    with pytest.raises(RequestExceedsBurst):
        limiter.acquire("key", "gpt", {"rpm": 65}).__enter__()


def others(stage: Stage, times: int) -> Iterator[None]:
    """Take a thousandth of a token from every shard, so often."""
    other = stage.client()
    with other.acquire("key", "gpt", {"rpm": 0}):
        pass
    ns = stage.items()[0]["PK"].partition("/")[0]
    for _ in range(times):
        for shard in range(4):
            key = bucket_key(ns, "key", "gpt", shard)
            params = {
                "TableName": stage.table,
                "Key": {"PK": {"S": key.pk}, "SK": {"S": key.sk}},
                "UpdateExpression": "ADD b_rpm_tk :less",
                "ExpressionAttributeValues": {":less": {"N": "-1"}},
            }
            stage.opened[0].perform(Call("UpdateItem", params, machine_timer() + 20_000))
        yield


def drained_to(stage: Stage, limiter: SyncRateLimiter, rpm: int) -> None:
    """Leave so much in a bucket of 64, and no shard at its ceiling."""
    with limiter.acquire("key", "gpt", {"rpm": 64}) as lease:
        lease.release(rpm=rpm)


def test_a_draw_that_others_are_faster_than_is_tried_until_it_is_granted(
    stage: Stage, limiter: SyncRateLimiter
) -> None:
    drained_to(stage, limiter, 40)
    asking = stage.client()
    store = stage.opened[-1]
    store.faster = others(stage, 9)
    with asking.acquire("key", "gpt", {"rpm": 38}):
        pass
    assert store.calls["TransactWriteItems"] == 10


@pytest.mark.parametrize("policy", ["block", "allow"])
def test_a_draw_that_others_are_faster_than_until_its_deadline_is_denied(
    stage: Stage, limiter: SyncRateLimiter, policy: str
) -> None:
    drained_to(stage, limiter, 40)
    asking = stage.client(deadline=3.0)
    asking.available("key", "gpt")
    store = stage.opened[-1]
    store.faster = others(stage, 1_000)
    with pytest.raises(RateLimitExceeded) as denied:
        asking.acquire("key", "gpt", {"rpm": 38}, on_unavailable=policy).__enter__()
    assert denied.value.retry_after_seconds == pytest.approx(0.1)
    assert store.calls["TransactWriteItems"] > 0
    assert levels(limiter)[1]["rpm"] == 24
    assert asking.repository.unresolved <= 1, (
        "the deadline may come while the last transaction is under way, not before"
    )


def test_what_several_shards_paid_comes_back_to_all_of_them(stage: Stage, limiter: SyncRateLimiter) -> None:
    with suppress(ZeroDivisionError), limiter.acquire("key", "gpt", {"rpm": 50, "tpm": 6_000}):
        raise ZeroDivisionError
    assert levels(limiter) == ({"rpm": 64, "tpm": 6_400}, {"rpm": 0, "tpm": 0})
    assert {item["b_rpm_tc"] for item in stage.items().values()} == {0}


def test_what_comes_back_to_a_full_shard_goes_to_those_with_room(stage: Stage, limiter: SyncRateLimiter) -> None:
    lease = limiter.acquire("key", "gpt", {"rpm": 10})
    lease.__enter__()
    stage.clock.advance(37.5)  # all of it is there again
    with limiter.acquire("key", "gpt", {"rpm": 40}):
        pass
    lease.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert levels(limiter) == ({"rpm": 34, "tpm": 6_400}, {"rpm": 40, "tpm": 0})


def test_a_lease_that_was_granted_before_the_split_is_settled_after_it(stage: Stage) -> None:
    limiter = stage.client()
    with suppress(ZeroDivisionError), limiter.acquire("late", "gpt", {"rpm": 60, "tpm": 6_000}):
        stage.split_once("late")
        stage.clock.advance(1.5)
        stage.split_once("late")
        assert len(stage.items("late")) == 4
        raise ZeroDivisionError
    assert levels(limiter, "late") == ({"rpm": 64, "tpm": 6_400}, {"rpm": 0, "tpm": 0})


def test_leases_settle_adjust_release_and_take_more_where_they_paid(stage: Stage, limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "gpt", {"rpm": 2, "tpm": 500}) as lease:
        lease.adjust(tpm=300)
        lease.consume(rpm=3)
        lease.release(rpm=1)
        lease.settle(tpm=950)
        assert lease.consumed == {"rpm": 4, "tpm": 950}
    assert levels(limiter) == ({"rpm": 60, "tpm": 5_450}, {"rpm": 4, "tpm": 950})
    with limiter.acquire("key", "gpt", {"rpm": 40}) as lease, pytest.raises(RateLimitExceeded):
        lease.consume(rpm=30)
    assert levels(limiter)[0]["rpm"] == 20


def test_debts_of_a_sharded_bucket_are_repaid(stage: Stage, limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "gpt", {"tpm": 100}) as lease:
        lease.adjust(tpm=7_000)
    assert levels(limiter)[0]["tpm"] == 6_400 - 7_100
    with pytest.raises(RateLimitExceeded):
        limiter.acquire("key", "gpt", {"tpm": 6_000}).__enter__()
    stage.clock.advance(300)
    assert levels(limiter)[0]["tpm"] == 6_400


def granted(stage: Stage, tries: int = 12) -> int:
    """How many of so many clients are granted something, if only that the bucket is not in debt."""
    grants = 0
    for _ in range(tries):
        with suppress(RateLimitExceeded), stage.client().acquire("key", "gpt", {"rpm": 1}):
            grants += 1
    return grants


def owed(stage: Stage) -> list[int]:
    """What each shard holds of tpm, by its stored numbers."""
    return [
        item["b_tpm_tk"]
        + share(stage.clock() * item["b_tpm_ra"] // item["b_tpm_rp"], shard, item["shard_count"])
        - share(item["rf"] * item["b_tpm_ra"] // item["b_tpm_rp"], shard, item["shard_count"])
        for shard, item in stage.items().items()
    ]


@pytest.mark.parametrize("also", [{}, {"rpm": -5}], ids=["debit", "debit and a credit that no longer fits"])
def test_a_debt_is_that_of_every_shard(stage: Stage, limiter: SyncRateLimiter, also: dict[str, int]) -> None:
    with limiter.acquire("key", "gpt", {"rpm": 10}) as lease:
        stage.clock.advance(60)  # rpm is full again
        lease.adjust(tpm=6_400 + 800, **also)
    assert levels(limiter)[0]["tpm"] == -800
    assert owed(stage) == [-200_000] * 4
    assert granted(stage) == 0
    stage.clock.advance(7.4)
    assert granted(stage) == 0
    stage.clock.advance(0.1)  # all of it has accrued
    assert granted(stage) == 12


def test_a_debt_that_others_came_before_is_that_of_every_shard(stage: Stage, limiter: SyncRateLimiter) -> None:
    """By what the client remembers its shard holds what is settled, but others have drawn it meanwhile."""
    other = stage.client()
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        for _ in range(2):
            with other.acquire("key", "gpt", {"tpm": 3_000}):
                pass
        lease.adjust(tpm=1_200)
    assert levels(limiter)[0]["tpm"] == -800
    assert owed(stage) == [-200_000] * 4
    assert granted(stage) == 0


def test_a_debt_of_a_limit_that_was_taken_away_is_that_of_every_shard(stage: Stage, limiter: SyncRateLimiter) -> None:
    """It has ended, for it was full. It may come back, and its debt with it."""
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        stage.client().set_system_defaults([RPM])
        assert not [item for item in stage.items().values() if "b_tpm_tk" in item]
        stage.clock.advance(1)
        lease.adjust(tpm=6_400 + 800)
    stage.client().set_system_defaults([RPM, TPM])
    assert levels(limiter)[0]["tpm"] == -800
    assert owed(stage) == [-200_000] * 4
    assert granted(stage) == 0


def test_a_debt_of_a_limit_that_arrives_meanwhile_is_that_of_every_shard(
    stage: Stage, limiter: SyncRateLimiter
) -> None:
    """The shards do not have it when the debt is computed, and have it by the time it is written."""

    def setter() -> Iterator[None]:
        stage.client().set_system_defaults([RPM, TPM])
        yield

    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        stage.client().set_system_defaults([RPM])
        stage.clock.advance(1)
        stage.opened[0].faster = setter()
        lease.adjust(tpm=6_400 + 800)
    assert next(stage.opened[0].faster, "over") == "over", "it was faster"
    assert levels(limiter)[0]["tpm"] == -800
    assert owed(stage) == [-200_000] * 4
    assert granted(stage) == 0


def test_what_comes_back_to_a_bucket_in_debt_comes_back_to_every_shard(stage: Stage, limiter: SyncRateLimiter) -> None:
    returning = limiter.acquire("key", "gpt", {"tpm": 1_000})
    returning.__enter__()
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        lease.adjust(tpm=5_400 + 1_600)
    assert owed(stage) == [-400_000] * 4
    returning.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert levels(limiter)[0]["tpm"] == -600
    assert owed(stage) == [-150_000] * 4
    assert granted(stage) == 0


def test_what_brings_a_bucket_out_of_debt_leaves_no_shard_in_it(stage: Stage, limiter: SyncRateLimiter) -> None:
    returning = limiter.acquire("key", "gpt", {"tpm": 1_000})
    returning.__enter__()
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        lease.adjust(tpm=5_400 + 400)
    returning.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert levels(limiter)[0]["tpm"] == 600
    assert min(owed(stage)) >= 0
    assert granted(stage) == 12


def test_a_debt_that_a_split_did_not_see_is_halved_all_the_same(stage: Stage) -> None:
    """Who splits has read a bucket that was just drained; until it writes, the bucket is in debt."""
    limiter = stage.client()
    with limiter.acquire("key", "gpt", {"tpm": 6_400}) as lease:
        store = stage.opened[0]
        driver = SyncDriver(machine_clock, store.perform)
        key = bucket_key(driver.run(store.space("default").namespace.ns()), "key", "gpt")
        until = driver.run(store.client.new_deadline())
        seen = driver.run(store.client.get(key, until))
        assert seen is not None
        lease.settle(tpm=6_400 + 800)
    assert driver.run(split(store.client, key, seen, stage.clock(), until))
    assert owed(stage) == [-400_000] * 2
    assert granted(stage) == 0


def test_reset_fills_every_shard(stage: Stage, limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "gpt", {"rpm": 64, "tpm": 6_400}):
        pass
    assert limiter.reset("key", "gpt") == 1
    assert levels(limiter)[0] == {"rpm": 64, "tpm": 6_400}
    with stage.client().acquire("key", "gpt", {"rpm": 64}):
        pass


@pytest.mark.parametrize(("most", "left"), [(6_400, 6_400), (6_399, 6_399), (101, 101), (0, 0), (-7, -7)])
def test_a_sharded_bucket_is_lowered_as_one(stage: Stage, limiter: SyncRateLimiter, most: int, left: int) -> None:
    limiter.lower("key", "gpt", {"tpm": most})
    assert levels(stage.client()) == ({"rpm": 64, "tpm": left}, {"rpm": 0, "tpm": 0})
    limiter.lower("key", "gpt", {"tpm": 6_400})
    assert levels(limiter)[0]["tpm"] == left
    stage.clock.advance(60)
    assert levels(limiter)[0]["tpm"] == min(left + 6_400, 6_400)


def test_shards_that_together_hold_no_more_are_left_alone(stage: Stage, limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "gpt", {"tpm": 1_600 + 400}):
        pass
    before = stage.items()
    limiter.lower("key", "gpt", {"tpm": 4_400})
    assert stage.items() == before


def test_deleting_an_entity_removes_every_shard(stage: Stage, limiter: SyncRateLimiter) -> None:
    limiter.create_entity("gone")
    stage.split_into(limiter, 4, "gone")
    limiter.delete_entity("gone")
    assert stage.items("gone") == {}
    with limiter.acquire("gone", "gpt", {"rpm": 64}):
        pass
    assert limiter.available("gone", "gpt")["rpm"] == 0


@pytest.mark.parametrize("level", ["entity", "entity_default", "resource", "system"])
def test_a_change_of_limits_reaches_every_shard(stage: Stage, limiter: SyncRateLimiter, level: str) -> None:
    other = stage.client()
    with other.acquire("key", "gpt", {"rpm": 4, "tpm": 100}):
        pass
    lowered = [Limit.per_minute("rpm", 32), Limit.per_minute("rph", 100)]
    if level == "system":
        limiter.set_system_defaults(lowered)
    elif level == "resource":
        limiter.set_resource_defaults("gpt", lowered)
    else:
        limiter.set_limits("key", lowered, resource="gpt" if level == "entity" else "_default_")
    items = stage.items()
    assert len({item["cv"] for item in items.values()}) == 1
    assert stage.shards_add_up(*lowered)
    assert limiter.available("key", "gpt") == {"rpm": 32, "rph": 100}, "a lowered burst clamps"
    with other.acquire("key", "gpt", {"rpm": 32, "rph": 1}):
        pass
    with pytest.raises(RateLimitExceeded):
        other.acquire("key", "gpt", {"rpm": 1}).__enter__()
    assert limiter.available("key", "gpt") == {"rpm": 0, "rph": 99}


@pytest.mark.parametrize("stranger", [False, True], ids=["known", "stranger"])
@pytest.mark.parametrize("why", ["limits given with a call", "raised without propagation"])
def test_a_shard_on_older_terms_does_not_refuse_for_ever(stage: Stage, why: str, stranger: bool) -> None:
    """Less accrues by its terms, and its ceiling is lower: the others can never make up for it."""
    small, large = Limit.per_minute("rpm", 13), Limit.per_minute("rpm", 30, burst=60)
    limiter = stage.client(config_cache_ttl=0.0)
    limiter.set_limits("key", [large if why.startswith("limits given") else small], resource="gpt")
    stage.split_into(limiter, 2)
    if why.startswith("limits given"):
        with limiter.acquire("key", "gpt", {"rpm": 1}, limits=[small]):
            pass
    else:
        limiter.set_limits("key", [large], resource="gpt", propagate=False)
        with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    stage.clock.advance(3_600)
    assert len({item["cv"] for item in stage.items().values()}) == 2, "one shard only has other terms"
    asking = stage.client() if stranger else limiter
    with pytest.raises(RateLimitExceeded) as denied:
        asking.acquire("key", "gpt", {"rpm": 60}).__enter__()
    assert denied.value.violations[0].available < 60, "a raised burst mints nothing"
    assert len({item["cv"] for item in stage.items().values()}) == 1
    stage.clock.advance(milliseconds=round((denied.value.retry_after_seconds or 0) * 1000) - 1)
    with pytest.raises(RateLimitExceeded):
        stage.client().acquire("key", "gpt", {"rpm": 60}).__enter__()
    stage.clock.advance(milliseconds=1)
    with stage.client().acquire("key", "gpt", {"rpm": 60}):
        pass


def test_capacity_adds_up_over_shards(stage: Stage, limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "gpt", {"rpm": 20}), limiter.acquire("other", "gpt", {"rpm": 4}):
        pass
    capacity = limiter.get_resource_capacity("gpt", "rpm")
    assert (capacity.total_capacity, capacity.total_available) == (128, 104)
    assert [(row.entity_id, row.available) for row in capacity.entities.items] == [("key", 44), ("other", 60)]


def test_throttled_shards_are_avoided(stage: Stage, limiter: SyncRateLimiter) -> None:
    store = stage.opened[0]
    store.hot = frozenset({1, 3})
    for _ in range(24):
        with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    items = stage.items()
    assert items[1]["b_rpm_tc"] == items[3]["b_rpm_tc"] == 0
    assert sum(item["b_rpm_tc"] for item in items.values()) == 24_000
    assert len(items) > 4, "throttles are pressure too"
    assert store.calls["throttled"] <= 8


def test_when_no_shard_takes_writes_the_draw_is_denied_and_soon_tried_again(
    stage: Stage, limiter: SyncRateLimiter
) -> None:
    store = stage.opened[0]
    store.hot = frozenset(range(64))
    with pytest.raises(RateLimitExceeded) as denied:
        limiter.acquire("key", "gpt", {"rpm": 1}).__enter__()
    assert 0 < (denied.value.retry_after_seconds or 0) < 1
    store.hot = frozenset()
    stage.clock.advance(2)
    with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert levels(limiter)[1]["rpm"] == 1


def test_no_report_shows_the_write_load(stage: Stage, limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "gpt", {"rpm": 60}) as lease:
        shown = {status.limit_name for status in lease.statuses}
    with pytest.raises(RateLimitExceeded) as denied:
        limiter.acquire("key", "gpt", {"rpm": 60}).__enter__()
    shown |= {status.limit_name for status in denied.value.statuses}
    shown |= set(limiter.available("key", "gpt"))
    shown |= {level.limit_name for bucket in limiter.get_status("key").buckets for level in bucket.limits}
    shown |= {limit.name for limit in limiter.repository.resolve_limits("key", "gpt")[0] or ()}
    assert shown == {"rpm", "tpm"}
    assert all("b_wcu_tk" in item for item in stage.items().values())


def test_no_limit_may_have_the_name_of_the_write_load(limiter: SyncRateLimiter) -> None:
    with pytest.raises(ValidationError):
        Limit.per_second("wcu", 10)
    with pytest.raises(ValidationError):
        limiter.acquire("key", "gpt", {"wcu": 1}).__enter__()
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease, pytest.raises(ValidationError):
        lease.adjust(wcu=1)
    with pytest.raises(ValidationError):
        limiter.get_resource_capacity("gpt", "wcu")


@pytest.mark.parametrize("options", [{"wcu": 0}, {"wcu": -1}, {"wcu": True}, {"wcu": 1.5}, {"coalesce": 1}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SyncRateLimiter.open("dynamodb://limits?region=us-east-1", **options)


def test_real_pressure_splits_and_less_does_not(stage: Stage) -> None:
    """Ten writes a second: what is asked within the first is more, what is asked over many seconds is not."""
    pressing = stage.client(wcu=10)
    for _ in range(11):
        with pressing.acquire("hot", "gpt", {"rpm": 1}):
            pass
    assert len(stage.items("hot")) == 2
    for _ in range(40):
        with pressing.acquire("warm", "gpt", {"rpm": 1}):
            stage.clock.advance(0.2)
    assert len(stage.items("warm")) == 1
