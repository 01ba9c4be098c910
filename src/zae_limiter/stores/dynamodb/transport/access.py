"""All that both worlds need to call one service, made ready once per process."""

from __future__ import annotations

import os
from concurrent.futures import Future
from functools import partial
from ssl import SSLContext
from typing import Final, NamedTuple

from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.transport.credentials import Keeper
from zae_limiter.stores.dynamodb.transport.errands import Errand
from zae_limiter.stores.dynamodb.transport.failures import failure_to_begin
from zae_limiter.stores.dynamodb.transport.finding import Found, found_at_once
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.wire import EXPIRED, Line

CONNECT_S: Final = 1.0
IDLE_S: Final = 20.0
"""How long a connection may rest. An older one may be dead without looking so, as in a frozen Lambda."""

NOT_IN_TIME: Final = "the credentials and the endpoint were not found in time"


class Signed(NamedTuple):
    """With what a call was signed."""

    credentials: Credentials
    offset_s: float


class Access(NamedTuple):
    """How to reach one service, and as whom."""

    line: Line
    keeper: Keeper
    trusted: SSLContext | None
    proxy: str | None
    ca_bundle: str | None

    def __repr__(self) -> str:
        return f"Access({self.line.place.url!r})"

    def mended_by_now(self, refusal: Refused, signed: Signed) -> bool:
        """Whether the same call is worth signing again: another clock, or other credentials that are there."""
        if refusal.code in EXPIRED:
            return self.keeper.has_others_than(signed.credentials)
        return self.line.corrected(refusal, signed.offset_s)

    def mending(self, refusal: Refused) -> Future[Credentials] | None:
        """What to wait for before asking again, if that may help."""
        return self.keeper.fetching_anew() if refusal.code in EXPIRED else None


class Entrance:
    """The accesses of one process to the services of one target, each made ready when first needed."""

    def __init__(self, target: Target) -> None:
        self.pid = os.getpid()
        self._target = target
        self._ready: dict[str, Access] = {}
        self._errands = {
            service: Errand(partial(self._make_ready, service), "zae-limiter-settings")
            for service in ("dynamodb", "dynamodbstreams")
        }

    def access(self, service: str, *, quick: bool = False) -> Access | None:
        """The access to ``service``, if it is ready or can be made so at once; ``quick``: without reading much."""
        ready = self._ready.get(service)
        if ready is None:
            try:
                found = found_at_once(self._target, service)
                if found is None or (quick and found.place.is_secure):
                    return None
                ready = self._ready.setdefault(service, _accessed(found, service))
            except Exception as error:
                raise not_begun(error) from error
        return ready

    def making_ready(self, service: str) -> Future[Access]:
        """The access to ``service``, when it is ready: that of another caller, if one was faster. That may fail."""
        return self._errands[service].run(unless_done=service in self._ready)

    @property
    def date_skew_s(self) -> float | None:
        ready = self._ready.get("dynamodb")
        return None if ready is None else ready.line.date_skew_s

    def _make_ready(self, service: str) -> Access:
        found = found_at_once(self._target, service)
        if found is None:
            from zae_limiter.stores.dynamodb.transport.asking_botocore import found_by_botocore

            found = found_by_botocore(self._target, service)
        access = _accessed(found, service)
        if access.keeper.current() is None:
            access.keeper.fetching().result()
        return self._ready.setdefault(service, access)


def not_renewed(refusal: Refused, failure: NoAnswer) -> Refused:
    """What to raise for a call whose credentials were refused, if no others could be fetched."""
    return Refused(refusal.code, f"{refusal.message} (new credentials could not be fetched: {failure})")


def not_begun(error: Exception) -> Exception:
    """What to raise for an error that came before anything was sent, to whoever waited for the outcome."""
    if isinstance(error, ImportError):
        return error
    if isinstance(error, NoAnswer):
        return NoAnswer(str(error), sent=error.sent)
    return failure_to_begin(error) or error


def _accessed(found: Found, service: str) -> Access:
    from zae_limiter.stores.dynamodb.transport.trust import trusting

    trusted = trusting(found.ca_bundle) if found.place.is_secure else None
    return Access(Line(found.place, service), Keeper(found.source), trusted, found.proxy, found.ca_bundle)
