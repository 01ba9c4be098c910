"""The page about limits as code shows what the commands really print.

Its ``yaml`` blocks are files, named in their first line; its ``shell-session`` blocks are played in order, on a store
of their own. ``UPDATE_GOLDEN=1`` writes the answers anew.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from manifest_shell import Answer, shell

__all__ = ["shell"]

PAGE = Path(__file__).parents[2] / "docs" / "limits-as-code.md"
BLOCK = re.compile(r"```(yaml|shell-session)\n(.*?)```", re.DOTALL)
MOMENT = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC")


def played(kind: str, block: str, folder: Path, run: Callable[..., Answer]) -> str:
    """A block with what its commands print now."""
    if kind == "yaml":
        name = block.partition("\n")[0].removeprefix("# ")
        (folder / name).write_text(block)
        return block
    shown: list[str] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert program == "zae-limiter"
            answer = run(*arguments)
            assert "Traceback" not in answer.stderr
            shown += ["", line, *(answer.stdout + answer.stderr).splitlines()]
    return MOMENT.sub("2026-01-05 10:00 UTC", "\n".join(shown[1:])) + "\n"


def test_every_command_prints_what_the_page_shows(shell: Callable[..., Answer], tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    anew = BLOCK.sub(lambda block: f"```{block[1]}\n{played(block[1], block[2], tmp_path, shell)}```", page)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(anew, encoding="utf-8")
    assert anew == page or os.environ.get("UPDATE_GOLDEN")
