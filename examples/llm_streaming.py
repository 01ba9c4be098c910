"""Limit a streaming model: take an estimate, settle while it streams, and count what was really received.

The model is a small HTTP server in this file that streams like the real ones do: an event for each piece of text, and
what was used at the end. It is slow, it can break in the middle, and its readers can go away. Whatever happens, the
bucket is charged with the tokens that were received.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

LIMITS = [Limit.per_hour("requests", 1_000), Limit.per_hour("tokens", 2_000)]
TOKENS_PER_PIECE = 10


# The model server


async def stream_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request: ``pieces`` events, then the usage. Ask for ``breaks_after`` to see a server fail."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        request = json.loads(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for number in range(request["pieces"]):
            if number == request.get("breaks_after"):
                return
            writer.write(event_line({"text": f"{request['prompt']} {number} ", "tokens": TOKENS_PER_PIECE}))
            await writer.drain()
            await asyncio.sleep(0.002)
        used = request["prompt_tokens"] + TOKENS_PER_PIECE * request["pieces"]
        writer.write(event_line({"usage": used}))
        await writer.drain()
    except ConnectionError:
        pass  # the reader went away
    finally:
        writer.close()


def event_line(event: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(event).encode() + b"\n\n"


@asynccontextmanager
async def fake_model() -> AsyncIterator[int]:
    """Run the model for a while; its port."""
    server = await asyncio.start_server(stream_answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def events_from(port: int, **request: Any) -> AsyncGenerator[dict[str, Any]]:
    """The events of one answer, as a provider's client library would give them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        body = json.dumps(request).encode()
        writer.write(b"POST /v1/chat HTTP/1.1\r\nHost: model\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(b"\r\n\r\n")
        finished = False
        async for line in reader:
            if line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                finished = "usage" in event
                yield event
        if not finished:
            raise ConnectionError("the model broke off")
    finally:
        writer.close()


# The limited client


class Client:
    """A client of the model that is limited per key."""

    def __init__(self, limiter: RateLimiter, port: int) -> None:
        self.limiter = limiter
        self.port = port

    async def stream(self, key: str, prompt: str, *, max_tokens: int, **request: Any) -> AsyncGenerator[str]:
        """The pieces of an answer. What was received is charged, even if the stream or its reader breaks off."""
        prompt_tokens = len(prompt.split())
        estimate = {"requests": 1, "tokens": prompt_tokens + max_tokens}
        async with self.limiter.acquire(key, "model", estimate) as lease:
            used = prompt_tokens
            await lease.settle(requests=1, tokens=used)  # from here on, failing costs at least this
            answer = events_from(self.port, prompt=prompt, prompt_tokens=prompt_tokens, **request)
            async with aclosing(answer):
                async for event in answer:
                    used = event["usage"] if "usage" in event else used + event["tokens"]
                    await lease.settle(requests=1, tokens=used)  # a number in memory; written at the end
                    if "text" in event:
                        yield event["text"]


async def main() -> None:
    """Four answers: one to its end, one that is left, one that breaks, and one that is refused."""
    async with fake_model() as port, await RateLimiter.open("memory://") as limiter:
        await limiter.set_system_defaults(LIMITS)
        client = Client(limiter, port)

        async def report(what: str) -> None:
            left = await limiter.available("key-1", "model")
            print(f"{what}: {left['tokens']} tokens left")

        pieces = [piece async for piece in client.stream("key-1", "hello", max_tokens=600, pieces=12)]
        await report(f"{len(pieces)} pieces to the end, 601 reserved, 121 used")

        async with aclosing(client.stream("key-1", "a long story", max_tokens=1_000, pieces=100)) as story:
            await anext(story)
            await report("while it streams, others see the estimate")
        await report("left after 1 piece, 1,003 reserved, 13 used")

        try:
            async for _ in client.stream("key-1", "bad luck", max_tokens=500, pieces=50, breaks_after=5):
                pass
        except ConnectionError as error:
            await report(f"{error} after 5 pieces, 502 reserved, 52 used")

        try:
            async for _ in client.stream("key-1", "too much at once", max_tokens=1_900, pieces=1):
                pass
        except RateLimitExceeded as refused:
            print(f"refused before anything was sent: {refused}")

        usage = await limiter.get_usage_summary("key-1", "model", "daily")
        print(f"charged in all: {usage.total['tokens']} tokens in {usage.total['requests']} requests")
        assert (usage.total["requests"], usage.total["tokens"]) == (3, 121 + 13 + 52)


if __name__ == "__main__":
    asyncio.run(main())
