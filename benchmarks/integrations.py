"""What the integrations add to what they are put into: CPU of this process, with and without them.

Run it with ``python benchmarks/integrations.py``. OpenAI's client talks over HTTP to a provider in another process, as
it is and limited; an application of Starlette is called without a server, as it is and with the middleware; a limiter
in memory is observed by nothing and by a tally.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
from comparing import Comparison, Goal, find
from measuring import QUICK, Contender, Pace, measure
from presenting import circumstances, show, write
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from zae_limiter import Limit
from zae_limiter.integrations.asgi import LimitMiddleware, header_key
from zae_limiter.integrations.httpx2 import limit_client
from zae_limiter.integrations.tally import Tally
from zae_limiter.testing import memory_limiter, sync_memory_limiter

PACKAGES = ("zae-limiter", "openai", "httpx2", "starlette")
ENOUGH = 10**12
LIMITS = [Limit.per_minute("rpm", ENOUGH), Limit.per_minute("tpm", ENOUGH), Limit.per_minute("requests", ENOUGH)]
MESSAGES: Any = [{"role": "user", "content": "how are you today, my friend? " * 20}]
THOROUGH = Pace(rounds=15, seconds=0.1)

PROVIDER = """
import sys
from zae_limiter.testing import FakeProvider
with FakeProvider(gzip=False) as provider:
    print(provider.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def provider() -> Iterator[str]:
    """A provider in a process of its own, so that its work is not counted; where it listens."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROVIDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=f"{url}/v1")


def calls(name: str, client: openai.OpenAI) -> Contender:
    def run(times: int) -> None:
        for _ in range(times):
            client.chat.completions.create(model="gpt", messages=MESSAGES, max_tokens=100)

    return Contender(name, "one call, answered as JSON", run)


def streams(name: str, client: openai.OpenAI) -> Contender:
    def run(times: int) -> None:
        for _ in range(times):
            for _ in client.chat.completions.create(model="gpt", messages=MESSAGES, max_tokens=100, stream=True):
                pass

    return Contender(name, "one stream of fifty pieces", run)


async def hello(request: Any) -> PlainTextResponse:
    return PlainTextResponse("hello")


def application(*, limited: bool) -> Any:
    app = Starlette(routes=[Route("/", hello)])
    if limited:
        app.add_middleware(LimitMiddleware, limiter=memory_limiter(LIMITS), key=header_key("x-api-key"))
    return app


def requests_to(name: str, app: Any, loop: asyncio.Runner) -> Contender:
    headers = [(b"host", b"test"), (b"x-api-key", b"ann"), (b"accept", b"*/*")]
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": headers}

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        pass

    async def serve(times: int) -> None:
        for _ in range(times):
            await app(dict(scope), receive, send)

    return Contender(name, "one request, without a server", lambda times: loop.run(serve(times)))


def acquires(name: str, observer: Any) -> Contender:
    limiter = sync_memory_limiter(LIMITS, observer=observer)
    consume = {"rpm": 1, "tpm": 100}

    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key", "gpt", consume):
                pass

    return Contender(name, "one acquire in memory", run)


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds: for trying out, not for quoting")
    pace = QUICK if parser.parse_args().quick else THOROUGH
    about = circumstances(PACKAGES)
    with provider() as url, asyncio.Runner() as loop:
        plain, limited = client_of(url), limit_client(client_of(url), sync_memory_limiter(LIMITS), entity="team")
        unobserved = acquires("acquire, unobserved", None)
        rows = [
            Comparison(
                "OpenAI's client, JSON",
                calls("limited client", limited),
                calls("OpenAI's client", plain),
                Goal(1.15, at_most=True),
                cost_ratio=True,
            ),
            Comparison(
                "OpenAI's client, a stream",
                streams("limited client, stream", limited),
                streams("OpenAI's client, stream", plain),
                Goal(1.10, at_most=True),
                cost_ratio=True,
            ),
            Comparison(
                "Starlette, an empty endpoint",
                requests_to("with the middleware", application(limited=True), loop),
                requests_to("without", application(limited=False), loop),
                cost_ratio=True,
            ),
            Comparison(
                "a tally as observer",
                acquires("acquire, tallied", Tally()),
                unobserved,
                Goal(4, at_most=True),
                cost_ratio=True,
            ),
            Comparison(
                "a tally that looks at every grant",
                acquires("acquire, tallied, every grant", Tally(look_every=1)),
                unobserved,
                cost_ratio=True,
            ),
        ]
        contenders = list(dict.fromkeys(contender for row in rows for contender in (row.ours, row.theirs)))
        costs = measure(contenders, pace)
        plain.close()
        limited.close()
    findings = [find(row, costs) for row in rows]
    show(findings, about, counted="CPU of this process")
    print(f"written: {write('integrations', findings, about)}")


if __name__ == "__main__":
    main()
