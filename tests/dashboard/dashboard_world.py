"""A small company on a served store: teams, keys that are refused, near a limit, in debt, and some that are well."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import uvicorn

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.dashboard.process import with_dashboard
from zae_limiter.service.app import create_app
from zae_limiter.service.backend import Backend
from zae_limiter.service.guard import Guard, Tokens
from zae_limiter.service.operations import Operation
from zae_limiter.service.routes import OPERATIONS
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Store
from zae_limiter.testing import FakeClock

PATIENCE_S = 20.0
HOURS_BEFORE = 24
STEPS_PER_HOUR = 6


@contextmanager
def served(
    store: Store, tokens: Tokens | None = None, operations: tuple[Operation, ...] = (), namespace: str = "default"
) -> Iterator[str]:
    """The service with its dashboard on a free port of this machine; its address."""
    backend = Backend(store, namespace)
    more = with_dashboard(backend)
    app = create_app(backend, Guard(tokens), operations=[*OPERATIONS, *more.operations, *operations], pages=more.pages)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=2))
    started = threading.Event()

    async def serve() -> None:
        async def note_start() -> None:
            while not server.started:
                await asyncio.sleep(0.01)
            started.set()

        noting = asyncio.create_task(note_start())
        await server.serve()
        noting.cancel()
        await backend.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(PATIENCE_S)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


TEAMS = {
    "acme": {
        "platform": ["ci-runner-7", "deploy-bot"],
        "search-team": ["search-api", "key-ann-dev"],
        "data": ["batch-nightly"],
    },
    "globex": {"support": ["support-bot"]},
    "initech": {"shop": ["checkout-assist", "chat-widget"]},
}


class Company:
    """A limiter that tells its pulse, and what its keys do. Its time is a test's."""

    def __init__(self, store: MemoryStore) -> None:
        now = int(datetime.now(UTC).timestamp() * 1000)
        self.clock = FakeClock(now - HOURS_BEFORE * 3_600_000)
        self.limiter = SyncRateLimiter(SyncRepository(store, clock=self.clock, pulse=True))

    def set_up(self) -> None:
        limiter = self.limiter
        limiter.set_system_defaults([Limit.per_minute("rpm", 120), Limit.per_minute("tpm", 60_000)], principal="ann")
        limiter.set_resource_defaults(
            "claude-sonnet", [Limit.per_minute("rpm", 300), Limit.per_minute("tpm", 80_000)], principal="ann"
        )
        for organisation, teams in TEAMS.items():
            limiter.create_entity(organisation, name=organisation.capitalize(), principal="ann")
            limiter.set_limits(organisation, [Limit.per_minute("tpm", 2_000_000)], principal="ann")
            for team, keys in teams.items():
                limiter.create_entity(team, parent_id=organisation, cascade=True, principal="ann")
                limiter.set_limits(team, [Limit.per_minute("tpm", 1_500_000)], principal="ann")
                for key in keys:
                    limiter.create_entity(key, parent_id=team, cascade=True, principal="ci:deploy-6")
        limiter.set_limits("acme", [Limit.per_minute("tpm", 1_200_000), Limit.per_month("usd", 500)], principal="ann")
        limiter.set_limits("platform", [Limit.per_minute("tpm", 300_000)], principal="bob")
        limiter.set_limits("search-team", [Limit.per_minute("tpm", 210_000)], principal="bob")
        own = {
            ("ci-runner-7", "gpt-4o"): [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 40_000)],
            ("search-api", "gpt-4o"): [Limit.per_minute("tpm", 400_000)],
            ("batch-nightly", "embeddings"): [Limit.per_minute("tpm", 1_000_000)],
            ("checkout-assist", "gpt-4o"): [Limit.per_minute("rpm", 60), Limit.concurrent("calls", 20)],
        }
        for (key, resource), limits in own.items():
            limiter.set_limits(key, limits, resource=resource, principal="ann")

    def take(self, key: str, resource: str, times: int = 1, extra: int = 0, **amounts: int) -> None:
        """Some calls of a key; ``extra`` is what the last one used beyond what it asked for."""
        for number in range(times):
            with suppress(RateLimitExceeded), self.limiter.acquire(key, resource, amounts) as lease:
                if extra and number == times - 1:
                    lease.adjust(tpm=extra)

    def a_day(self) -> None:
        """A day of usage, by the hour, before the last one."""
        for step in range((HOURS_BEFORE - 1) * STEPS_PER_HOUR):
            busy = 1 + (6 - abs(12 - (step // STEPS_PER_HOUR + 6) % 24) // 2) // 2
            for resource, tokens in (("gpt-4o", 42_000), ("claude-sonnet", 22_000), ("gpt-4o-mini", 14_000)):
                self.take("search-api", resource, busy, tpm=tokens)
            self.take("ci-runner-7", "gpt-4o", busy, rpm=1, tpm=14_000)
            self.take("ci-runner-7", "gpt-4o", (step * 7) % 3, tpm=39_000)
            self.clock.advance(3_600 // STEPS_PER_HOUR)

    def an_hour(self) -> None:
        """The last hour, by the minute: refusals begin to grow in its second half."""
        for minute in range(60):
            growing = max(minute - 34, 0)
            self.take("chat-widget", "claude-sonnet", 14 + minute % 5, rpm=1, tpm=900)
            self.take("deploy-bot", "gpt-4o-mini", 6 + minute % 3, rpm=1, tpm=300)
            self.take("search-api", "gpt-4o", 6, tpm=1_700)
            self.take("search-api", "gpt-4o", growing // 3 + minute % 2, tpm=205_000)
            self.take("ci-runner-7", "gpt-4o", 6 + growing // 2, rpm=1, tpm=6_200)
            if minute % 4 == 0:
                self.take("support-bot", "claude-sonnet", 12, rpm=1, tpm=7_000)
            if minute < 59:
                self.clock.advance(60)

    def live(self) -> None:
        """What the keys do at this moment."""
        self.catch_up()
        for entity in self.limiter.list_entities().items:
            self.limiter.reset(entity.id)
        self.take("checkout-assist", "gpt-4o", 55, rpm=1)
        self.take("key-ann-dev", "gpt-4o-mini", 107, rpm=1)
        self.take("search-api", "gpt-4o", 20, tpm=10_400)
        self.take("search-api", "gpt-4o", 8, tpm=52_000)
        self.take("support-bot", "claude-sonnet", 14, rpm=1, tpm=8_000)
        self.take("batch-nightly", "embeddings", 9, tpm=110_000, extra=160_000)
        self.take("ci-runner-7", "gpt-4o", 4, rpm=1, tpm=6_200, extra=34_000)
        self.take("ci-runner-7", "gpt-4o", 12, rpm=1, tpm=6_200)
        self.limiter.write_pulse()

    def catch_up(self) -> None:
        """Let it be the time of the machine."""
        now = int(datetime.now(UTC).timestamp() * 1000)
        self.clock.advance(max(now - self.clock(), 0) / 1000)


def company(store: MemoryStore) -> Company:
    """One that has been at work for a day."""
    found = Company(store)
    found.set_up()
    found.a_day()
    found.an_hour()
    found.live()
    return found
