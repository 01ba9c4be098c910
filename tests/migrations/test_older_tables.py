"""Tables of older layouts: recognised by every client, and never taken for new ones."""

from __future__ import annotations

from typing import Any

import pytest
from old_tables import NOW, PATIENCE_S, OldTable, Was, composite, config, entity, separate_items

from zae_limiter import Limit, SyncRateLimiter, ValidationError, VersionError
from zae_limiter.stores.dynamodb.operations.namespaces import check_table, table_params

RPM = Limit.per_minute("rpm", 100)
WAS = {"rpm": Was(RPM, 40_000, 60_000, NOW - 5_000)}
OLD: dict[str, Any] = {
    "an item per limit": separate_items("key", "gpt", WAS)[0],
    "one item": composite("key", "gpt", WAS),
    "with a namespace in its keys": composite("key", "gpt", WAS, "a1b2c3/"),
    "an entity": entity("key"),
    "limits": config("SYSTEM#", "#CONFIG", RPM),
    "a version record of its time": {"PK": "SYSTEM#", "SK": "#VERSION", "schema_version": "0.6.0"},
}


@pytest.mark.parametrize("item", OLD.values(), ids=OLD)
def test_a_client_that_opens_an_older_table_is_told_to_migrate_it(table: OldTable, item: dict[str, Any]) -> None:
    table.put(item)
    with table.limiter() as limiter:
        for ask in (
            lambda: limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow").__enter__(),
            limiter.check,
            lambda: limiter.available("key", "gpt"),
            lambda: limiter.set_system_defaults([RPM]),
        ):
            with pytest.raises(
                VersionError, match=rf"older layout.*zae-limiter migrate --url dynamodb://{table.name}"
            ):
                ask()
    assert len(table.items()) == 1


@pytest.mark.parametrize("item", OLD.values(), ids=OLD)
def test_create_never_stamps_over_old_items(table: OldTable, item: dict[str, Any]) -> None:
    table.put(item)
    with pytest.raises(VersionError, match=r"zae-limiter migrate"):
        SyncRateLimiter.open(table.url, create=True, deadline=PATIENCE_S)
    assert len(table.items()) == 1


def test_an_empty_table_is_set_up(table: OldTable) -> None:
    with table.limiter() as limiter, pytest.raises(VersionError, match="not set up"):
        limiter.check()
    with SyncRateLimiter.open(table.url, create=True, deadline=PATIENCE_S) as limiter:
        limiter.check()


def test_the_index_that_a_table_lacks_is_named() -> None:
    description = table_params("limits")
    check_table("limits", description)
    three = {**description, "GlobalSecondaryIndexes": description["GlobalSecondaryIndexes"][:3]}
    with pytest.raises(VersionError, match=r"lacks the index GSI4 \(keys GSI4PK and GSI4SK, strings, KEYS_ONLY\)"):
        check_table("limits", three)


def test_speculative_writes_are_always_on() -> None:
    with pytest.raises(ValidationError, match="always"):
        SyncRateLimiter.open("memory://", speculative_writes=True)  # type: ignore[call-arg]
