"""The service in this process, as a client sees it, without a socket."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from zae_limiter import Limit
from zae_limiter.service.app import create_app
from zae_limiter.service.backend import Backend
from zae_limiter.service.guard import Guard
from zae_limiter.service.tokens import TokenFile
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Store
from zae_limiter.testing import FailingStore

LIMITS = (Limit.per_day("rpm", 10), Limit.per_day("tpm", 1_000))


class ServiceWorld:
    """A service on a store that fails when it is told to, and a client of it."""

    def __init__(self, runner: asyncio.Runner, store: Store, guard: Guard) -> None:
        self._runner = runner
        self.store = FailingStore(store)
        self.backend = Backend(self.store)
        self.app = create_app(self.backend, guard)
        transport = httpx.ASGITransport(app=self.app)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")
        self.limiter = self.backend.limiter()

    def run(self, awaitable: Any) -> Any:
        """Await something in the loop of the service."""
        return self._runner.run(_awaited(awaitable))

    def request(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        """Ask. A body is sent as JSON."""
        if body is not None:
            options["content"] = json.dumps(body)
            headers = {"content-type": "application/json", **(headers or {})}
        response: httpx.Response = self.run(self._client.request(method, path, headers=headers, **options))
        return response

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Ask with GET."""
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """Ask with POST."""
        return self.request("POST", path, body, **options)

    def available(self, entity_id: str = "key", resource: str = "gpt") -> dict[str, int]:
        """What a bucket holds."""
        found: dict[str, int] = self.run(self.limiter.available(entity_id, resource))
        return found


@contextmanager
def service_world(token_file: Path | None = None, *, store: Store | None = None) -> Iterator[ServiceWorld]:
    """A service in memory with limits of 10 requests and 1000 tokens a day."""
    tokens = None if token_file is None else TokenFile(token_file)
    if tokens is not None:
        tokens.load()
    with asyncio.Runner() as runner:
        world = ServiceWorld(runner, store or MemoryStore(), Guard(tokens))
        world.run(world.limiter.set_system_defaults(LIMITS))
        yield world
        world.run(world._client.aclose())
        world.run(world.backend.close())


def token_entry(name: str, text: str, *roles: str, **bounds: str | None) -> dict[str, Any]:
    """A token as it stands in a file."""
    return {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "roles": list(roles), **bounds}


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
