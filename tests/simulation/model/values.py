"""Typed values: their canonical form, their order, their arithmetic and how many bytes they are charged for.

Every value inside the model is canonical, so two are equal when their JSON is. Numbers have at most 38 significant
digits and no superfluous zeros. Strings are ordered by their UTF-8 bytes, which is the order of Python's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

from simulation.model.refusals import NotModelled, invalid

Value: TypeAlias = dict[str, Any]
"""One typed value: ``{"S": …}``, ``{"N": …}``, ``{"BOOL": …}``, ``{"NULL": True}``, ``{"L": […]}``, ``{"M": {…}}``."""

Attributes: TypeAlias = dict[str, Value]
"""An item of the model, never changed in place."""

KINDS: Final = ("S", "N", "BOOL", "NULL", "L", "M")
ALL_KINDS: Final = frozenset({*KINDS, "B", "SS", "NS", "BS"})
DIGITS: Final = 38
SMALLEST: Final = Decimal("1E-130")
LARGEST: Final = Decimal("9.9999999999999999999999999999999999999E+125")

_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_EXACT: Final = Context(prec=400)


@lru_cache(1 << 16)
def canonical_number(text: str) -> str:
    """A number as DynamoDB keeps it."""
    if type(text) is not str:
        raise TypeError(f"a number is sent as a string, not as {text!r}")
    digits = text[1:] if text[:1] == "-" else text
    if digits.isdigit() and digits.isascii() and digits[0] != "0" and len(digits) <= DIGITS:
        return text
    if not _NUMBER.fullmatch(text):
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}")
    number = _EXACT.create_decimal(text)
    if not number:
        return "0"
    magnitude = abs(number)
    if magnitude > LARGEST:
        raise invalid("Number overflow. Attempting to store a number with magnitude larger than supported range")
    if magnitude < SMALLEST:
        raise invalid("Number underflow. Attempting to store a number with magnitude smaller than supported range")
    number = number.normalize(_EXACT)
    if len(number.as_tuple().digits) > DIGITS:
        raise invalid("Attempting to store more than 38 significant digits in a Number")
    return format(number, "f")


def canonical(value: Mapping[str, Any]) -> Value:
    """A value as DynamoDB keeps it, sharing nothing with the request."""
    if len(value) != 1:
        raise invalid("Supplied AttributeValue has more than one datatypes set, must contain exactly one of them")
    ((kind, content),) = value.items()
    if kind == "N":
        return {"N": canonical_number(content)}
    if kind == "S":
        if not isinstance(content, str):
            raise TypeError(f"a string is sent as a string, not as {content!r}")
        return {"S": content}
    if kind == "BOOL":
        return {"BOOL": bool(content)}
    if kind == "NULL":
        if content is not True:
            raise invalid("One or more parameter values were invalid: Null attribute value types must have value true")
        return {"NULL": True}
    if kind == "L":
        return {"L": [canonical(part) for part in content]}
    if kind == "M":
        return {"M": {name: canonical(part) for name, part in content.items()}}
    if kind in ALL_KINDS:
        raise NotModelled(f"values of type {kind}")
    raise invalid(f"Supplied AttributeValue is empty, must contain exactly one of the supported datatypes: {kind}")


def kind_of(value: Value) -> str:
    """Its type."""
    return next(iter(value))


def number(text: str) -> int | Decimal:
    """A number to count with."""
    try:
        return int(text)
    except ValueError:
        return Decimal(text)


def in_order(compare: Callable[[Any, Any], bool], left: Value, right: Value) -> bool:
    """Whether ``left < right`` (or whichever order is asked). Values of different types have none."""
    a, b = left.get("N"), right.get("N")
    if a is not None and b is not None:
        try:
            return compare(int(a), int(b))
        except ValueError:
            return compare(number(a), number(b))
    a, b = left.get("S"), right.get("S")
    if a is not None and b is not None:
        return compare(a, b)
    return False


def add(left: Value, right: Value, sign: int = 1) -> Value:
    """The sum, or with ``sign=-1`` the difference, of two numbers."""
    a, b = left.get("N"), right.get("N")
    if a is None or b is None:
        raise invalid("An operand in the update expression has an incorrect data type")
    try:
        total = str(int(a) + sign * int(b))
    except ValueError:
        other = Decimal(b) if sign > 0 else Decimal(b).copy_negate()
        return {"N": canonical_number(str(_EXACT.add(Decimal(a), other)))}
    return {"N": total if len(total) <= DIGITS else canonical_number(total)}


def length_of(value: Value) -> int | None:
    """What ``size()`` answers; nothing for values that have no size."""
    ((kind, content),) = value.items()
    if kind == "S":
        return bytes_of(content)
    return len(content) if kind in ("L", "M") else None


# What is charged for


def bytes_of(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def value_size(value: Value) -> int:
    """The bytes a value is charged for."""
    text = value.get("N")
    if text is not None:
        return number_size(text)
    text = value.get("S")
    if text is not None:
        return len(text) if text.isascii() else len(text.encode())
    if "L" in value:
        return 3 + sum(1 + value_size(part) for part in value["L"])
    if "M" in value:
        return 3 + sum(1 + bytes_of(name) + value_size(part) for name, part in value["M"].items())
    return 1


@lru_cache(1 << 16)
def number_size(text: str) -> int:
    """One byte per two significant digits, one more, and one for a minus. Outer zeros are free."""
    if text == "0":
        return 1
    negative = text[0] == "-"
    whole, _, fraction = text.partition(".")
    if not fraction:
        return (len(text.rstrip("0")) - negative + 1) // 2 + 1 + negative
    whole = whole.lstrip("-0")
    if not whole:
        fraction = fraction.lstrip("0")
    return (len(whole) + 1) // 2 + (len(fraction) + 1) // 2 + 1 + negative


def item_size(item: Mapping[str, Value]) -> int:
    """The bytes an item is charged for."""
    return sum(bytes_of(name) + value_size(value) for name, value in item.items())
