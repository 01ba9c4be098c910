"""On a terminal: questions, colours, the live picture, a sign of life."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from cli_runner import sqlite_url
from pseudo_terminal import COMMAND, CTRL_C, CTRL_D, terminal

from zae_limiter import Limit, SyncRateLimiter


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in which key-1 has taken something."""
    found = sqlite_url(tmp_path)
    with SyncRateLimiter.open(found) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 100), Limit.per_day("tpd", 100)])
        limiter.create_entity("key-1", name="\x1b[31mred\x07 herring")
        with limiter.acquire("key-1", "gpt-4", {"rpd": 10, "tpd": 100}) as lease:
            lease.adjust(tpd=50)
    return found


def left(url: str) -> dict[str, int]:
    with SyncRateLimiter.open(url) as limiter:
        return limiter.available("key-1", "gpt-4")


# Questions


@pytest.mark.parametrize(
    ("keys", "code", "done"),
    [(b"y\n", 0, True), (b"n\n", 1, False), (b"\n", 1, False), (CTRL_D, 1, False), (CTRL_C, 130, False)],
    ids=["yes", "no", "nothing", "ctrl-d", "ctrl-c"],
)
def test_what_destroys_asks_first(url: str, keys: bytes, code: int, done: bool) -> None:
    with terminal(COMMAND, "reset", "key-1", "--url", url) as screen:
        screen.wait_for("again? [y/N]:")
        time.sleep(0.3)  # between the question and the reading of the answer, Python misses a Ctrl-C
        screen.type(keys)
        assert screen.end() == code
    assert "Traceback" not in screen.shown
    assert left(url)["rpd"] == (100 if done else 90)


def test_yes_asks_nothing(url: str) -> None:
    with terminal(COMMAND, "reset", "key-1", "--yes", "--url", url) as screen:
        assert screen.end() == 0
    assert "[y/N]" not in screen.shown


# Colours


def test_debt_is_red(url: str) -> None:
    with terminal(COMMAND, "status", "key-1", "--url", url) as screen:
        assert screen.end() == 0
    assert "\x1b[1;91m◀━" in screen.shown
    assert "\x1b[1;91m -50\x1b[0m" in screen.shown


def test_no_color_means_none(url: str) -> None:
    with terminal(COMMAND, "status", "key-1", "--url", url, environment={"NO_COLOR": "1"}) as screen:
        assert screen.end() == 0
    assert "-50" in screen.shown
    assert "\x1b[3" not in screen.shown
    assert "\x1b[9" not in screen.shown
    assert "91m" not in screen.shown


SEVERAL = "import sys; from zae_limiter.cli.entry import main; print(max(main(line.split()) for line in sys.argv[1:]))"
"""A program that runs lines as the installed command does, one after the other, and ends with the worst exit code."""


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_nothing_is_wider_than_the_terminal(url: str, columns: int) -> None:
    words = ("status key-1", "entity list", "audit list", "usage plot --entity key-1")
    environment = {"NO_COLOR": "1", "ZAEL_URL": url}
    with terminal(sys.executable, "-c", SEVERAL, *words, columns=columns, environment=environment) as screen:
        assert screen.end() == 0
    lines = [
        line.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "") for line in screen.shown.splitlines()
    ]
    assert lines[-1] == "0"
    assert all(any(word in line for line in lines) for word in ("burst", "cascade", "action", "per hour"))
    assert max(map(len, lines)) <= columns


def test_what_others_wrote_does_not_command_the_terminal(url: str) -> None:
    words = ("entity show key-1", "entity list", "entity tree")
    environment = {"NO_COLOR": "1", "ZAEL_URL": url}
    with terminal(sys.executable, "-c", SEVERAL, *words, environment=environment) as screen:
        assert screen.end() == 0
    assert screen.shown.splitlines()[-1] == "0"
    assert "\x1b[31m" not in screen.shown
    assert "\x07" not in screen.shown
    assert screen.shown.count("herring") == len(words)


# Watching


def test_watch_draws_in_place_until_ctrl_c(url: str) -> None:
    with terminal(COMMAND, "watch", "key-1", "--interval", "0.1", "--url", url) as screen:
        screen.wait_for("Ctrl-C ends")
        screen.wait_for("━")
        screen.wait_for("\x1b[1A")  # up again, for the next look
        screen.type(CTRL_C)
        assert screen.end() == 0
    assert "per s" in screen.shown
    assert "Traceback" not in screen.shown
    assert screen.shown.count("\x1b[?25l") == screen.shown.count("\x1b[?25h") == 1, "the cursor is back"


def test_watch_without_names_draws_the_tightest_as_trees(url: str) -> None:
    with terminal(COMMAND, "watch", "--interval", "0.05", "--count", "3", "--url", url) as screen:
        assert screen.end() == 0
    assert "per s" in screen.shown
    assert "gpt-4" in screen.shown
    assert "1 bucket" in screen.shown


def test_watch_ends_by_itself_after_its_count(url: str) -> None:
    with terminal(COMMAND, "watch", "key-1", "nobody", "--interval", "0.05", "--count", "3", "--url", url) as screen:
        assert screen.end() == 0
    assert "no live buckets" in screen.shown


# Waiting


def test_work_that_takes_long_shows_that_it_goes_on() -> None:
    program = """
import time
from itertools import count
from zae_limiter.cli.output.progress import spinner
requests = count(40)
with spinner("purging staging", lambda: next(requests)):
    time.sleep(1.8)
print("done")
"""
    with terminal(sys.executable, "-c", program) as screen:
        assert screen.end() == 0
    assert "purging staging: 4" in screen.shown
    assert "requests to the store" in screen.shown
    assert "done" in screen.shown


def test_work_that_is_quick_shows_nothing(url: str) -> None:
    with terminal(COMMAND, "entity", "delete", "key-1", "--yes", "--url", url) as screen:
        assert screen.end() == 0
    assert screen.shown.split() == ["deleted", "key-1"]
