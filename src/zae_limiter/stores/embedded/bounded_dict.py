"""A bounded dict that keeps what was used recently."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedDict(dict[Key, Value]):
    """Holds at most ``most`` entries, in two generations.

    When the young generation is full it becomes the old one, and what was old by then is forgotten. Reading an old
    entry with ``[]`` makes it young again, so that what is in use stays. No entry is ever searched for, so the cost of
    remembering one does not depend on how many there are.
    """

    __slots__ = ("_half", "_old")

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._old: dict[Key, Value] = {}

    def __missing__(self, key: Key) -> Value:
        value = self._old[key]
        self[key] = value
        return value

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._half and key not in self:
            self._old = dict(self)
            super().clear()
        super().__setitem__(key, value)

    def forget(self, key: Key) -> None:
        """Remember one entry no longer."""
        self.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Remember nothing any more."""
        super().clear()
        self._old = {}
