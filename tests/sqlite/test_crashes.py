"""Workers are killed at random while others go on: nothing minted, nothing half written, no worker stuck."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 400
SECONDS = 15


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks on this platform")
def test_workers_that_are_killed_at_random_leave_a_file_that_agrees_with_what_they_were_told() -> None:
    """In a process of its own, which forks before it opens anything. ``make soak`` kills thousands."""
    harness = Path(__file__).with_name("crash_harness.py")
    done = subprocess.run(
        [sys.executable, str(harness), f"--kills={KILLS}", f"--seconds={SECONDS}", "--seed=2026"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] > KILLS / 10
    assert report["calls that ended"] > report["kills"]
