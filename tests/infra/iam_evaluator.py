"""A small IAM: does a policy allow a request? As AWS documents it, for what our policies use; the rest is an error."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

Context = Mapping[str, Collection[str]]
"""The values of a request's condition keys; one that is not there is not in the request."""

_VARIABLE = re.compile(r"\$\{([^}]+)\}")


class NoSuchValue(Exception):
    """A policy variable has no value in the request: what it stands in matches nothing."""


def is_allowed(document: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    """Whether a policy alone allows a request: something allows it, and nothing denies it."""
    effects = {
        statement["Effect"] for statement in document["Statement"] if applies(statement, action, resource, context)
    }
    return effects == {"Allow"}


def applies(statement: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    """Whether a statement is about a request."""
    unknown = statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition", "Principal"}
    assert not unknown, unknown
    return (
        any(like(pattern.lower(), action.lower()) for pattern in listed(statement["Action"]))
        and any(like(pattern, resource) for pattern in listed(statement["Resource"]))
        and all(holds(*condition, context) for condition in statement.get("Condition", {}).items())
    )


def holds(operator: str, keys: Mapping[str, Any], context: Context) -> bool:
    """Whether one block of a condition holds: for all of its keys."""
    return all(_holds(operator, key, listed(wanted), context) for key, wanted in keys.items())


def _holds(operator: str, key: str, wanted: Sequence[str], context: Context) -> bool:
    try:
        patterns = [with_values(pattern, context) for pattern in wanted]
    except NoSuchValue:
        return False
    values = context.get(key)
    if operator == "ForAllValues:StringLike":
        return all(any(like(pattern, value) for pattern in patterns) for value in values or ())
    if operator == "StringNotEquals":
        return values is None or all(value not in patterns for value in values)
    if operator == "StringLike":
        return values is not None and any(like(pattern, value) for pattern in patterns for value in values)
    raise AssertionError(f"this IAM does not know {operator}")


def with_values(pattern: str, context: Context) -> str:
    """A pattern with its variables filled in; what is filled in is taken literally."""

    def value(variable: re.Match[str]) -> str:
        values = context.get(variable[1])
        if not values:
            raise NoSuchValue
        (found,) = values
        assert not set(found) & set("*?"), "tags cannot have these"
        return found

    return _VARIABLE.sub(value, pattern)


def like(pattern: str, value: str) -> bool:
    """Whether ``*`` (any characters) and ``?`` (any one) make the pattern match."""
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def listed(value: str | Sequence[str]) -> Sequence[str]:
    """One string or several, as policies may have it."""
    return [value] if isinstance(value, str) else value
