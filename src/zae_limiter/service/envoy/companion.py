"""The server for Envoy beside the one for HTTP: the same process, the same store, the same tokens, one end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from zae_limiter import ValidationError
from zae_limiter.service.backend import Backend
from zae_limiter.service.envoy.descriptors import DescriptorRules
from zae_limiter.service.envoy.grpc_server import GRACE_S, Authorize, EnvoyServer, TlsFiles
from zae_limiter.service.envoy.rate_limit_service import RateLimitService
from zae_limiter.service.guard import Guard
from zae_limiter.service.problems import Problem
from zae_limiter.service.tokens import Role

TAKE = frozenset({Role.TAKE})


@dataclass(frozen=True, slots=True)
class EnvoyOptions:
    """Where Envoy is answered, and how its descriptors are read."""

    bind: str
    rules: DescriptorRules = field(default_factory=DescriptorRules)
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        host, colon, port = self.bind.rpartition(":")
        is_address = bool(host and colon) and port.isdecimal() and int(port) <= 65_535
        if not is_address and not self.bind.startswith("unix:"):
            raise ValidationError("envoy_bind", self.bind, "must be HOST:PORT, like 127.0.0.1:8081, or unix:PATH")


class EnvoyCompanion:
    """Starts and ends with the server for HTTP."""

    def __init__(self, backend: Backend, guard: Guard, options: EnvoyOptions) -> None:
        knows_clients = options.tls is not None and options.tls.client_ca is not None
        self._backend = backend
        self._authorize = None if knows_clients else authorizing(guard)
        self._options = options
        self._server: EnvoyServer | None = None

    @property
    def address(self) -> str:
        """Where it listens, once it does."""
        if self._server is None or self._options.bind.startswith("unix:"):
            return self._options.bind
        return f"{self._options.bind.rpartition(':')[0]}:{self._server.port}"

    async def start(self) -> None:
        """Listen."""
        options = self._options
        service = RateLimitService(self._backend.sync_limiter().repository, rules=options.rules)
        self._server = EnvoyServer(service, options.bind, authorize=self._authorize, tls=options.tls)
        self._backend.companion_counts["envoy"] = service.counts.as_dict
        self._server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing new, and answer what there is; nothing of it waits."""
        if self._server is None:
            return
        await asyncio.to_thread(self._server.stop, min(grace_seconds, GRACE_S))
        for domain in self._server.service.domains():
            self._backend.limiter(domain)  # so that the backend writes what this namespace has yet to write


def authorizing(guard: Guard) -> Authorize | None:
    """What tokens may, if there are any: those with the role ``take``, in their namespace, of their entities."""
    if not guard.has_tokens:
        return None

    def authorize(token: str | None, domain: str) -> str | None:
        try:
            caller = guard.caller({b"authorization": f"Bearer {token or ''}".encode()})
            caller.check_role(TAKE)
        except Problem:
            return None
        return None if caller.namespace not in (None, domain) else caller.entity_prefix or ""

    return authorize
