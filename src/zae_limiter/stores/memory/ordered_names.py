"""Sets of names that can be listed in order."""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

Name = TypeVar("Name", str, tuple[str, str])


SPARE = 64


class OrderedNames(Generic[Name]):
    """A set of names that can be listed in order.

    Adding and removing cost nothing; the order is restored when the names are listed, from an almost sorted list.
    """

    __slots__ = ("_listed", "_names", "_stale")

    def __init__(self) -> None:
        self._names: set[Name] = set()
        self._listed: list[Name] = []
        self._stale = False

    def add(self, name: Name) -> None:
        if name not in self._names:
            self._names.add(name)
            self._listed.append(name)
            self._stale = True
            if len(self._listed) > 2 * len(self._names) + SPARE:  # names that come and go, and are never listed
                self._listed = list(self._names)

    def discard(self, name: Name) -> None:
        if name in self._names:
            self._names.remove(name)
            self._stale = True

    def after(self, name: Name | None, count: int | None = None) -> list[Name]:
        if self._stale:
            kept = dict.fromkeys(listed for listed in self._listed if listed in self._names)
            self._listed = sorted(kept)
            self._stale = False
        start = 0 if name is None else bisect_right(self._listed, name)
        return self._listed[start : None if count is None else start + count]

    def __bool__(self) -> bool:
        return bool(self._names)


class Index:
    """Names in order, under a key."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, OrderedNames[str]] = {}

    def add(self, key: str, name: str) -> None:
        self._names.setdefault(key, OrderedNames()).add(name)

    def discard(self, key: str, name: str) -> None:
        names = self._names.get(key)
        if names is not None:
            names.discard(name)
            if not names:
                del self._names[key]

    def after(self, key: str, name: str | None, count: int | None = None) -> list[str]:
        names = self._names.get(key)
        return [] if names is None else names.after(name, count)
