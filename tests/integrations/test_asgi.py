"""The middleware for ASGI: Starlette and FastAPI, on uvicorn, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse as FastStreamingResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from support.provider_books import eventually, still_async_limiter, taken
from support.web_servers import asgi_server
from zae_limiter import Lease, Limit, RateLimiter, ValidationError
from zae_limiter.integrations.asgi import LimitMiddleware, Rule, client_address, current_lease, header_key
from zae_limiter.integrations.fastapi import Limited
from zae_limiter.testing import FailingStore, FakeClock, MemoryStore, memory_limiter

LIMITS = [Limit.per_day("requests", 40), Limit.per_day("tokens", 1_000)]
RULES = [
    Rule("/health", exempt=True),
    Rule("/v1/chat", resource="chat", consume={"requests": 1, "tokens": 500}, methods=["post"]),
    Rule("/users/{name}/posts", resource=lambda scope: "posts", consume=lambda scope: {"requests": 2}),
    Rule("/", resource="web"),
]


@pytest.fixture
def limiter() -> RateLimiter:
    return still_async_limiter(LIMITS)


async def plain(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def chat(request: Request) -> PlainTextResponse:
    await request.state.lease.settle(tokens=123)
    assert current_lease() is request.state.lease
    return PlainTextResponse("hello")


async def pieces(request: Request) -> StreamingResponse:
    lease: Lease = request.state.lease

    async def body() -> AsyncIterator[bytes]:
        for number in range(200):
            await lease.adjust(tokens=1)
            yield b"x" * 65_536
            request.app.state.sent = number + 1
            await asyncio.sleep(0.002)

    return StreamingResponse(body())


async def broken(request: Request) -> PlainTextResponse:
    raise ZeroDivisionError


def application(limiter: Any, **options: Any) -> Starlette:
    app = Starlette(
        routes=[
            Route("/v1/chat", chat, methods=["POST", "GET"]),
            Route("/broken", broken),
            Route("/pieces", pieces),
            Route("/{path:path}", plain),
        ]
    )
    options = {"key": header_key("x-api-key"), "rules": RULES, **options}
    app.add_middleware(LimitMiddleware, limiter=limiter, **options)
    return app


def test_rules_say_what_a_request_takes(limiter: RateLimiter) -> None:
    with asgi_server(application(limiter)) as url, httpx2.Client(base_url=url, headers={"x-api-key": "ann"}) as client:
        answer = client.post("/v1/chat")
        assert answer.headers["ratelimit"] == '"requests";r=39;t=2160, "tokens";r=500;t=43200'
        assert answer.headers["ratelimit-policy"] == '"requests";q=40;w=86400, "tokens";q=1000;qu="tokens";w=86400'
        client.get("/users/bea/posts/7")
        client.get("/healthy")
        for path in ("/health", "/health/deep"):
            assert "ratelimit" not in client.get(path).headers
    assert taken(limiter, "ann", "chat") == {"requests": 1, "tokens": 123}
    assert taken(limiter, "ann", "posts")["requests"] == 2
    assert taken(limiter, "ann", "web")["requests"] == 1


def test_a_refusal_is_a_problem_document(limiter: RateLimiter) -> None:
    with asgi_server(application(limiter)) as url, httpx2.Client(base_url=url, headers={"x-api-key": "ann"}) as client:
        answers = [client.get("/") for _ in range(41)]
    assert [answer.status_code for answer in answers] == [200] * 40 + [429]
    refused = answers[-1]
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["retry-after"] == "2160"
    assert refused.json()["violated-policies"] == ["requests"]


def test_requests_at_once_are_exact(limiter: RateLimiter) -> None:
    with asgi_server(application(limiter)) as url, ThreadPoolExecutor(30) as pool:
        statuses = list(
            pool.map(lambda _: httpx2.get(url, headers={"x-api-key": "ann"}).status_code, range(60), timeout=60)
        )
    assert sorted(statuses) == [200] * 40 + [429] * 20


def test_what_never_fits_and_a_store_that_is_gone(limiter: RateLimiter) -> None:
    store = FailingStore(MemoryStore())
    failing = memory_limiter(LIMITS, store=store)
    store.fail("draw")
    large = [Rule("/", consume={"tokens": 1_001})]
    headers = {"x-api-key": "ann"}
    with asgi_server(application(limiter, rules=large)) as url:
        assert httpx2.get(url, headers=headers).status_code == 413
    with asgi_server(application(failing)) as url:
        answer = httpx2.get(url, headers=headers)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    with asgi_server(application(lambda: failing, on_unavailable="allow")) as url:
        assert httpx2.get(url, headers=headers).status_code == 200


def test_a_request_of_no_caller_passes_and_one_of_a_strange_caller_does_not(limiter: RateLimiter) -> None:
    with asgi_server(application(limiter)) as url:
        assert "ratelimit" not in httpx2.get(url).headers
        strange = httpx2.get(url, headers={"x-api-key": "not#one"})
        assert strange.status_code == 400
        assert strange.headers["content-type"] == "application/problem+json"


def test_a_client_that_leaves_pays_for_what_was_sent(limiter: RateLimiter) -> None:
    app = application(limiter)
    with asgi_server(app) as url:
        with httpx2.stream("GET", f"{url}/pieces", headers={"x-api-key": "ann"}) as answer:
            body = answer.iter_raw()
            for _ in range(5):
                next(body)
        eventually(lambda: taken(limiter, "ann", "web")["tokens"] > 0)
    charged = taken(limiter, "ann", "web")["tokens"]
    assert 0 < app.state.sent <= charged <= app.state.sent + 1
    assert charged < 200


def test_what_fails_is_not_free_unless_it_is_told_to_be(limiter: RateLimiter) -> None:
    headers = {"x-api-key": "ann"}
    with asgi_server(application(limiter)) as url:
        assert httpx2.get(f"{url}/broken", headers=headers).status_code == 500
    assert taken(limiter, "ann", "web")["requests"] == 1
    with asgi_server(application(limiter, on_error="refund")) as url:
        assert httpx2.get(f"{url}/broken", headers=headers).status_code == 500
    assert taken(limiter, "ann", "web")["requests"] == 1


def test_addresses_are_believed_as_far_as_one_is_told(limiter: RateLimiter) -> None:
    forged = {"x-forwarded-for": "6.6.6.6, 10.0.0.9"}
    with asgi_server(application(limiter, key=client_address())) as url:
        httpx2.get(url, headers=forged)
    assert taken(limiter, "ip:127.0.0.1", "web")["requests"] == 1
    with asgi_server(application(limiter, key=client_address(trusted_proxies=1), compatible_headers=True)) as url:
        assert httpx2.get(url, headers=forged).headers["x-ratelimit-remaining-requests"] == "39"
    assert taken(limiter, "ip:10.0.0.9", "web")["requests"] == 1


# FastAPI


def test_a_dependency_hands_the_lease_over(limiter: RateLimiter) -> None:
    app = FastAPI()
    limit = Limited(
        limiter, resource="chat", consume={"requests": 1, "tokens": 500}, key=header_key("x-api-key"), timeout=0
    )

    @app.post("/chat")
    async def chat(lease: Lease = Depends(limit)) -> dict[str, str]:  # noqa: B008 (so it is written)
        await lease.settle(tokens=450)
        return {"answer": "hello"}

    @app.post("/stream")
    async def stream(lease: Lease = Depends(limit)) -> FastStreamingResponse:  # noqa: B008 (so it is written)
        async def body() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"piece"
            await lease.settle(tokens=7)  # the lease is open until the body has ended

        return FastStreamingResponse(body())

    with asgi_server(app) as url, httpx2.Client(base_url=url, headers={"x-api-key": "ann"}) as client:
        answer = client.post("/chat")
        assert answer.json() == {"answer": "hello"}
        assert answer.headers["ratelimit"] == '"requests";r=39;t=2160, "tokens";r=500;t=43200'
        assert client.post("/stream").content == b"piece" * 3
        eventually(lambda: taken(limiter, "ann", "chat") == {"requests": 2, "tokens": 457})
        client.post("/chat")
        refused = client.post("/chat")
        assert refused.status_code == 429
        assert refused.json()["detail"]["violated-policies"] == ["tokens"]
        assert int(refused.headers["retry-after"]) > 0
        assert client.post("/chat", headers={"x-api-key": "not#one"}).status_code == 400
        assert httpx2.post(f"{url}/chat").status_code == 401


def test_a_limiter_whose_clock_moves_lets_requests_in_again() -> None:
    clock = FakeClock(auto_advance=False)
    limiter = memory_limiter([Limit.per_minute("requests", 1)], clock=clock)
    headers = {"x-api-key": "ann"}
    with asgi_server(application(limiter)) as url:
        assert httpx2.get(url, headers=headers).status_code == 200
        wait = int(httpx2.get(url, headers=headers).headers["retry-after"])
        clock.advance(wait)
        assert httpx2.get(url, headers=headers).status_code == 200


def test_what_is_no_rule_or_choice_is_refused(limiter: RateLimiter) -> None:
    with pytest.raises(ValidationError, match="path"):
        Rule("chat")
    with pytest.raises(ValidationError, match="on_error"):
        LimitMiddleware(application(limiter), limiter, key=client_address(), on_error="ignore")
