"""The contract suite says what is wrong with a store, also when a caller of it never comes back."""

from __future__ import annotations

import pytest

from zae_limiter import Limit
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing.contract import Case, Mode, World, harness, play


@pytest.mark.timeout(20)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_caller_that_waits_for_ever_fails_the_case(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "PATIENCE_SECONDS", 0.2)
    worlds: list[World] = []

    async def waiting(world: World) -> None:
        """The clock of a case stands still, so these tokens never come."""
        async with world.limiter.acquire("key", "gpt", {"rpm": 60}, timeout=3_600):
            pass

    async def scenario(world: World) -> None:
        worlds.append(world)
        await world.limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
        await waiting(world)
        await world.concurrently(waiting(world))

    store = MemoryStore()
    with pytest.raises(AssertionError, match="a caller waits for ever"):
        play(Case("Tokens come without time", scenario), mode, lambda: store)
    worlds[0].clock.advance(60)
