"""MiniStack, the AWS of the local cloud: found, or installed into a virtual environment of its own.

It cannot live in the environment of your program, because it pins libraries that your program may have in other
versions. The installation is done when its stamp is written; one that was interrupted is deleted and repeated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.local_data import delete, is_marked, write_marker
from zae_limiter.infra.local_home import HOME_VARIABLE, Home

REQUIREMENT = "ministack>=1.5.33,<1.6"
PROGRAM_VARIABLE = "ZAEL_MINISTACK"
"""Names an installed ``ministack`` command."""

INSTALL_SECONDS = 600.0
LINES_SHOWN = 5

Say = Callable[[str], None]
Run = Callable[[Sequence[str]], None]


class Engine(NamedTuple):
    """Where MiniStack is, or would be."""

    program: Path
    installed: bool


def find_engine(home: Home, named: str | None = None) -> Engine:
    """The MiniStack to use: the one that was named, else the one of this folder."""
    named = named or os.environ.get(PROGRAM_VARIABLE)
    if named:
        program = Path(shutil.which(named) or named)
        if not (program.is_file() and os.access(program, os.X_OK)):
            raise StackOperationError(f"{named} is not a program that can be run")
        return Engine(program.absolute(), installed=True)
    program = home.engine / "bin" / "ministack"
    return Engine(program, installed=program.is_file() and _stamped(home) == REQUIREMENT)


def install_engine(home: Home, say: Say, run: Run | None = None) -> None:
    """Install MiniStack into the folder's environment. ``say`` is told before, because it takes a while.

    Raises ``StackOperationError`` with what pip said.
    """
    say(f"installing {REQUIREMENT}, a local AWS, into {home.engine}; only this once")
    run = run or _run
    if home.engine.is_symlink() or (home.engine.exists() and not _is_ours(home)):
        raise StackOperationError(
            f"{home.engine} is there already, and zae-limiter did not make it; {HOME_VARIABLE} names another folder"
        )
    if home.engine.exists():
        delete(home.folder, (home.engine.name,))
    write_marker(home.engine, "zae-limiter installs MiniStack here, and deletes it to install it again.\n")
    run([sys.executable, "-m", "venv", str(home.engine)])
    python = str(home.engine / "bin" / "python")
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT])
    _stamp(home).write_text(REQUIREMENT, encoding="utf-8")


def _run(words: Sequence[str]) -> None:
    try:
        ended = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(str(error)) from error
    if ended.returncode:
        raise _failed((ended.stderr or ended.stdout).strip())


def _failed(said: str) -> StackOperationError:
    last = "\n  ".join(said.splitlines()[-LINES_SHOWN:])
    return StackOperationError(
        f"MiniStack could not be installed:\n  {last}\n"
        f"If this machine cannot reach PyPI, install '{REQUIREMENT}' by other means, and name its command "
        f"with --ministack or {PROGRAM_VARIABLE}"
    )


def _is_ours(home: Home) -> bool:
    return is_marked(home.engine) or (_stamped(home) or "").startswith("ministack") or not any(home.engine.iterdir())


def _stamp(home: Home) -> Path:
    return home.engine / "installed"


def _stamped(home: Home) -> str | None:
    try:
        return _stamp(home).read_text(encoding="utf-8")
    except OSError:
        return None
