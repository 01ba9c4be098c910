"""Namespaces that are deleted, purged and registered again while clients are at work."""

from __future__ import annotations

import pytest

from support.dynamodb.draw_scenarios import hierarchy, warm
from support.dynamodb.scripted_plans import Script, answer, go_on, steps
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, Table
from zae_limiter import NamespaceNotFoundError
from zae_limiter.stores.dynamodb.requests import Call


def delete(table: Table) -> None:
    table.operator.run(table.operator.store.delete_namespace("default", None, table.now))


def recover(table: Table) -> None:
    table.operator.run(table.operator.store.recover_namespace("default", None, table.now))


def register_again(table: Table) -> str:
    """Delete, purge, register: the same name, another namespace. Its id."""
    delete(table)
    run, store = table.operator.run, table.operator.store
    run(store.purge_namespace("default"))
    ns: str = run(store.register_namespace("default", None, table.now)).id
    table.operator.limiter.set_system_defaults(LIMITS)
    return ns


def indexed_under(table: Table) -> set[tuple[str, str]]:
    """For every bucket: the namespace it is in, and the one its index entries are in."""
    return {
        (item["PK"]["S"].partition("/")[0], item[index]["S"].partition("/")[0])
        for item in table.buckets()
        for index in ("GSI2PK", "GSI3PK", "GSI4PK")
    }


def test_a_warm_client_of_a_deleted_namespace_is_refused_and_takes_nothing() -> None:
    table = hierarchy(2)
    client = warm(table)
    before = table.counters("key"), table.counters("team")
    delete(table)
    for _ in range(2):
        with pytest.raises(NamespaceNotFoundError):
            client.take()
    recover(table)
    assert (table.counters("key"), table.counters("team")) == before
    client.take()


def test_a_lease_of_a_deleted_namespace_is_settled_where_it_took() -> None:
    table = hierarchy(2)
    client = table.client()
    before = table.counters("key")
    lease = client.take()
    delete(table)
    client.run(lease._end(True), to_the_end=True)
    assert table.counters("key") == before


def test_a_warm_client_goes_on_in_the_namespace_that_got_the_name() -> None:
    table = hierarchy(1)
    client = warm(table)
    ns = register_again(table)
    client.take("key", {"rpd": 1})
    assert [item["PK"]["S"] for item in table.buckets()] == [f"{ns}/BUCKET#key#{RESOURCE}#0"]
    assert indexed_under(table) == {(ns, ns)}


def test_a_lease_of_a_purged_namespace_leaves_nothing_in_the_one_that_got_its_name() -> None:
    table = hierarchy(1)
    client = table.client()
    lease = client.take()
    client.adjust(lease, tpd=70)
    register_again(table)
    Script(table).run(lease._end(False), to_the_end=True)
    assert all(home == index for home, index in indexed_under(table))
    assert not table.operator.limiter.get_status("key").buckets


def test_a_bucket_created_while_another_task_finds_the_namespace_deleted_has_its_indexes() -> None:
    table = hierarchy(1)
    table.remove_bucket("key")
    client = table.client()
    plan = steps(client.lease()._begin(), table)
    request = go_on(plan)
    while isinstance(request, Call) and request.operation != "PutItem":
        if request.operation == "GetItem" and client.space.namespace.known_ns is not None:
            client.space.namespace.forget_everything()  # what a task does that finds it deleted
        request = go_on(plan, answer(table, request)[0])
    assert isinstance(request, Call)
    answer(table, request)
    assert indexed_under(table) == {(table.ns, table.ns)}


def test_a_namespace_deleted_while_a_bucket_is_created_takes_nothing() -> None:
    table = hierarchy(1)
    table.remove_bucket("key")
    client = table.client()
    script = Script(table, meanwhile={3: lambda: delete(table)})
    ended = script.run(client.lease()._begin())
    assert isinstance(ended.error, NamespaceNotFoundError)
    assert set(script.effects.values()) == {0}


def test_what_was_taken_is_given_back_though_another_task_finds_the_namespace_deleted() -> None:
    table = hierarchy(2)
    client = warm(table)
    other = table.client()
    other.take("team", {"rpd": table.levels("team")["rpd"] // 1000 - 1})

    def found_deleted() -> None:
        delete(table)
        client.space.namespace.forget_everything()

    script = Script(table, meanwhile={1: found_deleted})
    script.run(client.lease()._begin())
    assert set(script.effects.values()) <= {0}
