"""Failing open is for outages: a store that cannot be used as it is set up says so, and outages are logged once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)


def misconfigured() -> ConfigurationError:
    return ConfigurationError("no permission", hint="ask for one")


@contextmanager
def logged() -> Iterator[list[str]]:
    """What is logged at ``WARNING`` and above."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Lines(logging.WARNING)
    logging.getLogger("zae_limiter").addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger("zae_limiter").removeHandler(handler)


@case("Misconfigured, and never answered: ConfigurationError, whatever on_unavailable says")
async def a_misconfigured_store_is_an_error_in_every_mode(world: World) -> None:
    await world.limiter.set_system_defaults([RPM], on_unavailable="allow")
    limiter = world.failing_limiter
    assert await limiter.available("key", "gpt") == {"rpm": 10}  # it may be read: that does not show that it is right
    await limiter.check()
    world.store.fail(error=misconfigured())
    for policy in (None, "allow", "block"):
        with world.raises(ConfigurationError) as caught:
            async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable=policy):
                raise AssertionError("the body must not run")
        assert str(caught.value) == "no permission; ask for one"
    with world.raises(ConfigurationError):
        await limiter.check()
    with world.raises(ConfigurationError):
        await limiter.set_system_defaults([RPM])
    assert not await limiter.is_available()


@case("Misconfigured after the store has answered once: as on_unavailable says, and the error says what it is")
async def a_store_that_has_answered_follows_the_policy(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    world.store.fail(error=misconfigured())
    with logged() as lines:
        async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow") as lease:
            assert lease.degraded
    assert len(lines) == 1
    assert "is misconfigured: no permission" in lines[0]
    with world.raises(RateLimiterUnavailable) as caught:
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            raise AssertionError("the body must not run")
    assert "no permission" in str(caught.value)
    assert isinstance(caught.value.__cause__, ConfigurationError)


@case("A settlement that meets a store that is misconfigured by now is lost like any other: counted, hiding nothing")
async def a_settlement_is_not_stopped_by_a_misconfigured_store(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter

    async def working() -> None:
        async with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
            await lease.adjust(rpm=2)
            world.store.fail("settle", error=misconfigured())
            with world.raises(RateLimiterUnavailable):
                await lease.flush()

    async def time() -> None:
        for _ in range(2):
            await world.until_waiting(1)
            world.clock.advance(milliseconds=100)
            await world.until_waiting(0)

    assert await world.concurrently(working(), time()) == [None, None]
    assert limiter.repository.unresolved == 1


@case("An outage logs that it began, how many it concerned, and that it is over: not a line per call")
async def an_outage_is_not_a_line_per_call(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter

    async def ask(times: int, policy: str) -> None:
        for _ in range(times):
            try:
                async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable=policy):
                    pass
            except RateLimiterUnavailable:
                assert policy == "block"

    await ask(1, "block")
    with logged() as lines:
        world.store.fail("draw")
        await ask(40, "allow")
        assert len(lines) == 1
        assert "the store is unavailable: the store does not answer" in lines[0]
        assert "callers let through uncounted from now on, first: key on gpt" in lines[0]
        world.clock.advance(60)
        await ask(2, "block")
        assert len(lines) == 2
        assert "still fails after 60 s: 40 callers let through uncounted, 1 callers refused" in lines[1]
        world.store.heal()
        await ask(1, "block")
        assert len(lines) == 2  # it may fail again in a moment
        world.clock.advance(6)
        await ask(2, "block")
        assert lines[2:] == ["the store answers again after 60 s: 40 callers let through uncounted, 2 callers refused"]
