"""How a request is carried out: where it goes, and what is done when the answer is none.

A call ends with an answer, or with ``RateLimiterUnavailable`` when its deadline has passed. In between it is repeated:
connections break, masters change, slots migrate, scripts are flushed. Every request may be repeated; those that are
not the same when they are done twice carry a mark.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import suppress
from typing import Any, Final

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.running.async_driver import InFlight
from zae_limiter.running.clocks import machine_timer
from zae_limiter.running.plan import NOT_YET
from zae_limiter.stores.circuit_breaker import CircuitBreaker, Permission
from zae_limiter.stores.redis.async_connections import LoopConnections, PipelinedConnection
from zae_limiter.stores.redis.connections import ThreadConnections
from zae_limiter.stores.redis.errors import NoReply, circuit_open, is_passing, refused, unanswered
from zae_limiter.stores.redis.keys import REGISTRY, namespace_key, prefix_of
from zae_limiter.stores.redis.requests import Commands, MarkedScript, Sent
from zae_limiter.stores.redis.urls import Address, Servers
from zae_limiter.stores.redis.wire import ServerError

FIRST_PAUSE_S: Final = 0.001
LONGEST_PAUSE_S: Final = 0.1

StoreRequest = Commands | MarkedScript


class Topology:
    """Which server has a namespace. A cluster tells: any server of it answers MOVED."""

    def __init__(self, servers: Servers) -> None:
        self._seeds = servers.addresses
        self._seed = 0
        self._homes: dict[str, Address] = {}

    def address(self, tag: str) -> Address:
        """Where to ask."""
        home = self._homes.get(tag)
        return self._seeds[self._seed % len(self._seeds)] if home is None else home

    def moved(self, tag: str, error: ServerError, asked: Address) -> None:
        """A server said where the namespace is."""
        host, _, port = error.rest.split(" ")[1].rpartition(":")
        self._homes[tag] = (host or str(asked[0]), int(port))  # a server that does not know its own name says none

    def doubt(self, tag: str) -> None:
        """The server does not answer, or is not the one: ask another."""
        if self._homes.pop(tag, None) is None:
            self._seed += 1


class Call:
    """One request on its way: what to send next, and what came of it."""

    __slots__ = (
        "_ambiguous",
        "_backoff",
        "_calls",
        "_give_up_at",
        "_loading",
        "_moves",
        "_pause",
        "_repeated",
        "_sent_to",
        "_why",
        "request",
    )

    def __init__(self, calls: ScriptCalls, request: StoreRequest, give_up_at: float) -> None:
        self.request = request
        self._calls = calls
        self._give_up_at = give_up_at
        self._loading = self._ambiguous = False
        self._repeated = request.repeated
        self._moves = 0
        self._pause, self._backoff = 0.0, FIRST_PAUSE_S
        self._why: object = "it was never reached"
        self._sent_to = calls.topology.address(request.tag)

    def next_try(self, now: float) -> tuple[Address, Sent, float]:
        """Where to send what, and how many seconds are left; raises when none are."""
        left = self._give_up_at - now
        if left <= 0:
            self._calls.note_unanswered(self.request.tag)
            raise unanswered(self._calls.where, self._calls.deadline, self._why, self._ambiguous)
        self._calls.sent += 1
        self._sent_to = self._calls.topology.address(self.request.tag)
        return self._sent_to, self.request.sent(self._repeated, self._loading), left

    def pause(self, now: float) -> float:
        """How many seconds to wait before the next try."""
        return max(min(self._pause, self._give_up_at - now), 0.0)

    def answer(self, replies: list[Any], loads: int) -> list[Any] | None:
        """The replies, if they are the answer; else the call goes on."""
        self._pause = 0.0
        for reply in replies:
            if reply.__class__ is ServerError:
                self._go_on_after(reply)
                return None
        if self._calls.failing:
            self._calls.failing.pop(self.request.tag, None)
        return replies[loads:] if loads else replies

    def _go_on_after(self, error: ServerError) -> None:
        self._why = error
        if error.code == "NOSCRIPT":
            self._loading = True
        elif error.code == "MOVED":
            self._calls.topology.moved(self.request.tag, error, self._sent_to)
            self._moves += 1
            if self._moves > 1:  # the servers do not agree yet
                self._slow_down()
        elif is_passing(error):
            self._repeated = True  # a script may have been stopped on its way; what it did by then may be done again
            if error.code not in ("ASK", "TRYAGAIN", "BUSY"):
                self._calls.topology.doubt(self.request.tag)
            self._slow_down()
        else:
            raise refused(self._calls.where, error)

    def failed(self, why: Exception) -> None:
        """There was no reply; the call goes on."""
        if isinstance(why, ServerError):  # at the login
            self._go_on_after(why)
            return
        if not isinstance(why, NoReply):
            raise why
        self._why = why
        self._repeated = self._repeated or why.sent
        self._ambiguous = self._ambiguous or why.sent
        self._calls.repeats += 1
        self._calls.topology.doubt(self.request.tag)
        self._slow_down()

    def _slow_down(self) -> None:
        self._backoff = min(self._backoff * 2 * random.uniform(0.7, 1.3), LONGEST_PAUSE_S)
        self._pause = self._backoff


class ScriptCalls:
    """Carries out the requests of one store, in threads and in event loops."""

    def __init__(self, servers: Servers, deadline: float) -> None:
        self.where = servers.shown
        self.deadline = deadline
        self.topology = Topology(servers)
        self.sent = self.repeats = 0
        self.failing: dict[str, CircuitBreaker] = {}  # by namespace: in a cluster, one server may fail
        self._threads = ThreadConnections(servers, deadline)
        self._loops = LoopConnections(servers, deadline)

    def note_unanswered(self, tag: str) -> None:
        """A call was not answered by its deadline."""
        self.failing.setdefault(tag, CircuitBreaker()).unanswered(machine_timer())

    def _check_circuit(self, tag: str) -> None:
        """Fail at once while the server does not answer; about once a second it is probed on the side."""
        breaker = self.failing.get(tag)
        if breaker is None:
            return
        permission = breaker.permission(machine_timer())
        if permission is Permission.FAIL_AND_PROBE:
            threading.Thread(target=self._probe, args=(tag,), name="zae-limiter-probe", daemon=True).start()
        if permission is not Permission.GO:
            raise circuit_open(self.where)

    def _probe(self, tag: str) -> None:
        key = tag if tag == REGISTRY else namespace_key(prefix_of(tag))
        with suppress(RateLimiterUnavailable):
            self._carry_out(Commands(tag, ("EXISTS", key)), time.monotonic() + self.deadline)

    def perform(self, request: StoreRequest) -> list[Any]:
        """Do it, in this thread."""
        if self.failing:
            self._check_circuit(request.tag)
            return self._carry_out(request, time.monotonic() + self.deadline)
        began, sent = time.monotonic(), request.sent(request.repeated, False)
        self.sent += 1
        try:
            replies = self._threads.call(self.topology.address(request.tag), sent.data, sent.replies, self.deadline)
        except (NoReply, ServerError) as why:
            return self._carry_out(request, began + self.deadline, why)
        for reply in replies:
            if reply.__class__ is ServerError:
                return self._carry_out(request, began + self.deadline, reply)
        return replies

    def _carry_out(self, request: StoreRequest, give_up_at: float, why: Exception | None = None) -> list[Any]:
        """To its end; after a first try that failed, if ``why`` says so."""
        call = Call(self, request, give_up_at)
        if why is not None:
            call.failed(why)
        while True:
            pause = call.pause(time.monotonic())
            if pause:
                time.sleep(pause)
            address, sent, left = call.next_try(time.monotonic())
            try:
                replies = call.answer(self._threads.call(address, sent.data, sent.replies, left), sent.loads)
                if replies is not None:
                    return replies
            except (NoReply, ServerError) as error:
                call.failed(error)

    def attempt(self, request: StoreRequest) -> Any:
        """Begin it in the running loop, if a connection is open: an :class:`InFlight` reply, else ``NOT_YET``."""
        if self.failing:
            self._check_circuit(request.tag)
        link = self._loops.at_hand(self.topology.address(request.tag))
        if link is None:
            return NOT_YET
        loop = link.loop
        call = Call(self, request, loop.time() + self.deadline)
        reply = InFlight(loop=loop)

        def tell(replies: list[Any] | Exception) -> None:
            if replies.__class__ is list and replies[0].__class__ is not ServerError and len(replies) == 1:
                self.failing.pop(request.tag, None)
                reply.set_result(replies)
            else:
                task = loop.create_task(self._go_on(call, replies, 0))
                task.add_done_callback(lambda task: _pass_on(task, reply))

        _, sent, _ = call.next_try(loop.time())
        link.send(sent.data, sent.replies, loop.time() + self.deadline, tell)
        return reply

    async def perform_async(self, request: StoreRequest) -> list[Any]:
        """Do it, in the running loop."""
        if self.failing:
            self._check_circuit(request.tag)
        loop = asyncio.get_running_loop()
        return await self._go_on(Call(self, request, loop.time() + self.deadline), None, 0)

    async def _go_on(self, call: Call, outcome: list[Any] | Exception | None, loads: int) -> list[Any]:
        """A call to its end, from the outcome of its first try if there was one."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                if outcome is None:
                    address, sent, left = call.next_try(loop.time())
                    loads = sent.loads
                    link = await self._loops.get(address, left)
                    outcome = await _exchange(link, sent, loop.time() + left)
                if isinstance(outcome, Exception):
                    raise outcome
                replies = call.answer(outcome, loads)
                if replies is not None:
                    return replies
            except (NoReply, ServerError) as why:
                call.failed(why)
            outcome = None
            pause = call.pause(loop.time())
            if pause:
                await asyncio.sleep(pause)

    def close(self) -> None:
        """Let go of the connections of threads."""
        self._threads.close()

    async def aclose(self) -> None:
        """And of those of the running loop."""
        await self._loops.aclose()
        self._threads.close()


async def _exchange(link: PipelinedConnection, sent: Sent, give_up_at: float) -> list[Any] | Exception:
    reply: asyncio.Future[list[Any] | Exception] = link.loop.create_future()

    def tell(replies: list[Any] | Exception) -> None:
        if not reply.done():
            reply.set_result(replies)

    link.send(sent.data, sent.replies, give_up_at, tell)
    return await reply


def _pass_on(task: asyncio.Task[list[Any]], reply: InFlight) -> None:
    """Let the reply be what the task came to."""
    if task.cancelled():
        reply.set_exception(NoReply("the event loop was stopped", sent=True))
    elif (error := task.exception()) is not None:
        reply.set_exception(error)
    else:
        reply.set_result(task.result())
