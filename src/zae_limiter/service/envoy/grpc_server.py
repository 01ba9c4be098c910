"""The threads that answer Envoy: grpcio's server, with the limiter for threads behind it.

Threads, because grpcio's server for asyncio takes twice the processor time for each answer, and eight of them, because
more wait for one another on SQLite. A request that Envoy gave up while it waited for a thread takes nothing: grpcio
does not begin it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from zae_limiter import ConfigurationError, NamespaceNotFoundError, ValidationError, ZAELimiterError
from zae_limiter.service.envoy.messages import (
    METHOD,
    SERVICE,
    RateLimitRequest,
    RateLimitResponse,
    descriptors_of,
    message_of,
)
from zae_limiter.service.envoy.rate_limit_service import RateLimitService
from zae_limiter.service.guard import is_loopback_address

THREADS = 8
MOST_REQUESTS = 1_000
"""So many requests may be in work or wait for a thread; Envoy would not wait for more."""

GRACE_S = 5.0
"""How long requests in work may take when the server ends."""

LARGEST_REQUEST = 64 * 1024
"""Bytes. Envoy's requests have a few hundred."""

Authorize = Callable[[str | None, str], str | None]
"""Of which entities of a namespace a token may take: how their ids begin. ``None``: of none, or there is no token."""


class TlsFiles(NamedTuple):
    """How the server shows who it is, and with ``client_ca`` how it knows who asks."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:
        """The same for grpcio. Raises ``ValidationError`` for a file that cannot be read."""
        pair = _content(self.key), _content(self.certificate)
        roots = None if self.client_ca is None else _content(self.client_ca)
        return grpc.ssl_server_credentials([pair], roots, require_client_auth=roots is not None)


HEALTH = "grpc.health.v1.Health"
HEALTH_REQUESTS = frozenset({b"", b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode()})
"""What may be asked, as it is on the wire: of the server, which has no name, or of the service."""
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""The whole of an answer: field 1, and the state."""


class EnvoyServer:
    """Answers Envoy on one address until it is stopped."""

    def __init__(
        self,
        service: RateLimitService,
        bind: str,
        *,
        authorize: Authorize | None = None,
        tls: TlsFiles | None = None,
        threads: int = THREADS,
    ) -> None:
        """``authorize``: who may ask; without it, and without certificates of clients, only this machine may."""
        if authorize is None and (tls is None or tls.client_ca is None) and not is_local(bind):
            raise ConfigurationError(
                f"Envoy would be answered at {bind}, and so would be any other client, without a token",
                hint="name a token file (--token-file) or a certificate authority of clients (--envoy-client-ca), "
                "or bind to 127.0.0.1",
            )
        self.service = service
        self._authorize = authorize
        self._server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="zae-limiter-envoy"),
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", LARGEST_REQUEST)],
            maximum_concurrent_rpcs=MOST_REQUESTS,
        )
        method = grpc.unary_unary_rpc_method_handler(
            self._should_rate_limit,
            request_deserializer=RateLimitRequest.FromString,
            response_serializer=RateLimitResponse.SerializeToString,
        )
        handlers = {SERVICE: {METHOD: method}, HEALTH: {"Check": grpc.unary_unary_rpc_method_handler(self._health)}}
        self._server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(name, methods) for name, methods in handlers.items())
        )
        self._is_ending = False
        self.port = self._bound(bind, tls)

    def start(self) -> None:
        """Answer from now on."""
        self._server.start()

    def stop(self, grace: float = GRACE_S) -> None:
        """Take no more requests, and wait for those in work. The store is the caller's to close, afterwards."""
        self._is_ending = True
        self._server.stop(grace).wait()

    def _bound(self, bind: str, tls: TlsFiles | None) -> int:
        try:
            if tls is None:
                return self._server.add_insecure_port(bind)
            return self._server.add_secure_port(bind, tls.credentials())
        except RuntimeError:
            raise ConfigurationError(
                f"the service for Envoy cannot listen on {bind}", hint="is the address right, and the port free?"
            ) from None

    def _health(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """The standard health check, of the server or of the service by its name. It needs no token, as a probe."""
        if request not in HEALTH_REQUESTS:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return NOT_SERVING if self._is_ending else SERVING

    def _should_rate_limit(self, request: Any, context: grpc.ServicerContext) -> Any:
        domain, prefix = request.domain, ""
        if self._authorize is not None:
            allowed = self._authorize(token_of(context), domain)
            if allowed is None:
                self.service.counts.add("not_authorized")
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token, or none that may take from this namespace")
            prefix = allowed
        try:
            return message_of(
                self.service.answer(domain, descriptors_of(request), request.hits_addend, entity_prefix=prefix)
            )
        except (ZAELimiterError, PermissionError) as error:
            self.service.counts.failed("errors", error)
            context.abort(status_of(error), str(error))


def token_of(context: grpc.ServicerContext) -> str | None:
    """The token that Envoy sends as ``initial_metadata``: ``authorization: Bearer TOKEN``."""
    for key, value in context.invocation_metadata():
        if key == "authorization":
            scheme, _, token = str(value).partition(" ")
            return token.strip() if scheme.lower() == "bearer" else None
    return None


def status_of(error: Exception) -> grpc.StatusCode:
    """How gRPC calls an error that is the operator's to correct."""
    if isinstance(error, PermissionError):
        return grpc.StatusCode.PERMISSION_DENIED
    if isinstance(error, NamespaceNotFoundError):
        return grpc.StatusCode.NOT_FOUND
    if isinstance(error, ValidationError):
        return grpc.StatusCode.INVALID_ARGUMENT
    return grpc.StatusCode.FAILED_PRECONDITION


def is_local(bind: str) -> bool:
    """Whether only this machine can reach an address: a loopback address, or a socket in the file system."""
    if bind.startswith("unix:"):
        return True
    return is_loopback_address(bind.rpartition(":")[0])


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValidationError("tls", str(path), f"cannot be read: {error.strerror}") from None
