"""Calls that are wrong in one way each, which DynamoDB refuses (or, at the end, answers in a way of its own)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulation.drawn import Drawn
from zae_limiter.stores.dynamodb.items import address
from zae_limiter.stores.dynamodb.schema import Key, encode

V: Mapping[str, Any] = {":v": encode(1)}
VW: Mapping[str, Any] = {":v": encode(1), ":w": encode(2)}
IN_A_TRANSACTION = ", in a transaction"

WRONG_UPDATES: Mapping[str, tuple[str, str | None, Mapping[str, Any] | None]] = {
    # what: update, condition, values
    "overlapping paths": ("SET b = :v, b = :w", None, VW),
    "set and removed": ("SET b = :v REMOVE b", None, V),
    "added and set": ("SET b = :v ADD b :v", None, V),
    "a clause twice": ("SET b = :v SET c = :v", None, V),
    "no clause": ("b = :v", None, V),
    "an empty update": (" ", None, None),
    "an empty condition": ("SET b = :v", "", V),
    "arithmetic in a condition": ("SET b = :v", "ev + :v > :v", V),
    "three summands": ("SET b = :v + :v + :v", None, V),
    "an unused value": ("SET b = :v", None, VW),
    "an undefined value": ("SET b = :x", None, V),
    "an undefined name": ("SET #x = :v", None, V),
    "a key set": ("SET PK = :v", None, {":v": encode("x")}),
    "a key removed": ("REMOVE SK", None, None),
    "a reserved word": ("SET ttl = :v", None, V),
    "a reserved word in a condition": ("SET b = :v", "resource = :v", V),
    "a text added": ("ADD ev :v", None, {":v": encode("1")}),
    "added to a text": ("ADD cv :v", None, V),
    "summed with a text": ("SET b = cv + :v", None, V),
    "a missing attribute copied": ("SET b = gone", None, None),
    "a missing attribute summed": ("SET b = gone + :v", None, V),
    "bounds in the wrong order": ("SET b = :v", "ev BETWEEN :w AND :v", VW),
    "bounds of two types": ("SET b = :v", "ev BETWEEN :v AND :w", {":v": encode(1), ":w": encode("x")}),
    "a literal without order": ("SET b = :v", "ev < :w", {":v": encode(1), ":w": encode(True)}),
    "a prefix that is a number": ("SET b = :v", "begins_with(cv, :v)", V),
    "compared with itself": ("SET b = :v", "ev = ev", V),
    "two missing attributes not equal": ("SET b = :v", "gone <> lacking", V),
    "two missing attributes equal": ("SET b = :v", "gone = lacking", V),
    "redundant parentheses": ("SET b = :v", "((ev = :v))", V),
    "an unknown function": ("SET b = :v", "exists(ev)", V),
    "a function misplaced": ("SET b = size(cv)", None, None),
    "size alone": ("SET b = :v", "size(cv)", V),
    "existence of a value": ("SET b = :v", "attribute_exists(:v)", V),
    "a type that is none": ("SET b = :v", "attribute_type(ev, :t)", {":v": encode(1), ":t": encode("X")}),
    "a half sentence": ("SET b = :v", "ev = :v AND", V),
    "too many digits": ("SET b = :v", None, {":v": {"N": "1" * 39}}),
    "no number": ("SET b = :v", None, {":v": {"N": "ten"}}),
    "a number of no size": ("SET b = :v", None, {":v": {"N": "1e127"}}),
    "an index key that is a number": ("SET GSI2PK = :v", None, V),
    "an index key that is empty": ("SET GSI2PK = :v", None, {":v": encode("")}),
}


def wrong_updates(table: str, here: Key, there: Key) -> dict[str, Drawn]:
    """Each wrong update of ``here``, by itself and in a transaction beside a right one of ``there``."""
    calls = {}
    for what, (update, condition, values) in WRONG_UPDATES.items():
        params: dict[str, Any] = {"TableName": table, "Key": address(here), "UpdateExpression": update}
        if condition is not None:
            params["ConditionExpression"] = condition
        if values is not None:
            params["ExpressionAttributeValues"] = dict(values)
        right = {
            "TableName": table,
            "Key": address(there),
            "UpdateExpression": "SET ev = :v",
            "ExpressionAttributeValues": dict(V),
        }
        both = {"TransactItems": [{"Update": params}, {"Update": right}]}
        calls[what] = Drawn("UpdateItem", params, what)
        calls[what + IN_A_TRANSACTION] = Drawn("TransactWriteItems", both, what + IN_A_TRANSACTION)
    return calls


def wrong_others(table: str, here: Key, there: Key) -> dict[str, Drawn]:
    """Wrong calls of other kinds."""
    half = {"PK": {"S": here.pk}}
    name = {"TableName": table}
    put_and_delete = [{"Put": {**name, "Item": address(here)}}, {"Delete": {**name, "Key": address(here)}}]
    too_many = [{"DeleteRequest": {"Key": {"PK": half["PK"], "SK": {"S": f"{n}"}}}} for n in range(26)]
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "a table that is not there": ("GetItem", {"TableName": "nowhere", "Key": address(here)}),
        "half a key": ("GetItem", {**name, "Key": half}),
        "half a key, in a transaction": ("TransactWriteItems", {"TransactItems": [{"Delete": {**name, "Key": half}}]}),
        "half a key put": ("PutItem", {**name, "Item": half}),
        "half a key put, in a transaction": (
            "TransactWriteItems",
            {"TransactItems": [{"Put": {**name, "Item": half}}]},
        ),
        "an empty key": ("PutItem", {**name, "Item": {**half, "SK": {"S": ""}}}),
        "a key that is a number": ("PutItem", {**name, "Item": {**half, "SK": encode(1)}}),
        "an empty key, in a transaction": (
            "TransactWriteItems",
            {"TransactItems": [{"Put": {**name, "Item": {**half, "SK": {"S": ""}}}}]},
        ),
        "an index key put that is a number": ("PutItem", {**name, "Item": {**address(here), "GSI2PK": encode(1)}}),
        "an index key put that is a number, in a transaction": (
            "TransactWriteItems",
            {"TransactItems": [{"Put": {**name, "Item": {**address(here), "GSI2PK": encode(1)}}}]},
        ),
        "what was put, returned new": ("PutItem", {**name, "Item": address(here), "ReturnValues": "ALL_NEW"}),
        "names for no expression": (
            "PutItem",
            {**name, "Item": address(here), "ExpressionAttributeNames": {"#a": "b"}},
        ),
        "one item twice": ("TransactWriteItems", {"TransactItems": put_and_delete}),
        "an empty transaction": ("TransactWriteItems", {"TransactItems": []}),
        "a key twice": ("BatchGetItem", {"RequestItems": {table: {"Keys": [address(here), address(here)]}}}),
        "too many at once": ("BatchWriteItem", {"RequestItems": {table: too_many}}),
        "an item too large": ("PutItem", {**name, "Item": {**address(here), "b": {"S": "x" * 410_000}}}),
    }
    return {what: Drawn(operation, params, what) for what, (operation, params) in calls.items()}


def wrong_queries(table: str, here: Key, there: Key) -> dict[str, Drawn]:
    """Wrong queries of the partition of ``here``."""
    start = {"PK": {"S": here.pk}, "SK": {"S": here.sk}}
    elsewhere = {"PK": {"S": there.pk}, "SK": {"S": there.sk}}
    by_index = {"IndexName": "GSI2", "KeyConditionExpression": "GSI2PK = :p"}
    queries: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "no partition": ({"KeyConditionExpression": "SK = :p"}, {}),
        "a partition not equal": ({"KeyConditionExpression": "PK > :p"}, {}),
        "a sort key not equal": ({"KeyConditionExpression": "PK = :p AND SK <> :s"}, {":s": {"S": "x"}}),
        "either key": ({"KeyConditionExpression": "PK = :p OR SK = :s"}, {":s": {"S": "x"}}),
        "three conditions": ({"KeyConditionExpression": "PK = :p AND SK > :s AND SK < :s"}, {":s": {"S": "x"}}),
        "an attribute that is no key": ({"KeyConditionExpression": "PK = :p AND ev = :s"}, {":s": {"S": "x"}}),
        "a prefix that is empty": ({"KeyConditionExpression": "PK = :p AND begins_with(SK, :s)"}, {":s": {"S": ""}}),
        "a sort key that is a number": ({"KeyConditionExpression": "PK = :p AND SK = :s"}, {":s": encode(1)}),
        "a filter on a key": ({"FilterExpression": "SK > :s"}, {":s": {"S": "x"}}),
        "an undefined value in a filter": ({"FilterExpression": "ev > :s"}, {}),
        "an index that is not there": ({"IndexName": "GSI9"}, {}),
        "an index read consistently": ({**by_index, "ConsistentRead": True}, {}),
        "an index begun without its keys": ({**by_index, "ExclusiveStartKey": start}, {}),
        "begun in another partition": ({"ExclusiveStartKey": elsewhere}, {}),
        "a limit of nothing": ({"Limit": 0}, {}),
    }
    calls = {}
    for what, (more, values) in queries.items():
        params: dict[str, Any] = {"TableName": table, "KeyConditionExpression": "PK = :p", **more}
        params["ExpressionAttributeValues"] = {":p": {"S": here.pk}, **values}
        calls[what] = Drawn("Query", params, what)
    return calls


def all_wrong(table: str, here: Key, there: Key) -> dict[str, Drawn]:
    """All of them, by what is wrong."""
    return {
        **wrong_updates(table, here, there),
        **wrong_others(table, here, there),
        **wrong_queries(table, here, there),
    }
