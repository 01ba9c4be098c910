"""Where DynamoDB is and who asks it, as this machine's settings have it.

Most machines have it simple: credentials and a region in the environment, or an endpoint in the URL. That is found
here at once, by botocore's rules and without loading it. Whatever is less simple (profiles, roles, FIPS, dual stack,
other partitions, settings in files) is left to botocore itself, in ``asking_botocore.py``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from zae_limiter.stores.dynamodb.transport.credentials import (
    ACCESS_KEY,
    SECRET_KEY,
    FromEnvironment,
    Lasting,
    Source,
)
from zae_limiter.stores.dynamodb.transport.places import Place, StrangeEndpoint, place_at
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.settings import LOCAL_CREDENTIALS, LOCAL_REGION, region_named

Environment = Mapping[str, str]

LEFT_TO_BOTOCORE: Final = (
    "AWS_ACCOUNT_ID",
    "AWS_ACCOUNT_ID_ENDPOINT_MODE",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_DATA_PATH",
    "AWS_DEFAULT_PROFILE",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_PROFILE",
    "AWS_SECURITY_TOKEN",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
)
"""Settings of the environment that make it less simple."""

WORDS_LEFT_TO_BOTOCORE: Final = ("account_id", "ca_bundle", "endpoint")
"""Words of botocore's files that make it less simple, wherever they stand."""

OTHER_CREDENTIALS: Final = (
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CREDENTIAL_FILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "BOTO_CONFIG",
)
"""Settings of the environment that say that there are credentials, but not here."""

FILES: Final = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
OLD_FILES: Final = ("/etc/boto.cfg", "~/.boto")

ENDPOINT_VARIABLES: Final = {
    "dynamodb": "AWS_ENDPOINT_URL_DYNAMODB",
    "dynamodbstreams": "AWS_ENDPOINT_URL_DYNAMODB_STREAMS",
}
HOSTS: Final = {
    "dynamodb": "dynamodb.{}.amazonaws.com",
    "dynamodbstreams": "streams.dynamodb.{}.amazonaws.com",
}
COMMERCIAL: Final = re.compile(r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-\d+")
"""Regions whose hosts have the plain names."""


class Found(NamedTuple):
    """All that is needed to call one service."""

    place: Place
    source: Source
    ca_bundle: str | None = None
    """Certificates to trust instead of the usual ones."""
    proxy: str | None = None

    def __repr__(self) -> str:
        return f"Found({self.place.url!r})"


def found_at_once(target: Target, service: str, environment: Environment = os.environ) -> Found | None:
    """What is needed to call ``service``; nothing, if that is not simple enough to be found here."""
    files = _words_of_files(environment)
    if files is None or any(environment.get(name) for name in LEFT_TO_BOTOCORE):
        return None
    place = _place(target, service, environment)
    if place is None:
        return None
    source = _source(target, place, environment, has_files=files)
    if source is None:
        return None
    ca_bundle = environment.get("AWS_CA_BUNDLE", environment.get("REQUESTS_CA_BUNDLE"))
    if ca_bundle is not None and not ca_bundle.strip():
        return None  # botocore has an error for that
    return Found(place, source, ca_bundle, proxy_to(place, environment))


def proxy_to(place: Place, environment: Environment = os.environ) -> str | None:
    """The proxy between here and there, as a URL. There is none to this machine itself."""
    named = any(name.lower().endswith("_proxy") and value for name, value in environment.items())
    if place.is_local or not (named or sys.platform in ("darwin", "win32")):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxy = getproxies().get(place.scheme)
    if not proxy or proxy_bypass(place.host_header):
        return None
    return proxy if "://" in proxy else f"http://{proxy.removeprefix('//')}"


def _place(target: Target, service: str, environment: Environment) -> Place | None:
    region = region_named(target, environment)
    url = target.endpoint_url or environment.get(ENDPOINT_VARIABLES[service]) or environment.get("AWS_ENDPOINT_URL")
    if url:
        try:
            place = place_at(url, region or LOCAL_REGION)
        except StrangeEndpoint:
            return None
        return place if region or place.is_local else None
    if region is None or not COMMERCIAL.fullmatch(region):
        return None
    return place_at(f"https://{HOSTS[service].format(region)}", region)


def _source(target: Target, place: Place, environment: Environment, *, has_files: bool) -> Source | None:
    if target.credentials is not None:
        return Lasting(target.credentials)
    named = [bool(environment.get(name)) for name in (ACCESS_KEY, SECRET_KEY)]
    if all(named):
        return FromEnvironment(environment)
    elsewhere = has_files or any(environment.get(name) for name in OTHER_CREDENTIALS) or _has_old_files()
    if place.is_local and not any(named) and not elsewhere:
        return Lasting(Credentials(*LOCAL_CREDENTIALS))
    return None


def _words_of_files(environment: Environment) -> bool | None:
    """Whether there are files of botocore's; nothing, if they say or may say more than is understood here."""
    there = False
    for variable, usual in FILES:
        path = Path(environment.get(variable) or usual)
        try:
            text = path.expanduser().read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, RuntimeError):
            return None
        if any(word in text for word in WORDS_LEFT_TO_BOTOCORE):
            return None
        there = True
    return there


def _has_old_files() -> bool:
    return any(os.path.exists(os.path.expanduser(path)) for path in OLD_FILES)
