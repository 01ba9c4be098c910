"""Tokens of clients: what each may do, in a file that has only their SHA-256 digests.

The file is JSON, and the same for all replicas: a mounted secret, or what a configuration tool puts there. A token is
192 random bits, so its digest needs no salt and tells nothing. The service looks at the file again when it has changed
(``TokenFile.current``), so that a token is created and revoked without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from zae_limiter import ConfigurationError, ValidationError
from zae_limiter.naming import check_entity_id, check_namespace

logger = logging.getLogger("zae_limiter.service")

TOKEN_BYTES = 24
SHOWN_PREFIX = "zael_"
"""Begins every token, so that tools that look for secrets in files find it."""

SECONDS_BETWEEN_LOOKS = 1.0
"""So often at most the file is looked at: a token that was revoked may be used for so long."""

INDEX_BYTES = 8


class Role(StrEnum):
    """What a token may do."""

    TAKE = "take"
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Token:
    """A client, as far as the service knows it. Its name is the principal in the audit trail.

    ``namespace`` and ``entity_prefix``: where it may act, if not everywhere.
    """

    name: str
    sha256: str
    roles: frozenset[Role]
    namespace: str | None = None
    entity_prefix: str | None = None
    created_at: str | None = None

    @property
    def digest(self) -> bytes:
        """What the token's text hashes to."""
        return bytes.fromhex(self.sha256)

    def as_dict(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "roles": sorted(self.roles),
            "namespace": self.namespace,
            "entity_prefix": self.entity_prefix,
            "created_at": self.created_at,
        }


class TokenSet:
    """All tokens of a file."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self.tokens = tuple(tokens)
        self._by_index: Mapping[bytes, list[Token]] = {}
        index: dict[bytes, list[Token]] = {}
        for token in self.tokens:
            index.setdefault(token.digest[:INDEX_BYTES], []).append(token)
        self._by_index = index

    def find(self, text: bytes) -> Token | None:
        """The token of this text. Digests are compared in a time that says nothing about them."""
        digest = hashlib.sha256(text).digest()
        for token in self._by_index.get(digest[:INDEX_BYTES], ()):
            if hmac.compare_digest(token.digest, digest):
                return token
        return None


class TokenFile:
    """The file, and what was in it when it was last looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._tokens = TokenSet(())
        self._next_look = 0.0

    def load(self) -> TokenSet:
        """What is in the file now. Raises ``ConfigurationError`` if it cannot be used."""
        self._seen = self._stamp()
        self._tokens = TokenSet(read_tokens(self.path))
        self._next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS
        return self._tokens

    def current(self) -> TokenSet:
        """What is in the file, as of a second ago at most. If it cannot be read, what was in it before still holds."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + SECONDS_BETWEEN_LOOKS
            try:
                if self._stamp() != self._seen:
                    self.load()
            except ConfigurationError as error:
                logger.error("tokens stay as they were: %s", error)
        return self._tokens

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise ConfigurationError(f"cannot read the token file {self.path}: {error.strerror}") from None
        return found.st_ino, found.st_mtime_ns, found.st_size


def new_token(
    name: str, roles: Iterable[str], *, namespace: str | None = None, entity_prefix: str | None = None
) -> tuple[str, Token]:
    """The text of a new token, which is shown once and stored nowhere, and what is stored of it."""
    text = SHOWN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    digest = hashlib.sha256(text.encode()).hexdigest()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return text, checked_token(name, digest, roles, namespace, entity_prefix, now)


def checked_token(
    name: Any, sha256: Any, roles: Iterable[Any], namespace: Any, entity_prefix: Any, created_at: Any
) -> Token:
    """A token of which every part is valid. Raises ``ValidationError``."""
    check_entity_id(name, "name")
    given = list(roles)
    known = [str(role) for role in Role]
    if not given or any(role not in known for role in given):
        raise ValidationError("roles", given, f"must be one or more of {', '.join(known)}")
    if not isinstance(sha256, str) or len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise ValidationError("sha256", sha256, "must be 64 hexadecimal digits")
    if namespace is not None:
        check_namespace(namespace)
    if entity_prefix is not None:
        check_entity_id(entity_prefix, "entity_prefix")
    if created_at is not None and not isinstance(created_at, str):
        raise ValidationError("created_at", created_at, "must be a text")
    return Token(name, sha256, frozenset(map(Role, given)), namespace, entity_prefix, created_at)


def read_tokens(path: Path) -> list[Token]:
    """The tokens of a file. Raises ``ConfigurationError`` if it cannot be used, or others may write it."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise ConfigurationError(
                    f"the token file {path} may be written by every user of this machine", hint=f"chmod o-w {path}"
                )
            document = json.loads(file.read())
        return _tokens_of(document)
    except OSError as error:
        raise ConfigurationError(f"cannot read the token file {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"the token file {path} is none: {error}", hint="zae-limiter token create makes one"
        ) from None


def _tokens_of(document: Any) -> list[Token]:
    tokens = [
        checked_token(
            entry["name"],
            entry["sha256"],
            entry["roles"],
            entry.get("namespace"),
            entry.get("entity_prefix"),
            entry.get("created_at"),
        )
        for entry in document["tokens"]
    ]
    names = [token.name for token in tokens]
    for name in names:
        if names.count(name) > 1:
            raise ValidationError("name", name, "is the name of two tokens")
    return tokens


def write_tokens(path: Path, tokens: Iterable[Token]) -> None:
    """Replace the file in one step, so that a service that reads it meanwhile finds the one or the other.

    Who may read it stays as it was: a service under another user must see that a token is revoked.
    """
    document = {"tokens": [token.as_dict() for token in tokens]}
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                _copy_permissions(path, file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigurationError(f"cannot write the token file {path}: {error.strerror}") from None


def _copy_permissions(path: Path, handle: int) -> None:
    found = path.stat()
    os.fchown(handle, found.st_uid, found.st_gid)
    os.fchmod(handle, stat.S_IMODE(found.st_mode))
