"""From a request to the call of an operation, and from what comes of it to an answer.

An endpoint is one path with its methods, as an ASGI application. It checks where a request comes from, who sends it
and whether that client may, reads the body within bounds of size and time, and turns every error into a problem
document. It makes no request and response objects: this is the path of every acquire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping
from json import JSONDecoder
from typing import Any

from zae_limiter import RateLimiter
from zae_limiter.service.backend import Backend
from zae_limiter.service.guard import LOCAL_CALLER, Caller, Guard
from zae_limiter.service.operations import NO_PARAMETERS, Call, Operation, Receive, Send
from zae_limiter.service.problems import Problem, Reply, problem, reply_to_error
from zae_limiter.service.schema_check import check_document

MOST_BODY_BYTES = 64 * 1024
BODY_SECONDS = 10.0
"""So long a client may take to send a body."""

NAMESPACE_HEADER = b"zael-namespace"
JSON = b"application/json"


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


decode_json = JSONDecoder(parse_constant=_refuse_constant).decode


class Endpoint:
    """One path: an ASGI application that answers each of its methods."""

    def __init__(self, operations: Mapping[str, Operation], backend: Backend, guard: Guard) -> None:
        self._operations = dict(operations)
        if "GET" in self._operations:
            self._operations.setdefault("HEAD", self._operations["GET"])
        self._backend = backend
        self._answers = backend.answers
        self._guard = guard
        self._allowed = ", ".join(sorted(self._operations)).encode()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        operation = self._operations.get(scope["method"])
        if operation is None:
            await send_reply(send, problem(405, "this path has other methods", [(b"allow", self._allowed)]))
            return
        body: Any = None
        try:
            headers = dict(scope["headers"])
            guard = self._guard
            guard.check_site(headers)
            caller = guard.caller(headers) if operation.roles else LOCAL_CALLER
            caller.check_role(operation.roles)
            limiter = self._limiter(headers, caller)
            query = operation.query(scope["query_string"])
            check = operation.check_body
            if check is not None:
                body = await read_json(headers, receive)
                check_document(check, body)
            path = scope.get("path_params", NO_PARAMETERS)
            call = Call(self._backend, caller, limiter, headers, path, query, body, receive, send)
            reply = await operation.handler(call)
        except Exception as error:
            reply = reply_to_error(error, entity_of(body))
        if reply is not None:
            self._answers[operation.id, reply.status] += 1
            await send_reply(send, reply, with_body=scope["method"] != "HEAD")

    def _limiter(self, headers: Mapping[bytes, bytes], caller: Caller) -> RateLimiter:
        """The limiter of the namespace that a request is about."""
        named = headers.get(NAMESPACE_HEADER)
        own = caller.namespace
        if named is None:
            return self._backend.limiter(own)
        name = named.decode("latin-1")
        if own is not None and name != own:
            raise Problem(403, f"token {caller.name} is for namespace {own}")
        return self._backend.limiter(name)


async def read_json(headers: Mapping[bytes, bytes], receive: Receive) -> Any:
    """The document that a request brings."""
    kind = headers.get(b"content-type", b"")
    if kind != JSON and kind.partition(b";")[0].strip().lower() != JSON:
        raise Problem(400, "send JSON, and say so: Content-Type: application/json")
    content = await read_body(headers, receive)
    try:
        return decode_json(content.decode())
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is no JSON document: {error}") from None


async def read_body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    """The bytes of a body, within bounds."""
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > MOST_BODY_BYTES:
        raise Problem(413, f"a body has at most {MOST_BODY_BYTES} bytes")
    try:
        message = await at_once_or_within(receive(), BODY_SECONDS)
        content: bytes = message.get("body", b"")
        if message.get("more_body", False):
            async with asyncio.timeout(BODY_SECONDS):
                content = await _rest_of_body(content, receive)
    except TimeoutError:
        raise Problem(408, f"the body did not come within {BODY_SECONDS:.0f} seconds") from None
    if message["type"] == "http.disconnect":
        raise Problem(400, "the client left before it had sent the body")
    return content


async def _rest_of_body(content: bytes, receive: Receive) -> bytes:
    while True:
        message = await receive()
        content += message.get("body", b"")
        if len(content) > MOST_BODY_BYTES:
            raise Problem(413, f"a body has at most {MOST_BODY_BYTES} bytes")
        if message["type"] == "http.disconnect":
            raise Problem(400, "the client left before it had sent the body")
        if not message.get("more_body", False):
            return content


async def at_once_or_within(work: Awaitable[Any], seconds: float) -> Any:
    """Awaits what mostly need not wait. Only what must gets a timer, which costs as much as a take."""
    steps = work.__await__()
    try:
        first = next(steps)
    except StopIteration as done:
        return done.value
    async with asyncio.timeout(seconds):
        return await _Begun(steps, first)


class _Begun:
    """Awaits what has been begun, and waits for ``first``. An interrupt goes to it, and not to the one that waits."""

    def __init__(self, steps: Any, first: Any) -> None:
        self._steps = steps
        self._first = first

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            yield self._first
        except BaseException as interrupt:
            yield self._steps.throw(interrupt)
        return (yield from self._steps)


async def send_reply(send: Send, reply: Reply, *, with_body: bool = True) -> None:
    """Send an answer."""
    status, body, headers = reply
    if status != 204:
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body if with_body else b""})


def entity_of(body: Any) -> str:
    """The entity that a body names: whose limits a refusal may show."""
    named = body.get("entity") if isinstance(body, dict) else None
    return named if isinstance(named, str) else ""
