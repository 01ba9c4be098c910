"""A small event filter: does a record match a pattern? As Lambda documents it, for DynamoDB's streams.

A pattern names keys and for each what it may be: a list of values, or of ``prefix``, ``suffix`` and ``exists``, any of
which is enough. All keys must match. Lambda looks at nothing but the ``dynamodb`` part of a record, and its filters
have no wildcards, unlike EventBridge's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

MISSING = object()


def passes(record: Mapping[str, Any], filters: Iterable[Mapping[str, str]]) -> bool:
    """Whether a record passes any of the filters of an event source mapping."""
    return any(matches(record, json.loads(each["Pattern"])) for each in filters)


def matches(record: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Whether a record matches a pattern."""
    assert pattern.keys() == {"dynamodb"}, "Lambda filters by nothing else"
    return _matches(record, pattern)


def _matches(record: Any, pattern: Mapping[str, Any]) -> bool:
    for key, wanted in pattern.items():
        value = record.get(key, MISSING) if isinstance(record, Mapping) else MISSING
        if isinstance(wanted, Mapping):
            if not _matches(value, wanted):
                return False
        elif not any(_is(value, rule) for rule in wanted):
            return False
    return True


def _is(value: Any, rule: Any) -> bool:
    if not isinstance(rule, Mapping):
        return bool(value == rule)
    ((operator, argument),) = rule.items()
    if operator == "exists":
        return (value is not MISSING) is argument
    if not isinstance(value, str):
        return False
    if operator == "prefix":
        return value.startswith(argument)
    if operator == "suffix":
        return value.endswith(argument)
    raise AssertionError(f"Lambda has no {operator}")
