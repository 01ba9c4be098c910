"""The file disappears while processes use it: soon all of them are on a new one together."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.processes import together
from support.sqlite_files import SIDE_FILES, buckets_in, check_integrity
from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter

LIMITS = [Limit.per_day("rpd", 10**6)]
AFTER_S = 1.2
"""How long the processes go on after the file is gone. The second half of it must be clean."""
PATIENCE_S = 30.0


def go_on(url: str, entity_id: str, gone: Path) -> tuple[int, int, int]:
    """Acquire all the time. How often it failed late, what was granted late, and what is counted in the end."""
    granted = failures = 0
    give_up_at = time.monotonic() + PATIENCE_S
    late, end = give_up_at, give_up_at
    with SyncRateLimiter.open(url) as limiter:
        while (now := time.monotonic()) < end:
            if end == give_up_at and gone.exists():
                late, end = now + AFTER_S / 2, now + AFTER_S
            try:
                with limiter.acquire(entity_id, "gpt", {"rpd": 1}, limits=LIMITS):
                    granted += now > late
            except RateLimiterUnavailable:
                failures += now > late
            time.sleep(0.002)
        assert end != give_up_at
        (bucket,) = limiter.get_status(entity_id).buckets
        return failures, granted, bucket.total_events


def wait_until_all_are_at_it(path: Path, keys: Sequence[str]) -> None:
    """Wait for every process to have acquired something."""
    give_up_at = time.monotonic() + PATIENCE_S
    while len(buckets_in(path)) < len(keys):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def remove_the_file(path: Path) -> None:
    path.unlink()


def remove_every_file(path: Path) -> None:
    for end in ("", *SIDE_FILES):
        Path(f"{path}{end}").unlink(missing_ok=True)


def remove_the_folder(path: Path) -> None:
    path.parent.rename(path.parents[1] / "removed")  # in one step: no thread makes a file in it meanwhile
    shutil.rmtree(path.parents[1] / "removed")


@pytest.mark.parametrize("happens", [remove_the_file, remove_every_file, remove_the_folder])
def test_all_processes_soon_agree_on_the_file_that_is_there(tmp_path: Path, happens: Callable[[Path], None]) -> None:
    folder, gone = tmp_path / "data", tmp_path / "gone"
    path = folder / "limits.db"
    folder.mkdir()
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        limiter.create_entity("of-today")
    keys = [f"key-{place}" for place in range(3)]

    def in_the_midst() -> None:
        wait_until_all_are_at_it(path, keys)
        happens(path)
        gone.touch()

    with path.open("rb") as old:  # its number is not given to another file as long as it is open
        answers = together(go_on, [(f"sqlite:///{path}", key, gone) for key in keys], meanwhile=in_the_midst)
        assert path.stat().st_ino != os.fstat(old.fileno()).st_ino
    counted = {bucket.entity_id: bucket.events for bucket in buckets_in(path).values()}
    for key, (failures, granted, events) in zip(keys, answers, strict=True):
        assert failures == 0
        assert 0 < granted <= events
        assert counted[key] == events
    check_integrity(path)
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        entities = [entity.id for entity in limiter.list_entities(limit=1_000).items]
    assert entities == []


def test_a_file_that_is_exchanged_in_one_step_is_soon_used_by_all(tmp_path: Path) -> None:
    path, yesterday, gone = tmp_path / "limits.db", tmp_path / "yesterday.db", tmp_path / "gone"
    with SyncRateLimiter.open(f"sqlite:///{yesterday}") as limiter:
        for number in range(100):
            with limiter.acquire(f"of-yesterday-{number:03}", "gpt", {"rpd": 1}, limits=LIMITS):
                pass

    SyncRateLimiter.open(f"sqlite:///{path}", create=True).close()
    keys = [f"key-{place}" for place in range(3)]

    def in_the_midst() -> None:
        wait_until_all_are_at_it(path, keys)
        os.replace(yesterday, path)
        gone.touch()

    answers = together(go_on, [(f"sqlite:///{path}", key, gone) for key in keys], meanwhile=in_the_midst)
    assert [failures for failures, _, _ in answers] == [0, 0, 0]
    check_integrity(path)
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        assert limiter.get_status("of-yesterday-000").buckets[0].total_events == 1
