"""The model's rules for one item: conditions, updates, what is refused, what is returned."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.expression_cases import CONDITIONS, HELD, SIZES, UPDATES
from simulation.model import Model, NotModelled
from simulation.model.values import value_size
from simulation.wrong_calls import WRONG_UPDATES
from zae_limiter.stores.dynamodb.operations.namespaces import table_params
from zae_limiter.stores.dynamodb.requests import CONDITION_FAILED, TABLE_NOT_FOUND, Refused
from zae_limiter.stores.dynamodb.schema import decode, encode, encode_item

TABLE = "limits"
KEY = {"PK": {"S": "p"}, "SK": {"S": "s"}}
INVALID = "ValidationException"


@pytest.fixture
def model() -> Model:
    model = Model()
    model.call("CreateTable", table_params(TABLE))
    return model


def put(model: Model, **attributes: Any) -> None:
    model.call("PutItem", {"TableName": TABLE, "Item": KEY | encode_item(attributes)})


def plain(item: Any) -> dict[str, Any]:
    """An item in Python's values, with numbers as large as DynamoDB takes them."""
    return {name: int(value["N"]) if "N" in value else decode(value) for name, value in item.items()}


def item_of(model: Model) -> dict[str, Any] | None:
    """The attributes of the item, without its key."""
    item = model.item(TABLE, "p", "s")
    if item is None:
        return None
    return {name: value for name, value in plain(item).items() if name not in KEY}


def update(
    model: Model,
    expression: str | None,
    condition: str | None = None,
    names: dict[str, str] | None = None,
    returning: str | None = None,
    on_failure: str | None = None,
    **values: Any,
) -> dict[str, Any]:
    params = {
        "TableName": TABLE,
        "Key": KEY,
        "UpdateExpression": expression,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {f":{name}": encode(value) for name, value in values.items()} or None,
        "ReturnValues": returning,
        "ReturnValuesOnConditionCheckFailure": on_failure,
    }
    return model.call("UpdateItem", {name: value for name, value in params.items() if value is not None})


# Conditions


@pytest.mark.parametrize(("condition", "literals", "holds"), CONDITIONS, ids=[case[0] for case in CONDITIONS])
def test_a_condition_holds_or_not(model: Model, condition: str, literals: dict[str, Any], holds: bool) -> None:
    put(model, **HELD)
    if holds:
        update(model, "SET done = yes", condition, **literals)
    else:
        with pytest.raises(Refused) as refusal:
            update(model, "SET done = yes", condition, **literals)
        assert refusal.value.by_condition
    assert ("done" in (item_of(model) or {})) is holds


def test_without_an_item_every_attribute_is_missing_even_its_key(model: Model) -> None:
    with pytest.raises(Refused):
        update(model, "SET n = :v", "attribute_exists(PK)", v=1)
    update(model, "SET n = :v", "attribute_not_exists(PK) AND n <> :v", v=1)
    assert item_of(model) == {"n": 1}


# Updates


@pytest.mark.parametrize(("before", "expression", "literals", "after"), UPDATES)
def test_an_update_does_what_it_says(
    model: Model, before: dict[str, Any] | None, expression: str | None, literals: dict[str, Any], after: Any
) -> None:
    if before is not None:
        put(model, **before)
    update(model, expression, **literals)
    assert item_of(model) == after


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("007", "7"), ("-0", "0"), ("1e3", "1000"), ("1.50", "1.5"), (".5", "0.5"), ("+4", "4"), ("12E-1", "1.2")],
)
def test_numbers_have_one_form(model: Model, sent: str, kept: str) -> None:
    params = {"TableName": TABLE, "Key": KEY, "UpdateExpression": "SET n = :v, m = if_not_exists(m, :w) + :v"}
    model.call("UpdateItem", params | {"ExpressionAttributeValues": {":v": {"N": sent}, ":w": {"N": "0"}}})
    item = model.item(TABLE, "p", "s")
    assert item is not None
    assert item["n"] == item["m"] == {"N": kept}


def test_names_go_through_placeholders(model: Model) -> None:
    put(model, ttl=1)
    update(model, "SET #a = :v, #b = #c", "#c = :w", {"#a": "a.b-c", "#b": "order", "#c": "ttl"}, v=2, w=1)
    assert item_of(model) == {"ttl": 1, "a.b-c": 2, "order": 1}


# Refusals

ANSWERED = {"two missing attributes not equal"}
FAILED = {"two missing attributes equal"}


@pytest.mark.parametrize("what", WRONG_UPDATES)
def test_a_wrong_update_is_refused_and_changes_nothing(model: Model, what: str) -> None:
    put(model, ev=1, cv="x")
    before = model.snapshot(TABLE)
    expression, condition, values = WRONG_UPDATES[what]
    params: dict[str, Any] = {"TableName": TABLE, "Key": KEY, "UpdateExpression": expression}
    params |= {} if condition is None else {"ConditionExpression": condition}
    params |= {} if values is None else {"ExpressionAttributeValues": values}
    if what in ANSWERED:
        model.call("UpdateItem", params)
        return
    with pytest.raises(Refused) as refusal:
        model.call("UpdateItem", params)
    assert refusal.value.code == (CONDITION_FAILED if what in FAILED else INVALID)
    assert model.snapshot(TABLE) == before


def test_the_condition_is_judged_before_the_update_fails(model: Model) -> None:
    put(model, n=1)
    with pytest.raises(Refused) as refusal:
        update(model, "SET m = gone", "n = :v", v=2)
    assert refusal.value.by_condition


def test_an_expression_has_a_size(model: Model) -> None:
    long = " AND ".join(["attribute_exists(attribute_that_is_long)"] * 100)
    with pytest.raises(Refused, match="maximum allowed size"):
        update(model, "SET n = :v", long, v=1)
    with pytest.raises(Refused, match="too many operators"):
        update(model, "SET n = :v", " OR ".join(["n = :v"] * 200), v=1)


@pytest.mark.parametrize(("value", "size"), SIZES)
def test_a_value_has_a_size(value: dict[str, Any], size: int) -> None:
    assert value_size(value) == size


def test_a_sum_has_no_more_digits_than_a_number(model: Model) -> None:
    put(model, n=10**38 - 1)
    with pytest.raises(Refused, match="38 significant digits"):
        update(model, "ADD n :v", v=10**37)


def test_an_item_has_a_size(model: Model) -> None:
    with pytest.raises(Refused, match="size"):
        put(model, t="x" * 410_000)
    put(model, t="x" * 300_000)
    with pytest.raises(Refused, match="size"):
        update(model, "SET u = :v", v="x" * 200_000)


def test_a_table_that_is_not_there(model: Model) -> None:
    with pytest.raises(Refused) as refusal:
        model.call("GetItem", {"TableName": "none", "Key": KEY})
    assert refusal.value.code == TABLE_NOT_FOUND


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("ListTables", {}),
        ("UpdateItem", {"TableName": TABLE, "Key": KEY, "AttributeUpdates": {}}),
        ("UpdateItem", {"TableName": TABLE, "Key": KEY, "UpdateExpression": "REMOVE a.b"}),
        ("UpdateItem", {"TableName": TABLE, "Key": KEY, "UpdateExpression": "REMOVE a[0]"}),
        ("PutItem", {"TableName": TABLE, "Item": KEY | {"s": {"SS": ["a"]}}}),
    ],
)
def test_what_the_model_does_not_know_it_does_not_guess(model: Model, operation: str, params: dict[str, Any]) -> None:
    with pytest.raises(NotModelled):
        model.call(operation, params)


# Answers


@pytest.mark.parametrize(
    ("wanted", "attributes"),
    [
        (None, None),
        ("NONE", None),
        ("ALL_OLD", {"a": 1, "b": 2}),
        ("ALL_NEW", {"a": 5, "b": 2, "c": 5}),
        ("UPDATED_OLD", {"a": 1}),
        ("UPDATED_NEW", {"a": 5, "c": 5}),
    ],
)
def test_an_update_returns_what_is_asked(model: Model, wanted: str | None, attributes: dict[str, int] | None) -> None:
    put(model, a=1, b=2)
    reply = update(model, "SET a = :v, c = :v", returning=wanted, v=5)
    if attributes is None:
        assert "Attributes" not in reply
    else:
        found = {name: value for name, value in plain(reply["Attributes"]).items() if name not in KEY}
        assert found == attributes


def test_there_are_no_old_values_of_no_item(model: Model) -> None:
    assert "Attributes" not in update(model, "SET a = :v", returning="ALL_OLD", v=1)
    params = {"TableName": TABLE, "Key": {"PK": {"S": "q"}, "SK": {"S": "s"}}, "ReturnValues": "ALL_OLD"}
    assert model.call("DeleteItem", params) == {}


@pytest.mark.parametrize("wanted", ["ALL_OLD", "NONE", None])
def test_a_failed_condition_brings_the_item_if_asked(model: Model, wanted: str | None) -> None:
    put(model, n=1)
    with pytest.raises(Refused) as refusal:
        update(model, "SET n = :v", "n = :v", on_failure=wanted, v=2)
    assert refusal.value.item == (model.item(TABLE, "p", "s") if wanted == "ALL_OLD" else None)


def test_what_was_given_or_got_is_not_changed_by_later_calls(model: Model) -> None:
    item = KEY | encode_item({"n": 1})
    model.call("PutItem", {"TableName": TABLE, "Item": item})
    item["n"]["N"] = "9"
    before = model.snapshot(TABLE)
    reply = update(model, "ADD n :v", returning="ALL_OLD", v=1)
    assert plain(before["p", "s"])["n"] == plain(reply["Attributes"])["n"] == 1
    assert item_of(model) == {"n": 2}
