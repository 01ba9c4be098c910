"""Transactions that expect what was read.

A transaction reads what is there, decides, and writes with the *expectation* that it still is so. If another client
was faster the whole of it begins anew, from reading on, for as long as a verb may take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import address
from zae_limiter.stores.dynamodb.requests import TRANSACTION_CANCELED, Reason, Refused
from zae_limiter.stores.dynamodb.schema import Key, encode, encode_item
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient

Result = TypeVar("Result")

WRITES_AT_ONCE = 100
"""The most writes that DynamoDB does together."""

PRESENT: Final[Any] = type("Present", (), {"__repr__": lambda self: "PRESENT"})()
ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda self: "ABSENT"})()

Expected: TypeAlias = Mapping[str, Any]
"""What an item must look like for a write to happen: attribute → value, ``PRESENT`` or ``ABSENT``."""

NEW: Expected = {"PK": ABSENT}
EXISTING: Expected = {"PK": PRESENT}
NOTHING: Mapping[str, Any] = {}

Write: TypeAlias = dict[str, Any]
"""One write of a transaction, as DynamoDB writes it."""


class Overtaken(Refused):
    """Another client changed one of the items meanwhile. Nothing was done."""

    def __init__(self, reasons: Sequence[Reason] = ()) -> None:
        super().__init__(TRANSACTION_CANCELED, "others keep changing the same thing", reasons=reasons)


def put(table: str, key: Key, attributes: Mapping[str, Any], expected: Expected) -> Write:
    """Replace an item. ``None`` means that the attribute is not there."""
    item = encode_item({"PK": key.pk, "SK": key.sk, **attributes})
    return {"Put": {"TableName": table, "Item": item, **_condition(expected)}}


def update(
    table: str,
    key: Key,
    expected: Expected,
    *,
    sets: Mapping[str, Any] = NOTHING,
    adds: Mapping[str, int] = NOTHING,
) -> Write:
    """Change some attributes of an item. ``None`` removes one."""
    clauses: dict[str, list[str]] = {"SET": [], "REMOVE": [], "ADD": []}
    params = _condition(expected)
    names = params.setdefault("ExpressionAttributeNames", {})
    values = params.setdefault("ExpressionAttributeValues", {})
    for name, value in sets.items():
        names[f"#{name}"] = name
        if value is None:
            clauses["REMOVE"].append(f"#{name}")
        else:
            clauses["SET"].append(f"#{name} = :new_{name}")
            values[f":new_{name}"] = encode(value)
    for name, amount in adds.items():
        names[f"#{name}"] = name
        clauses["ADD"].append(f"#{name} :add_{name}")
        values[f":add_{name}"] = encode(amount)
    if not values:
        del params["ExpressionAttributeValues"]
    expression = " ".join(f"{clause} {', '.join(parts)}" for clause, parts in clauses.items() if parts)
    return {"Update": {"TableName": table, "Key": address(key), "UpdateExpression": expression, **params}}


def check(table: str, key: Key, expected: Expected) -> Write:
    """Change nothing, but let nothing happen unless the item is as expected."""
    return {"ConditionCheck": {"TableName": table, "Key": address(key), **_condition(expected)}}


def delete(table: str, key: Key, expected: Expected) -> Write:
    """Remove an item."""
    return {"Delete": {"TableName": table, "Key": address(key), **_condition(expected)}}


def _condition(expected: Expected) -> dict[str, Any]:
    """The condition expression; attribute names that expectations are about are plain words."""
    parts = []
    names = {}
    values = {}
    for name, value in expected.items():
        names[f"#{name}"] = name
        if value is PRESENT:
            parts.append(f"attribute_exists(#{name})")
        elif value is ABSENT:
            parts.append(f"attribute_not_exists(#{name})")
        else:
            parts.append(f"#{name} = :is_{name}")
            values[f":is_{name}"] = encode(value)
    params: dict[str, Any] = {}
    if parts:
        params = {"ConditionExpression": " AND ".join(parts), "ExpressionAttributeNames": names}
    if values:
        params["ExpressionAttributeValues"] = values
    return params


def commit(client: TableClient, writes: Sequence[Write], deadline: Deadline) -> Plan[None]:
    """Do all of the writes. Raises :class:`Overtaken` if an expectation was wrong: then none was done."""
    reasons = yield from client.transact(writes, deadline)
    if any(reason.code == "ConditionalCheckFailed" for reason in reasons):
        raise Overtaken(reasons)
    if reasons:
        codes = ", ".join(sorted({reason.code for reason in reasons if reason.code}))
        raise Refused(TRANSACTION_CANCELED, codes, reasons=reasons)


def persist(client: TableClient, attempt: Callable[[Deadline], Plan[Result]]) -> Plan[Result]:
    """What ``attempt`` returns, begun anew whenever it was overtaken, for as long as a verb may take."""
    deadline = yield from client.new_deadline()
    tries = 0
    while True:
        try:
            return (yield from attempt(deadline))
        except Overtaken as overtaken:
            failure = overtaken
        tries += 1
        yield from client.pause(tries, deadline, failure)
