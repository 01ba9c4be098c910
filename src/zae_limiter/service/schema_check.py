"""Checks of JSON documents against the schemas that the OpenAPI document shows: what is written there is what holds.

A schema is compiled once into a function. It knows the words that our schemas use; another one is an error when the
service starts, so that no schema promises what is not checked. Every acquire passes here, so a check of a value that
fits does as little as it can: where it stands in the document is worked out only for one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from zae_limiter import ValidationError

Schema: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Any], None]

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
        "minimum",
        "properties",
        "required",
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
"""What the decoder makes of each, exactly: it knows no classes of classes, so that a flag is no number."""


class Mismatch(Exception):
    """A value that is not as its schema says. ``path``: where it stands, from the inside out."""

    def __init__(self, value: object, reason: str) -> None:
        self.value = value
        self.reason = reason
        self.path: list[str] = []
        super().__init__(value, reason)

    def as_validation_error(self, what: str) -> ValidationError:
        """The error that a client is told; ``what`` names the document as a whole."""
        field = "".join(reversed(self.path)).removeprefix(".")
        return ValidationError(field or what, self.value, self.reason)


def check_document(check: Check, document: Any, what: str = "body") -> None:
    """Raise ``ValidationError`` for a document that is not as its schema says."""
    try:
        check(document)
    except Mismatch as mismatch:
        raise mismatch.as_validation_error(what) from None


def compile_check(schema: Schema) -> Check:
    """The function that raises :class:`Mismatch` for a value that is not as the schema says."""
    unknown = schema.keys() - KNOWN_WORDS
    if unknown:
        raise ValueError(f"no check is written for {', '.join(sorted(unknown))} of a schema")
    named = schema.get("type")
    names = [named] if isinstance(named, str) else list(named or TYPES)
    kinds = frozenset(kind for name in names for kind in TYPES[name])
    reason = f"must be of the type {' or '.join(names)}"
    parts = [part for part in _parts(schema) if part is not None]
    if len(parts) == 1:
        [only] = parts

        def check_one(value: Any) -> None:
            if value.__class__ not in kinds:
                raise Mismatch(value, reason)
            only(value)

        return check_one

    def check(value: Any) -> None:
        if value.__class__ not in kinds:
            raise Mismatch(value, reason)
        for part in parts:
            part(value)

    return check


def _parts(schema: Schema) -> list[Check | None]:
    return [
        _check_of_choice(schema) if "enum" in schema else None,
        _check_of_number(schema) if schema.keys() & {"minimum", "maximum"} else None,
        _check_of_length(schema) if schema.keys() & {"minLength", "maxLength"} else None,
        _check_of_object(schema) if schema.keys() & {"properties", "additionalProperties"} else None,
        _check_of_list(schema) if "items" in schema else None,
    ]


def _check_of_choice(schema: Schema) -> Check:
    choices = tuple(schema["enum"])

    def check(value: Any) -> None:
        if value not in choices:
            raise Mismatch(value, f"must be one of {', '.join(map(str, choices))}")

    return check


def _check_of_number(schema: Schema) -> Check:
    low, high = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))

    def check(value: Any) -> None:
        if value.__class__ in (int, float) and not low <= value <= high:
            raise Mismatch(value, f"must be from {low} to {high}")

    return check


def _check_of_length(schema: Schema) -> Check:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", float("inf"))

    def check(value: Any) -> None:
        if value.__class__ is str and not shortest <= len(value) <= longest:
            raise Mismatch(value, f"must have {shortest} to {longest} characters")

    return check


def _check_of_object(schema: Schema) -> Check:
    known = {name: compile_check(part) for name, part in schema.get("properties", {}).items()}
    required = tuple(schema.get("required", ()))
    others = schema.get("additionalProperties", True)
    check_other = compile_check(others) if isinstance(others, Mapping) else None

    def check(value: Any) -> None:
        if value.__class__ is not dict:
            return
        for name in required:
            if name not in value:
                raise _within(f".{name}", Mismatch(None, "is missing"))
        for name, part in value.items():
            check_part = known.get(name, check_other)
            try:
                if check_part is not None:
                    check_part(part)
                elif others is False:
                    raise Mismatch(part, f"is not known here: {', '.join(known)}")
            except Mismatch as mismatch:
                raise _within(f".{name}", mismatch) from None

    return check


def _check_of_list(schema: Schema) -> Check:
    check_item = compile_check(schema["items"])
    fewest, most = schema.get("minItems", 0), schema.get("maxItems", float("inf"))

    def check(value: Any) -> None:
        if value.__class__ is not list:
            return
        if not fewest <= len(value) <= most:
            raise Mismatch(f"{len(value)} items", f"must have {fewest} to {most} items")
        for place, item in enumerate(value):
            try:
                check_item(item)
            except Mismatch as mismatch:
                raise _within(f"[{place}]", mismatch) from None

    return check


def _within(step: str, mismatch: Mismatch) -> Mismatch:
    mismatch.path.append(step)
    return mismatch
