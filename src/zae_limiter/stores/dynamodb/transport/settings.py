"""The settings of this machine: the endpoint of DynamoDB, the region, the credentials, the proxy, the certificates.

Most machines have it simple: credentials and a region in the environment, or an endpoint in the URL. That is found
here, by botocore's rules and without loading it. Whatever is less simple (profiles, roles, FIPS, dual stack, other
partitions, settings in files) is left to botocore itself, in ``botocore_fallback.py``.

Host, path and region are written into the request line, into headers and into the signature, so they are checked here,
wherever they come from: a URL, an argument, the environment, a file of botocore's.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.stores.dynamodb.transport.credentials import (
    ACCESS_KEY,
    SECRET_KEY,
    FromEnvironment,
    Lasting,
    Source,
)
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target

if TYPE_CHECKING:
    import ssl

CONNECTIONS: Final = 50

STREAMS: Final = frozenset({"DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"})

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})
LOCAL_REGION: Final = "us-east-1"
LOCAL_CREDENTIALS: Final = ("local", "local")
"""An engine on this machine asks for some signature, not for a right one."""


class MissingExtra(ZAELimiterError, ImportError):
    """The packages that speak to DynamoDB are not installed."""

    def __init__(self, name: str | None) -> None:
        super().__init__(f"the DynamoDB store needs {name}: pip install 'zae-limiter[dynamodb]'")


def service_of(operation: str) -> str:
    """The service that has an operation. Streams are one of their own, at the same endpoint."""
    return "dynamodbstreams" if operation in STREAMS else "dynamodb"


def is_local(target: Target) -> bool:
    """Whether it is an engine on this machine."""
    return target.endpoint_url is not None and urlsplit(target.endpoint_url).hostname in LOCAL_HOSTS


def region_named(target: Target, environment: Mapping[str, str] = os.environ) -> str | None:
    """The region that the target or the environment names. (``AWS_REGION`` is what AWS's other libraries read.)"""
    return target.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None


_PORTS: Final = {"http": 80, "https": 443}

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NETLOC: Final = re.compile(rf"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>{_LABEL}(?:\.{_LABEL})*)\.?)(?::[0-9]*)?")
_REGION: Final = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
"""What botocore takes for one: it becomes a part of host names."""

LONGEST_NAME: Final = 253


class StrangeEndpoint(ValueError):
    """An endpoint that is not a plain URL of a host."""

    def __init__(self) -> None:
        super().__init__("the endpoint must be a URL like https://dynamodb.us-east-1.amazonaws.com")


class StrangeRegion(ValueError):
    """A region that no host name and no signature can have."""

    def __init__(self) -> None:
        super().__init__(f"the region {REGION_SHAPE}")


REGION_SHAPE: Final = "must be letters, digits and -, like us-east-1"


class Place(NamedTuple):
    """One service of DynamoDB's, somewhere."""

    scheme: str
    host: str
    port: int
    path: str
    region: str

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def is_local(self) -> bool:
        """Whether it is an engine on this machine."""
        return self.host in LOCAL_HOSTS

    @property
    def host_header(self) -> str:
        """The host as requests and signatures name it: with a port only if it is an unusual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.path}"


def place_at(url: str, region: str) -> Place:
    """The place a URL names. Raises :class:`StrangeEndpoint` and :class:`StrangeRegion`."""
    if not is_region(region):
        raise StrangeRegion
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise StrangeEndpoint from None
    plain = url.isascii() and url.isprintable() and not {" ", "?", "#"} & set(url)
    if not plain or parts.scheme not in _PORTS or not host or port == 0 or not _is_netloc(parts.netloc):
        raise StrangeEndpoint
    return Place(parts.scheme, host, port or _PORTS[parts.scheme], parts.path or "/", region)


def is_region(text: str) -> bool:
    """Whether it can be the name of a region."""
    return _REGION.fullmatch(text) is not None


def _is_netloc(text: str) -> bool:
    """Whether it is a host, and perhaps a port: nothing before, between or after them."""
    matched = _NETLOC.fullmatch(text)
    if matched is None:
        return False
    if matched["v6"] is None:
        return len(matched["name"]) <= LONGEST_NAME
    from ipaddress import AddressValueError, IPv6Address

    try:
        IPv6Address(matched["v6"])
    except AddressValueError:
        return False
    return True


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


BUNDLES = (("certifi", "cacert.pem"), ("botocore", "cacert.pem"))
"""Packages that bring certificates along, in botocore's order. Looking for one does not load it."""


@lru_cache(maxsize=8)
def trusting(ca_bundle: str | None) -> ssl.SSLContext:
    """How to connect securely: trusting those in ``ca_bundle`` (a file or folder), or the usual authorities."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    bundle = ca_bundle or _usual_bundle()
    if bundle is None:
        context.load_default_certs()
        return context
    try:
        if os.path.isdir(bundle):
            context.load_verify_locations(capath=bundle)
        else:
            context.load_verify_locations(cafile=bundle)
    except OSError as error:
        raise OSError(f"the certificates in {bundle} cannot be read: {error}") from error
    return context


def _usual_bundle() -> str | None:
    for package, name in BUNDLES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    return None
