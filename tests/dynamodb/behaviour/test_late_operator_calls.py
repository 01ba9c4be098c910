"""What an operator asked for is done once: a request that arrives late, or twice, finds another life and does nothing.

For every write of a deletion, a reset, a change of limits or of a namespace: its answer is lost, the verb goes on and
returns, the entity is in use again, and then the request arrives (or arrives for the second time).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulation.mutations import a_deletion_ignores_what_was_written_since
from support.dynamodb.scripted_plans import Ended, Script, answer, arrives, go_on, run_hearing, steps
from support.dynamodb.scripted_tables import RESOURCE, Client, Table
from support.dynamodb.sharded_tables import pass_time, split_into
from zae_limiter import Limit
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.config_versions import FENCE
from zae_limiter.stores.dynamodb.items import key_of
from zae_limiter.stores.dynamodb.operations import shard_life
from zae_limiter.stores.dynamodb.operations.shard_life import split_first
from zae_limiter.stores.dynamodb.requests import TRANSACTION_CONFLICT, Call, NoAnswer, Refused, Together
from zae_limiter.stores.dynamodb.schema import bucket_key, shard_of
from zae_limiter.stores.operator_changes import Reset
from zae_limiter.stores.protocol import Scope

DAY = (Limit.per_day("rpd", 10),)
RAISED = (Limit.per_day("rpd", 11),)
WRITES = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems")

Act = Callable[[Client, Table], Plan[Any]]

ACTS: dict[str, Act] = {
    "delete_entity": lambda client, table: client.space.delete_entity("key", None, table.now),
    "reset": lambda client, table: client.space.reset(Reset("key"), table.now),
    "reset of one": lambda client, table: client.space.reset(Reset("key", RESOURCE), table.now),
    "set_config": lambda client, table: client.space.set_config(Scope(), DAY, None, None, True, table.now),
    "delete_config": lambda client, table: client.space.delete_config(Scope("key", RESOURCE), None, True, table.now),
}


def used_up(*, shards: int = 1) -> Table:
    """A table on which one entity has taken all of its ten."""
    table = Table()
    client = table.operator
    client.run(client.space.set_config(Scope(), DAY, None, None, True, table.now))
    client.run(client.space.set_config(Scope("key", RESOURCE), DAY, None, None, True, table.now))
    assert drain(table) == 10
    if shards > 1:
        split_into(table, client, shards)
    pass_time(table)
    return table


def drain(table: Table) -> int:
    """How many a client gets that remembers nothing."""
    client = table.client()
    for taken in range(100):
        if not client.takes("key", {"rpd": 1}):
            return taken
    raise AssertionError("there is no end to it")


def run_but(plan: Plan[Any], table: Table, number: int, *, twice: bool) -> tuple[Ended, Call | None]:
    """Run a plan of which the ``number``-th write is not answered (``twice``: it is). How it ended, and that write."""
    writes: list[Call] = []

    def hear(call: Call) -> NoAnswer | None:
        if call.operation not in WRITES:
            return None
        writes.append(call)
        return NoAnswer("lost") if len(writes) == number + 1 and not twice else None

    ended = run_hearing(plan, table, hear)
    return ended, writes[number] if number < len(writes) else None


@pytest.mark.parametrize("twice", [False, True], ids=["late", "twice"])
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_arrives_late_mints_nothing(act: Act, shards: int, twice: bool) -> None:
    for number in range(100):
        table = used_up(shards=shards)
        ended, late = run_but(act(table.client(), table), table, number, twice=twice)
        assert ended.error is None
        if late is None:
            assert number > 1, "there was nothing to hold back"
            return
        drain(table)
        pass_time(table)
        assert drain(table) == 0
        arrives(table, late)
        assert drain(table) == 0, f"{number}: {late}"
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("twice", [False, True], ids=["late", "twice"])
@pytest.mark.parametrize("shards", [1, 4])
def test_a_lowering_that_arrives_late_takes_no_more_than_it_said(shards: int, twice: bool) -> None:
    for number in range(100):
        table = used_up(shards=shards)
        operator = table.operator
        operator.run(operator.space.reset(Reset("key"), table.now))
        plan = table.client().space.lower("key", RESOURCE, {"rpd": 4}, None, table.now)
        ended, late = run_but(plan, table, number, twice=twice)
        assert ended.error is None
        if late is None:
            assert number == shards
            return
        arrives(table, late)
        assert drain(table) == 4
    raise AssertionError("there is no end to it")


def test_a_deletion_that_arrives_late_finds_the_entity_that_was_made_again() -> None:
    table = used_up()
    ended, late = run_but(ACTS["delete_entity"](table.client(), table), table, 2, twice=False)
    assert ended.error is None
    assert late is not None
    assert late.operation == "DeleteItem"
    operator = table.operator
    operator.run(operator.space.set_config(Scope("key", RESOURCE), DAY, None, None, True, table.now))
    assert drain(table) == 10
    before = table.item("key")
    arrives(table, late)
    assert table.item("key") == before


def test_a_deletion_that_was_given_up_does_not_arrive_once_the_bucket_is_in_use_again() -> None:
    table = used_up()
    kept: list[Call] = []

    def hear(call: Call) -> NoAnswer | None:
        if call.operation != "DeleteItem":
            return None
        kept.append(call)
        table.timer += 10_000
        return NoAnswer("lost")

    ended = run_hearing(ACTS["delete_entity"](table.client(), table), table, hear)
    assert isinstance(ended.error, RateLimiterUnavailable)
    assert drain(table) == 0, "a client that meets the fence goes on with what is there"
    arrives(table, kept[0])
    assert drain(table) == 0


# Resets


def test_a_reset_that_was_done_is_not_done_again_however_many_wrote_since() -> None:
    table = used_up()
    lost: list[Call] = []

    def hear(call: Call) -> NoAnswer | None:
        if call.operation != "UpdateItem" or lost:
            return None
        lost.append(call)
        arrives(table, call)
        assert drain(table) == 10, "a bucket remembers four recent writers, these were ten"
        return NoAnswer("lost")

    ended = run_hearing(ACTS["reset of one"](table.client(), table), table, hear)
    assert lost
    assert ended.error is None
    assert drain(table) == 0


@pytest.mark.parametrize("failure", [NoAnswer("lost"), Refused(TRANSACTION_CONFLICT)], ids=["lost", "a conflict"])
def test_a_reset_of_which_nothing_is_known_any_more_says_so(failure: NoAnswer | Refused) -> None:
    """Others have moved the baseline since, and written more often than a bucket remembers.

    Its answer was lost; or one copy of the request met a conflict, and another copy, which the network made, did not.
    """
    table = used_up()
    operator = table.operator
    lost: list[Call] = []

    def hear(call: Call) -> NoAnswer | Refused | None:
        if call.operation != "UpdateItem" or lost:
            return None
        lost.append(call)
        arrives(table, call)
        pass_time(table, 5)
        operator.run(operator.space.set_config(Scope("key", RESOURCE), RAISED, None, None, True, table.now))
        assert drain(table) == 10
        return failure

    ended = run_hearing(ACTS["reset of one"](table.client(), table), table, hear)
    assert isinstance(ended.error, RateLimiterUnavailable)
    assert ended.error.ambiguous
    assert drain(table) == 0


# Deletions and splits


def split_it(table: Table) -> None:
    """A client draws, so that no fence holds it up, and splits the bucket."""
    client = table.client()
    client.takes("key", {"rpd": 1})
    until = client.run(client.store.client.new_deadline())
    first = bucket_key(table.ns, "key", RESOURCE)
    client.run(split_first(client.store.client, first, table.now, until))


def test_without_its_last_write_a_deletion_would_leave_shards_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    a_deletion_ignores_what_was_written_since(monkeypatch)
    with pytest.raises(AssertionError, match=r"\[1\]|\[0, 1\]"):
        test_a_split_at_any_moment_of_a_deletion_leaves_nothing_behind(1)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_split_at_any_moment_of_a_deletion_leaves_nothing_behind(shards: int) -> None:
    for number in range(200):
        table = used_up(shards=shards)
        pass_time(table)
        script = Script(table, meanwhile={number: lambda table=table: split_it(table)})  # type: ignore[misc]
        ended = script.run(ACTS["delete_entity"](table.client(), table))
        assert ended.error is None
        left = sorted(shard_of(key_of(item)) for item in table.buckets())
        assert left in ([], [0]), left
        if number >= len(ended.calls):
            return
    raise AssertionError("there is no end to it")


def with_traffic(table: Table, client: Client, most: int) -> tuple[Ended, int]:
    """Delete the entity of a bucket that another client draws from after every call. How it ended, after how many."""
    busy = table.client()
    busy.take("key", {"rpd": 1})
    stepping = steps(ACTS["delete_entity"](client, table), table)
    request = go_on(stepping)
    for number in range(most):
        if isinstance(request, Ended):
            return request, number
        answers = answer(table, request)
        snapshot = table.snapshot("key")
        if snapshot is not None:
            cached = busy.space.cache.get(bucket_key(table.ns, "key", RESOURCE))
            if cached is not None and cached.snapshot.cv == snapshot.cv:
                busy.takes("key", {"rpd": 1})  # by what it remembers: a client that meets the fence has to read first
        request = go_on(stepping, answers if isinstance(request, Together) else answers[0])
    raise AssertionError("it was overtaken every time")


def test_a_busy_bucket_is_deleted_all_the_same() -> None:
    table = Table()
    many = (Limit.per_day("rpd", 1_000),)
    table.operator.run(table.operator.space.set_config(Scope(), many, None, None, True, table.now))
    ended, calls = with_traffic(table, table.client(), 40)
    assert ended.error is None
    assert calls < 15
    assert table.snapshot("key") is None


def test_without_the_fence_a_busy_bucket_would_not_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def seemingly_fenced(item: Any) -> BucketSnapshot:
        snapshot = snapshot_of(item)
        snapshot.cv = FENCE
        return snapshot

    monkeypatch.setattr(shard_life, "snapshot_of", seemingly_fenced)
    with pytest.raises(AssertionError):
        test_a_busy_bucket_is_deleted_all_the_same()


def test_a_bucket_that_no_index_shows_yet_goes_with_its_entity_if_it_has_limits_of_its_own() -> None:
    table = used_up()

    def hear(call: Call) -> Any:
        return {"Items": [], "Count": 0} if call.params.get("IndexName") else None

    ended = run_hearing(ACTS["delete_entity"](table.client(), table), table, hear)
    assert ended.error is None
    assert table.buckets() == []


# Namespaces


def given_up(plan: Plan[Any], table: Table, operation: str) -> Call:
    """Run a plan whose first such call is not answered before its deadline; the call."""
    kept: list[Call] = []

    def hear(call: Call) -> NoAnswer | None:
        if call.operation != operation:
            return None
        kept.append(call)
        table.timer += 10_000
        return NoAnswer("lost")

    assert isinstance(run_hearing(plan, table, hear).error, RateLimiterUnavailable)
    return kept[0]


def test_a_deletion_of_a_namespace_that_arrives_late_finds_it_recovered() -> None:
    table = used_up()
    store, run = table.operator.store, table.operator.run
    late = given_up(store.delete_namespace("default", None, table.now), table, "TransactWriteItems")
    run(store.delete_namespace("default", None, table.now))
    run(store.recover_namespace("default", None, table.now))
    arrives(table, late)
    assert run(store.get_namespace("default")).deleted_at is None
    assert drain(table) == 0


def test_a_purge_that_arrives_late_finds_another_deletion() -> None:
    table = used_up()
    store, run = table.operator.store, table.operator.run
    run(store.delete_namespace("default", None, table.now))
    late = given_up(store.purge_namespace("default"), table, "TransactWriteItems")
    run(store.recover_namespace("default", None, table.now))
    run(store.delete_namespace("default", None, table.now))
    arrives(table, late)
    assert run(store.recover_namespace("default", None, table.now)).deleted_at is None


@pytest.mark.parametrize("twice", [False, True], ids=["late", "twice"])
def test_nothing_of_a_purge_reaches_the_next_namespace_of_that_name(twice: bool) -> None:
    for number in range(20):
        table = used_up()
        store, run = table.operator.store, table.operator.run
        run(store.delete_namespace("default", None, table.now))
        ended, late = run_but(store.purge_namespace("default"), table, number, twice=twice)
        assert ended.error is None
        if late is None:
            assert number > 2
            return
        run(store.register_namespace("default", None, table.now))
        operator = table.client()
        operator.run(operator.space.set_config(Scope(), DAY, None, None, True, table.now))
        assert drain(table) == 10
        before = table.model.snapshot(table.NAME)
        arrives(table, late)
        assert table.model.snapshot(table.NAME) == before
        assert drain(table) == 0
    raise AssertionError("there is no end to it")
