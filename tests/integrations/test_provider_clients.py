"""The clients of providers, as they are, against a provider that bills: its books are ours, whatever happens."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from google import genai

from support.provider_books import (
    ANTHROPIC_LIMITS,
    OPENAI_LIMITS,
    assert_books_agree,
    counted,
    eventually,
    still_async_limiter,
    still_limiter,
    taken,
)
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter, ValidationError
from zae_limiter.integrations.httpx import limit_client as limit_httpx_client
from zae_limiter.integrations.httpx2 import LimitedTransport, calling_as, limit_client
from zae_limiter.llm import total_tokens
from zae_limiter.testing import FailingStore, FakeClock, FakeProvider, MemoryStore, sync_memory_limiter

MESSAGES: Any = [{"role": "user", "content": "how are you today, my friend?"}]


@pytest.fixture
def limiter() -> SyncRateLimiter:
    return still_limiter(OPENAI_LIMITS)


@pytest.fixture
def chat(provider: FakeProvider, limiter: SyncRateLimiter) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=2) as client:
        yield limit_client(client, limiter, entity="team")


def ask(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(model="gpt", messages=MESSAGES, max_tokens=20, **options)


# OpenAI


def test_an_answer_is_settled_to_what_it_says(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    answer = ask(chat)
    assert answer.usage.total_tokens == provider.books.total_tokens > 0
    assert_books_agree(provider, limiter)


def test_responses_and_embeddings_are_calls_too(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    chat.responses.create(model="gpt", input="hello there", max_output_tokens=40)
    chat.embeddings.create(model="gpt", input=["one text", "and another one"])
    for event in chat.responses.create(model="gpt", input="hello there", max_output_tokens=40, stream=True):
        assert event.type
    assert_books_agree(provider, limiter)


def test_a_list_of_models_is_no_call(provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI) -> None:
    assert list(chat.models.list()) == []
    assert taken(limiter) == {}


def test_a_stream_is_asked_for_its_usage_and_the_caller_sees_none_of_it(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    chunks = list(ask(chat, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "word000 " * 10
    assert all(chunk.usage is None for chunk in chunks)
    assert provider.seen[-1]["stream_options"] == {"include_usage": True}
    assert_books_agree(provider, limiter)


def test_a_caller_that_asks_for_usage_gets_it(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    chunks = list(ask(chat, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.total_tokens == provider.books.total_tokens
    assert_books_agree(provider, limiter)


def test_a_server_that_refuses_to_be_asked_is_not_asked_again(limiter: SyncRateLimiter) -> None:
    with FakeProvider(stream_usage=False) as provider:
        client = limit_client(openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1"), limiter, entity="team")
        for expected in (2, 3):
            assert len(list(ask(client, stream=True))) == 11
            assert provider.books.requests == expected
        assert_books_agree(provider, limiter)


def test_a_stream_that_its_reader_leaves_is_charged_for_what_came(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    provider.pause_stream(7)
    with ask(chat, stream=True) as stream:
        for _ in range(7):
            next(stream)
    eventually(lambda: provider.books.left == 1)
    assert provider.books.output_tokens == 14
    assert_books_agree(provider, limiter)


def test_a_stream_that_breaks_off_is_charged_for_what_came(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    provider.cut_stream(3)
    with pytest.raises(Exception, match=r"peer closed|incomplete|Connection"):
        list(ask(chat, stream=True))
    assert provider.books.output_tokens == 6
    assert_books_agree(provider, limiter)


def test_retries_are_the_requests_they_are_and_tokens_count_once(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    provider.fail(500, times=2, headers={"retry-after-ms": "1"})
    assert ask(chat).choices
    assert provider.books.requests == 3
    assert_books_agree(provider, limiter)


def test_an_error_counts_as_a_request(provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI) -> None:
    provider.fail(404)
    with pytest.raises(openai.NotFoundError):
        ask(chat)
    assert counted(limiter) == {"rpm": 1, "tpm": 0, "gate": 0}


def test_what_never_arrived_costs_nothing(limiter: SyncRateLimiter) -> None:
    with FakeProvider() as gone:
        url = gone.url
    client = openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
    limit_client(client, limiter, entity="team")
    with pytest.raises(openai.APIConnectionError):
        ask(client)
    assert counted(limiter) == {"rpm": 0, "tpm": 0, "gate": 0}


def test_a_call_that_is_not_answered_in_time_is_charged_for_what_it_asked(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    provider.hang(30)
    with pytest.raises(openai.APITimeoutError):
        ask(chat.with_options(timeout=0.2, max_retries=0))
    assert provider.books.output_tokens == 0
    assert_books_agree(provider, limiter)


def test_a_refusal_is_the_providers_own_error(provider: FakeProvider) -> None:
    limiter = still_limiter([Limit.per_day("rpm", 1), Limit.per_day("tpm", 10_000)])
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=5)
    limit_client(client, limiter, entity="team")
    ask(client)
    with pytest.raises(openai.RateLimitError) as caught:  # a day is too long to be waited for
        ask(client)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.response.headers["x-zael-refused"] == "1"
    assert caught.value.response.json()["zae_limiter"]["violations"][0]["limit_name"] == "rpm"
    assert provider.books.requests == 1


def test_a_short_wait_is_waited_by_the_client_itself(provider: FakeProvider) -> None:
    limiter = sync_memory_limiter([Limit.custom("rpm", 1, 10, 1), Limit.per_day("tpm", 10_000)])
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=5)
    limit_client(client, limiter, entity="team")
    for _ in range(3):
        ask(client)
    assert provider.books.requests == 3


def test_what_never_fits_is_not_tried_again(provider: FakeProvider, limiter: SyncRateLimiter) -> None:
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=5)
    limit_client(client, limiter, entity="team", default_output=10**9)
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="gpt", messages=MESSAGES, max_tokens=10**8)
    assert caught.value.status_code == 413
    assert provider.books.requests == 0


def test_an_outage_of_the_store_is_a_503(provider: FakeProvider) -> None:
    store = FailingStore(MemoryStore())
    limiter = sync_memory_limiter(OPENAI_LIMITS, store=store)
    store.fail("draw")
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=0)
    limit_client(client, limiter, entity="team")
    with pytest.raises(openai.InternalServerError):
        ask(client)
    store.heal()
    ask(client)
    assert provider.books.requests == 1


def test_limits_that_are_none_are_told_at_once(provider: FakeProvider, limiter: SyncRateLimiter) -> None:
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=5)
    limit_client(client, limiter, entity="team", charges={"tokens": total_tokens})
    with pytest.raises(openai.BadRequestError, match="has such a limit"):
        ask(client)
    assert provider.books.requests == 0


def test_a_store_that_cannot_note_what_is_left_loses_no_answer(provider: FakeProvider) -> None:
    store = FailingStore(MemoryStore())
    limiter = sync_memory_limiter(OPENAI_LIMITS, store=store)
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=0)
    limit_client(client, limiter, entity="team")
    store.fail("lower")
    provider.tell({"x-ratelimit-remaining-requests": "41"})
    assert ask(client).choices
    store.heal()
    assert limiter.available("team", "gpt")["rpm"] == 999


def test_on_limit_raise_hands_the_error_on(provider: FakeProvider) -> None:
    limiter = still_limiter([Limit.per_day("rpm", 1), Limit.per_day("tpm", 10_000)])
    client = httpx2.Client(base_url=provider.url, transport=LimitedTransport(limiter, entity="team", on_limit="raise"))
    body = {"model": "gpt", "messages": MESSAGES}
    assert client.post("/v1/chat/completions", json=body).status_code == 200
    with pytest.raises(RateLimitExceeded):
        client.post("/v1/chat/completions", json=body)
    client.close()


def test_whose_call_it_is_may_be_said_where_it_is_made(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    with calling_as("tenant-7"):
        ask(chat)
    ask(chat)
    assert taken(limiter, "tenant-7") == taken(limiter, "team")
    assert taken(limiter)["rpm"] == 1


def test_terms_may_be_functions(provider: FakeProvider) -> None:
    limiter = still_limiter([Limit.per_day("tokens", 1_000)])
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", default_headers={"x-team": "blue"})
    limit_client(
        client,
        limiter,
        entity=lambda request: request.headers["x-team"],
        resource=lambda call: f"{call.dialect}/{call.model}",
        charges={"tokens": total_tokens},
        estimate=lambda call: call.estimate._replace(output=999),
    )
    with pytest.raises(openai.APIStatusError):
        ask(client)  # 999 and the question do not fit
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1")
    limit_client(client, limiter, entity="blue", resource="openai/gpt", charges={"tokens": total_tokens})
    ask(client)
    assert taken(limiter, "blue", "openai/gpt") == {"tokens": provider.books.total_tokens}


# What the provider says


def test_what_the_provider_says_is_left_holds_for_every_client(
    provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI
) -> None:
    provider.tell({"x-ratelimit-remaining-requests": "41", "x-ratelimit-remaining-tokens": "-1"})
    ask(chat)
    assert limiter.available("team", "gpt")["rpm"] == 41
    assert limiter.available("team", "gpt")["tpm"] == 100_000 - provider.books.total_tokens
    provider.tell({"x-ratelimit-remaining-requests": "999"})
    ask(chat)
    assert limiter.available("team", "gpt")["rpm"] == 40
    assert counted(limiter)["rpm"] == 2


def test_a_429_of_the_provider_pauses_every_client_and_drains_nothing(provider: FakeProvider) -> None:
    limiter = sync_memory_limiter(OPENAI_LIMITS)
    client, other = (
        limit_client(openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=0), limiter, entity="team")
        for _ in range(2)
    )
    provider.refuse(retry_after_ms=400)
    with pytest.raises(openai.RateLimitError) as refused:
        ask(client)
    assert "x-zael-refused" not in refused.value.response.headers
    with pytest.raises(openai.RateLimitError) as paused:
        ask(other)
    assert paused.value.response.headers["x-zael-refused"] == "1"
    assert 0 < int(paused.value.response.headers["retry-after-ms"]) <= 400
    ask(other.with_options(max_retries=2))
    assert limiter.available("team", "gpt")["tpm"] >= 100_000 - provider.books.total_tokens
    assert provider.books.requests == 2


def test_fifty_refusals_at_once_are_one_pause(provider: FakeProvider, limiter: SyncRateLimiter) -> None:
    client = openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=0)
    limit_client(client, limiter, entity="team")
    together = threading.Barrier(20)

    def call() -> None:
        together.wait()
        with pytest.raises(openai.RateLimitError):
            ask(client)

    provider.refuse(retry_after_ms=300, times=20)
    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert limiter.available("team", "gpt")["gate"] == -300


# Many at once, and tasks


def test_thirty_calls_at_once_are_exact(provider: FakeProvider, limiter: SyncRateLimiter, chat: openai.OpenAI) -> None:
    provider.fail(500, times=4, headers={"retry-after-ms": "1"})
    failures: list[BaseException] = []

    def call(number: int) -> None:
        try:
            if number % 2:
                list(ask(chat, stream=True))
            else:
                ask(chat)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert provider.books.requests == 34
    assert_books_agree(provider, limiter)


AsyncAct = Callable[[openai.AsyncOpenAI, FakeProvider], Any]


async def _one(client: openai.AsyncOpenAI, provider: FakeProvider) -> None:
    await client.chat.completions.create(model="gpt", messages=MESSAGES, max_tokens=20)


async def _thirty(client: openai.AsyncOpenAI, provider: FakeProvider) -> None:
    await asyncio.gather(*(_one(client, provider) for _ in range(30)))
    assert provider.books.requests == 30


async def _stream(client: openai.AsyncOpenAI, provider: FakeProvider) -> None:
    stream: Any = await client.chat.completions.create(model="gpt", messages=MESSAGES, max_tokens=20, stream=True)
    assert len([chunk async for chunk in stream]) == 11


async def _left_stream(client: openai.AsyncOpenAI, provider: FakeProvider) -> None:
    provider.pause_stream(5)
    stream: Any = await client.chat.completions.create(model="gpt", messages=MESSAGES, max_tokens=20, stream=True)
    async with stream:
        for _ in range(5):
            await stream.__anext__()


async def _cancelled_stream(client: openai.AsyncOpenAI, provider: FakeProvider) -> None:
    provider.pause_stream(6)
    reached = asyncio.Event()

    async def read() -> None:
        stream: Any = await client.chat.completions.create(model="gpt", messages=MESSAGES, max_tokens=20, stream=True)
        async with stream:
            count = 0
            async for _ in stream:
                count += 1
                if count == 6:
                    reached.set()

    task = asyncio.create_task(read())
    await asyncio.wait_for(reached.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _cancelled_call(client: openai.AsyncOpenAI, provider: FakeProvider) -> None:
    provider.hang(30)
    task = asyncio.create_task(_one(client, provider))
    while not provider.books.input_tokens:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _errors(client: openai.AsyncOpenAI, provider: FakeProvider) -> None:
    provider.fail(500, times=2, headers={"retry-after-ms": "1"})
    await _one(client, provider)


@pytest.mark.parametrize(
    "act",
    [_one, _thirty, _stream, _left_stream, _cancelled_stream, _cancelled_call, _errors],
    ids=lambda a: a.__name__,
)
def test_tasks_are_charged_what_the_provider_bills(provider: FakeProvider, act: AsyncAct) -> None:
    async def main() -> RateLimiter:
        limiter = still_async_limiter(OPENAI_LIMITS)
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{provider.url}/v1") as client:
            limit_client(client, limiter, entity="team")
            await act(client, provider)
        return limiter

    assert_books_agree(provider, asyncio.run(main()))


KILLED = """
import sys, openai
from zae_limiter import SyncRateLimiter
from zae_limiter.integrations.httpx2 import limit_client
limiter = SyncRateLimiter.open(sys.argv[1])
client = limit_client(openai.OpenAI(api_key="k", base_url=sys.argv[2]), limiter, entity="team")
client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "x" * 40}], max_tokens=20)
"""


def test_a_process_that_is_killed_leaves_what_it_took_and_mints_nothing(
    provider: FakeProvider, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    limiter = SyncRateLimiter.open(url, clock=FakeClock(auto_advance=False))
    limiter.set_system_defaults([Limit.per_day("rpm", 1_000), Limit.per_day("tpm", 1_000)])
    provider.hang(60)
    process = subprocess.Popen([sys.executable, "-c", KILLED, url, f"{provider.url}/v1"])
    try:
        eventually(lambda: provider.books.input_tokens == 10, 90)
    finally:
        process.kill()
        process.wait(20)
    assert counted(limiter) == {"rpm": 1, "tpm": 30}  # the estimate, of which ten were billed
    limiter.close()


# Anthropic, Google, and clients of one's own


def test_anthropic_is_charged_by_its_own_limits(provider: FakeProvider) -> None:
    limiter = still_limiter(ANTHROPIC_LIMITS)
    client = limit_client(anthropic.Anthropic(api_key="k", base_url=provider.url), limiter, entity="team")
    answer = client.messages.create(model="gpt", messages=MESSAGES, max_tokens=20)
    assert answer.usage.cache_read_input_tokens == 100  # not counted against the limit of input
    with client.messages.stream(model="gpt", messages=MESSAGES, max_tokens=20) as stream:
        assert "".join(stream.text_stream) == "word000 " * 10
    assert_books_agree(provider, limiter)
    provider.pause_stream(4)
    with client.messages.stream(model="gpt", messages=MESSAGES, max_tokens=20) as stream:
        texts = iter(stream.text_stream)
        for _ in range(4):
            next(texts)
    eventually(lambda: provider.books.left == 1)
    assert_books_agree(provider, limiter)


def test_anthropic_gets_its_own_errors(provider: FakeProvider) -> None:
    limiter = still_limiter([Limit.per_day("rpm", 1), Limit.per_day("itpm", 10_000), Limit.per_day("otpm", 10_000)])
    client = limit_client(anthropic.Anthropic(api_key="k", base_url=provider.url), limiter, entity="team")
    client.messages.create(model="gpt", messages=MESSAGES, max_tokens=20)
    with pytest.raises(anthropic.RateLimitError):
        client.messages.create(model="gpt", messages=MESSAGES, max_tokens=20)
    assert provider.books.requests == 1


def test_tasks_of_anthropic(provider: FakeProvider) -> None:
    async def main() -> RateLimiter:
        limiter = still_async_limiter(ANTHROPIC_LIMITS)
        async with anthropic.AsyncAnthropic(api_key="k", base_url=provider.url) as client:
            limit_client(client, limiter, entity="team")
            await asyncio.gather(
                *(client.messages.create(model="gpt", messages=MESSAGES, max_tokens=20) for _ in range(10))
            )
        return limiter

    assert_books_agree(provider, asyncio.run(main()))


def gemini(provider: FakeProvider) -> genai.Client:
    options = genai.types.HttpOptions(base_url=provider.url)
    return genai.Client(api_key="k", http_options=options)


def test_google_is_limited_as_it_is(provider: FakeProvider, limiter: SyncRateLimiter) -> None:
    client = limit_client(gemini(provider), limiter, entity="team")
    assert client.models.generate_content(model="gpt", contents="hello there").text == "word000 " * 10
    parts = list(client.models.generate_content_stream(model="gpt", contents="hello there"))
    assert len(parts) == 10
    assert_books_agree(provider, limiter)


def test_tasks_of_google(provider: FakeProvider) -> None:
    async def main() -> RateLimiter:
        limiter = still_async_limiter(OPENAI_LIMITS)
        client = limit_client(gemini(provider), limiter, entity="team")
        await client.aio.models.generate_content(model="gpt", contents="hello there")
        stream: AsyncIterator[Any] = await client.aio.models.generate_content_stream(model="gpt", contents="hello")
        assert len([part async for part in stream]) == 10
        return limiter

    assert_books_agree(provider, asyncio.run(main()))


@pytest.mark.parametrize(("library", "limit"), [(httpx, limit_httpx_client), (httpx2, limit_client)])
def test_a_client_of_ones_own(provider: FakeProvider, limiter: SyncRateLimiter, library: Any, limit: Any) -> None:
    with library.Client(base_url=provider.url) as client:
        limit(client, limiter, entity="team")
        body = {"model": "gpt", "messages": MESSAGES}
        assert client.post("/v1/chat/completions", json=body).json()["usage"]
        assert client.get("/v1/models").status_code == 200
    assert_books_agree(provider, limiter)


def test_proxies_stay_proxies(provider: FakeProvider, limiter: SyncRateLimiter) -> None:
    mounted = httpx2.HTTPTransport()
    client = httpx2.Client(mounts={"http://127.0.0.1": mounted, "http://other": None})
    limit_client(client, limiter, entity="team")
    assert client.post(f"{provider.url}/v1/chat/completions", json={"model": "gpt", "messages": MESSAGES}).json()
    assert_books_agree(provider, limiter)
    client.close()


def test_what_cannot_be_limited_is_told(limiter: SyncRateLimiter) -> None:
    wrong: list[tuple[Any, Any, str]] = [
        (object(), limiter, "no client of httpx2"),
        (httpx.Client(), limiter, "has one of httpx"),
        (openai.AsyncOpenAI(api_key="k"), limiter, "the other world"),
        (openai.OpenAI(api_key="k"), still_async_limiter(OPENAI_LIMITS), "the other world"),
    ]
    for client, given, reason in wrong:
        with pytest.raises(ValidationError, match=reason):
            limit_client(client, given, entity="team")
    client = limit_client(openai.OpenAI(api_key="k"), limiter, entity="team")
    with pytest.raises(ValidationError, match="already"):
        limit_client(client, limiter, entity="team")
    with pytest.raises(ValidationError, match="on_limit"):
        LimitedTransport(limiter, entity="team", on_limit="ignore")  # type: ignore[arg-type]
