"""``dynamodb://`` URLs: what they may say, and that opening one makes no call."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from zae_limiter import RateLimiterUnavailable, SyncRepository, ValidationError
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.open_store import open_store

LOCAL = "http://127.0.0.1:1"


def opened(url: str, **options: Any) -> DynamoStore:
    store = open_store(url, deadline=2.0, config_cache_ttl=60.0, options=options)
    assert isinstance(store, DynamoStore)
    return store


@pytest.mark.parametrize(
    ("url", "identity"),
    [
        ("dynamodb://my-app", ("dynamodb", None, None, "my-app")),
        ("dynamodb://my-app/", ("dynamodb", None, None, "my-app")),
        ("dynamodb://My-App1", ("dynamodb", None, None, "My-App1")),
        ("dynamodb://my-app?region=eu-west-1", ("dynamodb", None, "eu-west-1", "my-app")),
        (f"dynamodb://my-app?endpoint_url={LOCAL}", ("dynamodb", LOCAL, None, "my-app")),
        (
            "dynamodb://my-app?region=r&endpoint_url=https%3A%2F%2Fh%3A8000",
            ("dynamodb", "https://h:8000", "r", "my-app"),
        ),
    ],
)
def test_a_url_names_the_table_the_region_and_the_endpoint(url: str, identity: tuple[object, ...]) -> None:
    assert opened(url).identity == identity


def test_the_same_table_by_another_spelling_is_the_same_store() -> None:
    assert opened("dynamodb://my-app").identity == opened("dynamodb://my-app/").identity


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb:my-app",
        "dynamodb:/my-app",
        "dynamodb://",
        "dynamodb:///my-app",
        "dynamodb://my_app",
        "dynamodb://1app",
        "dynamodb://-app",
        "dynamodb://my.app",
        "dynamodb://my%2Dapp",
        f"dynamodb://{'a' * 56}",
        "dynamodb://my-app/more",
        "dynamodb://my-app#part",
        "dynamodb://user@my-app",
        "dynamodb://my-app:8000",
        "dynamodb://my-app?regio=r",
        "dynamodb://my-app?region",
        "dynamodb://my-app?region=",
        "dynamodb://my-app?region=a&region=b",
    ],
)
def test_what_is_no_url_of_ours_is_refused(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        opened(url)
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    "endpoint",
    ["http://", "http:nowhere", "http://h:port", "http://[::1", "ftp://h", "127.0.0.1:8000", "localhost:8000"],
)
def test_an_endpoint_that_is_nowhere_is_refused_when_it_is_given(endpoint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        opened(f"dynamodb://my-app?endpoint_url={endpoint}")
    assert (caught.value.field, caught.value.value) == ("endpoint_url", endpoint)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValidationError):
        opened("dynamodb://my-app", colour="green")


def test_opening_and_closing_makes_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = []

    def refuse(self: socket.socket, address: object) -> None:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.socket.connect", refuse)
    url = "dynamodb://my-app?region=us-east-1&endpoint_url=http://127.0.0.1:1"
    SyncRepository.open(url).close()
    assert connected == []
    with SyncRepository.open(url) as repository, pytest.raises(RateLimiterUnavailable):
        repository.list_entities()
    assert connected, "a call would have been noticed"
