"""The demo from end to end, short and without a terminal."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from zae_limiter.cli.commands.demo import command
from zae_limiter.cli.demo import run

DEMO = [str(Path(sys.executable).parent / "zae-limiter"), "demo"]


def check_summary(output: str) -> None:
    assert "\x1b" not in output
    assert re.search(r"\d+ admitted, \d+ denied, \d+ failed and refunded", output)
    for key in ("key-web", "key-app", "key-noisy", "key-agent", "key-index"):
        assert re.search(rf"^{key} .*━", output, re.MULTILINE)
    assert output.count("✓✓✓") == 22
    assert "✗" not in output
    assert output.count("✓ 22/22 ") == 3
    assert re.search(r"^ +cents +", output, re.MULTILINE)
    assert re.search(r"^ +calls +", output, re.MULTILINE)
    assert output.endswith("Proven: every limit held and every counter is exact.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "memory://", "--workers", "1", "--seed", "1"],
        [],
    ],
    ids=" ".join,
)
def test_a_second_of_it_is_proven(arguments: list[str]) -> None:
    shown = subprocess.run(
        [*DEMO, "--seconds", "1", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    check_summary(shown.stdout)


@pytest.mark.parametrize("url", ["memory://", None])
def test_an_interrupt_ends_it_early_with_the_summary(url: str | None) -> None:
    options = ["--seconds", "60", *(["--url", url] if url else [])]
    process = subprocess.Popen([*DEMO, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("36 callers in 4 ")
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert "stopped after " in output
    check_summary(output)


@pytest.mark.parametrize("url", ["nowhere://x", "memory://x", "not a url"])
def test_a_bad_url_is_one_clear_line(url: str) -> None:
    shown = subprocess.run([*DEMO, "--url", url], capture_output=True, text=True, timeout=30, check=False)
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert re.fullmatch(r"Error: url: .*\n", shown.stderr)


@pytest.mark.parametrize(("proven", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_it_was_proven(proven: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run", lambda settings: proven)
    assert CliRunner().invoke(command, []).exit_code == code
