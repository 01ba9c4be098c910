"""From a URL to where the servers are, and how to talk to them.

::

    redis://[user:password@]host[:port][/db]        rediss:// with TLS; valkey:// and valkeys:// are the same
    redis+cluster://host[:port],host[:port]…        any of these hosts tells where a namespace lives
    redis+sentinel://host[:port],…/name[/db]        the sentinels are asked which server is the master called name
    redis+unix:///path/to/socket[?db=N]

Each may have ``?usage_days=N``: for how many days usage is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote

from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.windows import DAYS_KEPT

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
TLS_SCHEMES: Final = frozenset({"rediss", "valkeys"})
SCHEMES: Final = tuple(
    [f"{base}{way}" for base in ("redis", "valkey", "rediss", "valkeys") for way in ("", "+cluster", "+sentinel")]
    + ["redis+unix", "valkey+unix"]
)
TLS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
SHAPE: Final = (
    "must be like redis://[user:password@]host[:port][/db], redis+cluster://host,host, "
    "redis+sentinel://host,host/name[/db] or redis+unix:///path; rediss:// is with TLS"
)

Address = tuple[str, int] | str
"""Host and port, or the path of a socket."""

Credentials = Callable[[], tuple[str, str] | tuple[str]]
"""Gives user and password, or the password alone, whenever a connection logs in."""


class Servers(NamedTuple):
    """Where the servers are, and how to talk to them."""

    way: str
    """``""``, ``"cluster"``, ``"sentinel"`` or ``"unix"``."""
    addresses: tuple[Address, ...]
    db: int = 0
    username: str | None = None
    password: str | None = None
    credentials: Credentials | None = None
    tls: Mapping[str, Any] | None = None
    master: str | None = None
    """What the sentinels call the master."""
    usage_days: int = DAYS_KEPT
    """For how many days usage is kept; 0: it is not counted by the hour."""

    @property
    def shown(self) -> str:
        """For messages: without a password."""
        places = ",".join(place if isinstance(place, str) else f"{place[0]}:{place[1]}" for place in self.addresses)
        return f"{self.master} of {places}" if self.master else places


def servers_of(url: SplitResult, credentials: object = None) -> Servers:
    """The servers a URL names; ``ValidationError`` if it is none."""
    if credentials is not None and not callable(credentials):
        raise ValidationError("credentials", "…", "must be callable and return user and password")
    base, _, way = url.scheme.partition("+")
    options = _options(url, base in TLS_SCHEMES)
    db = _db(url, options.pop("db", None))
    usage_days = _usage_days(url, options.pop("usage_days", str(DAYS_KEPT)))
    tls = options if base in TLS_SCHEMES else None
    if url.fragment:
        raise _malformed(url)
    login, _, hosts = url.netloc.rpartition("@")
    username, _, password = login.partition(":")
    servers = Servers(
        way,
        (),
        db or 0,
        unquote(username) or None,
        unquote(password) or None,
        credentials if callable(credentials) else None,
        tls,
        usage_days=usage_days,
    )
    if servers.credentials is not None and login:
        raise ValidationError("credentials", "…", "are given in the URL already; leave them out of one of the two")
    if way == "unix":
        return _on_socket(url, servers, hosts)
    named = hosts.split(",")
    if len(named) > 1 and "" in named:
        raise _malformed(url)
    addresses = tuple(_address(url, host, SENTINEL_PORT if way == "sentinel" else PORT) for host in named)
    if way == "" and len(addresses) > 1:
        raise ValidationError("url", _shown(url), "several hosts are a cluster: redis+cluster://host,host")
    parts = [unquote(part) for part in url.path.split("/") if part]
    master = parts.pop(0) if way == "sentinel" and parts else None
    if (way == "sentinel") is (master is None) or len(parts) > 1 or (parts and db is not None):
        raise _malformed(url)
    number = _db(url, parts[0]) if parts else servers.db
    if way == "cluster" and number:
        raise ValidationError("url", _shown(url), "a cluster has no databases")
    return servers._replace(addresses=addresses, db=number or 0, master=master)


def _on_socket(url: SplitResult, servers: Servers, hosts: str) -> Servers:
    path = unquote(url.path)
    if hosts or not path.strip("/") or "\0" in path:
        raise _malformed(url)
    return servers._replace(addresses=(path,))


def _options(url: SplitResult, tls: bool) -> dict[str, str]:
    known = {"db", "usage_days"} | (TLS_OPTIONS if tls else set())
    given: dict[str, str] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name not in known or name in given or not value:
            raise ValidationError(
                "url", _shown(url), f"has {name!r} after the ?; it may have {', '.join(sorted(known))}"
            )
        given[name] = value
    return given


def _db(url: SplitResult, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise ValidationError("url", _shown(url), f"names the database {text!r}; a database is a number")
    return int(text)


def _usage_days(url: SplitResult, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= DAYS_KEPT):
        reason = f"keeps usage for {text!r} days; that is a number from 0 (count none) to {DAYS_KEPT}"
        raise ValidationError("url", _shown(url), reason)
    return int(text)


def _address(url: SplitResult, host: str, port: int) -> tuple[str, int]:
    name, colon, number = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name, number = host, str(port)
    name = name.removeprefix("[").removesuffix("]") or ("localhost" if not host else "")
    if not name or not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
        raise _malformed(url)
    return name, int(number)


def _malformed(url: SplitResult) -> ValidationError:
    return ValidationError("url", _shown(url), SHAPE)


def _shown(url: SplitResult) -> str:
    """The URL without what stands before an @: that may be a password."""
    _, at, hosts = url.netloc.rpartition("@")
    return url._replace(netloc=f"…@{hosts}" if at else hosts).geturl()
