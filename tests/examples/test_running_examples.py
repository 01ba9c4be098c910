"""Every example runs to its end on its own, leaves nothing behind, and says something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES_FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(EXAMPLES_FOLDER.glob("*.py"))
PROMISED = {"batch_job", "fastapi_app", "hierarchy_budget", "llm_streaming", "worker_pool_sqlite"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env={**os.environ, **home, "ZAEL_URL": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.strip()
    assert list(tmp_path.iterdir()) == []


def test_the_promised_examples_are_there() -> None:
    assert {example.stem for example in EXAMPLES} >= PROMISED


def test_every_example_is_listed_with_the_others() -> None:
    listed = (EXAMPLES_FOLDER / "README.md").read_text(encoding="utf-8")
    assert [example.name for example in EXAMPLES if f"({example.name})" not in listed] == []
