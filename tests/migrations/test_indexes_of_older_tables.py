"""A table as the first designs made it: three indexes, two of which hold everything. Migrating makes the fourth, and
replaces the wide ones on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from old_tables import NOW, PATIENCE_S, OldTable, Was, composite, config, entity, old_table, usage

from engines.servers import Engine
from zae_limiter import Limit, SyncRateLimiter, VersionError
from zae_limiter.migrations import migrate, migrate_store
from zae_limiter.migrations.table_indexes import creation
from zae_limiter.stores.dynamodb.operations.namespaces import table_params
from zae_limiter.stores.dynamodb.requests import Call, Refused
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_minute("tpm", 10_000)
AUDIT = {"PK": "AUDIT#user-1", "SK": "#AUDIT#2024-01-01T14:00:00Z", "action": "limits_set", "entity_id": "user-1"}


def first_design(name: str) -> dict[str, Any]:
    """CreateTable as of then: ``GSI1`` and ``GSI2`` project everything, ``GSI3`` its keys; there is no ``GSI4``."""
    params = table_params(name)
    indexes = params["GlobalSecondaryIndexes"][:3]
    for index in indexes[:2]:
        index["Projection"] = {"ProjectionType": "ALL"}
    attributes = [one for one in params["AttributeDefinitions"] if not one["AttributeName"].startswith("GSI4")]
    return {**params, "GlobalSecondaryIndexes": indexes, "AttributeDefinitions": attributes}


@pytest.fixture
def first(engine: Engine) -> Iterator[OldTable]:
    with old_table(engine, first_design) as table:
        table.put(
            {"PK": "SYSTEM#", "SK": "#VERSION", "schema_version": "0.8.0"},
            entity("org"),
            entity("user-1", "org"),
            composite(
                "user-1", "gpt-4", {"tpm": Was(TPM, 9_500_000, 500_000, NOW), "rpm": Was(RPM, 95_000, 5_000, NOW)}
            ),
            config("SYSTEM#", "#CONFIG", RPM, TPM),
            config("RESOURCE#gpt-4", "#CONFIG", RPM, TPM, resource="gpt-4"),
            config("ENTITY#user-1", "#CONFIG#gpt-4", RPM, TPM, resource="gpt-4", entity_id="user-1"),
            usage("user-1", "gpt-4", "hourly", "2026-12-01T14:00:00Z", tpm=5_000, total_events=10),
            AUDIT,
        )
        yield table


def projections(table: OldTable) -> dict[str, str]:
    description = table.ask("DescribeTable", {"TableName": table.name})["Table"]
    return {one["IndexName"]: one["Projection"]["ProjectionType"] for one in description["GlobalSecondaryIndexes"]}


def run(table: OldTable, **how: Any) -> Any:
    return migrate(table.url, clock=lambda: NOW, **how)


def test_the_missing_index_is_made_and_everything_comes_along(first: OldTable) -> None:
    report = run(first)
    assert (report.indexes.added, report.indexes.replaced) == (("GSI4",), ())
    assert report.indexes.wide == ("GSI1", "GSI2")
    assert report.after_layout == 3
    assert projections(first) == {"GSI1": "ALL", "GSI2": "ALL", "GSI3": "KEYS_ONLY", "GSI4": "KEYS_ONLY"}
    with first.limiter() as limiter:
        limiter.check()
        assert limiter.available("user-1", "gpt-4") == {"rpm": 95, "tpm": 9_500}
        assert [child.id for child in limiter.get_children("org").items] == ["user-1"]
        assert [one.id for one in limiter.list_entities().items] == ["org", "user-1"]
        assert limiter.list_entities_with_custom_limits("gpt-4").items == ["user-1"]


def test_wide_indexes_are_replaced_on_request(first: OldTable) -> None:
    report = run(first, replace_indexes=True)
    assert (report.indexes.added, report.indexes.replaced, report.indexes.wide) == (("GSI4",), ("GSI1", "GSI2"), ())
    assert set(projections(first).values()) == {"KEYS_ONLY"}
    with first.limiter() as limiter:
        assert [child.id for child in limiter.get_children("org").items] == ["user-1"]
        assert [one.entity_id for one in limiter.get_resource_capacity("gpt-4", "rpm").entities.items] == ["user-1"]


def test_a_migrated_table_may_be_given_narrow_indexes_later(first: OldTable) -> None:
    run(first)
    report = run(first, replace_indexes=True)
    assert (report.done, report.indexes.replaced) == ((), ("GSI1", "GSI2"))
    assert set(projections(first).values()) == {"KEYS_ONLY"}


def test_a_replacement_that_was_cut_short_is_continued(first: OldTable) -> None:
    drop = {"TableName": first.name, "GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "GSI2"}}]}
    first.ask("UpdateTable", drop)
    assert run(first).indexes.added == ("GSI2", "GSI4")
    assert projections(first)["GSI2"] == "KEYS_ONLY"


def test_a_dry_run_names_both_and_changes_nothing(first: OldTable) -> None:
    before = projections(first)
    report = run(first, dry_run=True, replace_indexes=True)
    assert (report.indexes.missing, report.indexes.wide) == (("GSI4",), ("GSI1", "GSI2"))
    assert projections(first) == before


def test_create_says_to_migrate_it(first: OldTable) -> None:
    with pytest.raises(
        VersionError, match=rf"lacks the index GSI4.*zae-limiter migrate --url dynamodb://{first.name}"
    ):
        SyncRateLimiter.open(first.url, create=True, deadline=PATIENCE_S)


def test_where_no_index_can_be_added_the_change_to_make_is_named(first: OldTable, engine: Engine) -> None:
    store = DynamoStore(first.name, Target(engine.region, engine.endpoint_url), deadline=PATIENCE_S)
    perform = store.perform

    def refusing(request: Any) -> Any:
        if isinstance(request, Call) and request.operation == "UpdateTable":
            raise Refused("AccessDeniedException", "not you")
        return perform(request)

    store.perform = refusing  # type: ignore[method-assign]
    try:
        with pytest.raises(
            VersionError, match=r"GSI4.*not you.*aws dynamodb update-table --cli-input-json '\{"
        ) as told:
            migrate_store(store, clock=lambda: NOW)
    finally:
        store.close()
    assert f'"TableName": "{first.name}"' in str(told.value)
    assert '"KEYS_ONLY"' in str(told.value)
    assert len(first.items()) == 9


def test_an_index_of_a_table_with_bought_capacity_gets_as_much() -> None:
    bought = {"ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 7, "NumberOfDecreasesToday": 0}}
    (update,) = creation("GSI4", bought)["GlobalSecondaryIndexUpdates"]
    assert update["Create"]["ProvisionedThroughput"] == {"ReadCapacityUnits": 5, "WriteCapacityUnits": 7}
    on_demand = {**bought, "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"}}
    (update,) = creation("GSI4", on_demand)["GlobalSecondaryIndexUpdates"]
    assert "ProvisionedThroughput" not in update["Create"]


@pytest.mark.parametrize("prefix", ["", "ns/"])
def test_audit_events_of_then_stay_as_they_are(first: OldTable, prefix: str) -> None:
    first.put(old := {**AUDIT, "PK": f"{prefix}AUDIT#org"})
    report = run(first)
    assert [first.items()[one["PK"], one["SK"]] for one in (AUDIT, old)] == [AUDIT, old]
    assert report.done[-1].before.there["old audit events"] == report.done[-1].after.there["old audit events"] == 2


def test_audit_events_of_then_are_no_obstacle_to_those_of_today(first: OldTable) -> None:
    run(first)
    first.put({**AUDIT, "PK": f"{first.ns()}/AUDIT#user-1"})
    with first.limiter() as limiter:
        limiter.set_limits("user-1", [RPM], resource="gpt-5")
        (event,) = limiter.get_audit_events("user-1").items
        assert event.resource == "gpt-5"
