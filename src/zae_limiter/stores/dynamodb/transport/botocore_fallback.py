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

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final

from zae_limiter.stores.dynamodb.checked_clock import date_skew_s
from zae_limiter.stores.dynamodb.requests import DeadlineOver, NoAnswer, Reply
from zae_limiter.stores.dynamodb.transport.failures import failure_of, failure_to_begin, read_whole
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.settings import (
    CONNECTIONS,
    LOCAL_CREDENTIALS,
    LOCAL_REGION,
    Found,
    MissingExtra,
    Place,
    is_local,
    place_at,
    proxy_to,
    region_named,
    service_of,
)

PATIENCES_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

TOLERANCE: Final = 1.05
"""A call that has 1.95 s left may use the client of 2 s."""

CONNECTING: Final = 1 / 3
"""The part of its time that a call may spend on connecting."""


class BotocoreTransport:
    """Carries calls with plain botocore: its credentials, regions, endpoints, proxies and certificates."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._clients = _Clients(target)
        self.last_date_skew_s: float | None = None
        """How far the ``Date`` of the last reply is ahead of this machine's clock."""

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused``, or ``NoAnswer`` after about ``seconds``."""
        method = self._of_this_process().methods(service_of(operation), seconds)[operation]
        sent_at = time.time()
        try:
            reply: Reply = method(**params)
        except Exception as error:
            failure = failure_of(error)
            if failure is None or failure is error:
                raise
            raise failure from error
        date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        self.last_date_skew_s = date_skew_s(date.encode(), sent_at, time.time())
        return reply

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._of_this_process().close()

    def _of_this_process(self) -> _Clients:
        """The clients; in a forked child not its parent's, which share sockets with it."""
        if self._clients.pid != os.getpid():
            self._clients = _Clients(self._target)
        return self._clients


class AsyncBotocoreTransport:
    """Carries calls of event loops with the same clients, each call in a thread. Any number of loops may share it."""

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

        work = self._threads_of_this_process().submit(self._transport.call, operation, params, seconds)
        reply = asyncio.wrap_future(work)
        try:
            await asyncio.wait([reply], timeout=seconds)
            if reply.done():
                return reply.result()
            begun = not work.cancel()
            raise NoAnswer(f"no answer to {operation} within {seconds:.3f} s", sent=begun)
        finally:
            reply.cancel()  # a thread that is still waiting goes on by itself, and its reply is dropped

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        threads, self._threads = self._threads_of_this_process(), None
        threads.shutdown(wait=False)
        self._transport.close()

    def _threads_of_this_process(self) -> ThreadPoolExecutor:
        """The threads; in a forked child new ones, because threads do not survive a fork."""
        if self._threads is None or self._pid != os.getpid():
            self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="zae-limiter-botocore")
            self._pid = os.getpid()
        return self._threads


class _Clients:
    """The clients of one process, by service and patience."""

    def __init__(self, target: Target) -> None:
        self.pid = os.getpid()
        self._target = target
        self._lock = Lock()
        self._session: Any = None
        self._made: dict[tuple[str, float], tuple[Any, Mapping[str, Any]]] = {}

    def methods(self, service: str, seconds: float) -> Mapping[str, Any]:
        patience = patience_for(seconds)
        made = self._made.get((service, patience))
        if made is None:
            made = self._make(service, patience, seconds)
        return made[1]

    def close(self) -> None:
        with self._lock:
            made, self._made = self._made, {}
        for client, _ in made.values():
            client.close()

    def _make(self, service: str, patience: float, seconds: float) -> tuple[Any, Mapping[str, Any]]:
        if not self._lock.acquire(timeout=max(seconds, 0)):
            raise DeadlineOver("another thread is still reading the credentials")
        try:
            made = self._made.get((service, patience))
            if made is None:
                if self._session is None:
                    self._session = _session(self._target)
                client = _client(self._target, self._session, service, patience)
                made = self._made[service, patience] = client, methods_of(client)
            return made
        except Exception as error:
            failure = None if isinstance(error, ImportError) else failure_to_begin(error)
            if failure is None or failure is error:
                raise
            raise failure from error
        finally:
            self._lock.release()


def patience_for(seconds: float) -> float:
    """The longest patience that a call with so much time left may have."""
    return max((patience for patience in PATIENCES_S if patience <= seconds * TOLERANCE), default=PATIENCES_S[0])


def _session(target: Target) -> Any:
    session = _prepared_session(target)
    if is_local(target) and target.credentials is None and session.get_credentials() is None:
        session.set_credentials(*LOCAL_CREDENTIALS)
    return session


def _client(target: Target, session: Any, service: str, patience: float) -> Any:
    from botocore.config import Config

    config = config_of(target, connect_seconds=patience * CONNECTING, read_seconds=patience * (1 - CONNECTING))
    client = session.create_client(service, config=Config(**config), **address_of(target, session))
    client.meta.events.register("response-received", read_whole)
    return client


class RefreshedByBotocore:
    """Credentials that botocore found, and knows how to renew."""

    def __init__(self, found: Any, look: Callable[[], Any]) -> None:
        self._found = found
        self._look = look

    def fetch(self) -> Credentials:
        try:
            frozen = self._found.get_frozen_credentials()
        except RuntimeError as error:  # botocore's, for new credentials that are old
            raise NoAnswer(str(error), sent=False) from error
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or None)

    def fetch_anew(self) -> Credentials:
        self._found = self._look()
        return self.fetch()

    def is_aging(self) -> bool:
        return hasattr(self._found, "refresh_needed") and self._found.refresh_needed()

    def is_over(self) -> bool:
        return hasattr(self._found, "refresh_needed") and self._found.refresh_needed(0)


def found_by_botocore(target: Target, service: str) -> Found:
    """What is needed to call ``service``. Raises botocore's errors."""
    session = _prepared_session(target)
    place = _place_of(target, session, service)
    source = RefreshedByBotocore(
        _credentials_of(target, place, session), lambda: _credentials_of(target, place, _prepared_session(target))
    )
    ca_bundle = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    return Found(place, source, ca_bundle, proxy_to(place))


def _prepared_session(target: Target) -> Any:
    try:
        from botocore.session import get_session
    except ImportError as error:
        raise MissingExtra(error.name) from error

    session = get_session()
    prepare(target, session)
    return session


def _credentials_of(target: Target, place: Place, session: Any) -> Any:
    """botocore's own credentials object: it knows when they expire, and what to do then."""
    from botocore.credentials import Credentials as Fixed
    from botocore.exceptions import NoCredentialsError

    if target.credentials is not None:
        return Fixed(*target.credentials)
    found = session.get_credentials()
    if found is None and place.is_local:
        return Fixed(*LOCAL_CREDENTIALS)
    if found is None:
        raise NoCredentialsError
    return found


class _AboutToSign(Exception):
    """Carries away what a client of botocore's was about to sign."""

    def __init__(self, url: str, region: str) -> None:
        super().__init__("about to sign")
        self.url = url
        self.region = region


def _about_to_sign(request: Any, region_name: str, **_: Any) -> None:
    raise _AboutToSign(request.url, request.context.get("signing", {}).get("region") or region_name)


def _place_of(target: Target, session: Any, service: str) -> Place:
    from botocore.config import Config

    config = Config(parameter_validation=False, proxies={}, retries={"total_max_attempts": 1})
    client = session.create_client(service, config=config, **address_of(target, session))
    client.meta.events.register_first("before-sign", _about_to_sign)
    try:
        client.list_streams() if service == "dynamodbstreams" else client.list_tables()
    except _AboutToSign as what:
        return place_at(what.url, what.region)
    finally:
        client.close()
    raise NoAnswer("botocore did not say where DynamoDB is", sent=False)


def config_of(target: Target, *, connect_seconds: float, read_seconds: float) -> dict[str, Any]:
    """How a client behaves: one try, because plans decide what is repeated; no second look at what plans wrote."""
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


def address_of(target: Target, session: Any) -> dict[str, Any]:
    """Where a client speaks to, and as whom."""
    region = region_named(target) or session.get_config_variable("region")
    address: dict[str, Any] = {
        "region_name": region or (LOCAL_REGION if is_local(target) else None),
        "endpoint_url": target.endpoint_url,
    }
    if target.credentials is not None:
        address["aws_access_key_id"] = target.credentials.access_key
        address["aws_secret_access_key"] = target.credentials.secret_key
        address["aws_session_token"] = target.credentials.session_token
    return address


def prepare(target: Target, session: Any) -> None:
    """Make a new session ready. It asks no metadata service on behalf of an engine on this machine."""
    if is_local(target):
        session.set_config_variable("metadata_service_num_attempts", 0)


def methods_of(client: Any) -> Mapping[str, Any]:
    """The methods of a client, by the names of their operations."""
    return {operation: getattr(client, method) for method, operation in client.meta.method_to_api_mapping.items()}
