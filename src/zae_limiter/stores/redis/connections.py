"""Connections of threads: one call at a time on each, kept for the next call.

redis-py opens a connection and logs in. From then on its socket is used directly, since sending and reading through
redis-py would cost a quarter of a call.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

from redis.exceptions import RedisError

from zae_limiter.stores.redis.errors import NoReply
from zae_limiter.stores.redis.redis_py import connection, failure
from zae_limiter.stores.redis.urls import Address, Servers
from zae_limiter.stores.redis.wire import INCOMPLETE, NotRedis, parse

IN_TIME = 0.99
"""If that part of the deadline is left, the timeout of the connection will do: it is the whole deadline."""

MOST_AT_ONCE = 65_536


class BlockingConnection:
    """One connection that is open."""

    __slots__ = ("_deadline", "_link", "_socket")

    def __init__(self, link: Any, deadline: float) -> None:
        self._link = link  # kept, for it closes its socket when it goes
        self._socket = link._sock
        self._deadline = deadline
        self._socket.settimeout(deadline)

    def exchange(self, data: bytes, count: int, seconds: float) -> list[Any]:
        """Send some commands, and return their ``count`` replies. Errors among them are values."""
        if seconds >= self._deadline * IN_TIME:
            return self._exchange(data, count)
        self._socket.settimeout(max(seconds, 0.001))
        replies = self._exchange(data, count)
        self._socket.settimeout(self._deadline)
        return replies

    def _exchange(self, data: bytes, count: int) -> list[Any]:
        self._socket.sendall(data)
        received, at, replies = self._socket.recv(MOST_AT_ONCE), 0, []
        while True:
            reply, at = parse(received, at)
            if reply is not INCOMPLETE:
                replies.append(reply)
                if len(replies) == count:
                    break
            else:
                more = self._socket.recv(MOST_AT_ONCE)
                if not more:
                    raise NoReply("the server closed the connection", sent=True)
                received, at = received[at:] + more, 0
        if at != len(received):  # a server that speaks without being asked is none
            raise NoReply("the server said more than it was asked", sent=True)
        return replies

    def close(self) -> None:
        """Let go of it."""
        self._link.disconnect()


class ThreadConnections:
    """The idle connections of a process. A forked child opens its own."""

    def __init__(self, servers: Servers, deadline: float) -> None:
        self._servers = servers
        self._deadline = deadline
        self._idle: dict[Address, deque[BlockingConnection]] = {}
        self._pid = os.getpid()

    def call(self, address: Address, data: bytes, count: int, seconds: float) -> list[Any]:
        """Send some commands, and return their ``count`` replies. Errors among them are values."""
        idle = self._idle_at(address)
        try:
            link = idle.pop()
        except IndexError:
            started = time.monotonic()
            link = self._opened(address, seconds)
            seconds -= time.monotonic() - started
        try:
            replies = link.exchange(data, count, seconds)
        except (OSError, NoReply, NotRedis) as error:
            link.close()
            raise (error if isinstance(error, NoReply) else failure(error, sent=True)) from error
        except BaseException:
            link.close()
            raise
        idle.append(link)
        return replies

    def close(self) -> None:
        """Let go of what is idle."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def _idle_at(self, address: Address) -> deque[BlockingConnection]:
        if self._pid != os.getpid():
            self._idle, self._pid = {}, os.getpid()
        idle = self._idle.get(address)
        if idle is None:
            idle = self._idle[address] = deque()
        return idle

    def _opened(self, address: Address, seconds: float) -> BlockingConnection:
        link = connection(self._servers, address, self._deadline)
        link.socket_connect_timeout = max(min(seconds, self._deadline), 0.001)
        try:
            link.connect()
        except (RedisError, OSError) as error:
            link.disconnect()
            raise failure(error, sent=False) from error
        return BlockingConnection(link, self._deadline)
