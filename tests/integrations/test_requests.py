"""Sessions of ``requests`` against a provider that bills: its books are ours, whatever happens."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from support.provider_books import OPENAI_LIMITS, assert_books_agree, counted, eventually, still_limiter, taken
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, ValidationError
from zae_limiter.integrations.requests import LimitedAdapter, calling_as, limit_session
from zae_limiter.testing import FakeProvider

BODY: dict[str, Any] = {
    "model": "gpt",
    "messages": [{"role": "user", "content": "how are you today, my friend?"}],
    "max_tokens": 20,
}


@pytest.fixture
def limiter() -> SyncRateLimiter:
    return still_limiter(OPENAI_LIMITS)


@pytest.fixture
def session(limiter: SyncRateLimiter) -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield limit_session(session, limiter, entity="team")


def chat(session: requests.Session, provider: FakeProvider, **options: Any) -> requests.Response:
    stream = options.pop("stream", False)
    body = {**BODY, "stream": True} if stream else BODY
    return session.post(f"{provider.url}/v1/chat/completions", json=body, stream=stream, **options)


def test_answers_streams_and_errors(
    provider: FakeProvider, limiter: SyncRateLimiter, session: requests.Session
) -> None:
    assert chat(session, provider).json()["usage"]["total_tokens"] == provider.books.total_tokens
    assert_books_agree(provider, limiter)
    events = [line for line in chat(session, provider, stream=True).iter_lines() if line.startswith(b"data: {")]
    assert len(events) == 11
    assert not [event for event in events if json.loads(event[6:]).get("usage")]
    assert_books_agree(provider, limiter)
    provider.fail(500)
    assert chat(session, provider).status_code == 500
    assert session.get(f"{provider.url}/v1/models").json()["data"] == []
    assert_books_agree(provider, limiter)


def test_a_stream_that_is_left(provider: FakeProvider, limiter: SyncRateLimiter, session: requests.Session) -> None:
    provider.pause_stream(4)
    with chat(session, provider, stream=True) as answer:
        lines = answer.iter_lines(chunk_size=1)
        found = 0
        while found < 4:
            found += next(lines).startswith(b"data: {")
    eventually(lambda: provider.books.left == 1)
    assert_books_agree(provider, limiter)


def test_a_server_that_refuses_to_be_asked(limiter: SyncRateLimiter, session: requests.Session) -> None:
    with FakeProvider(stream_usage=False) as provider:
        for expected in (2, 3):
            assert b"[DONE]" in chat(session, provider, stream=True).content
            assert provider.books.requests == expected
        assert_books_agree(provider, limiter)


def test_what_never_arrived_and_what_was_not_answered(
    provider: FakeProvider, limiter: SyncRateLimiter, session: requests.Session
) -> None:
    with FakeProvider() as gone:
        pass
    with pytest.raises(requests.ConnectionError):
        chat(session, gone)
    assert counted(limiter)["rpm"] == 0
    provider.hang(30)
    with pytest.raises(requests.ReadTimeout):
        chat(session, provider, timeout=0.2)
    assert_books_agree(provider, limiter)


def test_refusals(provider: FakeProvider) -> None:
    limiter = still_limiter([Limit.per_day("rpm", 1), Limit.per_day("tpm", 10_000)])
    with requests.Session() as session:
        limit_session(session, limiter, entity="team")
        chat(session, provider)
        refused = chat(session, provider)
        assert refused.status_code == 429
        assert refused.headers["x-zael-refused"] == "1"
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    with requests.Session() as session:
        session.mount("http://", LimitedAdapter(limiter, entity="team", on_limit="raise"))
        with pytest.raises(RateLimitExceeded):
            chat(session, provider)
    assert provider.books.requests == 1


def test_what_the_provider_says_and_whose_call_it_is(
    provider: FakeProvider, limiter: SyncRateLimiter, session: requests.Session
) -> None:
    provider.tell({"x-ratelimit-remaining-requests": "41"})
    with calling_as("tenant"):
        chat(session, provider)
    assert limiter.available("tenant", "gpt")["rpm"] == 41
    assert taken(limiter) == {}


def test_thirty_at_once(provider: FakeProvider, limiter: SyncRateLimiter, session: requests.Session) -> None:
    failures: list[BaseException] = []

    def call(number: int) -> None:
        try:
            assert chat(session, provider, stream=bool(number % 2)).content
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert_books_agree(provider, limiter)


def test_a_session_is_limited_once(limiter: SyncRateLimiter, session: requests.Session) -> None:
    with pytest.raises(ValidationError, match="already"):
        limit_session(session, limiter, entity="team")
