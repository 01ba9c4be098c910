"""Another program that holds the file's write lock for as long as a test wants."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


class Hold:
    """The lock, held."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def let_go(self) -> None:
        """Hold it no longer."""
        assert self._process.stdin is not None
        self._process.stdin.close()


@contextmanager
def write_lock_held(path: Path) -> Iterator[Hold]:
    """Another process is inside a writing transaction, until it is told or the block ends."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        hold = Hold(process)
        try:
            yield hold
        finally:
            hold.let_go()
