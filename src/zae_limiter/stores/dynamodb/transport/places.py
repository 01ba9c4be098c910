"""Where calls go: what a URL says about the connection, the request and its signature.

Host, path and region stand in the request line and in headers, so they are checked here, wherever they come from: a
URL, an argument, the environment, a file of botocore's.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from zae_limiter.stores.dynamodb.transport.settings import LOCAL_HOSTS

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
