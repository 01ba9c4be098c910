"""Where calls go: what a URL says about the connection, the request and its signature."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from zae_limiter.stores.dynamodb.transport.settings import LOCAL_HOSTS

_PORTS: Final = {"http": 80, "https": 443}


class StrangeEndpoint(ValueError):
    """An endpoint that is not a plain URL of a host."""

    def __init__(self) -> None:
        super().__init__("the endpoint must be a URL like https://dynamodb.us-east-1.amazonaws.com")


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
    """The place a URL names. Raises :class:`StrangeEndpoint`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise StrangeEndpoint from None
    plain = url.isascii() and url.isprintable() and " " not in url
    if not plain or parts.scheme not in _PORTS or not host or "@" in parts.netloc or parts.query or parts.fragment:
        raise StrangeEndpoint
    return Place(parts.scheme, host, port or _PORTS[parts.scheme], parts.path or "/", region)
