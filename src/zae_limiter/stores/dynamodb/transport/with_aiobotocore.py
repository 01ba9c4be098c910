"""Calls carried by aiobotocore, for event loops.

Connections belong to the loop they were opened in, so every loop has a client of its own. It lives inside an
asynchronous generator that never goes on: a loop that ends (as ``asyncio.run`` ends one) closes the generators
it knows, and with this one the client. So nobody has to close a transport in every loop that used it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from types import AsyncGeneratorType
from typing import Any, Final, TypeAlias, cast

from zae_limiter.stores.dynamodb.requests import NoAnswer, Reply
from zae_limiter.stores.dynamodb.transport.failures import failure_of, failure_to_begin, read_whole
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.settings import (
    LOCAL_CREDENTIALS,
    MissingExtra,
    address_of,
    config_of,
    is_local,
    methods_of,
    prepare,
    read_models,
    service_of,
)

CONNECT_SECONDS: Final = 1.0
READ_SECONDS: Final = 60.0
"""Never waited for: the time of each call ends before."""

Methods: TypeAlias = Mapping[str, Any]


class AiobotocoreTransport:
    """Carries calls with aiobotocore: botocore's credentials, regions, endpoints, proxies and certificates."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pid = os.getpid()
        self._lives: dict[tuple[asyncio.AbstractEventLoop, str], _Life] = {}

    async def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest."""
        sent = False
        try:
            async with asyncio.timeout(seconds):
                methods = await self._methods(service_of(operation))
                method = methods[operation]
                sent = True
                reply: Reply = await method(**params)
        except TimeoutError as error:
            raise NoAnswer(f"no answer to {operation} within {seconds:.3f} s", sent=sent) from error
        except Exception as error:
            failure = None
            if not isinstance(error, ImportError):
                failure = failure_of(error) if sent else failure_to_begin(error)
            if failure is None or failure is error:
                raise
            raise failure from error
        return reply

    async def close(self) -> None:
        """Close the connections of this loop, and of others that are running. A later call opens new ones."""
        lives, self._lives = self._lives_of_this_process(), {}
        here = asyncio.get_running_loop()
        for (loop, _), life in lives.items():
            if loop is here:
                await life.end()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(life.end(), loop))

    async def _methods(self, service: str) -> Methods:
        lives = self._lives_of_this_process()
        key = asyncio.get_running_loop(), service
        life = lives.get(key)
        if life is None or life.is_over():
            for other in [other for other in lives if other[0].is_closed()]:
                del lives[other]
            life = lives[key] = _Life(self._target, service)
        return await life.methods()

    def _lives_of_this_process(self) -> dict[tuple[asyncio.AbstractEventLoop, str], _Life]:
        if self._pid != os.getpid():
            _LEFT_TO_PARENTS.append(self._lives)
            self._lives = {}
            self._pid = os.getpid()
        return self._lives


_LEFT_TO_PARENTS: Final[list[object]] = []
"""Clients that a forked child found. Even forgetting them would touch the loops and sockets of its parent."""


class _Life:
    """One client, from the first call in a loop to the end of the loop."""

    def __init__(self, target: Target, service: str) -> None:
        self._generator = cast("AsyncGeneratorType[Methods, None]", _living(target, service))
        self._beginning: asyncio.Task[Methods] = asyncio.get_running_loop().create_task(self._begin())
        self._beginning.add_done_callback(_look_at_the_outcome)

    async def methods(self) -> Methods:
        """The client's methods. Whoever gives up waiting for them does not stop their being made."""
        if self._beginning.done():
            return self._beginning.result()
        return await asyncio.shield(self._beginning)

    def is_over(self) -> bool:
        """Whether it failed to begin, or has been ended."""
        return self._beginning.done() and (
            self._beginning.cancelled() or self._beginning.exception() is not None or self._generator.ag_frame is None
        )

    async def end(self) -> None:
        self._beginning.cancel()
        await asyncio.wait([self._beginning])
        await self._generator.aclose()

    async def _begin(self) -> Methods:
        return await anext(self._generator)


def _look_at_the_outcome(task: asyncio.Task[Methods]) -> None:
    """So that asyncio does not complain about a failure when the caller who wanted to know has gone."""
    if not task.cancelled():
        task.exception()


async def _living(target: Target, service: str) -> AsyncGenerator[Methods, None]:
    session = await asyncio.to_thread(_session, target, service)
    if is_local(target) and target.credentials is None and await session.get_credentials() is None:
        session.set_credentials(*LOCAL_CREDENTIALS)
    from aiobotocore.config import AioConfig

    config = AioConfig(**config_of(target, connect_seconds=CONNECT_SECONDS, read_seconds=READ_SECONDS))
    async with session.create_client(service, config=config, **address_of(target, session)) as client:
        client.meta.events.register("response-received", read_whole)
        yield methods_of(client)


def _session(target: Target, service: str) -> Any:
    """A session that has read the large files. For a thread: imports and files would hold up the loop."""
    try:
        from aiobotocore.session import get_session
    except ImportError as error:
        raise MissingExtra(error.name) from error

    session = get_session()
    prepare(target, session)
    read_models(session, service)
    return session
