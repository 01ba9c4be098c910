"""DynamoDB's typed JSON. Only the types we store: strings, whole numbers, booleans, nothing, lists, maps.

What is read may have been written by anybody with access to the table. Numbers are bounded here, where they are read:
DynamoDB's may have 126 digits, and a loop or a sum over one of those would cost its reader dearly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.bucket import MOST_STORED


def number_in(attribute: Mapping[str, Any], least: int = -MOST_STORED, most: int = MOST_STORED) -> int:
    """A whole number as Python has it. Raises ``KeyError`` or ``ValueError`` if it is none, or out of bounds."""
    number = int(attribute["N"])
    if not least <= number <= most:
        raise ValueError(f"a number of {len(str(number))} digits is out of bounds")
    return number


def encode(value: Any) -> dict[str, Any]:
    """A value as DynamoDB writes it."""
    kind = value.__class__
    if kind is int:
        return {"N": str(value)}
    if kind is str:
        return {"S": value}
    if kind is bool:
        return {"BOOL": value}
    if value is None:
        return {"NULL": True}
    if isinstance(value, str):
        return {"S": str(value)}
    if isinstance(value, Mapping):
        return {"M": {key: encode(part) for key, part in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"L": [encode(part) for part in value]}
    raise TypeError(f"{kind.__name__} is not stored")


def decode(value: Mapping[str, Any]) -> Any:
    """A value as Python has it."""
    ((kind, content),) = value.items()
    if kind == "N":
        return number_in(value)
    if kind in ("S", "BOOL"):
        return content
    if kind == "NULL":
        return None
    if kind == "M":
        return {key: decode(part) for key, part in content.items()}
    if kind == "L":
        return [decode(part) for part in content]
    raise ValueError(f"an attribute of type {kind} is none of ours")


def encode_item(attributes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """An item as DynamoDB writes it. ``None`` means that the attribute is not there."""
    return {name: encode(value) for name, value in attributes.items() if value is not None}


def decode_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as Python has it."""
    return {name: decode(value) for name, value in item.items()}
