"""Load, outages and clocks: load denies and never opens the gate, an outage asks the policy, a denial holds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from support.dynamodb.draw_scenarios import denial_after_a_change, drain, hierarchy, warm
from support.dynamodb.scripted_plans import Ended, Fate, Script
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, Client, ModelStore, Table
from zae_limiter import ConfigurationError, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.bucket import MILLI, calculate_due
from zae_limiter.running.clocks import machine_clock, machine_timer
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.circuit_breaker import FAILURES_TO_OPEN
from zae_limiter.stores.dynamodb.bucket_cache import LONGEST_DENIAL_MS, SHORTEST_DENIAL_MS
from zae_limiter.stores.dynamodb.requests import (
    READ_MACHINE_TIME,
    TRANSACTION_CANCELED,
    Call,
    NoAnswer,
    Reason,
    Refused,
)

ALWAYS = range(300)


class Answered(Script):
    """Some calls always get the same answer."""

    def __init__(self, table: Table, operation: str, failure: Callable[[], Refused | NoAnswer]) -> None:
        super().__init__(table)
        self.operation = operation
        self.failure = failure

    def _fulfil(self, call: Call, number: int, fate: Fate | None) -> Any:
        if call.operation == self.operation and self.table.timer < call.give_up_at and "BUCKET#" in repr(call):
            self.table.timer += 3
            return self.failure()
        return super()._fulfil(call, number, fate)


def throttled(reason: str) -> Callable[[], Refused]:
    return lambda: Refused(TRANSACTION_CANCELED, reasons=[Reason(None), Reason(reason)])


def acquire(script: Script, client: Client, **options: Any) -> tuple[Ended, bool]:
    """How an acquire ended, and whether its caller was let through uncounted."""
    lease = client.lease(on_unavailable="allow", **options)
    ended = script.run(lease._begin())
    return ended, lease.degraded


# Load


def test_a_bucket_whose_writes_are_throttled_denies() -> None:
    table = hierarchy(2)
    ended, degraded = acquire(Script(table, dict.fromkeys(ALWAYS, Fate.THROTTLED)), warm(table))
    assert isinstance(ended.error, RateLimitExceeded)
    assert ended.error.retry_after_seconds
    assert not degraded


def test_a_bucket_whose_reads_are_throttled_denies() -> None:
    table = hierarchy(1)
    script = Answered(table, "GetItem", lambda: Refused("ProvisionedThroughputExceededException"))
    script.meanwhile = {1: lambda: table.model.leave_unprocessed(1)}
    ended, degraded = acquire(script, table.client())
    assert not degraded
    assert isinstance(ended.error, RateLimitExceeded)


@pytest.mark.parametrize("reason", ["ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_bucket_that_is_throttled_in_a_transaction_denies(reason: str) -> None:
    table = hierarchy(2)
    table.remove_bucket("key")
    ended, degraded = acquire(Answered(table, "TransactWriteItems", throttled(reason)), table.client())
    assert not degraded
    assert isinstance(ended.error, RateLimitExceeded)


class Unread(Script):
    """Of every batch of buckets one is left unread: what BatchGetItem does with a throttled key."""

    def _fulfil(self, call: Call, number: int, fate: Fate | None) -> Any:
        if call.operation == "BatchGetItem" and "BUCKET#" in repr(call):
            self.table.model.leave_unprocessed(1)
        return super()._fulfil(call, number, fate)


def test_a_bucket_that_is_left_unread_denies() -> None:
    table = hierarchy(2)
    ended, degraded = acquire(Unread(table), table.client())
    assert not degraded
    assert isinstance(ended.error, RateLimitExceeded)


def test_a_bucket_that_is_left_unread_until_an_answer_is_missing_denies() -> None:
    """The deadline comes while the last reading of many is on its way."""
    table, twin = hierarchy(2), hierarchy(2)
    usual = acquire(Unread(twin), twin.client())[0].operations
    assert usual[-3:] == ["BatchGetItem"] * 3
    ended, degraded = acquire(Unread(table, silent_from=len(usual) - 1), table.client())
    assert not degraded
    assert isinstance(ended.error, RateLimitExceeded)


def test_a_throttle_that_passes_is_waited_out() -> None:
    table = hierarchy(2)
    ended, degraded = acquire(Script(table, {0: Fate.THROTTLED, 1: Fate.THROTTLED}), warm(table))
    assert ended.error is None
    assert not degraded


# Outages


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNSENT, Fate.FORBIDDEN])
@pytest.mark.parametrize("height", [1, 2])
def test_the_policy_decides_on_any_step_of_an_acquire(height: int, fate: Fate, place: int) -> None:
    for policy in ("allow", "block"):
        table = hierarchy(height)
        table.remove_bucket("key")
        client = table.client()
        client.limiter._core.health.has_answered = True
        lease = client.lease(on_unavailable=policy)
        ended = Script(table, dict.fromkeys(range(place, 1_500), fate)).run(lease._begin())
        if len(ended.calls) <= place or (ended.error is None and not lease.degraded):
            return  # the last step is a second look, which may fail
        assert lease.degraded is (policy == "allow")
        if policy == "block":
            assert isinstance(ended.error, RateLimiterUnavailable)
            assert ended.error.__cause__ is not None


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("height", [1, 2])
def test_until_dynamodb_has_answered_an_acquire_a_refusal_is_raised_whatever_the_policy(
    height: int, place: int
) -> None:
    """At any step: what a client may read does not show that it may write."""
    for policy in ("allow", "block"):
        table = hierarchy(height)
        client = table.client()
        lease = client.lease(on_unavailable=policy)
        ended = Script(table, dict.fromkeys(range(place, 1_500), Fate.FORBIDDEN)).run(lease._begin())
        assert isinstance(ended.error, ConfigurationError)
        assert "permission" in str(ended.error)
        assert not lease.degraded


def test_the_stored_policy_is_remembered() -> None:
    table = hierarchy(1)
    table.operator.limiter.set_system_defaults(LIMITS, on_unavailable="allow")
    client = warm(table)
    lease = client.lease()
    Script(table, silent_from=0).run(lease._begin())
    assert lease.degraded
    table.operator.limiter.set_system_defaults(LIMITS, on_unavailable="block")
    client.take("key", {"rpd": 1})
    assert isinstance(Script(table, silent_from=0).run(client.lease()._begin()).error, RateLimiterUnavailable)


@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST, Fate.FORBIDDEN])
def test_a_known_denial_stays_one_when_the_other_legs_cannot_be_read(fate: Fate) -> None:
    table = hierarchy(2)
    client = warm(table)
    table.spoil("key", "b_rpd_tk", {"N": "0"})
    assert not client.takes()
    table.now += LONGEST_DENIAL_MS
    ended, degraded = acquire(Script(table, dict.fromkeys(range(1, 300), fate)), client)
    assert ended.operations[:2] == ["UpdateItem", "GetItem"]
    assert not degraded
    assert isinstance(ended.error, RateLimitExceeded)


@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST, Fate.THROTTLED, Fate.FORBIDDEN])
def test_a_known_denial_stays_one_when_new_terms_cannot_be_written(fate: Fate) -> None:
    case = denial_after_a_change(1)
    ended, degraded = acquire(Script(case.table, dict.fromkeys(range(2, 300), fate)), case.client)
    assert ended.operations[:3] == ["BatchGetItem", "UpdateItem", "UpdateItem"]
    assert not degraded
    assert isinstance(ended.error, RateLimitExceeded)


def test_a_settlement_outlives_a_short_silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    table = hierarchy(1)
    store = ModelStore(table)
    transport: Any = store._calls._transport
    limiter = SyncRateLimiter(SyncRepository(store, clock=lambda: table.now))
    before = table.counters("key")["tpd"]

    def be_silent(operation: str) -> None:
        raise NoAnswer("a blip")

    with limiter.acquire("key", RESOURCE, {"tpd": 1}) as lease:
        lease.adjust(tpd=99)
        transport.before = be_silent
        for _ in range(FAILURES_TO_OPEN):
            with pytest.raises(NoAnswer):
                store.perform(Call("GetItem", {}, 2**50))
        transport.before = lambda operation: None
    assert table.counters("key")["tpd"] == before + 100 * MILLI


# Denials


def drained(*, corrected: bool = False) -> tuple[Table, Client]:
    table = hierarchy(1)
    client = table.client(corrected=corrected)
    client.take("key", {"rpd": 1})
    drain(table, "key")
    assert not client.takes("key", {"rpd": 5})
    return table, client


def calls_of(table: Table, client: Client, **wanted: int) -> int:
    return len(Script(table).run(client.lease("key", wanted)._begin()).calls)


def test_the_same_denial_again_costs_nothing_for_a_while() -> None:
    table, client = drained()
    assert calls_of(table, client, rpd=5) == 0
    assert calls_of(table, client, rpd=6) == 0
    assert calls_of(table, client, rpd=4) == 1
    table.now += LONGEST_DENIAL_MS
    assert calls_of(table, client, rpd=5) == 1


def test_a_denial_is_not_believed_longer_than_its_wait() -> None:
    table, client = drained()
    snapshot = table.snapshot("key")
    assert snapshot is not None
    due = calculate_due(snapshot.balances["rpd"], 5 * MILLI)
    table.now = due - 1
    assert not client.takes("key", {"rpd": 5})
    table.now = due
    assert client.takes("key", {"rpd": 5})


def test_what_this_client_gives_back_can_be_taken_at_once() -> None:
    table = hierarchy(1)
    client = table.client()
    lease = client.take("key", {"rpd": 50})
    assert not client.takes("key", {"rpd": 20})
    client.run(lease._end(True), to_the_end=True)
    assert client.takes("key", {"rpd": 20})


@pytest.mark.parametrize("others", ["give back", "fill", "raise"])
def test_what_others_bring_is_seen_after_five_seconds_at_most(others: str) -> None:
    table, client = drained()
    other = table.client()
    if others == "give back":
        lease = other.take("key", {})
        lease._grant[1]["rpd"] = 20  # type: ignore[index]
        other.run(lease._end(True), to_the_end=True)
    elif others == "fill":
        other.limiter.reset("key")
    else:
        other.limiter.set_system_defaults([limit.__class__(limit.name, 300, 300, 86_400) for limit in LIMITS])
        other.limiter.reset("key")
    table.now += LONGEST_DENIAL_MS
    assert client.takes("key", {"rpd": 5})


def test_a_clock_that_steps_back_does_not_keep_a_denial_alive() -> None:
    table, client = drained()
    table.now -= 3_600_000
    table.client().limiter.reset("key")
    table.now += LONGEST_DENIAL_MS
    assert table.client().takes("key", {"rpd": 5})
    assert client.takes("key", {"rpd": 5})


def test_a_denial_lasts_a_quarter_of_a_second_at_least() -> None:
    assert SHORTEST_DENIAL_MS == 250


# Clocks


def ahead(table: Table, milliseconds: int) -> None:
    """A client whose clock is ahead writes to the bucket."""
    table.now += milliseconds
    table.client().take("key", {"tpd": 1})
    table.now -= milliseconds


def test_a_client_follows_the_fastest_clock_it_meets_but_not_beyond_four_seconds() -> None:
    table, client = drained(corrected=True)
    corrected = client.space.cache.corrected
    assert corrected(table.now) == table.now
    ahead(table, 2_000)
    client.limiter.available("key", RESOURCE)
    assert corrected(table.now) == table.now + 2_000
    ahead(table, 60_000)
    client.limiter.available("key", RESOURCE)
    assert corrected(table.now) == table.now + 4_000
    later = table.now + 1_000_000
    assert corrected(later) == later + 3_000, "a millisecond less every second"


def test_a_client_that_is_always_granted_follows_the_fastest_clock_too() -> None:
    table, client = drained(corrected=True)
    ahead(table, 2_000)
    client.take("key", {"tpd": 1})
    assert client.space.cache.corrected(table.now) == table.now + 2_000


def test_a_clock_of_the_caller_is_not_corrected() -> None:
    table, client = drained(corrected=False)
    ahead(table, 2_000)
    client.limiter.available("key", RESOURCE)
    assert client.space.cache.corrected(table.now) == table.now


def test_a_namespace_that_is_opened_later_knows_how_wrong_the_clock_is() -> None:
    table = hierarchy(1)
    store = ModelStore(table)
    store._clock.hear(10_000, machine_clock(), machine_timer())
    for namespace in ("default", "another"):
        space = store.space(namespace, corrected=True)
        until = space.namespace.client.deadline_from(store.attempt(READ_MACHINE_TIME))
        assert SyncDriver(machine_clock, store.perform).run(space.namespace.checked_time(table.now, until))[0] == (
            table.now + 10_000
        )


def test_expiry_goes_by_the_corrected_clock_of_the_machine() -> None:
    """A machine that is hours late would let buckets expire hours too early."""
    store = ModelStore(hierarchy(1))
    before = store.attempt(READ_MACHINE_TIME).epoch_s
    store._clock.hear(3 * 3_600_000, machine_clock(), machine_timer())
    assert store.attempt(READ_MACHINE_TIME).epoch_s - before >= 3 * 3_600


# Expiry


def expires(table: Table) -> int:
    """How many seconds after being full again the bucket may expire."""
    snapshot, item = table.snapshot("key"), table.item("key")
    assert snapshot is not None
    full = max(calculate_due(balance, balance.bx) for balance in snapshot.balances.values())
    return int(item["ttl"]["N"]) - -(-full // 1000)


@pytest.mark.parametrize("adjusted", [0, 5_000, -40])
def test_a_bucket_does_not_expire_before_it_is_full(adjusted: int) -> None:
    table = hierarchy(1)
    client = table.client()
    lease = client.take("key", {"tpd": 50})
    client.adjust(lease, tpd=adjusted)
    client.run(lease._end(False), to_the_end=True)
    assert expires(table) >= 3_500
    if adjusted <= 0:
        client.take("key", {"rpd": 1})
        assert expires(table) >= 3_500


def test_a_bucket_whose_baseline_is_ahead_does_not_expire_before_it_is_full() -> None:
    table = hierarchy(1)
    table.spoil("key", "rf", {"N": str(table.now + 3 * 3_600_000)})
    client = table.client()
    client.take("key", {"rpd": table.levels("key")["rpd"] // MILLI})
    assert expires(table) >= 0
