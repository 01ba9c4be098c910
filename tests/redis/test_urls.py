"""URLs of Redis servers: every form is understood, a malformed one is refused without showing a password."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from zae_limiter import SyncRateLimiter, ValidationError
from zae_limiter.stores.redis.urls import SCHEMES, Servers, servers_of


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("redis://host", Servers("", (("host", 6379),))),
        ("redis://", Servers("", (("localhost", 6379),))),
        ("valkey://host:7000/3", Servers("", (("host", 7000),), 3)),
        ("redis://[::1]:7000", Servers("", (("::1", 7000),))),
        ("redis://[::1]", Servers("", (("::1", 6379),))),
        ("redis://:p%40ss@host", Servers("", (("host", 6379),), password="p@ss")),
        ("redis://user:a:b@host", Servers("", (("host", 6379),), username="user", password="a:b")),
        ("rediss://host?ssl_ca_certs=/ca.pem", Servers("", (("host", 6379),), tls={"ssl_ca_certs": "/ca.pem"})),
        ("redis+cluster://a,b:7001", Servers("cluster", (("a", 6379), ("b", 7001)))),
        ("valkeys+cluster://a", Servers("cluster", (("a", 6379),), tls={})),
        ("redis+sentinel://a,b:1/mine/2", Servers("sentinel", (("a", 26379), ("b", 1)), 2, master="mine")),
        ("redis://host?usage_days=7", Servers("", (("host", 6379),), usage_days=7)),
        ("redis+cluster://a?usage_days=0", Servers("cluster", (("a", 6379),), usage_days=0)),
        ("redis+unix:///run/redis.sock?db=4", Servers("unix", ("/run/redis.sock",), 4)),
        ("redis+unix://u:p@/run/redis.sock", Servers("unix", ("/run/redis.sock",), username="u", password="p")),
    ],
)
def test_a_url_says_where_the_servers_are(url: str, servers: Servers) -> None:
    assert servers_of(urlsplit(url)) == servers


@pytest.mark.parametrize(
    "url",
    [
        "redis://host:port",
        "redis://host:0",
        "redis://host/one",
        "redis://host/1/2",
        "redis://host/1?db=2",
        "redis://a,b",
        "redis://host#part",
        "redis://host?ssl_ca_certs=x",
        "redis://host?timeout=1",
        "redis://host?usage_days=91",
        "redis://host?usage_days=-1",
        "redis://host?usage_days=many",
        "redis+cluster://a/1",
        "redis+cluster://a,,b",
        "redis+sentinel://a",
        "redis+unix://host/path",
        "redis+unix:///",
    ],
)
def test_a_malformed_one_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        servers_of(urlsplit(url))


def test_no_message_shows_a_password() -> None:
    for scheme in SCHEMES:
        with pytest.raises(ValidationError) as caught:
            servers_of(urlsplit(f"{scheme}://user:secret@host/x/y/z/?q=1"))
        assert "secret" not in str(caught.value)
    assert "secret" not in Servers("", (("host", 1),), password="secret").shown


def test_credentials_are_callable_and_not_in_the_url_too() -> None:
    assert servers_of(urlsplit("redis://host"), lambda: ("u", "p")).credentials is not None
    for url, given in (("redis://u:p@host", lambda: ("u", "p")), ("redis://host", "u:p")):
        with pytest.raises(ValidationError, match="credentials"):
            servers_of(urlsplit(url), given)


def test_opening_reads_and_writes_nothing() -> None:
    SyncRateLimiter.open("redis://127.0.0.1:1").close()
    with pytest.raises(ValidationError, match="option"):
        SyncRateLimiter.open("redis://127.0.0.1:1", wcu=3)
