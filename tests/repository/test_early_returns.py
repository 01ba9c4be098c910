"""Whether leases of this process are open on a bucket, whichever way they were granted."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.stores import open_leases
from zae_limiter.stores.legs import Leg
from zae_limiter.stores.open_leases import MOST_EMPTY, OpenLeases

LIMITS = [Limit.per_minute("rpm", 1_000), Limit.per_minute("tpm", 1_000)]
KEY, ORG, OTHER = ("key", "gpt"), ("org", "gpt"), ("other", "gpt")


@pytest.fixture(params=["memory", "sqlite"])
def limiter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyncRateLimiter]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults(LIMITS)
        limiter.create_entity("org")
        limiter.create_entity("key", parent_id="org", cascade=True)
        yield limiter


def open_on(limiter: SyncRateLimiter, place: tuple[str, str]) -> bool:
    core = limiter._core
    return core.may_come_back(place, core.timer())


@pytest.mark.parametrize("warm", [0, 1, 2])
@pytest.mark.parametrize("timeout", [0, 5])
def test_a_lease_is_seen_at_each_of_its_buckets_while_it_is_open(
    limiter: SyncRateLimiter, warm: int, timeout: float
) -> None:
    for _ in range(warm):
        with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:  # the name outlives the block
            lease.adjust(tpm=1)
    assert not open_on(limiter, KEY)
    assert not open_on(limiter, ORG)
    with limiter.acquire("key", "gpt", {"rpm": 1}, timeout=timeout) as first:
        with limiter.acquire("key", "gpt", {"rpm": 1}) as second:
            assert open_on(limiter, KEY)
            assert open_on(limiter, ORG)
            assert not open_on(limiter, OTHER)
        assert open_on(limiter, KEY)
        assert open_on(limiter, ORG)
    assert first.consumed == second.consumed == {"rpm": 1}
    assert not open_on(limiter, KEY)
    assert not open_on(limiter, ORG)


def test_a_lease_that_fails_or_is_detached_is_no_longer_seen(limiter: SyncRateLimiter) -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
            raise ZeroDivisionError
        assert not open_on(limiter, KEY)
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        token = lease.detach()
        assert not open_on(limiter, KEY)
    with limiter.resume(token):
        assert open_on(limiter, KEY)
        assert open_on(limiter, ORG)
    assert not open_on(limiter, KEY)


def test_a_lease_that_is_dropped_without_an_end_is_no_longer_seen(limiter: SyncRateLimiter) -> None:
    for _ in range(3):
        lease = limiter.acquire("key", "gpt", {"rpm": 1})
        lease.__enter__()
        assert open_on(limiter, KEY)
        del lease
        gc.collect()
        assert not open_on(limiter, KEY)


def test_buckets_without_open_leases_are_forgotten() -> None:
    leases = OpenLeases()
    kept = leases.mark([Leg("kept", "gpt", (), "entity")])
    for number in range(2 * MOST_EMPTY):
        leases.mark([Leg(f"key-{number}", "gpt", (), "entity")])
    assert len(leases._by_bucket) <= MOST_EMPTY + 1
    assert leases.has(("kept", "gpt"))
    assert not leases.has((f"key-{MOST_EMPTY}", "gpt"))
    del kept
    assert not leases.has(("kept", "gpt"))


def test_where_references_are_not_counted_any_fast_path_may_have_open_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_leases, "_references", None)
    assert open_leases.SharedMark().is_held
