"""A disk without room: acquires are refused by name, what was written stays, and all is well when there is room."""

from __future__ import annotations

import os
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.no_skips_in_ci import NEEDS_ROOT
from support.sqlite_files import buckets_in, check_conservation, check_integrity
from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter
from zae_limiter.testing.clock import NEW_YEAR_2026_MS

KEYS = 20
MANY = 5_000


def stopped_clock() -> int:
    return NEW_YEAR_2026_MS


def opened(path: Path) -> SyncRateLimiter:
    return SyncRateLimiter.open(f"sqlite:///{path}", clock=stopped_clock)


def check_what_is_there(path: Path, granted: int) -> None:
    """As much as was granted, on children and on their parent: nothing half written."""
    check_integrity(path)
    buckets = buckets_in(path)
    org = buckets.pop(("org", "gpt"))
    assert org.events == granted == sum(bucket.events for bucket in buckets.values())
    for bucket in (org, *buckets.values()):
        check_conservation(bucket)


def prepared(path: Path) -> SyncRateLimiter:
    limiter = opened(path)
    limiter.set_system_defaults([Limit.per_day("rpd", 10**6)])
    limiter.create_entity("org")
    for number in range(KEYS):
        limiter.create_entity(f"key-{number}", parent_id="org", cascade=True)
    return limiter


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(NEEDS_ROOT)
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the room there is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while room := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize:
            file.write(bytes(min(room, 2**16)))
    return ballast


def test_a_full_disk_refuses_by_name_and_works_again_when_there_is_room(small_disk: Path) -> None:
    path = small_disk / "limits.db"
    limiter = prepared(path)
    granted = 0
    for round_ in range(3):
        ballast = fill(small_disk)
        while True:
            try:
                with limiter.acquire(f"key-{granted % KEYS}", "gpt", {"rpd": 1}):
                    granted += 1
            except RateLimiterUnavailable as error:
                said = str(error)
                break
            assert granted < MANY
        assert "free some space" in said
        assert limiter.available("org", "gpt") == {"rpd": 10**6 - granted}
        with pytest.raises(RateLimiterUnavailable):
            limiter.set_system_defaults([Limit.per_day("rpd", 1)])
        ballast.unlink()
        for number in range(10):
            with limiter.acquire(f"key-{round_ + number}", "gpt", {"rpd": 1}):
                granted += 1
    limiter.close()
    check_what_is_there(path, granted)


def test_a_disk_that_is_full_from_the_start_leaves_nothing_broken(small_disk: Path) -> None:
    path = small_disk / "limits.db"
    ballast = fill(small_disk)
    limiter = opened(path)
    for _ in range(3):
        with pytest.raises(RateLimiterUnavailable, match="free some space"):
            limiter.set_system_defaults([Limit.per_day("rpd", 10)])
    ballast.unlink()
    limiter.set_system_defaults([Limit.per_day("rpd", 10)])
    with limiter.acquire("key", "gpt", {"rpd": 10}):
        pass
    limiter.close()
    check_integrity(path)


def test_a_file_that_may_not_grow_any_more_refuses_by_name(tmp_path: Path) -> None:
    """The same without root: the operating system refuses to let any file grow beyond a size."""
    resource = pytest.importorskip("resource", reason="no limits on the size of files")
    path = tmp_path / "limits.db"
    child = os.fork()
    if child == 0:
        try:
            limiter = prepared(path)
            room = os.stat(f"{path}-wal").st_size + 2**20
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            granted = 0
            with pytest.raises(RateLimiterUnavailable):  # noqa: PT012 (any of them may be the one)
                for number in range(MANY):
                    with limiter.acquire(f"key-{number % KEYS}", "gpt", {"rpd": 1}):
                        granted += 1
            assert granted > 0
            assert limiter.available("org", "gpt") == {"rpd": 10**6 - granted}
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            for number in range(10):
                with limiter.acquire(f"key-{number}", "gpt", {"rpd": 1}):
                    granted += 1
            limiter.close()
            check_what_is_there(path, granted)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
