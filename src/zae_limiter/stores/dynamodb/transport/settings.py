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
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from zae_limiter.stores.dynamodb.transport.credentials import (
    ACCESS_KEY,
    SECRET_KEY,
    CredentialSource,
    EnvironmentCredentials,
    StaticCredentials,
)
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target

if TYPE_CHECKING:
    import ssl

CONNECTIONS: Final = 50
"""How many one transport has in use at a time."""

STREAMS: Final = frozenset({"DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"})

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})
LOCAL_REGION: Final = "us-east-1"
LOCAL_CREDENTIALS: Final = ("local", "local")
"""An engine on this machine asks for some signature, not for a right one."""


def service_of(operation: str) -> str:
    """The service that has an operation. Streams are one of their own, at the same endpoint."""
    return "dynamodbstreams" if operation in STREAMS else "dynamodb"


def is_local(target: Target) -> bool:
    """Whether it is an engine on this machine."""
    return target.endpoint_url is not None and urlsplit(target.endpoint_url).hostname in LOCAL_HOSTS


def configured_region(target: Target, environment: Mapping[str, str] = os.environ) -> str | None:
    """The region that the target or the environment names. (``AWS_REGION`` is what AWS's other libraries read.)"""
    return target.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None


_PORTS: Final = {"http": 80, "https": 443}

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NETLOC: Final = re.compile(rf"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>{_LABEL}(?:\.{_LABEL})*)\.?)(?::[0-9]*)?")
_REGION: Final = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
"""What botocore takes for a region: it becomes a part of host names."""

MAX_HOST_CHARS: Final = 253


class InvalidEndpoint(ValueError):
    """The endpoint is not a plain URL of a host."""

    def __init__(self) -> None:
        super().__init__("the endpoint must be a URL like https://dynamodb.us-east-1.amazonaws.com")


class InvalidRegion(ValueError):
    """The region cannot be a part of a host name or a signature."""

    def __init__(self) -> None:
        super().__init__(f"the region {REGION_SHAPE}")


REGION_SHAPE: Final = "must be letters, digits and -, like us-east-1"


class Endpoint(NamedTuple):
    """Where one service is: what connections, requests and signatures need to know of its URL."""

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


def endpoint_at(url: str, region: str) -> Endpoint:
    """The endpoint at a URL. Raises :class:`InvalidEndpoint` and :class:`InvalidRegion`."""
    if not is_region(region):
        raise InvalidRegion
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidEndpoint from None
    plain = url.isascii() and url.isprintable() and not {" ", "?", "#"} & set(url)
    if not plain or parts.scheme not in _PORTS or not host or port == 0 or not _is_netloc(parts.netloc):
        raise InvalidEndpoint
    return Endpoint(parts.scheme, host, port or _PORTS[parts.scheme], parts.path or "/", region)


def is_region(text: str) -> bool:
    """Whether it can be the name of a region."""
    return _REGION.fullmatch(text) is not None


def _is_netloc(text: str) -> bool:
    """Whether it is a host, and perhaps a port: nothing before, between or after them."""
    matched = _NETLOC.fullmatch(text)
    if matched is None:
        return False
    if matched["v6"] is None:
        return len(matched["name"]) <= MAX_HOST_CHARS
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
"""Variables that only botocore reads rightly."""

WORDS_LEFT_TO_BOTOCORE: Final = ("account_id", "ca_bundle", "endpoint")
"""Words in botocore's files that only botocore reads rightly, wherever they stand."""

OTHER_CREDENTIALS: Final = (
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CREDENTIAL_FILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "BOTO_CONFIG",
)
"""Variables that say that there are credentials elsewhere."""

FILES: Final = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
BOTO_FILES: Final = ("/etc/boto.cfg", "~/.boto")

ENDPOINT_VARIABLES: Final = {
    "dynamodb": "AWS_ENDPOINT_URL_DYNAMODB",
    "dynamodbstreams": "AWS_ENDPOINT_URL_DYNAMODB_STREAMS",
}
HOSTS: Final = {
    "dynamodb": "dynamodb.{}.amazonaws.com",
    "dynamodbstreams": "streams.dynamodb.{}.amazonaws.com",
}
COMMERCIAL_REGION: Final = re.compile(r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-\d+")
"""Regions whose hosts have the plain names."""


class ServiceSettings(NamedTuple):
    """All that is needed to call one service."""

    endpoint: Endpoint
    source: CredentialSource
    ca_bundle: str | None = None
    """Certificates to trust instead of the usual ones."""
    proxy: str | None = None

    def __repr__(self) -> str:
        return f"ServiceSettings({self.endpoint.url!r})"


def discovered_settings(target: Target, service: str, environment: Environment = os.environ) -> ServiceSettings | None:
    """What is needed to call ``service``; nothing, if the settings are not simple and botocore has to read them."""
    has_files = _has_simple_files(environment)
    if has_files is None or any(environment.get(name) for name in LEFT_TO_BOTOCORE):
        return None
    endpoint = _endpoint(target, service, environment)
    if endpoint is None:
        return None
    source = _credential_source(target, endpoint, environment, has_files=has_files)
    if source is None:
        return None
    ca_bundle = environment.get("AWS_CA_BUNDLE", environment.get("REQUESTS_CA_BUNDLE"))
    if ca_bundle is not None and not ca_bundle.strip():
        return None  # botocore has an error for that
    return ServiceSettings(endpoint, source, ca_bundle, proxy_for(endpoint, environment))


def proxy_for(endpoint: Endpoint, environment: Environment = os.environ) -> str | None:
    """The proxy to use for an endpoint, as a URL. There is none to this machine itself."""
    named = any(name.lower().endswith("_proxy") and value for name, value in environment.items())
    if endpoint.is_local or not (named or sys.platform in ("darwin", "win32")):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxy = getproxies().get(endpoint.scheme)
    if not proxy or proxy_bypass(endpoint.host_header):
        return None
    return proxy if "://" in proxy else f"http://{proxy.removeprefix('//')}"


def _endpoint(target: Target, service: str, environment: Environment) -> Endpoint | None:
    region = configured_region(target, environment)
    url = target.endpoint_url or environment.get(ENDPOINT_VARIABLES[service]) or environment.get("AWS_ENDPOINT_URL")
    if url:
        try:
            endpoint = endpoint_at(url, region or LOCAL_REGION)
        except InvalidEndpoint:
            return None
        return endpoint if region or endpoint.is_local else None
    if region is None or not COMMERCIAL_REGION.fullmatch(region):
        return None
    return endpoint_at(f"https://{HOSTS[service].format(region)}", region)


def _credential_source(
    target: Target, endpoint: Endpoint, environment: Environment, *, has_files: bool
) -> CredentialSource | None:
    if target.credentials is not None:
        return StaticCredentials(target.credentials)
    named = [bool(environment.get(name)) for name in (ACCESS_KEY, SECRET_KEY)]
    if all(named):
        return EnvironmentCredentials(environment)
    elsewhere = has_files or any(environment.get(name) for name in OTHER_CREDENTIALS) or _has_boto_files()
    if endpoint.is_local and not any(named) and not elsewhere:
        return StaticCredentials(Credentials(*LOCAL_CREDENTIALS))
    return None


def _has_simple_files(environment: Environment) -> bool | None:
    """Whether there are files of botocore's; nothing, if they have or may have settings that it has to read."""
    found = False
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
        found = True
    return found


def _has_boto_files() -> bool:
    return any(os.path.exists(os.path.expanduser(path)) for path in BOTO_FILES)


CA_BUNDLES: Final = (("certifi", "cacert.pem"), ("botocore", "cacert.pem"))
"""Packages that bring certificates along, in botocore's order. Looking for one does not load it."""


@lru_cache(maxsize=8)
def tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    """TLS that trusts the authorities in ``ca_bundle`` (a file or folder), or else those that botocore trusts."""
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
    from importlib.util import find_spec

    for package, name in CA_BUNDLES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    return None
