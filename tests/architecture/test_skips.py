"""A test that is skipped fails where CI is set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.no_skips_in_ci import NEEDS_ROOT

TESTS = Path(__file__).parents[1]

SKIPS = {
    "a call": "def test_it():\n    pytest.skip('there is no engine')",
    "a mark": "@pytest.mark.skipif(True, reason='there is no engine')\ndef test_it(): pass",
    "a fixture": "@pytest.fixture\ndef engine(): pytest.skip('there is no engine')\ndef test_it(engine): pass",
    "an import": "def test_it():\n    pytest.importorskip('no_such_module', reason='there is no engine')",
}


def outcome(tmp_path: Path, source: str, *, ci: bool) -> str:
    """The last line of a run of one test."""
    (tmp_path / "test_one.py").write_text(f"import pytest\n\n{source}\n")
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "support.no_skips_in_ci",
            "-p",
            "no:cacheprovider",
            "test_one.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "CI": "1" if ci else "", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return finished.stdout.splitlines()[-1]


@pytest.mark.parametrize("skip", SKIPS)
def test_a_skip_is_a_failure_in_ci_only(skip: str, tmp_path: Path) -> None:
    assert "1 skipped" in outcome(tmp_path, SKIPS[skip], ci=False)
    told = outcome(tmp_path, SKIPS[skip], ci=True)
    assert "1 failed" in told or "1 error" in told


def test_what_a_runner_may_refuse_is_skipped_in_ci_too(tmp_path: Path) -> None:
    assert "1 skipped" in outcome(tmp_path, f"def test_it():\n    pytest.skip({NEEDS_ROOT!r})", ci=True)


def test_a_test_that_passes_still_does(tmp_path: Path) -> None:
    assert "1 passed" in outcome(tmp_path, "def test_it(): pass", ci=True)
