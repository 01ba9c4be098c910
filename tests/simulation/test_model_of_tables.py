"""The model's rules beyond one item: transactions, batches, queries, capacity, expiry, the log of changes."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.model import Change, Charge, Model, NotModelled
from zae_limiter.stores.dynamodb.operations.namespaces import expiry_params, table_params
from zae_limiter.stores.dynamodb.requests import TRANSACTION_CANCELED, Reason, Refused
from zae_limiter.stores.dynamodb.schema import decode_item, encode, encode_item

TABLE = "limits"
TEN_MINUTES = 600


@pytest.fixture
def model() -> Model:
    model = Model()
    model.call("CreateTable", table_params(TABLE))
    return model


def key(pk: str, sk: str = "s") -> dict[str, Any]:
    return {"PK": {"S": pk}, "SK": {"S": sk}}


def put(model: Model, pk: str, sk: str = "s", **attributes: Any) -> list[Charge]:
    model.call("PutItem", {"TableName": TABLE, "Item": key(pk, sk) | encode_item(attributes)})
    return model.charges


def adding(pk: str, amount: int = 1, condition: str | None = None, **more: Any) -> dict[str, Any]:
    """One Update of a transaction."""
    values = {":v": encode(amount)}
    params: dict[str, Any] = {"TableName": TABLE, "Key": key(pk), "UpdateExpression": "ADD n :v"}
    if condition is not None:
        params["ConditionExpression"] = condition
    return {"Update": params | {"ExpressionAttributeValues": values} | more}


def transact(model: Model, *items: dict[str, Any], now_s: float = 0, **more: Any) -> dict[str, Any]:
    return model.call("TransactWriteItems", {"TransactItems": items, **more}, now_s=now_s)


def value(model: Model, pk: str, name: str = "n") -> Any:
    item = model.item(TABLE, pk, "s")
    return None if item is None else decode_item(item).get(name)


# Transactions


def test_a_transaction_does_all_of_it(model: Model) -> None:
    put(model, "c", n=1)
    check = {"TableName": TABLE, "Key": key("c"), "ConditionExpression": "attribute_exists(PK)"}
    transact(
        model,
        adding("a", 2),
        {"Put": {"TableName": TABLE, "Item": key("b") | encode_item({"n": 3})}},
        {"ConditionCheck": check},
        {"Delete": {"TableName": TABLE, "Key": key("d")}},
    )
    assert [value(model, pk) for pk in "abcd"] == [2, 3, 1, None]


def test_a_transaction_does_nothing_when_one_condition_fails_and_says_which(model: Model) -> None:
    put(model, "a", n=1)
    put(model, "b", n=2)
    with pytest.raises(Refused) as refusal:
        transact(
            model,
            adding("a", condition="n >= :v"),
            adding("b", condition="n < :v", ReturnValuesOnConditionCheckFailure="ALL_OLD"),
            adding("c", condition="n < :v", ReturnValuesOnConditionCheckFailure="ALL_OLD"),
        )
    assert refusal.value.code == TRANSACTION_CANCELED
    failed = "ConditionalCheckFailed"
    assert refusal.value.reasons == (Reason(None), Reason(failed, model.item(TABLE, "b", "s")), Reason(failed, None))
    assert [value(model, pk) for pk in "abc"] == [1, 2, None]


def test_a_write_that_does_not_fit_the_item_cancels_a_transaction(model: Model) -> None:
    put(model, "a", n="text")
    with pytest.raises(Refused) as refusal:
        transact(model, adding("b"), adding("a"))
    assert refusal.value.reasons == (Reason(None), Reason("ValidationError"))
    assert value(model, "b") is None


def test_an_item_cannot_be_in_a_transaction_twice(model: Model) -> None:
    with pytest.raises(Refused, match="multiple operations on one item"):
        transact(model, adding("a"), {"Delete": {"TableName": TABLE, "Key": key("a")}})


def test_a_transaction_with_the_same_token_is_done_once(model: Model) -> None:
    for now_s in (0, 1, TEN_MINUTES):
        assert transact(model, adding("a"), ClientRequestToken="t", now_s=now_s) == {}
    assert value(model, "a") == 1
    with pytest.raises(Refused) as refusal:
        transact(model, adding("a", 2), ClientRequestToken="t", now_s=TEN_MINUTES)
    assert refusal.value.code == "IdempotentParameterMismatchException"
    transact(model, adding("a"), ClientRequestToken="t", now_s=TEN_MINUTES + 1)
    assert value(model, "a") == 2


def test_a_canceled_transaction_may_be_tried_again_with_its_token(model: Model) -> None:
    for _ in range(2):
        with pytest.raises(Refused):
            transact(model, adding("a", condition="n = :v"), ClientRequestToken="t")
    put(model, "a", n=1)
    transact(model, adding("a", condition="n = :v"), ClientRequestToken="t")
    assert value(model, "a") == 2


# Batches


def test_a_batch_may_be_left_undone_in_part(model: Model) -> None:
    requests = [{"PutRequest": {"Item": key(pk)}} for pk in "abc"]
    model.leave_unprocessed(2)
    reply = model.call("BatchWriteItem", {"RequestItems": {TABLE: requests}})
    assert reply["UnprocessedItems"] == {TABLE: requests[1:]}
    assert model.call("BatchWriteItem", {"RequestItems": reply["UnprocessedItems"]}) == {"UnprocessedItems": {}}
    asked = {TABLE: {"Keys": [key(pk) for pk in "abcd"], "ConsistentRead": True}}
    model.leave_unprocessed(1)
    reply = model.call("BatchGetItem", {"RequestItems": asked})
    assert [item["PK"]["S"] for item in reply["Responses"][TABLE]] == ["a", "b", "c"]
    assert reply["UnprocessedKeys"] == {TABLE: {"Keys": [key("d")], "ConsistentRead": True}}
    assert model.call("BatchGetItem", {"RequestItems": asked})["UnprocessedKeys"] == {}


# Queries


def query(model: Model, condition: str, values: dict[str, str], **more: Any) -> dict[str, Any]:
    literals = {f":{name}": {"S": text} for name, text in values.items()}
    params = {"TableName": TABLE, "KeyConditionExpression": condition, "ExpressionAttributeValues": literals}
    return model.call("Query", params | more)


@pytest.mark.parametrize(
    ("condition", "values", "found"),
    [
        ("PK = :p", {}, "a ab abc b ba"),
        ("PK = :p AND SK = :s", {"s": "ab"}, "ab"),
        ("SK < :s AND PK = :p", {"s": "abc"}, "a ab"),
        ("PK = :p AND SK <= :s", {"s": "abc"}, "a ab abc"),
        ("PK = :p AND SK > :s", {"s": "abc"}, "b ba"),
        ("PK = :p AND SK >= :s", {"s": "abc"}, "abc b ba"),
        ("PK = :p AND begins_with(SK, :s)", {"s": "ab"}, "ab abc"),
        ("PK = :p AND begins_with(SK, :s)", {"s": "c"}, ""),
        ("(PK = :p) AND (SK BETWEEN :s AND :t)", {"s": "ab", "t": "b"}, "ab abc b"),
    ],
)
def test_a_query_finds_part_of_a_partition_in_order(
    model: Model, condition: str, values: dict[str, str], found: str
) -> None:
    for sk in ("b", "ab", "a", "ba", "abc"):
        put(model, "p", sk)
        put(model, "q", sk)
    expected = found.split()
    forward = query(model, condition, {"p": "p", **values})
    backward = query(model, condition, {"p": "p", **values}, ScanIndexForward=False)
    assert [item["SK"]["S"] for item in forward["Items"]] == expected
    assert [item["SK"]["S"] for item in backward["Items"]] == expected[::-1]
    for forwards in (True, False):
        pages, start = [], {"ScanIndexForward": forwards}
        for _ in range(len(expected) + 1):
            page = query(model, condition, {"p": "p", **values}, Limit=1, **start)
            pages += [item["SK"]["S"] for item in page["Items"]]
            if "LastEvaluatedKey" not in page:
                break
            start["ExclusiveStartKey"] = page["LastEvaluatedKey"]
        assert pages == expected[:: 1 if forwards else -1]


def test_a_filter_takes_away_after_the_limit_was_counted(model: Model) -> None:
    for n in range(4):
        put(model, "p", f"s{n}", n=n)
    literals = {":p": {"S": "p"}, ":n": encode(1)}
    params = {"KeyConditionExpression": "PK = :p", "FilterExpression": "n > :n", "Limit": 3}
    page = model.call("Query", {"TableName": TABLE, "ExpressionAttributeValues": literals, **params})
    assert (page["Count"], page["ScannedCount"]) == (1, 3)
    assert page["LastEvaluatedKey"] == key("p", "s2")


def test_a_query_ends_its_page_after_a_megabyte(model: Model) -> None:
    for n in range(6):
        put(model, "p", f"s{n}", t="x" * 300_000)
    page = query(model, "PK = :p", {"p": "p"})
    assert (page["Count"], page["LastEvaluatedKey"]) == (4, key("p", "s3"))


def test_an_index_has_the_keys_of_the_items_that_have_its_keys(model: Model) -> None:
    put(model, "a", GSI1PK="x", GSI1SK="2", n=1)
    put(model, "b", GSI1PK="x", GSI1SK="1")
    put(model, "c", GSI1PK="x")

    def items() -> list[dict[str, Any]]:
        return list(query(model, "GSI1PK = :p", {"p": "x"}, IndexName="GSI1")["Items"])

    def found() -> list[str]:
        return [item["PK"]["S"] for item in items()]

    assert items()[1] == key("a") | encode_item({"GSI1PK": "x", "GSI1SK": "2"})
    assert found() == ["b", "a"]
    values = {":v": {"S": "3"}}
    params = {"TableName": TABLE, "Key": key("b"), "UpdateExpression": "SET GSI1SK = :v"}
    model.call("UpdateItem", params | {"ExpressionAttributeValues": values})
    assert found() == ["a", "b"]
    model.call("UpdateItem", {"TableName": TABLE, "Key": key("a"), "UpdateExpression": "REMOVE GSI1PK"})
    model.call("DeleteItem", {"TableName": TABLE, "Key": key("b")})
    assert found() == []


def test_a_scan_finds_everything_page_by_page(model: Model) -> None:
    keys = [(pk, sk) for pk in "ab" for sk in "xyz"]
    for pk, sk in keys:
        put(model, pk, sk)
    found: list[tuple[str, str]] = []
    start: dict[str, Any] = {}
    for _ in range(4):
        page = model.call("Scan", {"TableName": TABLE, "Limit": 2, **start})
        found += [(item["PK"]["S"], item["SK"]["S"]) for item in page["Items"]]
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]} if "LastEvaluatedKey" in page else {}
    assert found == keys


# Capacity


def test_a_write_is_charged_for_each_started_kilobyte_of_the_larger_item(model: Model) -> None:
    def writes(charges: list[Charge]) -> list[float]:
        return [charge.writes for charge in charges]

    overhead = len("PKaSKst")
    assert writes(put(model, "a", t="x" * (1024 - overhead))) == [1]
    assert writes(put(model, "a", t="x" * (1025 - overhead))) == [2]
    assert writes(put(model, "a", n=1)) == [2]
    assert writes(put(model, "a", n=1)) == [1]
    put(model, "a", t="x" * 5000)
    model.call("DeleteItem", {"TableName": TABLE, "Key": key("a")})
    assert writes(model.charges) == [5]


def test_a_failed_condition_is_charged_and_a_transaction_twice(model: Model) -> None:
    put(model, "a", t="x" * 1500)
    with pytest.raises(Refused):
        model.call("UpdateItem", adding("a", condition="attribute_not_exists(PK)")["Update"])
    assert model.charges == [Charge(TABLE, None, "a", writes=2)]
    reply = transact(model, adding("a"), adding("b"), ReturnConsumedCapacity="TOTAL")
    assert model.charges == [Charge(TABLE, None, "a", writes=4), Charge(TABLE, None, "b", writes=2)]
    assert reply["ConsumedCapacity"] == [{"TableName": TABLE, "CapacityUnits": 6.0, "WriteCapacityUnits": 6.0}]
    with pytest.raises(Refused):
        transact(model, adding("a"), adding("b", condition="n > :v"))
    assert [charge.writes for charge in model.charges] == [4, 2]


def test_an_index_is_charged_only_when_its_keys_change(model: Model) -> None:
    def by_index(charges: list[Charge]) -> list[tuple[str | None, str, float]]:
        return [(charge.index_name, charge.partition, charge.writes) for charge in charges if charge.index_name]

    here = {"GSI1PK": "x", "GSI1SK": "1"}
    assert by_index(put(model, "a", **here)) == [("GSI1", "x", 1)]
    assert by_index(put(model, "a", **here, n=2)) == []
    assert by_index(put(model, "a", GSI1PK="y", GSI1SK="1")) == [("GSI1", "x", 1), ("GSI1", "y", 1)]
    assert by_index(put(model, "a")) == [("GSI1", "y", 1)]


@pytest.mark.parametrize(("consistent", "cost"), [(True, 2.0), (False, 1.0)])
def test_a_read_is_charged_for_each_started_four_kilobytes(model: Model, consistent: bool, cost: float) -> None:
    put(model, "a", t="x" * 5000)
    model.call("GetItem", {"TableName": TABLE, "Key": key("a"), "ConsistentRead": consistent})
    assert model.charges == [Charge(TABLE, None, "a", reads=cost)]


# Expiry and the log of changes


def test_items_expire_when_told_to_and_the_log_says_so(model: Model) -> None:
    model.call("UpdateTimeToLive", expiry_params(TABLE))
    with pytest.raises(Refused, match="already enabled"):
        model.call("UpdateTimeToLive", expiry_params(TABLE))
    put(model, "a", ttl=100, GSI1PK="x", GSI1SK="1")
    put(model, "b", ttl=200)
    put(model, "c", ttl="100")
    put(model, "d")
    assert model.expire(100) == {}
    assert model.expire(101) == {TABLE: [("a", "s")]}
    assert sorted(pk for pk, _ in model.snapshot(TABLE)) == ["b", "c", "d"]
    last = model.changes(TABLE)[-1]
    assert (last.name, last.key, last.new, last.expired) == ("REMOVE", ("a", "s"), None, True)
    assert query(model, "GSI1PK = :p", {"p": "x"}, IndexName="GSI1")["Items"] == []


def test_the_log_has_every_change_in_order_and_nothing_else(model: Model) -> None:
    model.call("PutItem", {"TableName": TABLE, "Item": key("a") | encode_item({"n": 1})}, now_s=7)
    put(model, "a", n=1)
    transact(model, adding("a"), adding("b"))
    with pytest.raises(Refused):
        transact(model, adding("a"), adding("b", condition="n > :v"))
    model.call("DeleteItem", {"TableName": TABLE, "Key": key("b")})
    model.call("DeleteItem", {"TableName": TABLE, "Key": key("b")})
    changes = model.changes(TABLE)
    assert [(change.name, change.key[0]) for change in changes] == [
        ("INSERT", "a"),
        ("MODIFY", "a"),
        ("INSERT", "b"),
        ("REMOVE", "b"),
    ]
    assert [change.sequence for change in changes] == sorted({change.sequence for change in changes})
    assert changes[0] == Change(changes[0].sequence, "INSERT", ("a", "s"), None, changes[1].old, 7)
    assert changes[1].new == model.item(TABLE, "a", "s")


# Tables


def test_a_table_comes_and_goes(model: Model) -> None:
    with pytest.raises(Refused) as refusal:
        model.call("CreateTable", table_params(TABLE))
    assert refusal.value.code == "ResourceInUseException"
    description = model.call("DescribeTable", {"TableName": TABLE})["Table"]
    assert description["TableStatus"] == "ACTIVE"
    assert {index["IndexStatus"] for index in description["GlobalSecondaryIndexes"]} == {"ACTIVE"}
    model.call("DeleteTable", {"TableName": TABLE})
    with pytest.raises(Refused, match="not found"):
        model.call("DescribeTable", {"TableName": TABLE})


def test_a_table_of_another_kind_is_not_modelled(model: Model) -> None:
    params = table_params("other")
    params["GlobalSecondaryIndexes"][0]["Projection"] = {"ProjectionType": "ALL"}
    with pytest.raises(NotModelled):
        model.call("CreateTable", params)
