"""The folder of the local cloud on this machine, and the state file of the one that runs.

Everything is in one folder: MiniStack in a virtual environment of its own, its data, its log, and a state file that
names the process. A command that starts or ends it holds the lock of the folder meanwhile, so two commands take turns.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from zae_limiter.exceptions import StackOperationError

HOME_VARIABLE = "ZAEL_LOCAL_HOME"
"""Names another folder; tests use it, so that nothing of yours is touched."""

LOCK_SECONDS = 900.0
"""How long to wait for another command, which may be installing."""


class Running(NamedTuple):
    """What the state file says: a process, and how to reach it."""

    pid: int
    birth: str
    """When the process began, as the system tells it: another process of the same number began at another time."""
    port: int
    region: str
    data: str

    @property
    def endpoint_url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"


class Home:
    """One folder, one local cloud."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = folder / "engine"
        self.log = folder / "ministack.log"
        self.data = folder / "data"
        self.scratch = folder / "tmp"
        self._state = folder / "state.json"

    def read(self) -> Running | None:
        """What the state file says; nothing, if there is none or it makes no sense."""
        try:
            fields: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
            return Running(**{name: kind(fields[name]) for name, kind in _FIELDS.items()})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, running: Running) -> None:
        """Remember a process."""
        half = self._state.with_suffix(".new")
        half.write_text(json.dumps(running._asdict(), indent=2), encoding="utf-8")
        half.replace(self._state)

    def forget(self) -> None:
        """There is no process any more."""
        self._state.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the folder. Raises ``StackOperationError`` if another process does not release it."""
        try:
            import fcntl
        except ImportError:
            raise StackOperationError("the local cloud runs on Linux and macOS only") from None
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StackOperationError(
                f"cannot write to {self.folder}: {error}; {HOME_VARIABLE} names another"
            ) from error
        try:
            give_up_at = time.monotonic() + LOCK_SECONDS
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > give_up_at:
                    raise StackOperationError(f"another zae-limiter local command is still running in {self.folder}")
                time.sleep(0.05)
            yield
        finally:
            os.close(lock)


_FIELDS = {"pid": int, "birth": str, "port": int, "region": str, "data": str}


def home() -> Home:
    """The folder that the environment names, or the one in this user's data folder."""
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Home(Path(named).expanduser().absolute())
    from platformdirs import user_data_path

    return Home(user_data_path("zae-limiter", appauthor=False) / "local-cloud")
