"""The benchmarks of the report are run so that one loses nothing of the others, and none leaves a process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

LEAVES_ONE_BEHIND = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[0] + ".part", "w").write(str(child.pid))
os.rename(sys.argv[0] + ".part", sys.argv[0] + ".child")
{then}
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module that runs them, with benchmarks of our own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import report_steps

    monkeypatch.setattr(report_steps, "HERE", tmp_path)
    (tmp_path / "fine.py").write_text("print('fine')")
    (tmp_path / "fails.py").write_text(LEAVES_ONE_BEHIND.format(then="sys.exit('broken')"))
    (tmp_path / "hangs.py").write_text(LEAVES_ONE_BEHIND.format(then="time.sleep(60)"))
    yield report_steps
    del sys.modules["report_steps"]


def child_of(script: Path) -> int:
    return int(script.with_name(script.name + ".child").read_text())


def is_gone(pid: int) -> bool:
    """Whether it ends, even if no parent waits for it: a process that was killed is there for a moment yet."""
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def interrupt_when(exists: Path) -> None:
    give_up = time.monotonic() + 20
    while not exists.exists() and time.monotonic() < give_up:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("timed", [True, False])
def test_one_that_fails_is_named_and_the_others_run(steps: Any, tmp_path: Path, timed: bool) -> None:
    told: dict[str, Any] = {}
    asked = [steps.Step("fails", timed=timed), steps.Step("fine", timed=timed)]
    steps.run_all(asked, told.__setitem__)
    assert told["fails"]["failed"] == "broken"
    assert "failed" not in told["fine"]
    assert is_gone(child_of(tmp_path / "fails.py"))


@pytest.mark.parametrize("timed", [True, False])
def test_an_interrupt_ends_what_was_started(steps: Any, tmp_path: Path, timed: bool) -> None:
    waiting = threading.Thread(target=interrupt_when, args=(tmp_path / "hangs.py.child",))
    waiting.start()
    with pytest.raises(KeyboardInterrupt):
        steps.run_all([steps.Step("hangs", timed=timed)], lambda name, outcome: None)
    waiting.join()
    assert is_gone(child_of(tmp_path / "hangs.py"))


@pytest.mark.parametrize("parsed", [True, False])
def test_the_canned_client_grants_to_an_entity_that_it_never_met(parsed: bool) -> None:
    """What the benchmarks of growth and of memory stand on: their answers are buckets that the client accepts."""
    ask = f"""
from canned import RESOURCE, canned_limiter
from zae_limiter import Limit
limiter = canned_limiter([Limit.per_day("rpm", 10**6)], parsed={parsed})
for _ in range(2):
    with limiter.acquire("a-stranger", RESOURCE, {{"rpm": 1}}) as lease:
        print(lease.statuses[0].entity_id)
"""
    ran = subprocess.run([sys.executable, "-c", ask], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert (ran.stdout.split(), ran.stderr) == (["a-stranger"] * 2, "")


def test_the_client_whose_writes_go_elsewhere_takes_and_settles() -> None:
    """What the benchmark of DynamoDB's client stands on: its transport is asked as ours are, in both worlds."""
    ask = """
from canned import Canned
from dynamodb import Split
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
wire = Canned()
limiter = SyncRateLimiter(SyncRepository(DynamoStore("canned", Target("us-east-1"), transport=Split(wire, wire))))
limiter.repository._driver.run(limiter.repository._core.store.create(0))
limiter.set_system_defaults([Limit.per_day("rpm", 10)])
limiter.create_entity("parent")
limiter.create_entity("child", parent_id="parent", cascade=True)
with limiter.acquire("child", "gpt-4", {"rpm": 5}) as lease:
    lease.settle(rpm=3)
print(limiter.available("child", "gpt-4"), limiter.available("parent", "gpt-4"))
"""
    ran = subprocess.run([sys.executable, "-c", ask], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("{'rpm': 7} {'rpm': 7}\n", "")
