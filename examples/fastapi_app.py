"""An HTTP API limited per key: 429 with Retry-After when a limit lacks, 413 when it never can fit, 503 in an outage.

Run as a program, it asks itself a few questions. ``uvicorn fastapi_app:app`` in its folder serves it, with as many
workers as you like; ``ZAEL_URL`` names the store. It needs ``pip install fastapi httpx2 uvicorn``.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, RequestExceedsBurst

LIMITS = [Limit.per_minute("requests", 60, burst=3), Limit.per_minute("tokens", 6_000)]
KEYS = {"secret-of-ann": "key-ann", "secret-of-bob": "key-bob"}


class Question(BaseModel):
    """What a client sends."""

    prompt: str
    max_tokens: int = Field(default=500, ge=1)


class Answer(BaseModel):
    """What it gets."""

    text: str
    tokens: int


async def ask_model(question: Question) -> Answer:
    """Stands in for your provider."""
    return Answer(text=f"about {question.prompt}", tokens=20 + 10 * len(question.prompt.split()))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One limiter for the life of a process; a test may have put its own there."""
    if getattr(app.state, "limiter", None) is not None:
        yield
        return
    async with await RateLimiter.open() as limiter:
        await limiter.set_resource_defaults("ask", LIMITS)
        app.state.limiter = limiter
        yield
        app.state.limiter = None


app = FastAPI(lifespan=lifespan)


def limiter_of(request: Request) -> RateLimiter:
    """The limiter of this process."""
    limiter: RateLimiter = request.app.state.limiter
    return limiter


def key_of(x_api_key: Annotated[str, Header()]) -> str:
    """Who asks. Limits belong to this name, never to the secret itself: it is stored, and shown in reports."""
    try:
        return KEYS[x_api_key]
    except KeyError:
        raise HTTPException(401, "unknown key") from None


@app.post("/ask")
async def ask(
    question: Question,
    response: Response,
    key: Annotated[str, Depends(key_of)],
    limiter: Annotated[RateLimiter, Depends(limiter_of)],
) -> Answer:
    """One limited call: the most it may cost is taken before, what it did cost is settled after."""
    estimate = {"requests": 1, "tokens": question.max_tokens}
    async with limiter.acquire(key, "ask", estimate) as lease:
        answer = await ask_model(question)
        await lease.settle(tokens=answer.tokens)
        for status in lease.statuses:  # as the grant left them; what is settled comes back at the end of the block
            if status.entity_id == key:
                left = status.available + estimate[status.limit_name] - lease.consumed[status.limit_name]
                response.headers[f"X-RateLimit-Remaining-{status.limit_name.title()}"] = str(left)
    return answer


@app.exception_handler(RateLimitExceeded)
async def too_many(request: Request, error: RateLimitExceeded) -> JSONResponse:
    """Which limit lacks, whose, and when to come back. Nothing was taken."""
    return JSONResponse(error.as_dict(), 429, headers={"Retry-After": error.retry_after_header})


@app.exception_handler(RequestExceedsBurst)
async def too_large(request: Request, error: RequestExceedsBurst) -> JSONResponse:
    """No wait is long enough, so there is no Retry-After that would not lie."""
    return JSONResponse(error.as_dict(), 413)


@app.exception_handler(RateLimiterUnavailable)
async def out_of_order(request: Request, error: RateLimiterUnavailable) -> JSONResponse:
    """The store did not answer, and we fail closed."""
    return JSONResponse({"error": "unavailable"}, 503, headers={"Retry-After": "1"})


def main() -> None:
    """What clients see, without a network."""
    from fastapi.testclient import TestClient

    from zae_limiter.testing import FakeClock, memory_limiter

    clock = FakeClock()
    app.state.limiter = memory_limiter(LIMITS, clock=clock)
    with TestClient(app) as client:

        def post(secret: str, prompt: str, **more: object) -> int:
            """Show a question and what comes back; how long to wait."""
            got = client.post("/ask", json={"prompt": prompt, **more}, headers={"X-API-Key": secret})
            wait = got.headers.get("Retry-After")
            print(f"{secret[10:]} {prompt!r}: {got.status_code}" + (f", Retry-After: {wait}" if wait else ""))
            return math.ceil(float(wait or 0))

        post("secret-of-ann", "one")
        post("secret-of-ann", "two")
        post("secret-of-ann", "three")
        wait = post("secret-of-ann", "four")
        post("secret-of-bob", "another key, another bucket")
        clock.advance(wait)
        post("secret-of-ann", "four, when told to come back")
        post("secret-of-ann", "the whole of Proust", max_tokens=50_000)
        post("secret-of-eve", "unknown")
    app.state.limiter = None


if __name__ == "__main__":
    main()
