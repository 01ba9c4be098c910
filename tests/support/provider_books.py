"""The provider's books against ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from zae_limiter import Limit, RateLimiter, SyncRateLimiter
from zae_limiter.testing import FakeClock, FakeProvider, memory_limiter, sync_memory_limiter

RPM, TPM = Limit.per_day("rpm", 1_000), Limit.per_day("tpm", 100_000)
ITPM, OTPM = Limit.per_day("itpm", 100_000), Limit.per_day("otpm", 100_000)
GATE = Limit.custom("gate", 1, 1_000, 1)

OPENAI_LIMITS = [RPM, TPM, GATE]
ANTHROPIC_LIMITS = [RPM, ITPM, OTPM, GATE]


def still_limiter(limits: list[Limit]) -> SyncRateLimiter:
    """A limiter whose clock stands still, so that what is missing is what was taken."""
    return sync_memory_limiter(limits, clock=FakeClock(auto_advance=False))


def still_async_limiter(limits: list[Limit]) -> RateLimiter:
    return memory_limiter(limits, clock=FakeClock(auto_advance=False))


def taken(limiter: Any, entity: str = "team", resource: str = "gpt") -> dict[str, int]:
    """What is missing from the entity's bucket, by limit."""
    limiter = limiter if isinstance(limiter, SyncRateLimiter) else _sync(limiter)
    statuses = limiter.get_status(entity, resource).buckets
    if not statuses:
        return {}
    return {level.limit_name: level.limit.burst - level.available for level in statuses[0].limits}


def counted(limiter: Any, entity: str = "team", resource: str = "gpt") -> dict[str, int]:
    """What usage has counted for the entity, by limit."""
    limiter = limiter if isinstance(limiter, SyncRateLimiter) else _sync(limiter)
    return {level.limit_name: level.total_consumed for level in limiter.get_status(entity, resource).buckets[0].limits}


def _sync(limiter: RateLimiter) -> SyncRateLimiter:
    from zae_limiter import SyncRepository

    core = limiter.repository._core
    return SyncRateLimiter(SyncRepository(core.store, clock=core.clock))


def assert_books_agree(provider: FakeProvider, limiter: Any, entity: str = "team", resource: str = "gpt") -> None:
    """What the provider billed is what we took, and what we counted."""
    books = provider.books
    found = {name: amount for name, amount in taken(limiter, entity, resource).items() if name != "gate"}
    if "tpm" in found:
        assert found == {"rpm": books.requests, "tpm": books.total_tokens}
    else:
        assert found == {"rpm": books.requests, "itpm": books.input_tokens, "otpm": books.output_tokens}
    assert {name: counted(limiter, entity, resource)[name] for name in found} == found


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until it is so."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.005)
