"""Following a list over all its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from zae_limiter import Page

Item = TypeVar("Item")

PAGE_SIZE = 200
"""Large enough to be quick, small enough that the first lines come at once."""


class Pages(Generic[Item]):
    """The pages of a list, asked for one after the other, up to ``most`` items.

    ``fetch`` gets a page size and a cursor. When it has been gone through, ``seen`` says how many items came and
    ``more`` whether there would have been others.
    """

    def __init__(
        self, fetch: Callable[[int, str | None], Page[Item]], most: int | None = None, *, page: int = PAGE_SIZE
    ) -> None:
        self._fetch = fetch
        self._most = most
        self._page = page
        self.seen = 0
        self.more = False

    def __iter__(self) -> Iterator[Sequence[Item]]:
        cursor: str | None = None
        while True:
            size = self._page if self._most is None else min(self._page, self._most - self.seen)
            items, cursor = self._fetch(size, cursor)
            self.seen += len(items)
            yield items
            if cursor is None:
                return
            if self.seen == self._most:
                self.more = True
                return

    def items(self) -> Iterator[Item]:
        """One by one."""
        for page in self:
            yield from page
