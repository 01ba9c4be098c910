"""Checks of JSON documents against the schemas that the OpenAPI document shows: what is written there is what holds.

A schema is compiled once into a function. It knows the words that our schemas use; another one is an error when the
service starts, so that no schema promises what is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from zae_limiter import ValidationError

Schema: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Any, str], None]

KNOWN_WORDS = frozenset(
    {
        "additionalProperties",
        "default",
        "description",
        "enum",
        "examples",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    }
)

TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def compile_check(schema: Schema) -> Check:
    """The function that raises ``ValidationError`` for a value that is not as the schema says."""
    unknown = schema.keys() - KNOWN_WORDS
    if unknown:
        raise ValueError(f"no check is written for {', '.join(sorted(unknown))} of a schema")
    named = schema.get("type")
    names = [named] if isinstance(named, str) else list(named or TYPES)
    kinds = tuple(kind for name in names for kind in TYPES[name])
    words = " or ".join(names)
    takes_flags = "boolean" in names
    parts = [*_checks_of_numbers(schema), *_checks_of_texts(schema), *_checks_of_parts(schema)]

    def check(value: Any, field: str) -> None:
        if not isinstance(value, kinds) or (value.__class__ is bool and not takes_flags):
            raise ValidationError(field, value, f"must be of the type {words}")
        for part in parts:
            part(value, field)

    return check


def _checks_of_numbers(schema: Schema) -> list[Check]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return []

    def check(value: Any, field: str) -> None:
        if isinstance(value, int | float) and not ((low is None or value >= low) and (high is None or value <= high)):
            bounds = f"from {low} to {high}" if None not in (low, high) else f"{low} or more"
            raise ValidationError(field, value, f"must be {bounds}")

    return [check]


def _checks_of_texts(schema: Schema) -> list[Check]:
    checks: list[Check] = []
    if "enum" in schema:
        choices = schema["enum"]

        def check_choice(value: Any, field: str) -> None:
            if value not in choices:
                raise ValidationError(field, value, f"must be one of {', '.join(map(str, choices))}")

        checks.append(check_choice)
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
    if shortest or longest is not None:

        def check_length(value: Any, field: str) -> None:
            if isinstance(value, str) and not (shortest <= len(value) and (longest is None or len(value) <= longest)):
                raise ValidationError(field, value, f"must have {shortest} to {longest} characters")

        checks.append(check_length)
    return checks


def _checks_of_parts(schema: Schema) -> list[Check]:
    checks: list[Check] = []
    if "properties" in schema or "additionalProperties" in schema:
        checks.append(_check_of_object(schema))
    if "items" in schema:
        checks.append(_check_of_list(schema))
    return checks


def _check_of_object(schema: Schema) -> Check:
    known = {name: compile_check(part) for name, part in schema.get("properties", {}).items()}
    required = tuple(schema.get("required", ()))
    fewest = schema.get("minProperties", 0)
    others = schema.get("additionalProperties", True)
    check_other = compile_check(others) if isinstance(others, Mapping) else None

    def check(value: Any, field: str) -> None:
        if not isinstance(value, dict):
            return
        for name in required:
            if name not in value:
                raise ValidationError(_within(field, name), None, "is missing")
        if len(value) < fewest:
            raise ValidationError(field, value, f"must have at least {fewest} of {', '.join(known) or 'anything'}")
        for name, part in value.items():
            check_part = known.get(name, check_other)
            if check_part is not None:
                check_part(part, _within(field, name))
            elif others is False:
                raise ValidationError(_within(field, name), part, f"is not known here: {', '.join(known)}")

    return check


def _check_of_list(schema: Schema) -> Check:
    check_item = compile_check(schema["items"])
    fewest, most = schema.get("minItems", 0), schema.get("maxItems")

    def check(value: Any, field: str) -> None:
        if not isinstance(value, list):
            return
        if len(value) < fewest or (most is not None and len(value) > most):
            raise ValidationError(
                field, f"{len(value)} items", f"must have {fewest} to {most or 'any number of'} items"
            )
        for place, item in enumerate(value):
            check_item(item, f"{field}[{place}]")

    return check


def _within(field: str, name: str) -> str:
    return name if field == BODY else f"{field}.{name}"


BODY = "body"
"""How messages call the document as a whole."""
