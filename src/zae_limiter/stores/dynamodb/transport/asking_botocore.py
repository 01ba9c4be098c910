"""Where DynamoDB is and who asks it, as botocore finds it: its profiles, roles, endpoints, partitions and files.

botocore is asked where it *would* send a call: one of its clients is made and used, and stopped when it is about
to sign. So whatever its rules are, they are obeyed, and nothing is sent. All of this is slow, and may ask servers
(for a role): it is work for a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.finding import Found, proxy_to
from zae_limiter.stores.dynamodb.transport.places import Place, place_at
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.settings import (
    LOCAL_CREDENTIALS,
    MissingExtra,
    address_of,
    prepare,
)


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
    session = _session(target)
    place = _place(target, session, service)
    source = RefreshedByBotocore(
        _credentials(target, place, session), lambda: _credentials(target, place, _session(target))
    )
    ca_bundle = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    return Found(place, source, ca_bundle, proxy_to(place))


def _session(target: Target) -> Any:
    try:
        from botocore.session import get_session
    except ImportError as error:
        raise MissingExtra(error.name) from error

    session = get_session()
    prepare(target, session)
    return session


def _credentials(target: Target, place: Place, session: Any) -> Any:
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


def _place(target: Target, session: Any, service: str) -> Place:
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
