"""A command under a lease: its exit code, its signals, and what happens to the tokens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from cli_runner import sqlite_url
from pseudo_terminal import COMMAND, CTRL_C, terminal

from zae_limiter import Limit, SyncRateLimiter

COUNT_INTERRUPTS = """
import signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: seen.append(number))
print("ready", flush=True)
give_up_at = time.monotonic() + 20
while not seen and time.monotonic() < give_up_at:
    time.sleep(0.01)
time.sleep(0.3)
print(*map(int, seen), flush=True)
sys.exit(40 + len(seen))
"""
"""A command that survives signals and says which it got."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = sqlite_url(tmp_path)
    with SyncRateLimiter.open(found) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 100), Limit.per_day("tpd", 100)])
    return found


def left(url: str) -> dict[str, int]:
    with SyncRateLimiter.open(url) as limiter:
        return limiter.available("key-1", "gpt-4")


def acquire(url: str, *words: str) -> list[str]:
    return [COMMAND, "acquire", "key-1", "gpt-4", "rpd=10", "--url", url, *words]


def run(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(acquire(url, *words), capture_output=True, text=True, timeout=30, check=False)


def name_of(descriptor: Path) -> str:
    """The file that a descriptor of another process is of; nothing if it has closed it by now."""
    with suppress(FileNotFoundError):
        return os.path.basename(os.readlink(descriptor))
    return ""


def until_it_tries(process: subprocess.Popen[str]) -> None:
    """Wait until the process draws: until then it loads modules, for as long as a busy machine takes."""
    opened = Path(f"/proc/{process.pid}/fd")
    give_up_at = time.monotonic() + 30
    while not any(name_of(file).endswith("-gate") for file in opened.iterdir()):
        assert process.poll() is None
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def start(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


# How it ends


def test_a_command_that_succeeds_keeps_its_tokens_and_has_its_output_for_itself(url: str) -> None:
    ran = run(url, "--", "sh", "-c", "echo out; echo err >&2")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "out\n", "err\n")
    assert left(url)["rpd"] == 90


@pytest.mark.parametrize("code", [1, 2, 69, 75, 255])
def test_a_command_that_fails_gives_back_and_its_code_is_ours(url: str, code: int) -> None:
    assert run(url, "--", "sh", "-c", f"exit {code}").returncode == code
    assert left(url)["rpd"] == 100


def test_keep_keeps_whatever_happens(url: str) -> None:
    assert run(url, "--on-error", "keep", "--", "false").returncode == 1
    assert left(url)["rpd"] == 90


def test_a_command_killed_by_a_signal_is_reported_as_a_shell_does(url: str) -> None:
    assert run(url, "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert left(url)["rpd"] == 100


def test_a_command_that_is_not_there_gives_back(url: str) -> None:
    ran = run(url, "--", "no-such-program")
    assert ran.returncode == 127
    assert "no-such-program" in ran.stderr
    assert left(url)["rpd"] == 100


def test_a_file_that_cannot_be_run_gives_back(url: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no program")
    assert run(url, "--", str(tmp_path / "notes")).returncode == 126
    assert left(url)["rpd"] == 100


def test_a_denied_command_does_not_run(url: str, tmp_path: Path) -> None:
    with SyncRateLimiter.open(url) as limiter, limiter.acquire("key-1", "gpt-4", {"rpd": 95}):
        pass
    ran = run(url, "--", "touch", str(tmp_path / "ran"))
    assert (ran.returncode, ran.stdout) == (75, "")
    assert "rpd of key-1 on gpt-4" in ran.stderr
    assert not (tmp_path / "ran").exists()


def test_options_after_the_dashes_are_the_commands(url: str) -> None:
    ran = run(url, "--", "echo", "--json", "--help", "--", "x")
    assert ran.stdout == "--json --help -- x\n"


def test_words_of_the_command_may_look_like_anything(url: str) -> None:
    assert run(url, "--", sys.executable, "-c", "import sys; sys.exit(len(sys.argv))", "", "a b", "é").returncode == 4


# What was really used


def test_a_command_may_say_what_it_used(url: str) -> None:
    ran = run(url, "tpd=20", "--", "sh", "-c", 'echo tpd=5 >> "$ZAEL_SETTLE"')
    assert (ran.returncode, ran.stderr) == (0, "")
    assert left(url) == {"rpd": 90, "tpd": 95}


def test_what_was_used_survives_a_failure(url: str) -> None:
    ran = run(url, "tpd=20", "--", "sh", "-c", 'echo tpd=130 >> "$ZAEL_SETTLE"; exit 3')
    assert ran.returncode == 3
    assert left(url) == {"rpd": 100, "tpd": -30}


@pytest.mark.parametrize("text", ["tpd=lots", "nonsense", "nope=1", "tpd=1\ntpd=2"])
def test_what_cannot_be_read_is_a_warning_and_the_estimate_stays(url: str, text: str) -> None:
    ran = run(url, "tpd=20", "--", "sh", "-c", f'printf "{text}" > "$ZAEL_SETTLE"')
    assert ran.returncode == 0
    assert ran.stderr.startswith("Warning: not settled: ")
    assert len(ran.stderr.splitlines()) == 1
    assert left(url) == {"rpd": 90, "tpd": 80}


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_us_is_passed_on_once(url: str, number: signal.Signals) -> None:
    process = start(acquire(url, "--", sys.executable, "-c", COUNT_INTERRUPTS))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (41, f"{int(number)}\n", "")
    assert left(url)["rpd"] == 100


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_command_ended_by_a_signal_to_us_gives_back(url: str, number: signal.Signals, code: int) -> None:
    process = start(acquire(url, "--", "sh", "-c", "echo ready; exec sleep 30"))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert left(url)["rpd"] == 90
    process.send_signal(number)
    assert process.wait(30) == code
    assert left(url)["rpd"] == 100
    process.communicate()


def test_ctrl_c_reaches_the_command_once(url: str) -> None:
    with terminal(*acquire(url, "--", sys.executable, "-c", COUNT_INTERRUPTS)) as screen:
        screen.wait_for("ready")
        screen.type(CTRL_C)
        assert screen.end() == 41
    assert left(url)["rpd"] == 100


def test_ctrl_c_ends_an_ordinary_command_and_gives_back(url: str) -> None:
    with terminal(*acquire(url, "--", "sh", "-c", "echo ready; exec sleep 30")) as screen:
        screen.wait_for("ready")
        screen.type(CTRL_C)
        assert screen.end() == 130
    assert "Traceback" not in screen.shown
    assert left(url)["rpd"] == 100


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize(
    ("number", "code", "command"),
    [(signal.SIGTERM, 143, ["--", "true"]), (signal.SIGINT, 130, ["--", "true"]), (signal.SIGINT, 130, [])],
)
def test_an_interrupt_while_waiting_in_the_queue_takes_nothing(
    url: str, number: signal.Signals, code: int, command: list[str]
) -> None:
    with SyncRateLimiter.open(url) as limiter, limiter.acquire("key-1", "gpt-4", {"rpd": 95}):
        pass
    process = start(acquire(url, "--timeout", "86400", *command))
    until_it_tries(process)
    time.sleep(0.3)  # its try is over in a millisecond; that it waits then cannot be seen from outside
    assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.strip()) == (code, "", "")
    assert left(url)["rpd"] == 5


def test_waiting_in_the_queue_ends_when_it_is_the_callers_turn(url: str) -> None:
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_limits("key-1", [Limit.per_second("rpd", 50, burst=50)])
        with limiter.acquire("key-1", "gpt-4", {"rpd": 50}):
            pass
    assert run(url, "--timeout", "10", "--", "true").returncode == 0


# While the store does not answer


@pytest.mark.parametrize("policy", ["allow", "block"])
def test_an_unavailable_store_lets_through_only_if_told_so(policy: str, tmp_path: Path) -> None:
    url = "dynamodb://xyz?region=us-east-1&endpoint_url=http://127.0.0.1:9"
    words = ["--on-unavailable", policy, "--", "touch", str(tmp_path / "ran")]
    ran = run(url, *words)
    assert (ran.returncode, (tmp_path / "ran").exists()) == ((0, True) if policy == "allow" else (69, False))
    assert ("without being counted" in ran.stderr) == (policy == "allow")
    assert os.environ.get("ZAEL_SETTLE") is None
