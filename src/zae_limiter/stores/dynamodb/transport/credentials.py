"""The credentials that requests are signed with, and their renewal.

A :class:`Source` knows where credentials come from. A :class:`Keeper` hands out what the source last gave, has it
renewed in a thread while it is still good, and goes on with it if that fails; callers only wait while there are no
credentials that may be used. When DynamoDB refuses credentials, every call that was refused waits for the same
refresh: the one that is under way, or the last one, if that ended just now.

Slow lookups are done once for all callers that wait for them (:class:`Errand`), in a thread of their own, so that
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

LOOK_AGAIN_S: Final = 20.0
"""How often it is checked whether credentials are about to expire."""

FORCED_S: Final = 5.0
"""How often credentials are looked up anew because DynamoDB says that they have expired."""


class Source(Protocol):
    """Where credentials come from."""

    def fetch(self) -> Credentials:
        """The credentials to use from now on. May take its time, and fail."""
        ...

    def fetch_anew(self) -> Credentials:
        """The same, trusting nothing that was fetched before."""
        ...

    def is_aging(self) -> bool:
        """Whether it is time to fetch new ones."""
        ...

    def is_over(self) -> bool:
        """Whether the old ones cannot be used any more."""
        ...


class Lasting:
    """Credentials that last."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def fetch(self) -> Credentials:
        return self._credentials

    fetch_anew = fetch

    def is_aging(self) -> bool:
        return False

    is_over = is_aging


class FromEnvironment(Lasting):
    """Credentials that the environment has. It may have others later."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        super().__init__(self.fetch_anew())

    def fetch_anew(self) -> Credentials:
        access_key, secret_key = self._environment.get(ACCESS_KEY), self._environment.get(SECRET_KEY)
        if not access_key or not secret_key:
            raise NoAnswer("the credentials have left the environment", sent=False)
        return Credentials(access_key, secret_key, self._environment.get(SESSION_TOKEN) or None)


class Keeper:
    """Hands out credentials. Safe to share between threads."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: Credentials | None = source.fetch() if isinstance(source, Lasting) else None
        self._look_again_at = monotonic() + LOOK_AGAIN_S
        self._forced_at = monotonic() - FORCED_S
        """When the last forced refresh ended."""
        self._lock = Lock()
        self._begun = 0
        self._kept_of = 0
        """The refresh that brought what is kept: the how manyeth of those that were begun."""
        self._fetching = Errand(self._fetch, "zae-limiter-credentials")
        self._fetching_anew = Errand(self._fetch_anew, "zae-limiter-credentials")

    def current(self) -> Credentials | None:
        """The credentials to use, or nothing if they have to be waited for (:meth:`fetching`)."""
        kept = self._kept
        if kept is None or monotonic() < self._look_again_at:
            return kept
        if self._source.is_over():
            return None
        self._look_again_at = monotonic() + LOOK_AGAIN_S
        if self._source.is_aging():
            self._fetching.run()
        return kept

    def fetching(self) -> Future[Credentials]:
        """The credentials, when they are there. That may fail.

        Another caller may have brought them since this one saw that they are missing: then they are not fetched twice.
        """
        return self._fetching.run(unless_done=self._kept is not None and not self._source.is_over())

    def has_others_than(self, refused: Credentials) -> bool:
        """Whether there are other credentials than those that were refused."""
        return self._kept is not None and self._kept != refused

    def fetching_anew(self) -> Future[Credentials] | None:
        """The credentials, looked up as if for the first time. Nothing, if they never change.

        A refresh that ended just now is not repeated: its outcome is what there is, whether it failed or not.
        """
        if type(self._source) is Lasting:
            return None
        return self._fetching_anew.run(unless_done=monotonic() < self._forced_at + FORCED_S)

    def _fetch(self) -> Credentials:
        return self._keep(self._source.fetch)

    def _fetch_anew(self) -> Credentials:
        try:
            return self._keep(self._source.fetch_anew)
        finally:
            self._forced_at = monotonic()

    def _keep(self, fetch: Callable[[], Credentials]) -> Credentials:
        """Fetch credentials, and keep them unless a refresh that began later has brought others by then."""
        with self._lock:
            self._begun += 1
            number = self._begun
        fetched = fetch()
        with self._lock:
            if number > self._kept_of:
                self._kept_of = number
                if fetched != self._kept:
                    self._kept = fetched
                self._look_again_at = monotonic() + LOOK_AGAIN_S
        return fetched


Result = TypeVar("Result")


def begun(work: Callable[[], Result], name: str) -> Future[Result]:
    """The outcome of ``work``, which a thread is at from now on. It does not keep the program from ending."""
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


class Errand(Generic[Result]):
    """Work of which there is one at a time: who comes while it is being done waits for the same outcome."""

    def __init__(self, work: Callable[[], Result], name: str) -> None:
        self._work = work
        self._name = name
        self._lock = Lock()
        self._future: Future[Result] | None = None

    def run(self, *, unless_done: bool = False) -> Future[Result]:
        """The outcome of the work that is being done, or else begins now; ``unless_done``: or was done before."""
        with self._lock:
            future = self._future
            if future is None or (future.done() and not unless_done):
                future = self._future = begun(self._work, self._name)
            return future
