"""Connections of event loops: one per loop and server, which all tasks of the loop share.

The commands of all tasks go out as they come, and the replies come back in that order. The first command of a turn of
the loop leaves at once, the others together. redis-py opens the connection and logs in; then its transport is given
this protocol, since reading through redis-py's own would cost more than the rest of a call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from zae_limiter.stores.redis.errors import NoReply
from zae_limiter.stores.redis.redis_py import async_connection, failure
from zae_limiter.stores.redis.urls import Address, Servers
from zae_limiter.stores.redis.wire import INCOMPLETE, NotRedis, parse

Told = Callable[[list[Any] | Exception], None]


class Waiting(NamedTuple):
    """A call whose replies have not all come."""

    expected: int
    replies: list[Any]
    give_up_at: float
    tell: Told


class PipelinedConnection(asyncio.Protocol):
    """One connection of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: asyncio.StreamWriter) -> None:
        self.loop = loop
        self.is_lost = False
        self._writer = writer  # kept, for it closes its transport when it goes
        self._transport = writer.transport
        self._waiting: deque[Waiting] = deque()
        self._unsent: list[bytes] = []
        self._turn_began = False
        self._partial = b""
        self._timer: asyncio.TimerHandle | None = None
        self._transport.set_protocol(self)

    def send(self, data: bytes, count: int, give_up_at: float, tell: Told) -> None:
        """Send some commands. ``tell`` gets their replies, errors among them, or why there are none."""
        self._waiting.append(Waiting(count, [], give_up_at, tell))
        if self._turn_began:
            self._unsent.append(data)
        else:
            self._turn_began = True
            self.loop.call_soon(self._end_turn)
            self._transport.write(data)
        if self._timer is None:
            self._timer = self.loop.call_at(give_up_at, self._look_at_the_time)

    def _end_turn(self) -> None:
        self._turn_began = False
        if self._unsent:
            data = b"".join(self._unsent)
            self._unsent.clear()
            if not self.is_lost:
                self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
            self._partial = b""
        at, size, waiting = 0, len(data), self._waiting
        while at < size:
            try:
                reply, at = parse(data, at)
            except NotRedis:
                self._transport.abort()
                return
            if reply is INCOMPLETE:
                self._partial = data[at:]
                return
            if not waiting:  # a server that speaks without being asked is none
                self._transport.abort()
                return
            call = waiting[0]
            call.replies.append(reply)
            if len(call.replies) == call.expected:
                waiting.popleft()
                call.tell(call.replies)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.tell(NoReply(f"the connection was lost: {error or 'closed by the server'}", sent=True))

    def _look_at_the_time(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        first = self._waiting[0].give_up_at
        if self.loop.time() < first:
            self._timer = self.loop.call_at(first, self._look_at_the_time)
        else:
            self._transport.abort()  # those behind it ask again, on another connection

    def close(self) -> None:
        """Let go of it; calls that wait are told."""
        self._transport.abort()


class LoopConnections:
    """The connections of all loops of a process."""

    def __init__(self, servers: Servers, deadline: float) -> None:
        self._servers = servers
        self._deadline = deadline
        self._open: dict[tuple[asyncio.AbstractEventLoop, Address], PipelinedConnection] = {}
        self._opening: dict[tuple[asyncio.AbstractEventLoop, Address], asyncio.Task[PipelinedConnection]] = {}

    def at_hand(self, address: Address) -> PipelinedConnection | None:
        """The connection of the running loop, if it is open."""
        found = self._open.get((asyncio.get_running_loop(), address))
        return None if found is None or found.is_lost else found

    async def get(self, address: Address, seconds: float) -> PipelinedConnection:
        """The connection of the running loop; tasks that ask at the same time wait for the same one."""
        found = self.at_hand(address)
        if found is not None:
            return found
        key = (asyncio.get_running_loop(), address)
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = key[0].create_task(self._opened(key))
            opening.add_done_callback(lambda task: self._note_opened(key, task))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(opening)
        except TimeoutError:
            raise NoReply("connecting takes too long", sent=False) from None

    def _note_opened(
        self, key: tuple[asyncio.AbstractEventLoop, Address], task: asyncio.Task[PipelinedConnection]
    ) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()  # those who waited were told; if none did any more, it is no news

    async def _opened(self, key: tuple[asyncio.AbstractEventLoop, Address]) -> PipelinedConnection:
        for known in [known for known in self._open if known[0].is_closed()]:
            del self._open[known]
        link = async_connection(self._servers, key[1], self._deadline)
        try:
            await link.connect()
        except (RedisError, OSError) as error:
            await link.disconnect(nowait=True)
            raise failure(error, sent=False) from error
        except BaseException:
            await link.disconnect(nowait=True)
            raise
        writer, link._writer, link._reader = link._writer, None, None
        found = self._open[key] = PipelinedConnection(key[0], writer)
        return found

    async def aclose(self) -> None:
        """Let go of the connections of the running loop."""
        loop = asyncio.get_running_loop()
        opening = [self._opening.pop(key) for key in list(self._opening) if key[0] is loop]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for key in [key for key in self._open if key[0] is loop]:
            self._open.pop(key).close()
        await asyncio.sleep(0)
