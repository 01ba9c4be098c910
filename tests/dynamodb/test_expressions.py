"""How a write is told to DynamoDB: one shape for all that differ in their values, and expectations as conditions."""

from __future__ import annotations

import json

import pytest

from zae_limiter.stores.dynamodb.expressions import (
    ABSENT,
    NEW,
    PRESENT,
    Update,
    UpdateParams,
    check,
    delete,
    put,
    update,
)
from zae_limiter.stores.dynamodb.items import RECENT_WRITERS
from zae_limiter.stores.dynamodb.schema import Key

TABLE = 'a "table" of 100 %'
KEY = Key('ns/BUCKET#"é%d"#0', "#STATE")


def one_of_everything(number: int = 5, word: str = "v", flag: bool = True) -> Update:
    write = Update()
    write.demand("rf", "=", number)
    write.demand("tk", ">=", -number)
    write.demand_absent("gone")
    write.push_write_id(word, "anchor")
    write.demand_not_written("other")
    write.set("cv", word)
    write.set("cascade", flag)
    write.add("ev", number)
    write.copy("e_rpm", "b_rpm_tc")
    write.set_sum("b_tpm_tc", "e_tpm", number)
    write.remove("b_rpm_cp")
    return write


def test_what_is_sent_is_what_the_mapping_says() -> None:
    for asks_for_the_item in (False, True):
        params = one_of_everything(word='a "quoted" word of 10 %').params(TABLE, KEY)
        params.returns_new = asks_for_the_item
        assert json.loads(params.written()) == dict(params)
        assert ("ReturnValues" in params) == asks_for_the_item


def test_writes_of_one_shape_share_their_expressions() -> None:
    one, other = one_of_everything(), one_of_everything(number=7, word="w", flag=False)
    assert one.shape() is other.shape()
    assert one.params(TABLE, KEY)["ExpressionAttributeValues"] != other.params(TABLE, KEY)["ExpressionAttributeValues"]


def test_values_of_another_kind_are_another_shape() -> None:
    word, number = Update(), Update()
    word.set("cv", "1")
    number.set("cv", 1)
    assert word.shape() is not number.shape()
    assert number.params(TABLE, KEY)["ExpressionAttributeValues"] == {":0": {"N": "1"}}


def test_names_go_through_placeholders_and_each_has_one() -> None:
    write = Update()
    write.demand("tk", ">", 1)
    write.set("tk", 2)
    assert dict(write.params("t", Key("p", "s"))) == {
        "TableName": "t",
        "Key": {"PK": {"S": "p"}, "SK": {"S": "s"}},
        "UpdateExpression": "SET #0 = :1",
        "ConditionExpression": "#0 > :0",
        "ExpressionAttributeNames": {"#0": "tk"},
        "ExpressionAttributeValues": {":0": {"N": "1"}, ":1": {"N": "2"}},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_nothing_is_added_where_nothing_is_to_be_added() -> None:
    write = Update()
    write.set("cv", "1")
    write.add("ev", 0)
    assert "ADD" not in write.params(TABLE, KEY)["UpdateExpression"]


def test_a_write_id_moves_the_recent_writers_along_and_is_not_among_them() -> None:
    write = Update()
    write.push_write_id("mine", None)
    params = write.params(TABLE, KEY)
    w0, w1, w2, w3 = (f"#{place}" for place in range(len(RECENT_WRITERS)))
    assert params["UpdateExpression"] == f"SET {w1} = {w0}, {w2} = {w1}, {w3} = {w2}, {w0} = :0"
    assert params["ConditionExpression"] == " AND ".join(f"{place} <> :0" for place in (w0, w1, w2, w3))


def test_parameters_are_a_mapping_like_those_of_any_call() -> None:
    params = one_of_everything().params(TABLE, KEY)
    assert isinstance(params, UpdateParams)
    assert len(params) == len(list(params)) == len(dict(params))


# The writes of a transaction


def test_an_expectation_is_a_condition() -> None:
    condition = check("t", KEY, {"PK": PRESENT, "deleted_at": ABSENT, "version": 3})["ConditionCheck"]
    assert condition["ConditionExpression"] == (
        "attribute_exists(#PK) AND attribute_not_exists(#deleted_at) AND #version = :is_version"
    )
    assert condition["ExpressionAttributeValues"] == {":is_version": {"N": "3"}}


def test_what_is_expected_and_what_is_set_do_not_meet() -> None:
    write = update("t", KEY, {"version": 3}, sets={"version": 4, "name": None}, adds={"count": 2})["Update"]
    assert write["UpdateExpression"] == "SET #version = :new_version REMOVE #name ADD #count :add_count"
    assert write["ConditionExpression"] == "#version = :is_version"
    assert write["ExpressionAttributeValues"] == {
        ":is_version": {"N": "3"},
        ":new_version": {"N": "4"},
        ":add_count": {"N": "2"},
    }


def test_no_values_are_given_where_there_are_none() -> None:
    assert "ExpressionAttributeValues" not in update("t", KEY, NEW, sets={"name": None})["Update"]
    assert "ConditionExpression" not in delete("t", KEY, {})["Delete"]


@pytest.mark.parametrize("value", [None, "there"])
def test_what_is_put_leaves_out_what_is_not_there(value: str | None) -> None:
    item = put("t", KEY, {"name": value}, NEW)["Put"]["Item"]
    assert item.get("name") == (None if value is None else {"S": "there"})
    assert item["PK"] == {"S": KEY.pk}
