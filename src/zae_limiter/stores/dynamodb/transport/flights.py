"""Calls that are begun at once: sent before anybody waits, so that no task is needed to wait for one.

That works for nearly every call: the access is ready, and a connection rests. Whoever begins a call gets a future with
the reply, which is understood as soon as it has come. What needs more than one exchange (credentials that have
expired, a clock that is off) is asked again in the ordinary way; nothing was done when DynamoDB refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from zae_limiter.running.async_driver import InFlight
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.access import Signed
from zae_limiter.stores.dynamodb.transport.http_replies import Answer
from zae_limiter.stores.dynamodb.transport.loop_connection import LoopConnection, no_answer
from zae_limiter.stores.dynamodb.transport.protocol import Credentials
from zae_limiter.stores.dynamodb.transport.wire import BADLY_SIGNED, EXPIRED, Line

Note: TypeAlias = Callable[[Refused | NoAnswer | None], None]
"""Is told what became of a call: nothing, if it was answered well."""

Again: TypeAlias = Callable[[float, tuple[Refused, Signed]], Coroutine[Any, Any, Reply]]

_ASKED_AGAIN: set[asyncio.Task[Any]] = set()


class Pool(Protocol):
    """Where a connection comes from, and goes when its call is over."""

    def let_go(self, connection: LoopConnection, *, reusable: bool) -> None: ...


class CallInFlight(InFlight):
    """The reply to a call that was sent over a connection."""

    def __init__(
        self,
        line: Line,
        credentials: Credentials,
        offset_s: float,
        sent_at: float,
        pool: Pool,
        connection: LoopConnection,
        give_up_at: float,
        again: Again,
        note: Note,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """``again`` asks in the ordinary way, and is given seconds, and how the call was refused."""
        super().__init__(loop=loop)
        self._line = line
        self._credentials = credentials
        self._offset_s = offset_s
        self._sent_at = sent_at
        self._pool = pool
        self._connection = connection
        self._give_up_at = give_up_at
        self._again = again
        self._note = note

    # What the connection tells

    def hear(self, answer: Answer) -> None:
        self._pool.let_go(self._connection, reusable=answer.reusable)
        try:
            reply = self._line.understood(answer, self._credentials, self._sent_at)
        except Refused as refusal:
            if refusal.code in EXPIRED or refusal.code in BADLY_SIGNED:
                self._ask_again(refusal)
            else:
                self._end(refusal)
        except NoAnswer as silence:
            self._end(silence)
        else:
            self._note(None)
            self.set_result(reply)

    def miss(self, error: Exception) -> None:
        self._pool.let_go(self._connection, reusable=False)
        failure = no_answer(error)
        failure.__cause__ = error
        self._end(failure)

    def _end(self, failure: Refused | NoAnswer) -> None:
        self._note(failure)
        self.set_exception(failure)

    def _ask_again(self, refusal: Refused) -> None:
        loop = self.get_loop()
        refused = refusal, Signed(self._credentials, self._offset_s)
        task = loop.create_task(self._again(max(self._give_up_at - loop.time(), 0.0), refused))
        _ASKED_AGAIN.add(task)
        task.add_done_callback(self._heard_again)

    def _heard_again(self, task: asyncio.Task[Reply]) -> None:
        _ASKED_AGAIN.discard(task)
        error = ConnectionAbortedError("the loop was closed") if task.cancelled() else task.exception()
        if error is None:
            self._note(None)
            self.set_result(task.result())
        elif isinstance(error, (Refused, NoAnswer)):
            self._end(error)
        elif isinstance(error, OSError):
            self._end(no_answer(error))
        else:
            self.set_exception(error)
