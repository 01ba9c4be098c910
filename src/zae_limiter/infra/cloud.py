"""AWS as plans of this package see it: one request per call, and two errors that say all a plan needs to know.

A plan yields an :class:`AwsCall` and is sent the reply in botocore's form. The call may raise :class:`CloudRefused`
(the service refused it) or :class:`CloudUnavailable` (there is no answer, no region or no credentials). :class:`Cloud`
performs these calls with botocore, which is imported with the first one and retries what is worth retrying.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import Any, Final, NamedTuple, TypeVar, cast

from zae_limiter.exceptions import MissingExtra, RateLimiterUnavailable, StackOperationError
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import Plan, Request
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.transport.botocore_fallback import client_arguments, client_methods, prepare_session
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.settings import LOCAL_CREDENTIALS, is_local

Reply = TypeVar("Reply")
Result = TypeVar("Result")

ENDPOINT_VARIABLE: Final = "AWS_ENDPOINT_URL"

CONNECT_S: Final = 5
READ_S: Final = 60
TRIES: Final = 5

NO_ACCESS: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
NO_IDENTITY: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)


class CloudRefused(Exception):
    """A service refused a call."""

    def __init__(self, operation: str, code: str, message: str) -> None:
        self.operation = operation
        self.code = code
        self.message = message
        super().__init__(f"{operation}: {code}: {message}")

    def says(self, *words: str) -> bool:
        """Whether its message has one of these in it."""
        return any(some in self.message for some in words)


class CloudUnavailable(Exception):
    """No answer: no network, no region, no credentials."""


class AwsCall(Request[Mapping[str, Any]]):
    """One call of a service of AWS."""

    __slots__ = ("operation", "params", "service")

    def __init__(self, service: str, operation: str, /, **params: Any) -> None:
        self.service = service
        self.operation = operation
        self.params = params

    def __repr__(self) -> str:
        return f"Ask({self.service}.{self.operation}, {self.params})"


class Notify(Request[None]):
    """An event for the listener of this plan."""

    __slots__ = ("event",)

    def __init__(self, event: Any) -> None:
        self.event = event


class Account(NamedTuple):
    """Where to ask, and as whom. What is ``None`` is found by botocore, in the environment and in its files."""

    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    credentials: Credentials | None = None

    @property
    def target(self) -> Target:
        """The same, as the store knows it."""
        return Target(self.region, self.endpoint_url, self.credentials)


class Cloud:
    """Answers the requests of plans, with botocore's clients of one account and region."""

    def __init__(self, account: Account) -> None:
        self._account = account._replace(endpoint_url=account.endpoint_url or os.environ.get(ENDPOINT_VARIABLE))
        self._lock = RLock()
        self._session: Any = None
        self._clients: dict[str, tuple[Any, Mapping[str, Any]]] = {}

    def run(self, plan: Plan[Result], listen: Callable[[Any], None] = lambda event: None) -> Result:
        """The plan's result. Its events go to ``listen``. Raises the library's own errors."""

        def perform(request: Request[Reply], /) -> Reply:
            if isinstance(request, Notify):
                return cast("Reply", listen(request.event))
            assert isinstance(request, AwsCall)
            return cast("Reply", self.answer(request))

        with translated_errors():
            return SyncDriver(machine_clock, perform).run(plan)

    def answer(self, request: AwsCall) -> Mapping[str, Any]:
        """The reply of one call. Raises :class:`CloudRefused` and :class:`CloudUnavailable`."""
        methods = self._methods(request.service)
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

        try:
            reply: Mapping[str, Any] = methods[request.operation](**request.params)
        except ClientError as error:
            told = error.response.get("Error", {})
            code, message = str(told.get("Code", "")), str(told.get("Message", ""))
            raise CloudRefused(request.operation, code, message) from error
        except ParamValidationError as error:
            raise CloudRefused(request.operation, type(error).__name__, str(error)) from error
        except (BotoCoreError, OSError, ValueError) as error:
            raise CloudUnavailable(str(error) or type(error).__name__) from error
        return reply

    def target(self) -> Target:
        """The same region, endpoint and identity, for the store. Its region is never ``None``."""
        with translated_errors(), self._lock:
            credentials = self._account.credentials
            if credentials is None and self._account.profile is not None:
                found = self._own_session().get_credentials()
                if found is not None:
                    credentials = Credentials(*found.get_frozen_credentials())
            return Target(str(self._address()["region_name"]), self._account.endpoint_url, credentials)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client, _ in clients.values():
            client.close()

    def _methods(self, service: str) -> Mapping[str, Any]:
        with self._lock:
            if service not in self._clients:
                client = self._make(service)
                self._clients[service] = client, client_methods(client)
            return self._clients[service][1]

    def _make(self, service: str) -> Any:
        session = self._own_session()
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        options: dict[str, Any] = {
            "connect_timeout": CONNECT_S,
            "read_timeout": READ_S,
            "retries": {"mode": "standard", "total_max_attempts": TRIES},
        }
        if is_local(self._account.target):
            options |= {"proxies": {}, "s3": {"addressing_style": "path"}}
        try:
            return session.create_client(service, config=Config(**options), **self._address())
        except (BotoCoreError, ValueError) as error:
            raise CloudUnavailable(str(error)) from error

    def _address(self) -> dict[str, Any]:
        address = client_arguments(self._account.target, self._own_session())
        if address["region_name"] is None:
            raise CloudUnavailable("no region is named")
        return address

    def _own_session(self) -> Any:
        if self._session is None:
            try:
                from botocore.exceptions import BotoCoreError
                from botocore.session import Session
            except ImportError as error:
                raise MissingExtra(error.name) from error
            try:
                session = Session(profile=self._account.profile)
                prepare_session(self._account.target, session)
                if is_local(self._account.target) and session.get_credentials() is None:
                    session.set_credentials(*LOCAL_CREDENTIALS)
            except (BotoCoreError, ValueError) as error:
                raise CloudUnavailable(str(error)) from error
            self._session = session
        return self._session


def check_installed() -> None:
    """Raise before any work if botocore is missing."""
    try:
        import_module("botocore")
    except ImportError as error:
        raise MissingExtra(error.name) from error


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate the errors of plans into those of the library."""
    try:
        yield
    except CloudRefused as refusal:
        raise StackOperationError(in_words(refusal)) from refusal
    except CloudUnavailable as silence:
        raise RateLimiterUnavailable(f"AWS did not answer: {silence}", hint=hint_for(silence)) from silence


def in_words(refusal: CloudRefused) -> str:
    """What a service refused, in one line."""
    if refusal.code in NO_ACCESS:
        return f"not allowed: {refusal.message}"
    if refusal.code in NO_IDENTITY:
        return f"AWS does not accept these credentials: {refusal.message}"
    return f"{refusal.operation} was refused: {refusal.message or refusal.code}"


def hint_for(silence: CloudUnavailable) -> str | None:
    """What may help."""
    words = str(silence).lower()
    if "region" in words:
        return "name one with --region or AWS_REGION"
    if "credentials" in words or "profile" in words:
        return "log in, or set AWS_PROFILE"
    return None
