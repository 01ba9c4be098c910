"""The middleware for WSGI: Flask and Django, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import django
import flask
import httpx2
import pytest
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from support.provider_books import eventually, still_limiter, taken
from support.web_servers import wsgi_server
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.integrations.wsgi import LEASE, LimitMiddleware, Rule, client_address, header_key
from zae_limiter.testing import FailingStore, MemoryStore, sync_memory_limiter

LIMITS = [Limit.per_day("requests", 10), Limit.per_day("tokens", 1_000)]
RULES = [Rule("/health", exempt=True), Rule("/", resource="web", consume={"requests": 1, "tokens": 100})]
HEADERS = {"x-api-key": "ann"}


@pytest.fixture
def limiter() -> SyncRateLimiter:
    return still_limiter(LIMITS)


def flask_app(limiter: Any, **options: Any) -> flask.Flask:
    app = flask.Flask("limited")

    @app.get("/")
    def plain() -> str:
        flask.request.environ[LEASE].settle(tokens=5)
        return "hello"

    @app.get("/health")
    def health() -> str:
        return "well"

    @app.get("/pieces")
    def pieces() -> flask.Response:
        lease = flask.request.environ[LEASE]

        def body() -> Iterator[bytes]:
            for number in range(200):
                lease.settle(tokens=number + 1)
                app.config["sent"] = number + 1
                yield b"x" * 65_536

        return flask.Response(body())

    @app.get("/broken")
    def broken() -> flask.Response:
        def body() -> Iterator[bytes]:
            yield b"begun"
            raise ZeroDivisionError

        return flask.Response(body())

    options = {"key": header_key("x-api-key"), "rules": RULES, **options}
    app.wsgi_app = LimitMiddleware(app.wsgi_app, limiter, **options)  # type: ignore[method-assign]
    return app


def test_flask_takes_settles_and_refuses(limiter: SyncRateLimiter) -> None:
    with wsgi_server(flask_app(limiter)) as url, httpx2.Client(base_url=url, headers=HEADERS) as client:
        answer = client.get("/")
        assert answer.headers["ratelimit"] == '"requests";r=9;t=8640, "tokens";r=900;t=8640'
        eventually(lambda: taken(limiter, "ann", "web") == {"requests": 1, "tokens": 5})
        assert "ratelimit" not in client.get("/health").headers
        statuses = [client.get("/").status_code for _ in range(10)]
        assert statuses == [200] * 9 + [429]
        assert client.get("/").json()["violated-policies"] == ["requests"]
        assert httpx2.get(url).status_code == 500  # no caller, no lease: that is the application's to answer


def test_a_client_that_leaves_pays_for_what_was_sent(limiter: SyncRateLimiter) -> None:
    app = flask_app(limiter)
    with wsgi_server(app) as url:
        with httpx2.stream("GET", f"{url}/pieces", headers=HEADERS) as answer:
            body = answer.iter_raw()
            for _ in range(3):
                next(body)
        eventually(lambda: taken(limiter, "ann", "web")["tokens"] != 100)
    assert taken(limiter, "ann", "web")["tokens"] == app.config["sent"] < 200


def test_a_body_that_fails_keeps_or_refunds(limiter: SyncRateLimiter) -> None:
    for on_error, expected in (("keep", 1), ("refund", 1)):
        with wsgi_server(flask_app(limiter, on_error=on_error)) as url:
            assert httpx2.get(f"{url}/broken", headers=HEADERS).content == b"begun"
        eventually(lambda expected=expected: taken(limiter, "ann", "web")["requests"] == expected)


def test_outages_strange_callers_and_addresses(limiter: SyncRateLimiter) -> None:
    store = FailingStore(MemoryStore())
    failing = sync_memory_limiter(LIMITS, store=store)
    store.fail("draw")
    with wsgi_server(flask_app(lambda: failing)) as url:
        assert httpx2.get(url, headers=HEADERS).status_code == 503
    with wsgi_server(flask_app(limiter)) as url:
        assert httpx2.get(url, headers={"x-api-key": "not#one"}).status_code == 400
    with wsgi_server(flask_app(limiter, rules=[Rule("/", consume={"tokens": 2_000})])) as url:
        assert httpx2.get(url, headers=HEADERS).status_code == 413
    with wsgi_server(flask_app(limiter, key=client_address(trusted_proxies=2))) as url:
        httpx2.get(url, headers={"x-forwarded-for": "6.6.6.6, 10.1.1.1, 10.2.2.2"})
    assert taken(limiter, "ip:10.1.1.1", "web")["requests"] == 1


def hello(request: Any) -> HttpResponse:
    request.META[LEASE].settle(tokens=7)
    return HttpResponse("hello")


urlpatterns = [path("", hello)]


def test_django(limiter: SyncRateLimiter) -> None:
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")
        django.setup()
    app = LimitMiddleware(get_wsgi_application(), limiter, key=header_key("x-api-key"), rules=RULES)
    with wsgi_server(app) as url, httpx2.Client(base_url=url, headers=HEADERS) as client:
        assert [client.get("/").status_code for _ in range(11)] == [200] * 10 + [429]
    assert taken(limiter, "ann", "web") == {"requests": 10, "tokens": 70}
