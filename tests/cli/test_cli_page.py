"""The page of the command line shows what commands really print.

Its ``shell-session`` blocks are played in order on a store of their own. ``UPDATE_GOLDEN=1`` writes the answers anew.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from cli_runner import CommandRunner

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"```shell-session\n(.*?)```", re.DOTALL)
WIDTH = 100


def replayed(runner: CommandRunner, block: str) -> str:
    """The commands of a block with what they print now."""
    shown = []
    for line in block.splitlines():
        if line.startswith("$ "):
            shown += ["", line, *answer(runner, shlex.split(line.removeprefix("$ ")))]
    return "\n".join(shown[1:]) + "\n"


def answer(runner: CommandRunner, words: list[str]) -> list[str]:
    """What a command prints; stderr too, as on a terminal."""
    program, *arguments = words
    assert program == "zae-limiter"
    ran = runner.run(*arguments, width=WIDTH)
    return [*ran.out.splitlines(), *ran.err.splitlines()]


def test_every_command_prints_what_the_page_shows(runner: CommandRunner) -> None:
    page = PAGE.read_text(encoding="utf-8")
    played = BLOCK.sub(lambda block: f"```shell-session\n{replayed(runner, block[1])}```", page)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(played, encoding="utf-8")
    assert played == page or os.environ.get("UPDATE_GOLDEN")
