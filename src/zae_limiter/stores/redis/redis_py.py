"""What is taken from redis-py: connections that are open, encrypted and logged in. Imported with the first redis URL.

redis-py finds the master that sentinels name, connects, speaks TLS and logs in, sync and async. Its command layer is
not used: it costs more than all that a call of this store does.
"""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from zae_limiter.stores.redis.errors import NoReply
from zae_limiter.stores.redis.urls import Address, Credentials, Servers
from zae_limiter.stores.redis.wire import ServerError

_CODES: tuple[tuple[type[RedisError], str], ...] = (
    (MovedError, "MOVED"),  # first: it is a kind of AskError
    (AskError, "ASK"),
    (NoScriptError, "NOSCRIPT"),
    (TryAgainError, "TRYAGAIN"),
    (ClusterDownError, "CLUSTERDOWN"),
    (ClusterCrossSlotError, "CROSSSLOT"),
    (ReadOnlyError, "READONLY"),
    (MasterDownError, "MASTERDOWN"),
    (OutOfMemoryError, "OOM"),
    (NoPermissionError, "NOPERM"),
    (BusyLoadingError, "LOADING"),
    (AuthenticationError, "NOAUTH"),
)
"""redis-py takes the first word off what the server says, and says it by the class."""


class CalledCredentials(CredentialProvider):  # type: ignore[misc]
    """Asks the user's function at every login."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def get_credentials(self) -> tuple[str, str] | tuple[str]:
        return self._credentials()


def server_error(error: RedisError) -> ServerError | None:
    """What the server said, in its own words; ``None`` if it said nothing, but the connection failed."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return ServerError(f"{code} {error}")
    return ServerError(str(error)) if isinstance(error, ResponseError) else None


def failure(error: Exception, *, sent: bool) -> Exception:
    """The error of a connection in the words of this store."""
    said = server_error(error) if isinstance(error, RedisError) else None
    return said or NoReply(str(error) or type(error).__name__, sent=sent)


def _arguments(servers: Servers, seconds: float) -> dict[str, Any]:
    """What every connection is told."""
    told: dict[str, Any] = {
        "db": servers.db,
        "protocol": 2,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
    }
    if servers.credentials is not None:
        told["credential_provider"] = CalledCredentials(servers.credentials)
    elif servers.password is not None:
        told["password"] = servers.password
        told["username"] = servers.username
    return told


def _tls_arguments(servers: Servers) -> dict[str, Any]:
    return {"ssl_cert_reqs": "required", "ssl_check_hostname": True, **(servers.tls or {})}


def connection(servers: Servers, address: Address, seconds: float) -> Any:
    """A sync connection, not open yet."""
    told = _arguments(servers, seconds) | {"retry": Retry(NoBackoff(), 0)}
    if servers.way == "sentinel":
        sentinel = redis.sentinel.Sentinel(
            list(servers.addresses), sentinel_kwargs={"socket_timeout": seconds, "protocol": 2}
        )
        tls = {"ssl": True, **_tls_arguments(servers)} if servers.tls is not None else {}
        return redis.sentinel.SentinelConnectionPool(servers.master, sentinel, **told, **tls).make_connection()
    if isinstance(address, str):
        return redis.UnixDomainSocketConnection(path=address, **told)
    host, port = address
    if servers.tls is not None:
        return redis.SSLConnection(host=host, port=port, **told, **_tls_arguments(servers))
    return redis.Connection(host=host, port=port, **told)


def async_connection(servers: Servers, address: Address, seconds: float) -> Any:
    """An async connection, not open yet."""
    from redis.asyncio.retry import Retry as AsyncRetry

    told = _arguments(servers, seconds) | {"retry": AsyncRetry(NoBackoff(), 0)}
    if servers.way == "sentinel":
        sentinel = redis.asyncio.sentinel.Sentinel(
            list(servers.addresses), sentinel_kwargs={"socket_timeout": seconds, "protocol": 2}
        )
        tls = {"ssl": True, **_tls_arguments(servers)} if servers.tls is not None else {}
        pool = redis.asyncio.sentinel.SentinelConnectionPool(servers.master, sentinel, **told, **tls)
        return pool.make_connection()
    if isinstance(address, str):
        return redis.asyncio.UnixDomainSocketConnection(path=address, **told)
    host, port = address
    if servers.tls is not None:
        return redis.asyncio.SSLConnection(host=host, port=port, **told, **_tls_arguments(servers))
    return redis.asyncio.Connection(host=host, port=port, **told)
