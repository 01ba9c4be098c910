"""The credentials that requests are signed with, and their renewal.

A :class:`CredentialSource` knows where credentials come from. A :class:`CredentialCache` hands out what the source
gave last, has it renewed in a thread while it is still good, and goes on with it if that fails; callers only wait
while there are no credentials that may be used. When DynamoDB refuses credentials, every call that was refused waits
for the same refresh: the one that is under way, or the last one, if that ended just now.

A slow lookup is done once for all callers that wait for it (:class:`SingleFlight`), in a thread of its own, so that
every caller may stop waiting at its own deadline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Lock, Thread
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.protocol import Credentials

ACCESS_KEY: Final = "AWS_ACCESS_KEY_ID"
SECRET_KEY: Final = "AWS_SECRET_ACCESS_KEY"
SESSION_TOKEN: Final = "AWS_SESSION_TOKEN"

EXPIRY_CHECK_S: Final = 20.0
"""How often it is checked whether credentials are about to expire."""

FORCED_REFRESH_S: Final = 5.0
"""How often credentials are looked up anew because DynamoDB says that they have expired."""

Result = TypeVar("Result")


def run_in_thread(work: Callable[[], Result], name: str) -> Future[Result]:
    """The outcome of ``work``, done by a new thread. It does not keep the program from ending."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    try:
        Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:  # the interpreter is about to end, and starts no threads any more
        run()
    return future


class SingleFlight(Generic[Result]):
    """Work that is done by one thread at a time: callers that come meanwhile wait for the same outcome."""

    def __init__(self, work: Callable[[], Result], name: str) -> None:
        self._work = work
        self._name = name
        self._lock = Lock()
        self._future: Future[Result] | None = None

    def run(self, *, unless_done: bool = False) -> Future[Result]:
        """The outcome of the work that is under way, or else begins now; ``unless_done``: or was done before."""
        with self._lock:
            future = self._future
            if future is None or (future.done() and not unless_done):
                future = self._future = run_in_thread(self._work, self._name)
            return future


class CredentialSource(Protocol):
    """Where credentials come from."""

    def fetch(self) -> Credentials:
        """The credentials to use from now on. May be slow, and fail."""
        ...

    def fetch_anew(self) -> Credentials:
        """The same, trusting nothing that was fetched before."""
        ...

    def needs_refresh(self) -> bool:
        """Whether it is time to fetch new ones. The old ones may still be good."""
        ...

    def has_expired(self) -> bool:
        """Whether the old ones cannot be used any more."""
        ...


class StaticCredentials:
    """Credentials that never change."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def fetch(self) -> Credentials:
        return self._credentials

    fetch_anew = fetch

    def needs_refresh(self) -> bool:
        return False

    has_expired = needs_refresh


class EnvironmentCredentials(StaticCredentials):
    """Credentials of the environment. It is read again only when DynamoDB refuses them."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        super().__init__(self.fetch_anew())

    def fetch_anew(self) -> Credentials:
        access_key, secret_key = self._environment.get(ACCESS_KEY), self._environment.get(SECRET_KEY)
        if not access_key or not secret_key:
            raise NoAnswer(
                f"{ACCESS_KEY} and {SECRET_KEY} are no longer in the environment", sent=False, misconfigured=True
            )
        return Credentials(access_key, secret_key, self._environment.get(SESSION_TOKEN) or None)


class CredentialCache:
    """Hands out the credentials of one source. Safe to share between threads."""

    def __init__(self, source: CredentialSource) -> None:
        self._source = source
        self._current: Credentials | None = source.fetch() if isinstance(source, StaticCredentials) else None
        self._check_at = monotonic() + EXPIRY_CHECK_S
        self._forced_at = monotonic() - FORCED_REFRESH_S
        """When the last forced refresh ended."""
        self._lock = Lock()
        self._fetches = 0
        self._current_fetch = 0
        """The number of the fetch that brought the current credentials."""
        self._fetching = SingleFlight(self._fetch, "zae-limiter-credentials")
        self._refreshing = SingleFlight(self._fetch_anew, "zae-limiter-credentials")

    def current(self) -> Credentials | None:
        """The credentials to use, or nothing if they have to be waited for (:meth:`fetching`)."""
        current = self._current
        if current is None or monotonic() < self._check_at:
            return current
        if self._source.has_expired():
            return None
        self._check_at = monotonic() + EXPIRY_CHECK_S
        if self._source.needs_refresh():
            self._fetching.run()
        return current

    def fetching(self) -> Future[Credentials]:
        """The credentials to come. That may fail.

        Another caller may have fetched them since this one saw that they are missing: they are not fetched twice.
        """
        return self._fetching.run(unless_done=self._current is not None and not self._source.has_expired())

    def differs_from(self, refused: Credentials) -> bool:
        """Whether there are other credentials than those that were refused."""
        return self._current is not None and self._current != refused

    def refreshing(self) -> Future[Credentials] | None:
        """The credentials, looked up as if for the first time. Nothing, if they never change.

        A refresh that ended just now is not repeated: its outcome is what there is, whether it failed or not.
        """
        if type(self._source) is StaticCredentials:
            return None
        return self._refreshing.run(unless_done=monotonic() < self._forced_at + FORCED_REFRESH_S)

    def _fetch(self) -> Credentials:
        return self._fetch_with(self._source.fetch)

    def _fetch_anew(self) -> Credentials:
        try:
            return self._fetch_with(self._source.fetch_anew)
        finally:
            self._forced_at = monotonic()

    def _fetch_with(self, fetch: Callable[[], Credentials]) -> Credentials:
        """Fetch credentials, and use them unless a fetch that began later has brought others by then."""
        with self._lock:
            self._fetches += 1
            number = self._fetches
        fetched = fetch()
        with self._lock:
            if number > self._current_fetch:
                self._current_fetch = number
                if fetched != self._current:
                    self._current = fetched
                self._check_at = monotonic() + EXPIRY_CHECK_S
        return fetched
