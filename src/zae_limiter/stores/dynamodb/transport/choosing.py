"""Who carries the calls: we ourselves, or botocore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from zae_limiter.stores.dynamodb.transport.protocol import AsyncTransport, Target, Transport

How: TypeAlias = Literal["own", "botocore"]

HOWS: Final = ("own", "botocore")


class Transports(NamedTuple):
    """How to make a transport for each world, when it is needed."""

    sync: Callable[[], Transport]
    asynchronous: Callable[[], AsyncTransport]


def transports_for(target: Target, how: How = "own") -> Transports:
    """How to make transports: ``"own"``, or ``"botocore"`` to fall back on. Nothing is loaded before one is made."""
    if how == "own":
        return Transports(lambda: _own(target), lambda: _own_async(target))
    if how == "botocore":
        return Transports(lambda: _botocore(target), lambda: _async_botocore(target))
    raise ValueError(f"transport must be one of {', '.join(HOWS)}, not {how!r}")


def _own(target: Target) -> Transport:
    from zae_limiter.stores.dynamodb.transport.over_sockets import SocketTransport

    return SocketTransport(target)


def _own_async(target: Target) -> AsyncTransport:
    from zae_limiter.stores.dynamodb.transport.over_asyncio import AsyncioTransport

    return AsyncioTransport(target)


def _botocore(target: Target) -> Transport:
    from zae_limiter.stores.dynamodb.transport.with_botocore import BotocoreTransport

    return BotocoreTransport(target)


def _async_botocore(target: Target) -> AsyncTransport:
    from zae_limiter.stores.dynamodb.transport.with_botocore import AsyncBotocoreTransport

    return AsyncBotocoreTransport(target)
