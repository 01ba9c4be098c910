"""Hosts whose clocks are wrong by hours: nothing is written by them, and what was written all the same is mended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.dynamodb.draw_scenarios import drain, hierarchy
from support.dynamodb.hosts import DAY_MS, Host
from support.dynamodb.scripted_plans import EVERY_FATE, Fate, Script
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, Client, Table
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.bucket import FURTHEST_AHEAD_MS, MILLI
from zae_limiter.stores.dynamodb.batches import batch_of
from zae_limiter.stores.dynamodb.bucket_cache import newest
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite
from zae_limiter.stores.dynamodb.operations.shard_life import split_first
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.operator_changes import Reset
from zae_limiter.stores.protocol import Draw, Leg, Posting, Scope

OFF = (DAY_MS, -DAY_MS, 365 * DAY_MS)
ONE = {"rpd": 1}


def drawn(host: Host) -> None:
    host.take("key", ONE)


def settled(host: Host) -> None:
    """A process that has done nothing else, as one that takes over what another has begun."""
    leg = host.table.operator.run(host.table.operator.space.draw(Draw("key", RESOURCE, ONE), host.table.now)).legs[0]
    host.run(host.space.settle([Posting(leg, {"rpd": 1_000_000})], host.wall()))


def created(host: Host) -> None:
    host.table.remove_bucket("key")
    drawn(host)


def reset(host: Host) -> None:
    host.run(host.space.reset(Reset("key", RESOURCE), host.wall()))


def configured(host: Host) -> None:
    scope = Scope("key", RESOURCE)
    host.run(host.space.set_config(scope, (Limit.per_day("rpd", 70),), None, None, True, host.wall()))


def moved(host: Host) -> None:
    host.limiter.update_entity("key", cascade=True)


VERBS = (drawn, settled, created, reset, configured, moved)


def check_times(table: Table) -> None:
    """Nothing was written ahead of the true time, and nothing expires before it is full."""
    for item in table.buckets():
        snapshot = snapshot_of(item)
        assert abs(newest(snapshot) - table.now) <= 2_000 or newest(snapshot) < table.now
        assert int(item["ttl"]["N"]) > table.now // 1000


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("verb", VERBS)
def test_the_first_write_of_a_process_goes_by_the_time_of_the_replies(verb: Callable[[Host], None], off: int) -> None:
    table = hierarchy(1)
    verb(Host(table, off))
    check_times(table)
    assert table.client().takes("key", ONE) is (verb is not settled)


@pytest.mark.parametrize("off", [0, DAY_MS])
def test_no_call_is_spent_on_that(off: int) -> None:
    table = hierarchy(1)
    usual = Script(table).run(table.client(corrected=True).lease("key", ONE)._begin()).operations
    host = Host(table, off)
    assert host.calls(host.lease("key", ONE)._begin()) == usual
    assert host.calls(host.lease("key", ONE)._begin()) == ["UpdateItem"]


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("dated", [True, False])
def test_a_clock_that_is_set_later_is_checked_before_the_next_write(off: int, dated: bool) -> None:
    """``dated``: the reply that is asked for is of another second than the last one, so its date says something."""
    table = hierarchy(1)
    host = Host(table)
    host.take("key", ONE)
    host.off, host.is_dated = off, dated
    assert host.calls(host.lease("key", ONE)._begin()) == ["GetItem", "UpdateItem"]
    check_times(table)
    host.is_dated = True
    host.take("key", ONE)
    assert host.calls(host.lease("key", ONE)._begin()) == ["UpdateItem"]
    check_times(table)


def test_a_machine_that_slept_does_not_write_as_if_it_still_were_the_day_before() -> None:
    table = hierarchy(1)
    host = Host(table)
    host.take("key", ONE)
    table.now += DAY_MS  # and its timer stood still
    host.take("key", ONE)
    check_times(table)
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert newest(snapshot) == table.now


def test_a_clock_of_the_caller_is_not_corrected_but_expiry_is_the_machines() -> None:
    table = hierarchy(1)
    host = Host(table, -DAY_MS, corrected=False)
    host.table.remove_bucket("key")
    host.take("key", ONE)
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.rf == host.wall()
    assert int(table.item("key")["ttl"]["N"]) > table.now // 1000


# What was written all the same, by a clock that is the caller's


def written_ahead(table: Table, milliseconds: int = DAY_MS, **options: object) -> None:
    """A client whose clock is ahead takes one token: it finds a full bucket."""
    table.now += milliseconds
    table.client().take("key", ONE, **options)
    table.now -= milliseconds


def known(table: Table) -> Client:
    client = table.client()
    client.take("key", ONE)
    return client


def level(table: Table, name: str = "rpd") -> int:
    return table.levels("key")[name]


@pytest.mark.parametrize("ahead", [FURTHEST_AHEAD_MS + 1, DAY_MS, 365 * DAY_MS])
@pytest.mark.parametrize("who", ["a client that knows the bucket", "a stranger"])
def test_every_client_is_granted_at_once(ahead: int, who: str) -> None:
    table = hierarchy(1)
    client = known(table) if who != "a stranger" else table.client()
    written_ahead(table, ahead)
    assert client.takes("key", ONE)
    assert client.takes("key", ONE), "what the first has seen is mended by the next, if it was not before"
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert newest(snapshot) == table.now


def test_it_goes_on_with_what_the_wrong_clock_left_and_not_more() -> None:
    table = hierarchy(1)
    drain(table, "key")
    written_ahead(table)
    client = table.client()
    client.take("key", ONE)
    assert level(table) == 98 * MILLI, "full a day later, less one, and one now"
    assert not client.takes("key", {"rpd": 99})
    table.now += 864_000  # a hundredth of a day
    assert level(table) == 99 * MILLI


def test_a_bucket_that_is_drained_ahead_is_denied_with_a_wait_that_comes_true() -> None:
    table = hierarchy(1)
    table.now += DAY_MS
    table.client().take("key", {"rpd": 100})
    table.now -= DAY_MS
    client = table.client()
    with pytest.raises(RateLimitExceeded) as denied:
        client.take("key", ONE)
    wait = round((denied.value.retry_after_seconds or 0) * 1000)
    assert 863_000 <= wait <= 864_000, "what a token takes, and not a day"
    table.now += wait - 1
    assert not table.client().takes("key", ONE)
    table.now += 1
    assert client.takes("key", ONE)


def test_looking_shows_what_the_next_draw_finds_and_writes_nothing() -> None:
    table = hierarchy(1)
    written_ahead(table)
    before = table.item("key")
    client = table.client()
    assert client.limiter.available("key", RESOURCE) == {"rpd": 99, "tpd": 1_000}
    (bucket,) = client.limiter.get_status("key").buckets
    assert {one.limit_name: one.available for one in bucket.limits} == {"rpd": 99, "tpd": 1_000}
    assert client.limiter.get_resource_capacity(RESOURCE, "rpd").total_available == 99
    assert table.item("key") is before
    client.take("key", {"rpd": 99})


@pytest.mark.parametrize("leases", [1, 5])
def test_settlements_do_not_wash_the_traces_away(leases: int) -> None:
    table = hierarchy(1)
    client = known(table)
    grants = [client.take("key", ONE) for _ in range(leases)]
    written_ahead(table, 365 * DAY_MS)
    for lease in grants:
        client.run(lease._end(True), to_the_end=True)
    assert table.client().takes("key", ONE)


def test_a_change_of_limits_brings_the_bucket_back_too() -> None:
    table = hierarchy(1)
    table.now += DAY_MS
    ahead = table.client()
    ahead.limiter.set_limits("key", [Limit.per_day("rpd", 50)], resource=RESOURCE)
    table.now -= DAY_MS
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.rf > table.now
    table.operator.limiter.set_limits("key", [Limit.per_day("rpd", 60)], resource=RESOURCE)
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.rf <= table.now + 1
    assert level(table) == 50 * MILLI
    assert table.client().takes("key", {"rpd": 50})


def test_ancestors_are_brought_back() -> None:
    table = hierarchy(3)
    written_ahead(table)
    assert table.client().takes("key", {"rpd": 50})


def test_shards_are_brought_back_before_they_pay_and_before_they_are_split() -> None:
    table = hierarchy(1)
    client = known(table)
    key = bucket_key(table.ns, "key", RESOURCE)
    until = client.run(client.space.namespace.client.new_deadline())
    assert client.run(split_first(client.space.namespace.client, key, table.now, until))
    table.now += 5_000
    written_ahead(table)
    written_ahead(table)
    assert (
        not client.run(split_first(client.space.namespace.client, key, table.now, until))
        or newest(snapshot_of(table.item("key"))) <= table.now
    )
    stranger = table.client()
    assert stranger.takes("key", {"rpd": 90})


@pytest.mark.parametrize(
    ("settled", "wanted", "granted"),
    [
        ({"tpd": 501 * MILLI}, {"rpd": 1 * MILLI}, False),  # more than half of the limit, which is what it holds
        ({"tpd": 500 * MILLI}, {"rpd": 1 * MILLI}, True),
        ({"rpd": 30 * MILLI}, {"rpd": 21 * MILLI}, False),
        ({"rpd": -10 * MILLI}, {"rpd": 59 * MILLI}, True),
        ({"rpd": -10 * MILLI}, {"rpd": 60 * MILLI}, False),
    ],
)
def test_on_a_shard_that_is_ahead_what_is_settled_is_booked_before_the_draws_of_the_same_write(
    settled: dict[str, int], wanted: dict[str, int], granted: bool
) -> None:
    """And always: what it does not hold is no debt of the other shards."""
    table = hierarchy(1)
    table.now += DAY_MS
    client = known(table)
    until = client.run(client.space.namespace.client.new_deadline())
    key = bucket_key(table.ns, "key", RESOURCE)
    assert client.run(split_first(client.space.namespace.client, key, table.now, until))
    table.now -= DAY_MS
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.shards == 2
    leg = Leg("key", RESOURCE, LIMITS, "system")
    settlement, draw = BucketWrite(key, leg, settled), BucketWrite(key, leg, wanted, grants=1)
    draw.needed = wanted
    batch = batch_of(snapshot, [draw, settlement], table.now, {})
    assert list(batch.writes) == ([settlement, draw] if granted else [settlement])
    params = client.space.writer.params(key, snapshot, batch.intent, table.now, "0.test", until)
    params.returns_new = True
    table.call("UpdateItem", params)
    after = table.snapshot("key")
    assert after is not None
    booked = {name: after.balances[name].tc - snapshot.balances[name].tc for name in ("rpd", "tpd")}
    assert booked == {name: settled.get(name, 0) + wanted.get(name, 0) * granted for name in ("rpd", "tpd")}


def test_two_clients_that_bring_it_back_at_once_bring_it_back_once() -> None:
    table = hierarchy(1)
    drain(table, "key")
    written_ahead(table)
    one, other = table.client(), table.client()
    lease = one.lease("key", ONE)
    ended = Script(table, meanwhile={3: lambda: other.take("key", ONE)}).run(lease._begin())
    assert ended.error is None
    assert level(table) == 97 * MILLI


@pytest.mark.parametrize("request_number", range(1, 7))
def test_a_clock_that_is_still_further_ahead_and_writes_in_between_is_not_overlooked(request_number: int) -> None:
    table = hierarchy(1)
    later = known(table)
    written_ahead(table)

    def from_two_days_ahead() -> None:
        table.now += 2 * DAY_MS
        later.take("key", ONE)
        table.now -= 2 * DAY_MS

    Script(table, meanwhile={request_number: from_two_days_ahead}).run(table.client().lease("key", ONE)._begin())
    table.now += FURTHEST_AHEAD_MS
    assert table.client().takes("key", {"rpd": 90})


def returning(table: Table) -> int:
    """The number of the call by which a stranger's acquire brings the bucket back."""
    twin = table.copy()
    calls = Script(twin).run(twin.client().lease("key", ONE)._begin()).calls
    return next(number for number, call in enumerate(calls) if "!" in repr(call))


def test_it_goes_on_from_the_moment_of_the_try_that_is_done() -> None:
    """With the time of an earlier try it could go on from a baseline that it has had, and others wrote for."""
    table = hierarchy(1)
    ahead = known(table)
    written_ahead(table)

    def refused_a_second_long() -> None:
        table.now += DAY_MS
        ahead.take("key", ONE)
        table.now += 1_000 - DAY_MS

    ended = Script(table, meanwhile={returning(table): refused_a_second_long}).run(
        table.client().lease("key", ONE)._begin()
    )
    assert ended.error is None
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.rf == table.now


def test_what_was_brought_back_to_a_baseline_that_it_has_had_is_not_brought_back_again() -> None:
    """A client that was late saw the same baseline before and after, and between them another one."""
    table = hierarchy(1)
    client, other = known(table), table.client()
    written_ahead(table)
    client.take("key", ONE)  # which brings it back
    written_ahead(table)
    snapshot = table.snapshot("key")
    assert snapshot is not None
    baseline, moment = snapshot.rf, table.now

    def moved_there_and_back() -> None:
        table.now += DAY_MS
        table.operator.limiter.set_limits("key", [Limit.per_day("rpd", 100)], resource=RESOURCE)
        table.now = baseline
        other.take("key", {"rpd": 50})
        table.now = moment

    Script(table, meanwhile={returning(table): moved_there_and_back}).run(table.client().lease("key", ONE)._begin())
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.rf == baseline
    assert level(table) <= 50 * MILLI


def test_two_callers_of_one_process_do_not_bring_it_back_twice_within_a_minute() -> None:
    table = hierarchy(1)
    client = table.client()
    ahead = known(table)
    written_ahead(table)

    def another_caller_was_faster() -> None:
        assert client.takes("key", {"rpd": 50})
        table.now += DAY_MS
        ahead.take("key", ONE)
        table.now -= DAY_MS

    ended = Script(table, meanwhile={returning(table): another_caller_was_faster}).run(
        client.lease("key", ONE)._begin()
    )
    assert isinstance(ended.error, RateLimitExceeded)


@pytest.mark.parametrize("fate", EVERY_FATE)
def test_whatever_becomes_of_the_write_that_brings_it_back_it_mints_once(fate: Fate) -> None:
    usual = hierarchy(1)
    written_ahead(usual)
    calls = Script(usual).run(usual.client().lease("key", ONE)._begin()).operations
    for number, operation in enumerate(calls):
        if operation != "UpdateItem":
            continue
        table = hierarchy(1)
        drain(table, "key")
        written_ahead(table)
        client = table.client()
        ended = Script(table, {number: fate}).run(client.lease("key", ONE)._begin())
        assert not isinstance(ended.error, RateLimitExceeded)
        assert table.client().takes("key", ONE)
        assert 94 * MILLI <= level(table) <= 98 * MILLI


def test_clocks_that_never_agree_get_one_burst_a_minute_and_not_one_per_draw() -> None:
    """A client whose own clock is a day late believes that all others are ahead."""
    table = hierarchy(1)
    late, right = table.client(), table.client()
    granted = 0
    for _ in range(10):
        table.now -= DAY_MS
        late.takes("key", ONE)
        table.now += DAY_MS
        granted += sum(right.takes("key", {"rpd": 10}) for _ in range(20))
        table.now += 1_000
    assert granted <= 2 * 10, "the burst there was, and one that was brought back"


def test_the_wait_that_is_told_while_a_bucket_may_not_be_brought_back_again_is_a_minute_at_most() -> None:
    table = hierarchy(1)
    client = table.client()
    written_ahead(table)
    client.take("key", ONE)
    written_ahead(table, 2 * DAY_MS)
    with pytest.raises(RateLimitExceeded) as denied:
        client.take("key", ONE)
    wait = denied.value.retry_after_seconds
    assert wait is not None
    assert wait <= FURTHEST_AHEAD_MS / 1000
    table.now += round(wait * 1000)
    assert client.takes("key", ONE)


def test_write_ids_that_are_a_little_ahead_change_nothing() -> None:
    table = hierarchy(1)
    written_ahead(table, FURTHEST_AHEAD_MS)
    before = table.snapshot("key")
    assert before is not None
    client = table.client()
    client.takes("key", {"rpd": 1})
    after = table.snapshot("key")
    assert after is not None
    assert after.rf == before.rf
