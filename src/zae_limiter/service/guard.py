"""Who may do what.

With tokens every request but those for probes and the OpenAPI document needs one. Without tokens the service is for
programs of this machine alone: it listens on loopback only (``server.check_bind``), and answers only requests that
name a loopback host, so that no web page can reach it through a name that it controls (DNS rebinding).

A browser says where a request comes from (``Sec-Fetch-Site``). What another site makes it send is refused, whatever it
brings along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Protocol

from zae_limiter.service.problems import Problem
from zae_limiter.service.tokens import Role, Token, TokenSet

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
OWN_SITES = frozenset({b"none", b"same-origin"})
UNNAMED_PRINCIPAL = "loopback"
"""The principal of changes where there are no tokens."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A client that was let in: what it may do, and under which name.

    ``secret`` is known to this client and the service alone: its idempotency keys are mixed with it.
    """

    name: str
    roles: frozenset[Role]
    namespace: str | None
    entity_prefix: str | None
    secret: bytes

    def check_role(self, roles: frozenset[Role]) -> None:
        """Refuse a client that has none of the roles."""
        if roles and not roles & self.roles:
            raise Problem(403, f"this takes the role {' or '.join(sorted(roles))}, which token {self.name} has not")

    def check_entity(self, entity_id: object) -> None:
        """Refuse an entity that is not the client's."""
        prefix = self.entity_prefix
        if prefix is not None and not (isinstance(entity_id, str) and entity_id.startswith(prefix)):
            raise Problem(403, f"token {self.name} is for entities that begin with {prefix}, and for no others")

    def check_everything(self) -> None:
        """Refuse a client that is for some entities only."""
        if self.entity_prefix is not None:
            raise Problem(403, f"token {self.name} is for entities that begin with {self.entity_prefix}: name one")

    @property
    def sees_ancestors(self) -> bool:
        """Whether it may know what other entities than its own have left."""
        return self.entity_prefix is None and Role.READ in self.roles


LOCAL_CALLER = Caller(UNNAMED_PRINCIPAL, frozenset(Role), None, None, b"")


class Tokens(Protocol):
    """Where tokens are: a file, or a process that makes its own."""

    def current(self) -> TokenSet:
        """Those that hold now."""


class Guard:
    """Lets clients in."""

    def __init__(self, token_file: Tokens | None = None) -> None:
        self._token_file = token_file
        self._callers: dict[Token, Caller] = {}

    @property
    def has_tokens(self) -> bool:
        """Whether clients need a token."""
        return self._token_file is not None

    def check_site(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what another site made a browser send."""
        if headers.get(b"sec-fetch-site", b"none") not in OWN_SITES:
            raise Problem(403, "this request was made by another site")
        if self._token_file is None and not is_loopback_name(headers.get(b"host", b"")):
            raise Problem(403, "without tokens the service answers only to loopback names, like localhost")

    def caller(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The client of a request. Raises a 401 if there is none."""
        if self._token_file is None:
            return LOCAL_CALLER
        kind, _, text = headers.get(b"authorization", b"").partition(b" ")
        token = self._token_file.current().find(text.strip()) if kind.lower() == b"bearer" else None
        if token is None:
            raise Problem(
                401,
                "send a token of this service: Authorization: Bearer TOKEN",
                headers=[(b"www-authenticate", b'Bearer realm="zae-limiter"')],
            )
        caller = self._callers.get(token)
        if caller is None:
            caller = caller_of(token)
            if len(self._callers) > 10_000:
                self._callers.clear()
            self._callers[token] = caller
        return caller


def caller_of(token: Token) -> Caller:
    """The client that has a token."""
    secret = hashlib.sha256(b"idempotency" + token.digest).digest()
    return Caller(token.name, token.roles, token.namespace, token.entity_prefix, secret)


@lru_cache(maxsize=256)
def is_loopback_name(host: bytes) -> bool:
    """Whether a ``Host`` header names this machine by a loopback name, with or without a port."""
    name = host.decode("latin-1").lower()
    bare = name.partition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]
    return bare in LOOPBACK_NAMES


def is_loopback_address(host: str) -> bool:
    """Whether only programs of this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
