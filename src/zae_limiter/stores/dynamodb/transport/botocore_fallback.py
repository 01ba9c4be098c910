"""What is left to botocore: whole calls, if the operator chose its transport, and settings that are not simple.

**Calls.** botocore fixes its timeouts when a client is made. So there is one client for each of a few timeouts, made
when first needed, and a call goes to the one with the longest timeout that its time allows. The bound is not a strict
one: looking up a name has no timeout, each address of a host may take the time for connecting, and an answer that
trickles in may take the time for reading again and again. For event loops, calls go in threads.

**Settings.** botocore is asked where it *would* send a call: one of its clients is made and used, and stopped when it
is about to sign. So whatever its rules are, they are obeyed, and nothing is sent. All of this is slow, and may ask
servers (for a role): it is work for a thread.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any, Final
from zlib import crc32

from zae_limiter.exceptions import MissingExtra
from zae_limiter.stores.dynamodb.requests import DeadlineOver, NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.http_replies import date_skew_s
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.service import (
    OUTAGES,
    SERVER_ERROR,
    described,
    failure_before_sending,
    failure_of_status,
    is_permanent,
)
from zae_limiter.stores.dynamodb.transport.settings import (
    CONNECTIONS,
    LOCAL_CREDENTIALS,
    LOCAL_REGION,
    Endpoint,
    ServiceSettings,
    configured_region,
    endpoint_at,
    is_local,
    proxy_for,
    service_of,
)

TIMEOUTS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

TOLERANCE: Final = 1.05
"""A call that has 1.95 s left may use the client of 2 s."""

CONNECT_SHARE: Final = 1 / 3
"""The part of its time that a call may spend on connecting."""

NEVER_SENT: Final = (
    *OUTAGES,
    "CredentialRetrievalError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "NoRegionError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "SSOError",
    "TokenRetrievalError",
)
"""botocore's errors that come before anything was sent."""


class BotocoreTransport:
    """Carries the calls of threads with botocore: its credentials, regions, endpoints, proxies and certificates."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._clients = _Clients(target)
        self.last_date_skew_s: float | None = None
        """How far the ``Date`` of the last reply is ahead of this machine's clock."""

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused``, or ``NoAnswer`` after about ``seconds``."""
        method = self._own_clients().methods(service_of(operation), seconds)[operation]
        sent_at = time.time()
        try:
            reply: Reply = method(**params)
        except Exception as error:
            failure = failure_from_botocore(error)
            if failure is None or failure is error:
                raise
            raise failure from error
        date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        self.last_date_skew_s = date_skew_s(date.encode(), sent_at, time.time())
        return reply

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._own_clients().close()

    def _own_clients(self) -> _Clients:
        """The clients; in a forked child not its parent's, which share sockets with it."""
        if self._clients.pid != os.getpid():
            self._clients = _Clients(self._target)
        return self._clients


class AsyncBotocoreTransport:
    """Carries the calls of tasks with botocore, each in a thread. Any number of loops may share it."""

    def __init__(self, target: Target) -> None:
        self._transport = BotocoreTransport(target)
        self._pid = os.getpid()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def last_date_skew_s(self) -> float | None:
        """How far the ``Date`` of the last reply is ahead of this machine's clock."""
        return self._transport.last_date_skew_s

    async def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest."""
        import asyncio

        work = self._own_threads().submit(self._transport.call, operation, params, seconds)
        reply = asyncio.wrap_future(work)
        try:
            await asyncio.wait([reply], timeout=seconds)
            if reply.done():
                return reply.result()
            was_begun = not work.cancel()
            too_late = TimeoutError(f"no answer to {operation} within {seconds:.3f} s")
            raise NoAnswer(str(too_late), sent=was_begun) from too_late
        finally:
            reply.cancel()  # a thread that is still waiting goes on by itself, and its reply is dropped

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        threads, self._threads = self._own_threads(), None
        threads.shutdown(wait=False)
        self._transport.close()

    def _own_threads(self) -> ThreadPoolExecutor:
        """The threads; in a forked child new ones, because threads do not survive a fork."""
        if self._threads is None or self._pid != os.getpid():
            self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="zae-limiter-botocore")
            self._pid = os.getpid()
        return self._threads


class _Clients:
    """The clients of one process, by service and timeout."""

    def __init__(self, target: Target) -> None:
        self.pid = os.getpid()
        self._target = target
        self._lock = Lock()
        self._session: Any = None
        self._by_timeout: dict[tuple[str, float], tuple[Any, Mapping[str, Any]]] = {}

    def methods(self, service: str, seconds: float) -> Mapping[str, Any]:
        timeout = timeout_for(seconds)
        made = self._by_timeout.get((service, timeout))
        if made is None:
            made = self._make(service, timeout, seconds)
        return made[1]

    def close(self) -> None:
        with self._lock:
            made, self._by_timeout = self._by_timeout, {}
        for client, _ in made.values():
            client.close()

    def _make(self, service: str, timeout: float, seconds: float) -> tuple[Any, Mapping[str, Any]]:
        if not self._lock.acquire(timeout=max(seconds, 0)):
            raise DeadlineOver("another thread is still reading the credentials")
        try:
            made = self._by_timeout.get((service, timeout))
            if made is None:
                if self._session is None:
                    self._session = _session(self._target)
                client = _client(self._target, self._session, service, timeout)
                made = self._by_timeout[service, timeout] = client, client_methods(client)
            return made
        except Exception as error:
            failure = None if isinstance(error, ImportError) else failure_before_sending(error)
            if failure is None or failure is error:
                raise
            raise failure from error
        finally:
            self._lock.release()


def timeout_for(seconds: float) -> float:
    """The longest timeout that a call with so much time left may have."""
    return max((timeout for timeout in TIMEOUTS_S if timeout <= seconds * TOLERANCE), default=TIMEOUTS_S[0])


def _session(target: Target) -> Any:
    session = _prepared_session(target)
    if is_local(target) and target.credentials is None and session.get_credentials() is None:
        session.set_credentials(*LOCAL_CREDENTIALS)
    return session


def _client(target: Target, session: Any, service: str, timeout: float) -> Any:
    from botocore.config import Config

    config = client_config(target, connect_seconds=timeout * CONNECT_SHARE, read_seconds=timeout * (1 - CONNECT_SHARE))
    client = session.create_client(service, config=Config(**config), **client_arguments(target, session))
    client.meta.events.register("response-received", check_whole)
    return client


class BotocoreCredentials:
    """Credentials that botocore found, and knows how to renew."""

    def __init__(self, found: Any, find_again: Callable[[], Any]) -> None:
        self._found = found
        self._find_again = find_again

    def fetch(self) -> Credentials:
        try:
            frozen = self._found.get_frozen_credentials()
        except RuntimeError as error:  # botocore raises it for a refresh that brings expired credentials
            raise NoAnswer(str(error), sent=False, misconfigured=True) from error
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or None)

    def fetch_anew(self) -> Credentials:
        self._found = self._find_again()
        return self.fetch()

    def needs_refresh(self) -> bool:
        return hasattr(self._found, "refresh_needed") and self._found.refresh_needed()

    def has_expired(self) -> bool:
        return hasattr(self._found, "refresh_needed") and self._found.refresh_needed(0)


def settings_by_botocore(target: Target, service: str) -> ServiceSettings:
    """What is needed to call ``service``. Raises botocore's errors."""
    session = _prepared_session(target)
    endpoint = _endpoint_asked_for(target, session, service)
    source = BotocoreCredentials(
        _botocore_credentials(target, endpoint, session),
        lambda: _botocore_credentials(target, endpoint, _prepared_session(target)),
    )
    ca_bundle = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    return ServiceSettings(endpoint, source, ca_bundle, proxy_for(endpoint))


def _prepared_session(target: Target) -> Any:
    try:
        from botocore.session import get_session
    except ImportError as error:
        raise MissingExtra(error.name) from error

    session = get_session()
    prepare_session(target, session)
    return session


def _botocore_credentials(target: Target, endpoint: Endpoint, session: Any) -> Any:
    """botocore's own credentials object: it knows when they expire, and what to do then."""
    from botocore.credentials import Credentials as Fixed
    from botocore.exceptions import NoCredentialsError

    if target.credentials is not None:
        return Fixed(*target.credentials)
    found = session.get_credentials()
    if found is None and endpoint.is_local:
        return Fixed(*LOCAL_CREDENTIALS)
    if found is None:
        raise NoCredentialsError
    return found


class _AboutToSign(Exception):
    """Stops a client of botocore's, and brings what it was about to sign."""

    def __init__(self, url: str, region: str) -> None:
        super().__init__("about to sign")
        self.url = url
        self.region = region


def _about_to_sign(request: Any, region_name: str, **_: Any) -> None:
    raise _AboutToSign(request.url, request.context.get("signing", {}).get("region") or region_name)


def _endpoint_asked_for(target: Target, session: Any, service: str) -> Endpoint:
    from botocore.config import Config

    config = Config(parameter_validation=False, proxies={}, retries={"total_max_attempts": 1})
    client = session.create_client(service, config=config, **client_arguments(target, session))
    client.meta.events.register_first("before-sign", _about_to_sign)
    try:
        client.list_streams() if service == "dynamodbstreams" else client.list_tables()
    except _AboutToSign as stopped:
        return endpoint_at(stopped.url, stopped.region)
    finally:
        client.close()
    raise NoAnswer("botocore did not sign a request, so the endpoint of DynamoDB is unknown", sent=False)


def client_config(target: Target, *, connect_seconds: float, read_seconds: float) -> dict[str, Any]:
    """How a client behaves: one try, because plans decide what is repeated; no validation, which plans do not need."""
    options: dict[str, Any] = {
        "connect_timeout": connect_seconds,
        "read_timeout": read_seconds,
        "max_pool_connections": CONNECTIONS,
        "parameter_validation": False,
        "retries": {"mode": "standard", "total_max_attempts": 1},
        "tcp_keepalive": True,
    }
    if is_local(target):
        options["proxies"] = {}
    return options


def client_arguments(target: Target, session: Any) -> dict[str, Any]:
    """With what a client is made: its region, its endpoint, its credentials."""
    region = configured_region(target) or session.get_config_variable("region")
    address: dict[str, Any] = {
        "region_name": region or (LOCAL_REGION if is_local(target) else None),
        "endpoint_url": target.endpoint_url,
    }
    if target.credentials is not None:
        address["aws_access_key_id"] = target.credentials.access_key
        address["aws_secret_access_key"] = target.credentials.secret_key
        address["aws_session_token"] = target.credentials.session_token
    return address


def prepare_session(target: Target, session: Any) -> None:
    """Keep a new session from asking a metadata service for the credentials of an engine on this machine."""
    if is_local(target):
        session.set_config_variable("metadata_service_num_attempts", 0)


def client_methods(client: Any) -> Mapping[str, Any]:
    """The methods of a client, by the names of their operations."""
    return {operation: getattr(client, method) for method, operation in client.meta.method_to_api_mapping.items()}


def failure_from_botocore(error: Exception) -> Refused | NoAnswer | None:
    """What an error that botocore raised means to a plan; nothing, if it is no failure of the call but a bug."""
    from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, ProxyConnectionError, SSLError
    from botocore.parsers import ResponseParserError

    if isinstance(error, NoAnswer):
        return error
    if isinstance(error, ClientError):
        return _failure_in(error.response)
    if isinstance(error, EndpointConnectionError | ProxyConnectionError | SSLError):
        native = error.kwargs.get("error")
        permanent = any(map(is_permanent, _stands_for(native)))
        return NoAnswer(str(error), sent=not _while_connecting(native), misconfigured=permanent)
    if isinstance(error, BotoCoreError):
        unsent = isinstance(error, _never_sent())
        return NoAnswer(str(error), sent=not unsent, misconfigured=unsent and type(error).__name__ not in OUTAGES)
    if isinstance(error, ResponseParserError | OSError):
        return NoAnswer(described(error))
    return None


def check_whole(response_dict: Mapping[str, Any] | None, parsed_response: Mapping[str, Any] | None, **_: Any) -> None:
    """Raise ``NoAnswer`` for a reply that arrived broken: botocore takes it for an empty one.

    botocore calls this for every reply (its event ``response-received``).
    """
    if response_dict is None or parsed_response is None or response_dict["status_code"] >= 300:
        return
    body, headers = response_dict["body"], response_dict["headers"]
    checksum, length = headers.get("x-amz-crc32"), headers.get("content-length")
    if length is not None and len(body) != int(length):
        raise NoAnswer(f"the reply was cut off after {len(body)} of {length} bytes")
    if checksum is not None and crc32(body) != int(checksum):
        raise NoAnswer("the reply does not have the checksum it was sent with")
    if parsed_response.keys() <= {"ResponseMetadata"}:
        try:
            understood = isinstance(json.loads(body), dict)
        except ValueError:
            understood = False
        if not understood:
            raise NoAnswer("the reply is not JSON; does something else answer at this endpoint?")


def _failure_in(response: Mapping[str, Any]) -> Refused | NoAnswer:
    error = response.get("Error", {})
    return failure_of_status(
        response.get("ResponseMetadata", {}).get("HTTPStatusCode", SERVER_ERROR),
        str(error.get("Code", "")),
        str(error.get("Message", "")),
        response.get("Item"),
        response.get("CancellationReasons") or (),
    )


def _while_connecting(native: object) -> bool:
    """Whether the error below botocore's came before there was a connection.

    urllib3 calls everything an error of the proxy that happens on a connection to one, unless there is a tunnel.
    """
    import ssl

    native = getattr(native, "original_error", native)
    if isinstance(native, ssl.SSLCertVerificationError):
        return True
    kinds = {kind.__name__ for kind in type(native).__mro__}
    if kinds & {
        "ConnectTimeoutError",
        "NewConnectionError",
        "gaierror",
        "ClientConnectorError",
        "ClientConnectorCertificateError",
    }:
        return True
    inner = getattr(native, "args", ())
    return str(native).startswith("Tunnel connection failed") or any(
        isinstance(part, ssl.SSLCertVerificationError) for part in inner
    )


def _stands_for(native: object) -> list[object]:
    """An error of urllib3's, and those below it."""
    below = getattr(native, "original_error", None) or getattr(native, "reason", None)
    return [native, below, getattr(native, "__cause__", None), *getattr(native, "args", ())]


@cache
def _never_sent() -> tuple[type[Exception], ...]:
    from botocore import exceptions

    return tuple(getattr(exceptions, name) for name in NEVER_SENT if hasattr(exceptions, name))
