"""The log ends anywhere, as after a power cut: what is there is a moment of the past, whole in every leg."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import PATIENCE_S
from support.sqlite_files import SIDE_FILES, buckets_in, check_conservation, check_integrity
from zae_limiter import Limit, SyncRateLimiter

CUTS = 40
KEYS = 3
MIDDLE = 100
"""So many buckets lie between those of the keys and that of their parent: they are on different pages."""

WORK = """
import sys
from zae_limiter import SyncRateLimiter

limiter = SyncRateLimiter.open(sys.argv[1])
number = 0
while True:
    number += 1
    with limiter.acquire(f"key-{number % 3}", "gpt", {"rpd": 1, "tpd": 10}) as lease:
        lease.settle(tpd=number % 20)
    if number == 20:
        print("begun", flush=True)
"""


def events_in(path: Path) -> int:
    """Open what is left; it must be in order, and whole. How many grants it knows of."""
    buckets = buckets_in(path)
    check_integrity(path)
    for bucket in buckets.values():
        check_conservation(bucket)
    org = buckets["org", "gpt"]
    keys = [buckets[f"key-{place}", "gpt"] for place in range(KEYS)]
    for place, balance in enumerate(org.balances):
        assert balance.tc == sum(key.balances[place].tc for key in keys)
    assert org.events == sum(key.events for key in keys) == org.balances[0].tc // 1_000
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        for entity_id in ("org", *(f"key-{place}" for place in range(KEYS))):
            usage = limiter.get_usage_summary(entity_id, "gpt")
            (status,) = limiter.get_status(entity_id).buckets
            assert usage.total_events == status.total_events
            assert usage.total == {level.limit_name: level.total_consumed for level in status.limits}
    return org.events


@pytest.fixture(scope="module")
def cut_short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file and its log as they were in the midst of the work, never checkpointed since it began."""
    folder = tmp_path_factory.mktemp("power")
    path = folder / "limits.db"
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        limiter.set_system_defaults([Limit.custom(name, 10**9, 1, 86_400) for name in ("rpd", "tpd")])
        limiter.create_entity("org")
        for number in range(MIDDLE):
            with limiter.acquire(f"middle-{number}", "gpt", {"rpd": 1, "tpd": 10}):
                pass
        for place in range(KEYS):
            limiter.create_entity(f"key-{place}", parent_id="org", cascade=True)
            with limiter.acquire(f"key-{place}", "gpt", {"rpd": 1, "tpd": 10}):
                pass
    work = subprocess.Popen([sys.executable, "-c", WORK, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True)
    with work:
        assert work.stdout is not None
        assert work.stdout.readline() == "begun\n"
        time.sleep(0.1)
        work.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, work.pid, os.WSTOPPED | os.WNOWAIT)
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", folder / f"cut.db{end}")
        work.kill()
        work.wait(PATIENCE_S)
    return folder / "cut.db"


def with_log(file: Path, log: bytes, folder: Path) -> Path:
    """A copy of the file with such a log beside it."""
    path = folder / "copy.db"
    for end in SIDE_FILES:
        Path(f"{path}{end}").unlink(missing_ok=True)
    shutil.copy(file, path)
    Path(f"{path}-wal").write_bytes(log)
    return path


def never_written(log: bytes, at: int, chance: random.Random) -> bytes:
    """The file has its length, but its end never reached the disk."""
    return log[:at] + bytes(len(log) - at)


def written_elsewhere(log: bytes, at: int, chance: random.Random) -> bytes:
    """The end holds what was on the disk before."""
    return log[:at] + chance.randbytes(len(log) - at)


def one_sector_lost(log: bytes, at: int, chance: random.Random) -> bytes:
    """The disk wrote out of order."""
    start = at - at % 512
    return log[:start] + bytes(min(512, len(log) - start)) + log[start + 512 :]


def test_a_log_that_ends_anywhere_leaves_a_moment_of_the_past(cut_short: Path, tmp_path: Path) -> None:
    log = Path(f"{cut_short}-wal").read_bytes()
    chance = random.Random(1)
    before = 0
    for at in (0, *sorted(chance.randrange(len(log)) for _ in range(CUTS)), len(log)):
        events = events_in(with_log(cut_short, log[:at], tmp_path))
        assert events >= before, "with more of the log, more of the past must be there"
        before = events
    assert before > 3 * KEYS


@pytest.mark.parametrize("loss", [never_written, written_elsewhere, one_sector_lost])
def test_whatever_else_becomes_of_the_log_nothing_before_the_loss_is_lost(
    cut_short: Path, tmp_path: Path, loss: Callable[[bytes, int, random.Random], bytes]
) -> None:
    log = Path(f"{cut_short}-wal").read_bytes()
    chance = random.Random(loss.__name__)
    everything = events_in(with_log(cut_short, log, tmp_path))
    for _ in range(CUTS // 2):
        at = chance.randrange(len(log))
        least = events_in(with_log(cut_short, log[: at - at % 512], tmp_path))
        assert least <= events_in(with_log(cut_short, loss(log, at, chance), tmp_path)) <= everything
