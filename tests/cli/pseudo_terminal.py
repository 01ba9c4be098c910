"""The installed command on a real terminal: a pseudo-terminal of its own, with a size, keys and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

COMMAND = str(Path(sys.executable).parent / "zae-limiter")
CTRL_C, CTRL_D = b"\x03", b"\x04"
PATIENCE_S = 30.0

_TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes the command, as the foreground program of its terminal."""


class Terminal:
    """A command on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.shown = ""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def wait_for(self, text: str) -> None:
        """Look until something is shown."""
        give_up_at = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < give_up_at, f"{text!r} did not appear in {self.shown!r}"
            if not self._look():
                break
        assert text in self.shown, self.shown

    def end(self) -> int:
        """Look until it ends; its exit code."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self._look() and time.monotonic() < give_up_at:
            pass
        return self.process.wait(PATIENCE_S)

    def _look(self) -> bool:
        """Whether there may be more to see."""
        if not select.select([self._master], [], [], 0.1)[0]:
            return self.process.poll() is None
        try:
            seen = os.read(self._master, 65_536)
        except OSError:  # what Linux says when the other end is closed
            return False
        self.shown += seen.decode(errors="replace")
        return bool(seen)


@contextmanager
def terminal(*words: str, columns: int = 80, environment: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """Start a command on a terminal; it is gone afterwards."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_THE_TERMINAL, *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**kept, "TERM": "xterm-256color", **(environment or {})},
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)
        os.close(master)
