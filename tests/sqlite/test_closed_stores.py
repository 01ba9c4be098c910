"""A limiter that was closed has no file open, also when a lease of it ends later."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from zae_limiter import Limit, RateLimiter, SyncRateLimiter

RPM = Limit.per_day("rpm", 10)

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which files are open")


def open_files(folder: Path) -> list[str]:
    """Those of this process in a folder."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the one that listed them
            continue
    return sorted(name for name in found if name.startswith(str(folder)))


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'limits.db'}"


def left_in(folder: Path) -> dict[str, int]:
    with SyncRateLimiter.open(url_in(folder), limits=[RPM]) as limiter:
        return dict(limiter.available("key", "gpt"))


def test_a_lease_that_ends_after_closing_is_settled_and_leaves_no_file_open(tmp_path: Path) -> None:
    limiter = SyncRateLimiter.open(url_in(tmp_path), limits=[RPM])
    with limiter.acquire("key", "gpt", {"rpm": 5}) as lease:
        assert open_files(tmp_path)
        limiter.close()
        assert open_files(tmp_path) == []
        lease.settle(rpm=2)
        assert open_files(tmp_path) == []
    assert limiter.available("key", "gpt") == {"rpm": 8}
    assert limiter.repository.list_entities().items == []
    assert open_files(tmp_path) == []
    assert left_in(tmp_path) == {"rpm": 8}


def test_so_is_one_that_fails_in_an_event_loop(tmp_path: Path) -> None:
    async def program() -> None:
        limiter = await RateLimiter.open(url_in(tmp_path), limits=[RPM])
        async with limiter.acquire("key", "gpt", {"rpm": 5}):
            await limiter.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(program())
    assert open_files(tmp_path) == []
    assert left_in(tmp_path) == {"rpm": 10}
