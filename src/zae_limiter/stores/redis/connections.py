"""Connections of threads: one call at a time on each, kept for the next call."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

from redis.exceptions import RedisError

from zae_limiter.stores.redis.errors import NoReply
from zae_limiter.stores.redis.redis_py import connection, failure, server_error
from zae_limiter.stores.redis.urls import Address, Servers

IN_TIME = 0.99
"""If that part of the deadline is left, the timeout of the connection will do: it is the whole deadline."""


class ThreadConnections:
    """The idle connections of a process. A forked child opens its own."""

    def __init__(self, servers: Servers, deadline: float) -> None:
        self._servers = servers
        self._deadline = deadline
        self._idle: dict[Address, deque[Any]] = {}
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
            link.send_packed_command((data,), check_health=False)
            if seconds < self._deadline * IN_TIME and not link.can_read(max(seconds, 0)):
                raise NoReply("it takes too long", sent=True)
            replies = [_reply(link) for _ in range(count)]
        except (RedisError, OSError, NoReply) as error:
            link.disconnect()
            raise (error if isinstance(error, NoReply) else failure(error, sent=True)) from error
        except BaseException:
            link.disconnect()
            raise
        idle.append(link)
        return replies

    def close(self) -> None:
        """Let go of what is idle."""
        for idle in self._idle.values():
            while idle:
                idle.pop().disconnect()

    def _idle_at(self, address: Address) -> deque[Any]:
        if self._pid != os.getpid():
            self._idle, self._pid = {}, os.getpid()
        idle = self._idle.get(address)
        if idle is None:
            idle = self._idle[address] = deque()
        return idle

    def _opened(self, address: Address, seconds: float) -> Any:
        link = connection(self._servers, address, self._deadline)
        link.socket_connect_timeout = max(min(seconds, self._deadline), 0.001)
        try:
            link.connect()
        except (RedisError, OSError) as error:
            link.disconnect()
            raise failure(error, sent=False) from error
        return link


def _reply(link: Any) -> Any:
    try:
        return link.read_response()
    except RedisError as error:
        said = server_error(error)
        if said is None:
            raise
        return said
