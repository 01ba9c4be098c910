"""A command run under a lease: its signals, its exit code, and the usage it reports.

The command is a child in the same process group, so a Ctrl-C at the terminal reaches it directly; any other signal to
this process is forwarded. This process ends when the command has ended, with its exit code (128 plus the number of the
signal that killed it). Before the command runs, a signal interrupts the acquire, and what was taken is given back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from zae_limiter import ValidationError
from zae_limiter.cli.argument_parsers import parse_amounts

SETTLE_VARIABLE = "ZAEL_SETTLE"
"""Names the file to which the command may write what it really used, as lines ``name=amount``."""

MAX_SETTLE_CHARACTERS = 65_536
"""Characters of that file that are read."""

KILLED_BY_SIGNAL = 128
NOT_FOUND, NOT_EXECUTABLE = 127, 126

FORWARDED_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
KEYBOARD_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name))


class StoppedBySignal(KeyboardInterrupt):
    """A signal came before the command ran. ``exit_code`` is the one for the shell."""

    def __init__(self, number: int) -> None:
        self.exit_code = KILLED_BY_SIGNAL + number
        super().__init__(number)


class CommandFailed(Exception):
    """The command ended with another code than 0, or did not start."""

    def __init__(self, code: int, reason: str | None = None) -> None:
        self.code = code
        self.reason = reason
        super().__init__(code)


class LeasedCommand:
    """One command, from before it starts until it has ended."""

    def __init__(self, words: Sequence[str]) -> None:
        self._command = list(words)
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = False
        self._early: list[int] = []

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle signals: raise :class:`StoppedBySignal` before the command runs, pass them on while it does."""
        before = {number: signal.signal(number, self._handle) for number in FORWARDED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, environment: Mapping[str, str]) -> None:
        """Run the command to its end. Raises :class:`CommandFailed`."""
        self._starting = True
        try:
            self._process = subprocess.Popen(self._command, env={**os.environ, **environment})
        except FileNotFoundError as error:
            raise CommandFailed(NOT_FOUND, f"cannot run {self._command[0]!r}: {error.strerror}") from error
        except (OSError, ValueError) as error:
            raise CommandFailed(NOT_EXECUTABLE, f"cannot run {self._command[0]!r}: {error}") from error
        finally:
            self._starting = False
            for number in self._early:
                self._handle(number, None)
        code = self._process.wait()
        if code:
            raise CommandFailed(code if code > 0 else KILLED_BY_SIGNAL - code)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._process is not None:
            if not (number in KEYBOARD_SIGNALS and is_foreground()):
                self._process.send_signal(number)
        elif self._starting:
            self._early.append(number)
        else:
            raise StoppedBySignal(number)


def is_foreground() -> bool:
    """Whether signals from the keyboard go to the whole process group, and so to the command too."""
    if not hasattr(os, "tcgetpgrp"):  # on Windows a console's Ctrl-C goes to every process in it
        return True
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None and os.tcgetpgrp(stream.fileno()) == os.getpgrp():
                return True
        except (OSError, ValueError):
            continue
    return False


@contextmanager
def settle_file() -> Iterator[Path]:
    """An empty file to which the command may write what it really used."""
    with TemporaryDirectory(prefix="zae-limiter-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "settle"
        path.touch(mode=0o600)
        yield path


def settled_amounts(path: Path) -> dict[str, int]:
    """What the command wrote to the file. Raises ``ValidationError``."""
    try:
        with path.open(encoding="utf-8") as file:
            lines = file.read(MAX_SETTLE_CHARACTERS).split()
    except (OSError, UnicodeDecodeError) as error:
        raise ValidationError(SETTLE_VARIABLE, str(path), f"cannot be read: {error}") from None
    return parse_amounts(lines)
