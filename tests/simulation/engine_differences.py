"""Where an engine is known to answer otherwise than DynamoDB. The model does as DynamoDB does.

The keys are what is special about a call: the names in ``wrong_calls``, and what ``random_calls`` notes. Such calls
are not sent to that engine, except by the test that every difference listed here is still one.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulation.drawn import Drawn
from simulation.wrong_calls import IN_A_TRANSACTION
from zae_limiter.stores.dynamodb.items import address
from zae_limiter.stores.dynamodb.schema import Key, encode

ONLY_REMOVALS = "only removals, no item"
OLD_OF_NO_ITEM = "old values of no item"
SORT_KEY_FIRST = "the sort key equal, and named first"
ODD_NUMBER = "a number with many digits, or not in its canonical form"

_SAME_EVERYWHERE = {
    "accepts comparing an attribute with itself": ["compared with itself"],
    "takes a literal that has no order for a condition that does not hold": ["a literal without order"],
    "takes a type that does not exist for a condition that does not hold": ["a type that is none"],
    "makes an item out of an update that only removes": [ONLY_REMOVALS],
}

_IN_TRANSACTIONS = {
    "ignores keys among the updates of a transaction": ["a key set", "a key removed"],
    "cancels a transaction for an error in its update expressions": [
        "a reserved word",
        "a text added",
        "a function misplaced",
    ],
}

_MINISTACK_NUMBERS = {
    "counts with 28 digits, and stores some numbers as they were sent": [ODD_NUMBER],
}

_MINISTACK = {
    "accepts overlapping paths": ["overlapping paths", "set and removed", "added and set"],
    "accepts a clause twice": ["a clause twice"],
    "accepts arithmetic in conditions, and more than two summands": ["arithmetic in a condition", "three summands"],
    "adds numbers to texts": ["summed with a text"],
    "takes bounds of two types for a condition that does not hold": ["bounds of two types"],
    "takes two missing attributes for equal": ["two missing attributes not equal", "two missing attributes equal"],
}

_MINISTACK_IN_TRANSACTIONS = {
    "ignores what is no clause": ["no clause"],
    "ignores a write without a whole key": ["half a key", "half a key put"],
}

_MINISTACK_QUERIES = {
    "accepts any condition on keys": ["a sort key not equal", "either key"],
    "filters on keys": ["a filter on a key"],
}

_DYNOXIDE = {
    "accepts an empty update": ["an empty update"],
}

_DYNOXIDE_IN_TRANSACTIONS = {
    "accepts overlapping paths": ["overlapping paths", "set and removed", "added and set"],
    "cancels a transaction for an error in any of its expressions": [
        "a clause twice",
        "no clause",
        "an empty condition",
        "arithmetic in a condition",
        "three summands",
        "an unused value",
        "an undefined value",
        "an undefined name",
        "a reserved word in a condition",
        "redundant parentheses",
        "an unknown function",
        "size alone",
        "existence of a value",
        "a half sentence",
    ],
    "takes literals that cannot be compared for a condition that does not hold": [
        "bounds in the wrong order",
        "bounds of two types",
        "a prefix that is a number",
    ],
}

_DYNOXIDE_REPLIES = {
    "returns the key as the old values of an item that was not there": [OLD_OF_NO_ITEM],
}

_DYNOXIDE_QUERIES = {
    "takes the first condition with = for that of the partition": [SORT_KEY_FIRST],
    "accepts keys that no item can have": ["a prefix that is empty", "a sort key that is a number"],
    "begins a page anywhere": ["begun in another partition"],
}

Reasons = Mapping[str, list[str]]


def _by_trait(*tables: Reasons, in_transactions: tuple[Reasons, ...] = ()) -> dict[str, str]:
    found = {trait: why for table in tables for why, traits in table.items() for trait in traits}
    for table in in_transactions:
        found |= {trait + IN_A_TRANSACTION: why for why, traits in table.items() for trait in traits}
    return found


DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "ministack": _by_trait(
        _SAME_EVERYWHERE,
        _MINISTACK,
        _MINISTACK_NUMBERS,
        _MINISTACK_QUERIES,
        in_transactions=(_SAME_EVERYWHERE, _IN_TRANSACTIONS, _MINISTACK, _MINISTACK_IN_TRANSACTIONS),
    ),
    "dynoxide": _by_trait(
        _SAME_EVERYWHERE,
        _DYNOXIDE,
        _DYNOXIDE_REPLIES,
        _DYNOXIDE_QUERIES,
        in_transactions=(_SAME_EVERYWHERE, _IN_TRANSACTIONS, _DYNOXIDE, _DYNOXIDE_IN_TRANSACTIONS),
    ),
}
"""By engine and trait: what it does instead."""

EXPRESSION_DIFFERENCES: Mapping[str, frozenset[str]] = {
    "ministack": frozenset({"gone = lacking", "gone <> lacking", "begins_with(n, :v)", "REMOVE n"}),
    "dynoxide": frozenset({"REMOVE n"}),
}
"""Of ``expression_cases``, those which an engine gets wrong."""

WITHOUT_CAPACITY: Mapping[str, str] = {
    "ministack": "counts the zeros at the end of numbers, and reads of large items; dynoxide's figures are exact",
}
"""Engines whose ``ConsumedCapacity`` is not compared."""

EMPTY_FOR_NOTHING: Mapping[str, str] = {
    "ministack": "answers with empty Attributes where DynamoDB leaves them out",
}
"""Engines whose empty ``Attributes`` count as none."""


def other_differences(table: str, here: Key, nowhere: Key) -> dict[str, Drawn]:
    """A call for each difference that is none of ``wrong_calls``. There is an item ``here``, and none ``nowhere``."""
    remove = {"TableName": table, "Key": address(nowhere), "UpdateExpression": "REMOVE b"}
    set_new = {
        "TableName": table,
        "Key": address(nowhere),
        "UpdateExpression": "SET b = :v",
        "ExpressionAttributeValues": {":v": encode(1)},
        "ReturnValues": "ALL_OLD",
    }
    add_much = {
        "TableName": table,
        "Key": address(here),
        "UpdateExpression": "ADD b_rpm_tk :v",
        "ExpressionAttributeValues": {":v": {"N": "1" * 37}},
    }
    query = {
        "TableName": table,
        "KeyConditionExpression": "SK = :s AND PK = :p",
        "ExpressionAttributeValues": {":s": encode(here.sk), ":p": encode(here.pk)},
    }
    return {
        ONLY_REMOVALS: Drawn("UpdateItem", remove),
        ONLY_REMOVALS + IN_A_TRANSACTION: Drawn("TransactWriteItems", {"TransactItems": [{"Update": remove}]}),
        OLD_OF_NO_ITEM: Drawn("UpdateItem", set_new),
        ODD_NUMBER: Drawn("UpdateItem", add_much),
        SORT_KEY_FIRST: Drawn("Query", query),
    }
