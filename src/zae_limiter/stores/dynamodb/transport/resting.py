"""Connections that rest between two calls, and whether one may be used again."""

from __future__ import annotations

import select
from collections import deque
from time import time
from typing import Generic, Protocol, TypeVar


class Restful(Protocol):
    """A connection."""

    def fileno(self) -> int: ...

    def close(self) -> object: ...


Connection = TypeVar("Connection", bound=Restful)


class Resting(Generic[Connection]):
    """The connections that nobody uses now. Safe to share between threads.

    Age is told by the wall clock: where a machine was frozen, only that one goes on. A connection with something
    to read before anything was asked has been closed by the other side, or is not in order.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._connections: deque[tuple[float, Connection]] = deque()

    def put(self, connection: Connection) -> None:
        """Let one rest. Another one that has rested too long is closed."""
        connections, now = self._connections, time()
        connections.append((now, connection))
        try:
            if abs(now - connections[0][0]) > self._longest_s:
                connections.popleft()[1].close()
        except IndexError:
            pass  # other threads have taken them all

    def take(self) -> Connection | None:
        """The one that rested least, if it is in order."""
        while True:
            try:
                since, connection = self._connections.pop()
            except IndexError:
                return None
            if abs(time() - since) <= self._longest_s and is_quiet(connection):
                return connection
            connection.close()

    def take_all(self) -> list[Connection]:
        """All of them."""
        taken = []
        while self._connections:
            try:
                taken.append(self._connections.pop()[1])
            except IndexError:
                break
        return taken


def is_quiet(connection: Restful) -> bool:
    """Whether there is nothing to read, not even the end."""
    descriptor = connection.fileno()
    if descriptor < 0:
        return False
    try:
        poll = select.poll()
    except AttributeError:  # Windows
        return not select.select([descriptor], [], [], 0)[0]
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(0)
