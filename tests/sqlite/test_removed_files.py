"""The file disappears while processes use it: soon all of them are on a new one together."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from looking_inside import SIDE_FILES, buckets_in, check_integrity
from together import together

from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter

LIMITS = [Limit.per_day("rpd", 10**6)]
BEFORE_S, AFTER_S = 0.3, 1.2
"""How long the processes go on before and after the file is gone. The second half of "after" must be clean."""


def go_on(url: str, entity_id: str) -> tuple[int, int, int]:
    """Acquire all the time. How often it failed late, what was granted late, and what is counted in the end."""
    granted = failures = 0
    begun = time.monotonic()
    late = begun + BEFORE_S + AFTER_S / 2
    with SyncRateLimiter.open(url) as limiter:
        while (now := time.monotonic()) < begun + BEFORE_S + AFTER_S:
            try:
                with limiter.acquire(entity_id, "gpt", {"rpd": 1}, limits=LIMITS):
                    granted += now > late
            except RateLimiterUnavailable:
                failures += now > late
            time.sleep(0.002)
        (bucket,) = limiter.get_status(entity_id).buckets
        return failures, granted, bucket.total_events


def remove_the_file(path: Path) -> None:
    path.unlink()


def remove_every_file(path: Path) -> None:
    for end in ("", *SIDE_FILES):
        Path(f"{path}{end}").unlink()


def remove_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("happens", [remove_the_file, remove_every_file, remove_the_folder])
def test_all_processes_soon_agree_on_the_file_that_is_there(tmp_path: Path, happens: Callable[[Path], None]) -> None:
    folder = tmp_path / "data"
    path = folder / "limits.db"
    folder.mkdir()
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        limiter.create_entity("of-today")
    inode = path.stat().st_ino

    def in_the_midst() -> None:
        time.sleep(BEFORE_S)
        happens(path)

    answers = together(go_on, [(f"sqlite:///{path}", f"key-{place}") for place in range(3)], meanwhile=in_the_midst)
    assert path.stat().st_ino != inode
    counted = {bucket.entity_id: bucket.events for bucket in buckets_in(path).values()}
    for place, (failures, granted, events) in enumerate(answers):
        assert failures == 0
        assert 0 < granted <= events
        assert counted[f"key-{place}"] == events
    check_integrity(path)
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        entities = [entity.id for entity in limiter.list_entities(limit=1_000).items]
    assert entities == []
