"""One connection of an event loop, and a call in flight over it.

Nearly every call is sent at once, before its caller waits, so that no task is needed to wait for it: the service is
known, and a connection is idle. The caller gets a future of the reply (:class:`CallInFlight`), which is decoded as
soon as it has come. What needs more than one exchange (credentials that have expired, a clock that is off) is sent
again in the ordinary way; nothing was done when DynamoDB refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, cast

from zae_limiter.running.async_driver import InFlight
from zae_limiter.stores.dynamodb.requests import Answer, NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.connection_pool import NothingSent, news_of
from zae_limiter.stores.dynamodb.transport.http_replies import (
    HttpReply,
    MalformedReply,
    ReplyReader,
    parse_plain_reply,
)
from zae_limiter.stores.dynamodb.transport.service import (
    BAD_SIGNATURE,
    EXPIRED_CREDENTIALS,
    Service,
    SignedRequest,
    described,
)

OutcomeListener: TypeAlias = Callable[[Refused | NoAnswer | None], None]
"""Is told what became of a call: nothing, if it succeeded."""

Resend: TypeAlias = Callable[[float, tuple[Refused, SignedRequest]], Coroutine[Any, Any, Reply]]
"""Sends a call again in the ordinary way, within so many seconds. It is given how the call was refused."""


class LoopSemaphore:
    """At most so many at a time, within one event loop. Tasks that find no permit wait, and are served in turn.

    (asyncio's semaphore can only be acquired by waiting for it, even if there is nothing to wait for.)
    """

    __slots__ = ("_free", "_waiters")

    def __init__(self, permits: int) -> None:
        self._free = permits  # none, while any task waits
        self._waiters: deque[asyncio.Future[None]] = deque()

    def acquire_now(self) -> bool:
        """Whether a permit was free; then it is taken."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def acquire(self) -> None:
        """Take a permit, when it is this task's turn."""
        if self.acquire_now():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # it came in the same moment
            else:
                with suppress(ValueError):
                    self._waiters.remove(turn)
            raise

    def release(self) -> None:
        """Leave the permit to the task that has waited longest."""
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class ReplyReceiver(Protocol):
    """Is told, once, what became of a request."""

    def received(self, reply: HttpReply) -> None:
        """The reply is there."""

    def failed(self, error: Exception) -> None:
        """There will be none: an ``OSError``, or :class:`MalformedReply`."""


class LoopConnection(asyncio.Protocol):
    """One connection.

    A reply has to come by its deadline. There is one timer for all requests of a connection, which nearly always finds
    that the request it was set for was answered long ago.
    """

    __slots__ = (
        "_closed",
        "_give_up_at",
        "_loop",
        "_news",
        "_open",
        "_reader",
        "_receiver",
        "_timer",
        "_transport",
    )

    def __init__(self, opened: set[LoopConnection]) -> None:
        self._open = opened
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._reader: ReplyReader | None = None
        self._receiver: ReplyReceiver | None = None
        self._give_up_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._news: Callable[[int], object] = lambda timeout_ms: True  # nothing is known of it

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            self._news = news_of(connected.fileno())
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            self.close()  # nothing was asked
            return
        try:
            reply = parse_plain_reply(data) if self._reader is None else None
            if reply is None:
                self._reader = self._reader or ReplyReader()
                reply = self._reader.feed(data)
        except MalformedReply as error:
            self._fail(error)
        else:
            if reply is not None:
                self._reader = self._receiver = None
                receiver.received(reply)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed.done():
            self._closed.set_result(None)
        self._fail(error or ConnectionResetError("the connection was lost"))

    # Called by the pool

    def news(self, timeout_ms: int) -> object:
        """Nothing (what is false), if there is nothing to read within so much time, not even the end."""
        return self._transport.is_closing() or self._news(timeout_ms)

    def close(self) -> None:
        self._transport.abort()

    def closing(self) -> asyncio.Future[None]:
        """Close it; the future is done when it is closed."""
        self._transport.abort()
        return self._closed

    def send(self, request: bytes, give_up_at: float, receiver: ReplyReceiver) -> None:
        """Send a request, and tell the receiver what becomes of it. Raises :class:`NothingSent`."""
        self._transport.write(request)
        if self._transport.is_closing():
            raise NothingSent("the connection was lost")
        self._receiver = receiver
        self._give_up_at = give_up_at
        timer = self._timer
        if timer is None or timer.when() > give_up_at:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(give_up_at, self._check_deadline)

    async def exchange(self, request: bytes, give_up_at: float) -> HttpReply:
        """The reply to a request. Raises ``NoAnswer``, or :class:`NothingSent`."""
        if give_up_at <= self._loop.time():
            raise NoAnswer("there was no time left to ask", sent=False)
        receiver = _FutureReceiver(self._loop)
        self.send(request, give_up_at, receiver)
        try:
            return await receiver.reply
        except (OSError, MalformedReply) as error:
            raise no_answer(error) from error
        finally:
            self._reader = self._receiver = None

    def _fail(self, error: Exception) -> None:
        receiver, self._reader, self._receiver = self._receiver, None, None
        if receiver is not None:
            receiver.failed(error)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._receiver is None:
            return
        if self._loop.time() < self._give_up_at:
            self._timer = self._loop.call_at(self._give_up_at, self._check_deadline)
        else:
            self._fail(TimeoutError("the time is up"))


class _FutureReceiver:
    """Receives a reply for a task that awaits it."""

    __slots__ = ("reply",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reply: asyncio.Future[HttpReply] = loop.create_future()

    def received(self, reply: HttpReply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)

    def failed(self, error: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class Pool(Protocol):
    """Where a connection goes when its call is over."""

    def give_back(self, connection: LoopConnection, *, reusable: bool) -> None: ...


class CallInFlight(InFlight):
    """The reply to a call that was sent over a connection."""

    def __init__(
        self,
        service: Service,
        request: SignedRequest,
        pool: Pool,
        connection: LoopConnection,
        give_up_at: float,
        resend: Resend,
        listener: OutcomeListener,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self._service = service
        self._request = request
        self._pool = pool
        self._connection = connection
        self._give_up_at = give_up_at
        self._resend = resend
        self._listener = listener

    # Called by the connection

    def received(self, reply: HttpReply) -> None:
        self._pool.give_back(self._connection, reusable=reply.reusable)
        try:
            content = self._service.decode(reply, self._request)
        except Refused as refusal:
            if refusal.code in EXPIRED_CREDENTIALS or refusal.code in BAD_SIGNATURE:
                self._send_again(refusal)
            else:
                self._end_with(refusal)
        except NoAnswer as failure:
            self._end_with(failure)
        else:
            self._listener(None)
            self.set_result(content)

    def failed(self, error: Exception) -> None:
        self._pool.give_back(self._connection, reusable=False)
        failure = no_answer(error)
        failure.__cause__ = error
        self._end_with(failure)

    def _end_with(self, failure: Refused | NoAnswer) -> None:
        self._listener(failure)
        self.set_exception(failure)

    def _send_again(self, refusal: Refused) -> None:
        loop = self.get_loop()
        task = loop.create_task(self._resend(max(self._give_up_at - loop.time(), 0.0), (refusal, self._request)))
        _RESENDING.add(task)
        task.add_done_callback(self._answered_again)

    def _answered_again(self, task: asyncio.Task[Reply]) -> None:
        _RESENDING.discard(task)
        error = ConnectionAbortedError("the loop was closed") if task.cancelled() else task.exception()
        if error is None:
            self._listener(None)
            self.set_result(task.result())
        elif isinstance(error, (Refused, NoAnswer)):
            self._end_with(error)
        elif isinstance(error, OSError):
            self._end_with(no_answer(error))
        else:
            self.set_exception(error)


class AnswersInFlight(InFlight):
    """The answers to several calls that are under way, errors as values."""

    def __init__(self, calls: Sequence[asyncio.Future[Reply] | Coroutine[Any, Any, Reply] | NoAnswer]) -> None:
        """Each is a call that was begun, or one that is begun now, or why it was not."""
        super().__init__(loop=asyncio.get_running_loop())
        self._calls = [call if isinstance(call, NoAnswer) else asyncio.ensure_future(call) for call in calls]
        self._left = 0
        for call in self._calls:
            if not isinstance(call, NoAnswer):
                self._left += 1
                call.add_done_callback(self._one_ended)

    def _one_ended(self, _: asyncio.Future[Reply]) -> None:
        self._left -= 1
        if not self._left:
            try:
                self.set_result([call if isinstance(call, NoAnswer) else _answer_of(call) for call in self._calls])
            except BaseException as error:
                self.set_exception(error)


def _answer_of(call: asyncio.Future[Reply]) -> Answer:
    """What became of a call that has ended. Raises what is no answer."""
    try:
        return call.result()
    except asyncio.CancelledError:
        return no_answer(ConnectionAbortedError("the loop was closed"))
    except (Refused, NoAnswer) as failure:
        return failure


_RESENDING: set[asyncio.Task[Any]] = set()
"""Tasks that send calls again. A loop alone does not keep a task from being collected."""


def no_answer(error: Exception) -> NoAnswer:
    """What it means to a plan that there will be no answer."""
    return NoAnswer(f"no answer: {described(error)}")
