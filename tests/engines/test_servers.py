"""The engines start, answer, and leave nothing behind, however the test run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engines.servers import Engine, EngineFailed, dynoxide_engine, ministack_engine

SLOW_TO_END_SECONDS = 10.0


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_an_engine_runs_and_says_where(engine: Engine) -> None:
    assert engine.endpoint_url.startswith("http://127.0.0.1:")
    os.kill(engine.pid, 0)


def test_an_engine_that_ends_at_once_shows_what_it_printed() -> None:
    broken = Engine("broken", Path("/bin/sh"), lambda port: ("-c", "echo no disk; exit 7"))
    with pytest.raises(EngineFailed, match=r"(?s)broken ended with 7.*no disk"):
        broken.start()


def test_an_engine_that_loses_its_port_tries_others() -> None:
    unlucky = Engine("unlucky", Path("/bin/sh"), lambda port: ("-c", f"echo {port} in use; exit 1"))
    with pytest.raises(EngineFailed, match="no free port"):
        unlucky.start()


def test_a_stopped_engine_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for engine in (ministack_engine(), dynoxide_engine()):
        if engine.why_not_here():
            continue
        with engine:
            pid = engine.pid
            assert list(tmp_path.iterdir()) != []
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(tmp_path.iterdir()) == []


STARTING = """
import os, signal, sys
from engines.servers import ministack_engine
engine = ministack_engine()
engine.start()
print(engine.pid, flush=True)
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.usefixtures("ministack")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_an_engine_does_not_outlive_a_killed_test_run(how: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", STARTING, how]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert finished.returncode == -getattr(signal, how), finished.stderr
    pid = int(finished.stdout)
    give_up_at = time.monotonic() + SLOW_TO_END_SECONDS
    while is_running(pid) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    assert not is_running(pid)
