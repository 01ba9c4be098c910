"""A file with very many entities answers about as fast as one with few."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.loop_pulse import Pulse
from support.sqlite_crowds import make_crowd, stopped_clock
from zae_limiter import Limit, RateLimiter, SyncRateLimiter
from zae_limiter.stores.cursors import encode_cursor

FEW, MANY = 300, 100_000
ROUNDS = 60
SLOWER = 6
"""How many times the median may be longer: an index is a little deeper, but nothing is walked through."""

USES: dict[str, Callable[[SyncRateLimiter, int], object]] = {
    "acquire": lambda limiter, n: limiter.acquire(f"key-{n}", "gpt", {"rpd": 1}).__enter__(),
    "acquire on a new bucket": lambda limiter, n: limiter.acquire(f"key-{n}", "new", {"rpd": 1}).__enter__(),
    "available": lambda limiter, n: limiter.available(f"key-{n}", "gpt"),
    "status": lambda limiter, n: limiter.get_status(f"key-{n}"),
    "entity": lambda limiter, n: limiter.get_entity(f"key-{n}"),
    "set limits": lambda limiter, n: limiter.set_limits(f"key-{n}", [Limit.per_day("rpd", 1_000 + n)]),
    "entities": lambda limiter, n: limiter.list_entities(limit=20),
    "children": lambda limiter, n: limiter.get_children("org", limit=20),
    "usage of an entity": lambda limiter, n: limiter.get_usage_snapshots(f"key-{n}", limit=20),
    "usage of a resource": lambda limiter, n: limiter.get_usage_snapshots(resource="gpt", limit=20),
    "audit of an entity": lambda limiter, n: limiter.get_audit_events(f"key-{n}", limit=20),
    "audit": lambda limiter, n: limiter.get_audit_events(limit=20),
    "custom limits": lambda limiter, n: limiter.list_entities_with_custom_limits("gpt", limit=20),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SyncRateLimiter, SyncRateLimiter]]:
    folder = tmp_path_factory.mktemp("crowds")
    few, many = make_crowd(folder / "few.db", FEW), make_crowd(folder / "many.db", MANY)
    yield few, many
    few.close()
    many.close()


def test_the_crowd_is_there(files: tuple[SyncRateLimiter, SyncRateLimiter]) -> None:
    few, many = files
    assert len(many.get_children("org", limit=1_000).items) == 1_000
    assert few.get_resource_capacity("gpt", "rpd", limit=10).total_capacity == 1_000 * (FEW + 1)
    last = many.get_children("org", limit=1_000, cursor=encode_cursor((f"key-{MANY - 1}",))).items
    assert len(last) < 1_000


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_it_takes_about_as_long_among_many_as_among_few(
    files: tuple[SyncRateLimiter, SyncRateLimiter], use: Callable[[SyncRateLimiter, int], object]
) -> None:
    few, many = files
    chance = random.Random(3)
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for limiter, size, times in ((few, FEW, spent[0]), (many, MANY, spent[1])):
            place = 1 + chance.randrange(size)
            started = time.perf_counter()
            use(limiter, place)
            times.append(time.perf_counter() - started)
    assert statistics.median(spent[1]) < SLOWER * statistics.median(spent[0])


def test_pages_follow_one_another_through_the_whole_crowd(files: tuple[SyncRateLimiter, SyncRateLimiter]) -> None:
    few, _ = files
    for listed in (few.list_entities, lambda **page: few.get_children("org", **page)):
        names, cursor = [], None
        while True:
            page = listed(limit=40, cursor=cursor)
            names += [entity.id for entity in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert names == sorted(set(names))
        assert len(names) - ("org" in names) == FEW + 1


TRIES_ON_A_BUSY_MACHINE = 3
"""A pause of the machine is none of ours; one that is there every time is."""


@pytest.mark.parametrize("call", ["set_system_defaults", "purge_namespace"])
def test_what_concerns_every_entity_does_not_stop_the_loop_for_as_long_as_it_takes(tmp_path: Path, call: str) -> None:
    async def scenario(file: Path) -> tuple[float, float]:
        limiter = await RateLimiter.open(f"sqlite:///{file}", clock=stopped_clock)
        if call == "purge_namespace":
            await limiter.repository.delete_namespace("default")
        async with Pulse() as pulse:
            started = time.monotonic()
            if call == "purge_namespace":
                await limiter.repository.purge_namespace("default")
            else:
                await limiter.set_system_defaults([Limit.per_day("rpd", 5)])
            whole = time.monotonic() - started
        await limiter.close()
        return pulse.longest, whole

    shares = []
    for number in range(TRIES_ON_A_BUSY_MACHINE):
        file = tmp_path / f"{number}.db"
        make_crowd(file, 20_000).close()
        longest, whole = asyncio.run(scenario(file))
        shares.append(longest / whole)
        if shares[-1] < 1 / 2:  # work that stops the loop does so all the time
            return
    pytest.fail(f"the loop stood still for these shares of the time: {shares}")
