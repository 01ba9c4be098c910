"""The words of the table of routes: an operation, the call of one, and its reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from zae_limiter import RateLimiter, ValidationError
from zae_limiter.service.backend import Backend
from zae_limiter.service.guard import Caller
from zae_limiter.service.problems import NO_STORE, Headers, Reply, encode_json
from zae_limiter.service.schema_check import Check, Schema, check_document, compile_check
from zae_limiter.service.tokens import Role

JSON_TYPE = (b"content-type", b"application/json")

Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]

TRUE_WORDS = {"true": True, "false": False}
NO_PARAMETERS: Mapping[str, Any] = {}


class Call:
    """One request, from a client that may make it, with a body and parameters that are as the table says."""

    __slots__ = ("backend", "body", "caller", "headers", "limiter", "path", "query", "receive", "send")

    def __init__(
        self,
        backend: Backend,
        caller: Caller,
        limiter: RateLimiter,
        headers: Mapping[bytes, bytes],
        path: Mapping[str, str],
        query: Mapping[str, Any],
        body: Any,
        receive: Receive,
        send: Send,
    ) -> None:
        self.backend = backend
        self.caller = caller
        self.limiter = limiter
        self.headers = headers
        self.path = path
        self.query = query
        self.body = body
        self.receive = receive
        self.send = send

    def entity(self, value: Any) -> Any:
        """An entity that the client names, if it is one of its own."""
        self.caller.check_entity(value)
        return value

    def entity_or_all(self, value: Any) -> Any:
        """The same where none means all."""
        if value is None:
            self.caller.check_everything()
            return None
        return self.entity(value)


Handler: TypeAlias = Callable[[Call], Awaitable[Reply | None]]
"""What answers a call. ``None``: it has sent the answer itself."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the query of a URL, or a header."""

    name: str
    schema: Schema
    description: str
    place: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method of one path does. ``roles``: one of them is needed; none: it is for all."""

    id: str
    method: str
    path: str
    roles: frozenset[Role]
    summary: str
    handler: Handler
    body: Schema | None = None
    parameters: tuple[Parameter, ...] = ()
    success: int = 200
    reply: Schema | None = None
    reply_type: str = "application/json"
    errors: tuple[int, ...] = ()
    check_body: Check | None = field(init=False, default=None)
    checks: Mapping[str, tuple[Parameter, Check]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.body is not None:
            object.__setattr__(self, "check_body", compile_check(self.body))
        checks = {
            parameter.name: (parameter, compile_check(parameter.schema))
            for parameter in self.parameters
            if parameter.place == "query"
        }
        object.__setattr__(self, "checks", checks)

    def query(self, text: bytes) -> Mapping[str, Any]:
        """The parameters of a request. Raises ``ValidationError`` for what is not as the table says."""
        if not text and not self.checks:
            return NO_PARAMETERS
        found: dict[str, Any] = {}
        if text:
            for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True, strict_parsing=False):
                if name not in self.checks:
                    known = ", ".join(self.checks) or "none"
                    raise ValidationError(name, value, f"is no parameter of this path; it knows {known}")
                if name in found:
                    raise ValidationError(name, value, "is given twice")
                parameter, check = self.checks[name]
                found[name] = typed(value, parameter.schema, name)
                check_document(check, found[name], name)
        for name, (parameter, _) in self.checks.items():
            if parameter.required and name not in found:
                raise ValidationError(name, None, "is missing in the query of the URL")
        return found


def typed(text: str, schema: Schema, name: str) -> Any:
    """A parameter in the type that its schema names."""
    kind = schema.get("type")
    if kind == "integer":
        if not text.lstrip("-").isdecimal() or len(text) > 20:
            raise ValidationError(name, text, "must be a whole number")
        return int(text)
    if kind == "boolean":
        if text not in TRUE_WORDS:
            raise ValidationError(name, text, "must be true or false")
        return TRUE_WORDS[text]
    return text


def json_reply(document: Any, status: int = 200, headers: Headers | None = None) -> Reply:
    """An answer with a document."""
    return Reply(status, encode_json(document).encode(), [JSON_TYPE, NO_STORE, *(headers or ())])


def no_content() -> Reply:
    """An answer with nothing in it."""
    return Reply(204, b"", [])
