"""What a call asks, read off its parameters: which items it writes, which write id it leaves, what it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zae_limiter.bucket import WOULD_REFUSE
from zae_limiter.stores.dynamodb.requests import Call

Place = tuple[str, str]

COUNTERS = {"_tc": "", "_sn": WOULD_REFUSE}

_ASSIGNED = re.compile(r"(#\w+) = (:\w+)")
_ADDED = re.compile(r"(#\w+) (:\w+)")


def _place(address: Mapping[str, Any]) -> Place:
    return address["PK"]["S"], address["SK"]["S"]


def places_written(call: Call) -> list[Place]:
    """The items a call writes or, in a transaction, only checks."""
    operation, params = call.operation, call.params
    if operation == "UpdateItem" or operation == "DeleteItem":
        return [_place(params["Key"])]
    if operation == "PutItem":
        return [_place(params["Item"])]
    if operation == "TransactWriteItems":
        places = []
        for part in params["TransactItems"]:
            ((_, body),) = part.items()
            places.append(_place(body["Item"] if "Item" in body else body["Key"]))
        return places
    if operation == "BatchWriteItem":
        return [
            _place(request["DeleteRequest"]["Key"] if "DeleteRequest" in request else request["PutRequest"]["Item"])
            for requests in params["RequestItems"].values()
            for request in requests
        ]
    return []


def only_looks_at_buckets(call: Call) -> bool:
    """Whether a call reads buckets and nothing else."""
    if call.operation == "GetItem":
        return _place(call.params["Key"])[1] == "#STATE"
    if call.operation != "BatchGetItem":
        return False
    addresses = [address for part in call.params["RequestItems"].values() for address in part["Keys"]]
    return all(_place(address)[1] == "#STATE" for address in addresses)


def bodies(call: Call) -> Iterator[Mapping[str, Any]]:
    """The writes of single items a call consists of; what it deletes is left out."""
    if call.operation == "TransactWriteItems":
        for part in call.params["TransactItems"]:
            if "Delete" not in part:
                yield from part.values()
    elif call.operation in ("UpdateItem", "PutItem"):
        yield call.params


def marked_writes(call: Call) -> Iterator[tuple[Place, str, dict[str, int]]]:
    """The writes to buckets a call consists of: where, with which write id, and what they take (or give back)."""
    for body in bodies(call):
        place = _place(body["Item"] if "Item" in body else body["Key"])
        if place[1] == "#STATE":
            yield place, *_deed(body)


def creations(call: Call) -> Iterator[tuple[Place, dict[str, int]]]:
    """The buckets a call is to begin: where, and what it takes of them (or gives back)."""
    for body in bodies(call):
        if "Item" in body and (place := _place(body["Item"]))[1] == "#STATE":
            yield place, _deed(body)[1]


def _deed(body: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
    if "Item" in body:
        item = body["Item"]
        amounts = _counted({name: int(value["N"]) for name, value in item.items() if name[-3:] in COUNTERS})
        mark = item["w0"]["S"]
        amounts["ev"] = int(item["ev"]["N"])
    else:
        changes = changes_of(body)
        amounts = _counted(changes)
        mark = changes.get("w0", "")
        amounts["ev"] = changes.get("ev", 0)
    return mark, {name: amount for name, amount in amounts.items() if amount and name != "wcu"}


def _counted(changes: Mapping[str, Any]) -> dict[str, int]:
    """What is added to counters, by limit."""
    return {name[2:-3] + COUNTERS[name[-3:]]: amount for name, amount in changes.items() if name[-3:] in COUNTERS}


def changes_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an update sets or adds, by attribute."""
    names = body.get("ExpressionAttributeNames", {})
    values = body.get("ExpressionAttributeValues", {})
    expression = body["UpdateExpression"]
    found = {}
    for alias, placeholder in (*_ASSIGNED.findall(expression), *_ADDED.findall(expression)):
        ((kind, content),) = values[placeholder].items()
        found[names.get(alias, alias)] = int(content) if kind == "N" else content
    return found


def described(call: Call, place: Place) -> str:
    """What a call wants of one bucket, in words."""
    if call.operation in ("BatchWriteItem", "DeleteItem"):
        return "delete"
    if call.operation in ("GetItem", "BatchGetItem"):
        return "read"
    for body in bodies(call):
        if _place(body["Item"] if "Item" in body else body["Key"]) == place:
            return _in_words(body, within=call.operation == "TransactWriteItems")
    return call.operation


def _in_words(body: Mapping[str, Any], *, within: bool) -> str:
    mark, amounts = _deed(body)
    grants = amounts.pop("ev", 0)
    parts = ["in a transaction:"] if within else []
    if "Item" in body:
        parts.append("create")
    elif "rf" in changes_of(body) or "cv" in changes_of(body):
        parts.append(f"rebase to {changes_of(body).get('cv', 'the same version')}")
    if grants > 0:
        parts.append("draw")
    elif grants < 0:
        parts.append("undo")
    parts += [f"{'take' if amount > 0 else 'give back'} {abs(amount)} {name}" for name, amount in amounts.items()]
    return f"{' '.join(parts) or 'only mark'} [{mark}]"
