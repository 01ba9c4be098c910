"""How large an item is to DynamoDB, which bills by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def size_of(item: Mapping[str, Any]) -> int:
    """As DynamoDB counts: names, strings in UTF-8, numbers by pairs of digits and a byte or two."""
    size = 0
    for name, value in item.items():
        ((kind, content),) = value.items()
        size += len(name)
        if kind == "S":
            size += len(content.encode())
        elif kind == "N":
            digits = content.lstrip("-").rstrip("0")
            size += (len(digits) + 1) // 2 + 1 + content.startswith("-")
        else:
            size += 1
    return size
