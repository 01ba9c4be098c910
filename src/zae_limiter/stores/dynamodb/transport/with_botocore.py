"""Calls carried by botocore: by the thread that asks, or for an event loop by a thread beside it.

botocore fixes its timeouts when a client is made. So there is one client for each of a few patiences, made when
first needed, and a call goes to the most patient one that its time allows. The bound is not a strict one: looking
up a name has no timeout, each address of a host may take the time for connecting, and an answer that trickles in
may take the time for reading again and again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final

from zae_limiter.stores.dynamodb.requests import DeadlineOver, NoAnswer, Reply
from zae_limiter.stores.dynamodb.transport.failures import failure_of, failure_to_begin, read_whole
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.settings import (
    CONNECTIONS,
    LOCAL_CREDENTIALS,
    MissingExtra,
    address_of,
    config_of,
    is_local,
    methods_of,
    prepare,
    service_of,
)
from zae_limiter.stores.dynamodb.transport.wire import date_skew_s

PATIENCES_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

TOLERANCE: Final = 1.05
"""A call that has 1.95 s left may use the client of 2 s."""

CONNECTING: Final = 1 / 3
"""The part of its time that a call may spend on connecting."""


class BotocoreTransport:
    """Carries calls with plain botocore: its credentials, regions, endpoints, proxies and certificates."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._clients = _Clients(target)
        self.last_date_skew_s: float | None = None
        """How far the ``Date`` of the last reply is ahead of this machine's clock."""

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused``, or ``NoAnswer`` after about ``seconds``."""
        method = self._of_this_process().methods(service_of(operation), seconds)[operation]
        sent_at = time.time()
        try:
            reply: Reply = method(**params)
        except Exception as error:
            failure = failure_of(error)
            if failure is None or failure is error:
                raise
            raise failure from error
        date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        self.last_date_skew_s = date_skew_s(date.encode(), sent_at)
        return reply

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._of_this_process().close()

    def _of_this_process(self) -> _Clients:
        """The clients; in a forked child not its parent's, which share sockets with it."""
        if self._clients.pid != os.getpid():
            self._clients = _Clients(self._target)
        return self._clients


class AsyncBotocoreTransport:
    """Carries calls of event loops with the same clients, each call in a thread. Any number of loops may share it."""

    def __init__(self, target: Target) -> None:
        self._transport = BotocoreTransport(target)
        self._pid = os.getpid()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def last_date_skew_s(self) -> float | None:
        """How far the ``Date`` of the last reply is ahead of this machine's clock."""
        return self._transport.last_date_skew_s

    async def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest."""
        import asyncio

        work = self._threads_of_this_process().submit(self._transport.call, operation, params, seconds)
        reply = asyncio.wrap_future(work)
        try:
            await asyncio.wait([reply], timeout=seconds)
            if reply.done():
                return reply.result()
            begun = not work.cancel()
            raise NoAnswer(f"no answer to {operation} within {seconds:.3f} s", sent=begun)
        finally:
            reply.cancel()  # a thread that is still waiting goes on by itself, and its reply is dropped

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        threads, self._threads = self._threads_of_this_process(), None
        threads.shutdown(wait=False)
        self._transport.close()

    def _threads_of_this_process(self) -> ThreadPoolExecutor:
        """The threads; in a forked child new ones, because threads do not survive a fork."""
        if self._threads is None or self._pid != os.getpid():
            self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="zae-limiter-botocore")
            self._pid = os.getpid()
        return self._threads


class _Clients:
    """The clients of one process, by service and patience."""

    def __init__(self, target: Target) -> None:
        self.pid = os.getpid()
        self._target = target
        self._lock = Lock()
        self._session: Any = None
        self._made: dict[tuple[str, float], tuple[Any, Mapping[str, Any]]] = {}

    def methods(self, service: str, seconds: float) -> Mapping[str, Any]:
        patience = patience_for(seconds)
        made = self._made.get((service, patience))
        if made is None:
            made = self._make(service, patience, seconds)
        return made[1]

    def close(self) -> None:
        with self._lock:
            made, self._made = self._made, {}
        for client, _ in made.values():
            client.close()

    def _make(self, service: str, patience: float, seconds: float) -> tuple[Any, Mapping[str, Any]]:
        if not self._lock.acquire(timeout=max(seconds, 0)):
            raise DeadlineOver("another thread is still reading the credentials")
        try:
            made = self._made.get((service, patience))
            if made is None:
                if self._session is None:
                    self._session = _session(self._target)
                client = _client(self._target, self._session, service, patience)
                made = self._made[service, patience] = client, methods_of(client)
            return made
        except Exception as error:
            failure = None if isinstance(error, ImportError) else failure_to_begin(error)
            if failure is None or failure is error:
                raise
            raise failure from error
        finally:
            self._lock.release()


def patience_for(seconds: float) -> float:
    """The longest patience that a call with so much time left may have."""
    return max((patience for patience in PATIENCES_S if patience <= seconds * TOLERANCE), default=PATIENCES_S[0])


def _session(target: Target) -> Any:
    try:
        from botocore.session import get_session
    except ImportError as error:
        raise MissingExtra(error.name) from error

    session = get_session()
    prepare(target, session)
    if is_local(target) and target.credentials is None and session.get_credentials() is None:
        session.set_credentials(*LOCAL_CREDENTIALS)
    return session


def _client(target: Target, session: Any, service: str, patience: float) -> Any:
    from botocore.config import Config

    config = config_of(target, connect_seconds=patience * CONNECTING, read_seconds=patience * (1 - CONNECTING))
    client = session.create_client(service, config=Config(**config), **address_of(target, session))
    client.meta.events.register("response-received", read_whole)
    return client
