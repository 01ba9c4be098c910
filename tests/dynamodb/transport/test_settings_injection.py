"""Nothing that was configured gets into a header or a host name unless it may stand there."""

from __future__ import annotations

import re
import traceback
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.scripted_server import KEYS, always, reply, serving
from support.transports import OWN_WORLDS, get
from zae_limiter import ValidationError
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.credentials import StaticCredentials
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.service import Service
from zae_limiter.stores.dynamodb.transport.settings import (
    InvalidEndpoint,
    InvalidRegion,
    ServiceSettings,
    endpoint_at,
)
from zae_limiter.stores.open_store import open_store
from zae_limiter_aggregator.archives import ArchiveUnavailable, open_archive

pytestmark = pytest.mark.usefixtures("no_credentials_here")

FINE = reply({})
ASKED = get("t", "a")
INJECTED = "us-east-1\r\nX-Injected: yes"

STRANGE_REGIONS = [
    INJECTED,
    "us-east-1\n",
    "us-east-1\0",
    "us-east-1 ",
    " us-east-1",
    "us east",
    "us-east-1/dynamodb",
    "us-east-1, SignedHeaders=host",
    "evil.example/",
    "evil.example#",
    "us-éast-1",
    "-us",
    "us-",
    "1",
    "a" * 64,
]

STRANGE_ENDPOINTS = [
    "http://h\r\nX-Injected: yes",
    "http://h/\r\nX-Injected: yes",
    "http://h\t",
    "http://h /a",
    "http://h/a b",
    "http://h\0",
    "http://h\x7f",
    "http://me:hush@h",
    "http://h?a=b",
    "http://h#a",
    "http://h:0",
    "http://h:65536",
    "http://h:８０",  # noqa: RUF001
    "http://h,g",
    "http://h;g",
    'http://h"g',
    "http://h\\g",
    "http://h<g>",
    "http://h%0d%0ag",
    "http://h..g",
    "http://.h",
    "http://-h",
    "http://h-",
    f"http://{'a' * 64}",
    f"http://{'a.' * 127}a",
    "http://ḧ",
    "http://[::1]g",
    "http://[::1]g:80",
    "http://[g::1]",
    "http://[fe80::1%25eth0]",
    "http://[v1.a]",
    "http://::1",
]

GOOD_ENDPOINTS = {
    "http://127.0.0.1:8000": "127.0.0.1:8000",
    "http://localhost": "localhost",
    "http://dynamo_db:8000/": "dynamo_db:8000",
    "http://h:": "h",
    "https://dynamodb.eu-west-1.amazonaws.com": "dynamodb.eu-west-1.amazonaws.com",
    "https://h.example.:443/a/b": "h.example.",
    "http://[::1]:8000": "[::1]:8000",
    "http://[2001:DB8::1]": "[2001:db8::1]",
}


def opened(url: str, **options: Any) -> Any:
    return open_store(url, deadline=2.0, config_cache_ttl=60.0, options=options)


@pytest.mark.parametrize("region", STRANGE_REGIONS)
def test_a_strange_region_is_refused_when_the_store_is_opened(region: str) -> None:
    with pytest.raises(ValidationError) as caught:
        opened(f"dynamodb://my-app?region={quote(region)}&endpoint_url=http://127.0.0.1:1")
    assert (caught.value.field, caught.value.value) == ("region", region)
    assert "us-east-1" in caught.value.reason


@pytest.mark.parametrize("region", ["us-east-1", "local", "r", "US-EAST-1", "eu-isoe-west-1", "a" * 63])
def test_other_regions_are_good(region: str) -> None:
    assert opened(f"dynamodb://my-app?region={region}").identity == ("dynamodb", None, region, "my-app")


@pytest.mark.parametrize("endpoint", STRANGE_ENDPOINTS)
def test_a_strange_endpoint_is_refused_when_the_store_is_opened(endpoint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        opened(f"dynamodb://my-app?endpoint_url={quote(endpoint)}")
    assert caught.value.field == "endpoint_url"
    assert "http://host:port" in caught.value.reason
    assert "hush" not in str(caught.value)
    with pytest.raises(InvalidEndpoint):
        endpoint_at(endpoint, "us-east-1")


@pytest.mark.parametrize(("endpoint", "host"), GOOD_ENDPOINTS.items())
def test_other_endpoints_are_good(endpoint: str, host: str) -> None:
    assert opened(f"dynamodb://my-app?endpoint_url={quote(endpoint)}").identity[1] == endpoint
    assert endpoint_at(endpoint, "us-east-1").host_header == host


@pytest.mark.parametrize("character", ["\r", "\n", "\t", "\0", "\x1f", "\x7f"])
@pytest.mark.parametrize(
    "url", ["dynamodb://my-{}app", "dynamodb://my-app?reg{}ion=r", "sqlite:///a{}.db", "mem{}ory://", "memory://{}"]
)
def test_a_url_with_a_control_character_is_refused(url: str, character: str) -> None:
    with pytest.raises(ValidationError) as caught:
        opened(url.format(character))
    assert caught.value.field == "url"
    assert caught.value.value == url.format(character)


@pytest.mark.parametrize("name", ["my%0d%0aapp", "my app", "myäpp", "my\u2028app", "my.app", "my/app:80"])
def test_the_name_of_a_table_is_one(name: str) -> None:
    with pytest.raises(ValidationError):
        opened(f"dynamodb://{name}")


@OWN_WORLDS
@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_a_strange_region_of_the_environment_is_sent_nowhere(
    asking: Any, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, INJECTED)
    with serving(always(FINE)) as server:
        for target in (Target(None, server.url, KEYS), Target(INJECTED, server.url, KEYS)):
            with asking(target) as ask, pytest.raises(NoAnswer, match="region") as caught:
                ask("GetItem", ASKED)
            assert caught.value.sent is False
        assert server.heard == []


@OWN_WORLDS
@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"])
def test_a_strange_endpoint_of_the_environment_is_sent_nowhere(
    asking: Any, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(always(FINE)) as server:
        monkeypatch.setenv(variable, f"{server.url}/\r\nX-Injected: yes")
        with asking(Target("us-east-1", None, KEYS)) as ask, pytest.raises(NoAnswer) as caught:
            ask("GetItem", ASKED)
        assert caught.value.sent is False
        assert server.heard == []


@OWN_WORLDS
@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"])
@pytest.mark.parametrize("end", ["\r\nX-Injected: yes", "\n", " ", "ä"])
def test_strange_credentials_of_the_environment_are_sent_nowhere(
    asking: Any, variable: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "hush-hush", "AWS_SESSION_TOKEN": "hush-token"}
    for name, value in given.items():
        monkeypatch.setenv(name, value + (end if name == variable else ""))
    with serving(always(FINE)) as server:
        with asking(Target("us-east-1", server.url)) as ask, pytest.raises(NoAnswer) as caught:
            ask("GetItem", ASKED)
        assert caught.value.sent is False
        assert "hush" not in "".join(traceback.format_exception(caught.value))
        assert server.heard == []


@pytest.mark.parametrize("region", ["us-east-1%0d%0aX-Injected:%20yes", "evil.example%23", "-us"])
def test_a_strange_region_of_an_archive_is_refused(region: str) -> None:
    with pytest.raises(ValidationError) as caught:
        open_archive(f"s3://bucket?region={region}")
    assert caught.value.field == "archive"


@pytest.mark.parametrize("endpoint", ["http://h%0d%0aX-Injected:%20yes", "http://h..g", "ftp://h"])
def test_a_strange_endpoint_of_an_archive_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        open_archive(f"s3://bucket?endpoint_url={endpoint}")
    assert caught.value.field == "archive"


def test_an_archive_in_a_strange_region_of_the_environment_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_REGION": INJECTED, "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArchiveUnavailable, match="region"):
        open_archive("s3://bucket?endpoint_url=http://127.0.0.1:1").inside("")


HEAD = re.compile(rb"POST [!-~]+ HTTP/1\.1\r\n(?:[A-Za-z0-9-]+: [ -~]+\r\n)+\r\n")
NAMES = {"Host", "User-Agent", "Content-Type", "X-Amz-Target", "X-Amz-Date", "X-Amz-Security-Token"}
TEXTS = st.one_of(st.text(max_size=12), st.text("ab1-. \r\n\t:/\0é,@[]%", max_size=12))


@settings(max_examples=500, deadline=None)
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_whatever_is_configured_a_request_has_only_our_headers(host: str, region: str, key: str, token: str) -> None:
    try:
        credentials = Credentials(key or "k", "s", token or None)
        settings = ServiceSettings(endpoint_at(f"http://{host or 'h'}", region or "r"), StaticCredentials(credentials))
        request = Service(settings, "dynamodb").sign("GetItem", {}, credentials).data
    except (ValueError, NoAnswer):
        return
    head = request.removesuffix(b"{}")
    assert HEAD.fullmatch(head)
    names = [name.decode() for name in re.findall(rb"\r\n([^:\r]+): ", head)]
    assert len(names) == len(set(names))
    assert set(names) <= NAMES | {"Authorization", "Content-Length"}


def test_a_strange_region_says_what_a_region_is() -> None:
    with pytest.raises(InvalidRegion, match="like us-east-1"):
        endpoint_at("http://h", INJECTED)
