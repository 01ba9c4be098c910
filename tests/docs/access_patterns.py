"""Every way in which the library goes to its table, by the name that the page gives it.

They are done one after the other in a small world: an organisation with two keys that cascade to it, a third entity of
no family, limits on every level, four buckets on one resource, one hour of usage, and a client that knows them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from table_records import Client, Price, Table, per_minute

from zae_limiter import RateLimitExceeded

Pattern = Callable[[Table, Client], Any]

PATTERNS: dict[str, Pattern] = {}


def pattern(name: str) -> Callable[[Pattern], Pattern]:
    def named(function: Pattern) -> Pattern:
        PATTERNS[name] = function
        return function

    return named


def prices(table: Table) -> dict[str, Price]:
    """What each pattern takes."""
    client = prepared(table)
    found = {}
    for name, go in PATTERNS.items():
        table.clock.advance(2)
        client.calls.reset()
        go(table, client)
        found[name] = client.price()
    return found


def prepared(table: Table) -> Client:
    """The world, and the client that knows it."""
    client = table.first
    limiter = client.limiter
    limiter.set_system_defaults(per_minute("rpm", "tpm"))
    limiter.set_resource_defaults("gpt-4", per_minute("rpm", "tpm"))
    limiter.create_entity("org")
    limiter.set_limits("org", per_minute("rpm"))
    for entity_id in ("key-1", "key-2"):
        limiter.create_entity(entity_id, parent_id="org", cascade=True)
        limiter.set_limits(entity_id, per_minute("rpm", "tpm"), resource="gpt-4")
    for _ in range(2):
        for entity_id in ("key-1", "key-2", "alone"):
            take(client, entity_id)
    table.aggregate()
    return client


def take(client: Client, entity_id: str, rpm: int = 1) -> None:
    with client.limiter.acquire(entity_id, "gpt-4", {"rpm": rpm}):
        pass


# Acquires


@pattern("acquire: granted")
def _(table: Table, client: Client) -> None:
    take(client, "alone")


@pattern("acquire: granted, with an ancestor")
def _(table: Table, client: Client) -> None:
    take(client, "key-1")


@pattern("acquire: granted, then settled")
def _(table: Table, client: Client) -> None:
    with client.limiter.acquire("alone", "gpt-4", {"rpm": 1, "tpm": 5}) as lease:
        lease.settle(tpm=7)


@pattern("acquire: denied again, by the same client")
def _(table: Table, client: Client) -> None:
    take(client, "key-2", rpm=60)
    for _ in range(2):
        client.calls.reset()
        with pytest.raises(RateLimitExceeded):
            take(client, "key-2", rpm=60)


@pattern("denials by one bucket that no other write took along")
def _(table: Table, client: Client) -> None:
    another = table.client()
    take(another, "key-1")
    with pytest.raises(RateLimitExceeded):
        take(another, "key-1", rpm=101)
    another.calls.reset()
    another.repository.close()
    client.calls.costs += another.calls.costs


@pattern("acquire: the first of a client")
def _(table: Table, client: Client) -> None:
    another = table.client()
    take(another, "alone")
    client.calls.costs += another.calls.costs


@pattern("acquire: the first of a bucket")
def _(table: Table, client: Client) -> None:
    take(client, "new")


# Reads


@pattern("`available`, `time_until_available`, `check`")
def _(table: Table, client: Client) -> None:
    client.limiter.check("alone", "gpt-4", {"rpm": 1})


@pattern("`get_status` of an entity on one resource")
def _(table: Table, client: Client) -> None:
    client.limiter.get_status("alone", "gpt-4")


@pattern("`get_status` of an entity")
def _(table: Table, client: Client) -> None:
    client.limiter.get_status("alone")


@pattern("`get_resource_capacity`, five buckets")
def _(table: Table, client: Client) -> None:
    client.limiter.get_resource_capacity("gpt-4", "rpm")


@pattern("`get_tightest_buckets`, five buckets")
def _(table: Table, client: Client) -> None:
    client.limiter.get_tightest_buckets()


@pattern("`list_active_entities`")
def _(table: Table, client: Client) -> None:
    client.limiter.list_active_entities()


# Entities


@pattern("`get_entity`")
def _(table: Table, client: Client) -> None:
    client.limiter.get_entity("org")


@pattern("`get_children`, two of them")
def _(table: Table, client: Client) -> None:
    client.limiter.get_children("org")


@pattern("`list_entities`, three of them")
def _(table: Table, client: Client) -> None:
    client.limiter.list_entities()


@pattern("`create_entity`")
def _(table: Table, client: Client) -> None:
    client.limiter.create_entity("another")


@pattern("`create_entity` with a parent")
def _(table: Table, client: Client) -> None:
    client.limiter.create_entity("key-3", parent_id="org")


@pattern("`update_entity`: name or metadata")
def _(table: Table, client: Client) -> None:
    client.limiter.update_entity("org", name="Organisation")


# Config


@pattern("`get_limits`")
def _(table: Table, client: Client) -> None:
    client.limiter.get_limits("key-1", resource="gpt-4")


@pattern("`resolve_limits`, nothing cached")
def _(table: Table, client: Client) -> None:
    client.repository.invalidate_config_cache()
    client.calls.reset()
    client.repository.resolve_limits("alone", "gpt-4")


@pattern("`set_limits` for one resource that has a bucket")
def _(table: Table, client: Client) -> None:
    client.limiter.set_limits("alone", per_minute("rpm", rate=90), resource="gpt-4")


@pattern("`set_resource_defaults` without `propagate`")
def _(table: Table, client: Client) -> None:
    client.limiter.set_resource_defaults("gpt-4", per_minute("rpm", rate=90), propagate=False)


@pattern("`set_access` of an entity on one resource that has a bucket")
def _(table: Table, client: Client) -> None:
    client.limiter.set_access("observe", entity_id="alone", resource="gpt-4")


@pattern("`set_access` of a resource or of the system")
def _(table: Table, client: Client) -> None:
    client.limiter.set_access("observe", resource="other")


@pattern("`list_entities_with_custom_limits`, three of them")
def _(table: Table, client: Client) -> None:
    client.limiter.list_entities_with_custom_limits("gpt-4")


# Reports and the registry


@pattern("`get_audit_events` of an entity, three")
def _(table: Table, client: Client) -> None:
    client.limiter.get_audit_events("org")


@pattern("`get_audit_events` of all, fifteen")
def _(table: Table, client: Client) -> None:
    client.limiter.get_audit_events()


@pattern("`get_usage_snapshots` of an entity on one resource")
def _(table: Table, client: Client) -> None:
    client.limiter.get_usage_snapshots("alone", "gpt-4")


@pattern("`get_usage_snapshots` of a resource, four entities")
def _(table: Table, client: Client) -> None:
    client.limiter.get_usage_snapshots(resource="gpt-4")


@pattern("`list_namespaces`")
def _(table: Table, client: Client) -> None:
    client.repository.list_namespaces()


# Pulses


@pattern("`write_pulse`, of one kilobyte")
def _(table: Table, client: Client) -> None:
    telling = table.client(pulse=True)
    take(telling, "alone")
    telling.calls.reset()
    telling.limiter.write_pulse()
    client.calls.costs[:] = telling.calls.costs


@pattern("`get_pulse`, of two processes")
def _(table: Table, client: Client) -> None:
    telling = table.client(pulse=True)
    take(telling, "alone")
    telling.limiter.write_pulse()
    client.limiter.get_pulse()


# Operators


@pattern("`reset` of one bucket")
def _(table: Table, client: Client) -> None:
    client.limiter.reset("alone", "gpt-4")


@pattern("`lower` of one bucket")
def _(table: Table, client: Client) -> None:
    client.limiter.lower("alone", "gpt-4", {"rpm": 0})


@pattern("a bucket is split")
def _(table: Table, client: Client) -> None:
    pressing = table.client(wcu=2)
    take(pressing, "hot")
    while "TransactWriteItems" not in pressing.calls.operations:
        pressing.calls.reset()
        take(pressing, "hot")
    client.calls.costs += [cost for cost in pressing.calls.costs if cost.operation == "TransactWriteItems"]


@pattern("the aggregator counts a bucket, first in its hour")
def _(table: Table, client: Client) -> None:
    _counted_after(table, client, hours=1)


@pattern("the aggregator counts a bucket")
def _(table: Table, client: Client) -> None:
    _counted_after(table, client)


def _counted_after(table: Table, client: Client, hours: int = 0) -> None:
    table.aggregate()
    table.clock.advance(hours * 3_600)
    take(client, "alone")
    client.calls.reset()
    table.aggregate()
    client.calls.costs = [cost for cost in client.calls.costs if cost.operation == "UpdateItem"]
