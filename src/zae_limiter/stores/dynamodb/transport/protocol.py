"""What the store needs from a transport: one method, for threads and for event loops. And which transports there are.

Our own (``sync_transport``, ``asyncio_transport``) sign, send and read by themselves; ``botocore_fallback`` leaves all
of that to botocore. None of them is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from zae_limiter.stores.dynamodb.requests import Reply


class Credentials(NamedTuple):
    """Static credentials, for those who do not leave them to botocore."""

    access_key: str
    secret_key: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, …)"


class Target(NamedTuple):
    """Which DynamoDB. What is ``None`` is found by botocore, in the environment and in its files."""

    region: str | None = None
    endpoint_url: str | None = None
    credentials: Credentials | None = None


class Transport(Protocol):
    """Carries calls for threads. Safe to share between them, and with a forked child."""

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused``, or ``NoAnswer`` after about ``seconds``."""
        ...

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        ...


class AsyncTransport(Protocol):
    """Carries calls for event loops, several after or beside each other."""

    async def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest."""
        ...

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        ...


TransportKind: TypeAlias = Literal["own", "botocore"]

TRANSPORT_KINDS: Final = ("own", "botocore")


class TransportFactories(NamedTuple):
    """How to make a transport for each world, when it is needed."""

    sync: Callable[[], Transport]
    asynchronous: Callable[[], AsyncTransport]


def transports_for(target: Target, how: TransportKind = "own") -> TransportFactories:
    """How to make transports: ``"own"``, or ``"botocore"`` to fall back on. Nothing is loaded before one is made."""
    if how == "own":
        return TransportFactories(lambda: _own(target), lambda: _own_async(target))
    if how == "botocore":
        return TransportFactories(lambda: _botocore(target), lambda: _async_botocore(target))
    raise ValueError(f"transport must be one of {', '.join(TRANSPORT_KINDS)}, not {how!r}")


def _own(target: Target) -> Transport:
    from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport

    return SocketTransport(target)


def _own_async(target: Target) -> AsyncTransport:
    from zae_limiter.stores.dynamodb.transport.asyncio_transport import AsyncioTransport

    return AsyncioTransport(target)


def _botocore(target: Target) -> Transport:
    from zae_limiter.stores.dynamodb.transport.botocore_fallback import BotocoreTransport

    return BotocoreTransport(target)


def _async_botocore(target: Target) -> AsyncTransport:
    from zae_limiter.stores.dynamodb.transport.botocore_fallback import AsyncBotocoreTransport

    return AsyncBotocoreTransport(target)
