"""MiniStack in the background: started so that it outlives the command, and ended only if it is the one we started."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.local_data import OBJECTS, STATE, claim_data
from zae_limiter.infra.local_home import Home, Running

HOST = "127.0.0.1"
HEALTH = "/_ministack/health"
START_SECONDS = 60.0
STOP_SECONDS = 20.0
"""It writes its data to disk before it ends."""

LINES_SHOWN = 15

_LAUNCHER = """
import subprocess, sys
log = open(sys.argv[1], "ab")
started = subprocess.Popen(
    sys.argv[2:], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
)
print(started.pid, flush=True)
import os; os._exit(0)
"""
"""Starts the server and ends, so that the server is no child of the command."""


def start_time_of(pid: int) -> str | None:
    """When a process began, as the system tells it; nothing if there is none, or it has ended."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    words = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    told = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False).stdout
    state, _, began = told.strip().partition(" ")
    return None if not began or state.startswith("Z") else began.strip()


def is_same_process(running: Running) -> bool:
    """Whether the process that a state file names is still that process."""
    return start_time_of(running.pid) == running.birth


def is_free(port: int) -> bool:
    """Whether a port of this machine is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def any_free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def environment(home: Home, port: int, region: str, data: Path) -> Mapping[str, str]:
    """The environment of MiniStack: loopback only, no Docker, no other listeners, data in its folder."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home.scratch),
        "TMPDIR": str(home.scratch),
        "BIND_HOST": HOST,
        "GATEWAY_PORT": str(port),
        "MINISTACK_REGION": region,
        "LOG_LEVEL": "INFO",
        "DOCKER_HOST": "unix:///nowhere",
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "PERSIST_STATE": "1",
        "STATE_DIR": str(data / STATE),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(data / OBJECTS),
    }


def start(home: Home, program: Path, port: int, region: str, data: Path) -> Running:
    """Start it in the background, and return when it answers. Raises ``StackOperationError`` with what it printed."""
    claim_data(data)
    home.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.log.write_bytes(b"")
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(home.log), str(program)]
    launched = subprocess.run(
        launcher,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=dict(environment(home, port, region, data)),
        cwd=home.folder,
        check=False,
    )
    if launched.returncode:
        last = launched.stderr.strip().rpartition("\n")[2]
        raise StackOperationError(f"MiniStack could not be started: {last}")
    pid = int(launched.stdout)
    running = Running(pid, start_time_of(pid) or "ended", port, region, str(data))
    home.write(running)
    try:
        _wait_until_it_answers(home, running)
    except BaseException:
        stop(home, running)
        raise
    return running


def _wait_until_it_answers(home: Home, running: Running) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at:
        if not is_same_process(running):
            printed = tail(home.log, LINES_SHOWN)
            if "in use" in printed:
                raise port_taken(running.port)
            raise StackOperationError(f"MiniStack ended at once. It printed:\n{printed}")
        if answers(running.port):
            return
        time.sleep(0.05)
    raise StackOperationError(f"MiniStack does not answer. It printed:\n{tail(home.log, LINES_SHOWN)}")


def port_taken(port: int) -> StackOperationError:
    """The error for a port that another program listens on."""
    return StackOperationError(
        f"port {port} of this machine is taken by another program; choose another with --port, or any with --port 0"
    )


def answers(port: int) -> bool:
    """Whether a MiniStack answers there."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", HEALTH)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def stop(home: Home, running: Running) -> None:
    """End it, first with SIGTERM and then with SIGKILL, if it is still the same process."""
    for how, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        if is_same_process(running):
            with suppress(ProcessLookupError):
                os.kill(running.pid, how)
        give_up_at = time.monotonic() + seconds
        while is_same_process(running) and time.monotonic() < give_up_at:
            time.sleep(0.02)
    if is_same_process(running):
        raise StackOperationError(
            f"MiniStack, process {running.pid}, does not end; end it by hand: kill -9 {running.pid}"
        )
    home.forget()


def tail(log: Path, lines: int) -> str:
    """The last lines of a log."""
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
