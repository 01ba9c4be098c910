"""Starting and stopping the engines, so that nothing of them is left behind, however the test run ends.

An engine gets a free port of 127.0.0.1 and a home of its own under the temporary folder, where its output goes
too. It ends with :meth:`Engine.stop`, with the interpreter, and on Linux also when the test run is killed: the
kernel is asked to kill it with the thread that started it, which therefore has to be a long-lived one.
"""

from __future__ import annotations

import atexit
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2] / ".engines"
HOST = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 5.0
PORTS_TRIED = 3

LAUNCHER = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes the engine; unlike a function run between fork and exec, this is safe beside threads."""


class EngineFailed(Exception):
    """An engine did not start. The message has what it printed."""


class Engine:
    """One server that speaks DynamoDB's protocol."""

    def __init__(
        self,
        name: str,
        program: Path,
        arguments: Callable[[int], Sequence[str]],
        environment: Callable[[int], Mapping[str, str]] = lambda port: {},
    ) -> None:
        self.name = name
        self.region = "us-east-1"
        self.port = 0
        self._program = program
        self._arguments = arguments
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._home: Path | None = None

    def __repr__(self) -> str:
        return f"<{self.name} at {self.endpoint_url}>" if self.port else f"<{self.name}, not started>"

    @property
    def endpoint_url(self) -> str:
        """Where it answers."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        if self._process is None:
            raise EngineFailed(f"{self.name} is not running")
        return self._process.pid

    def why_not_here(self) -> str | None:
        """Why it cannot be started, or nothing."""
        if self._program.exists():
            return None
        return f"{self.name} is not installed; run: make setup"

    def start(self) -> None:
        """Start it and wait until it answers. Raises :class:`EngineFailed` with its output."""
        if self._process is not None:
            return
        for _ in range(PORTS_TRIED):
            if self._try_to_start(_free_port()):
                return
        raise EngineFailed(f"{self.name} found no free port")

    def stop(self) -> None:
        """End it, gently and then by force, and remove what it wrote. In a forked child: nothing."""
        process, home = self._process, self._home
        if process is None or os.getpid() != self._owner:
            return
        self._process = self._home = None
        atexit.unregister(self.stop)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
        if home is not None:
            shutil.rmtree(home, ignore_errors=True)

    def output(self) -> str:
        """What it has printed."""
        return (self._home / "output").read_text(errors="replace") if self._home else ""

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _try_to_start(self, port: int) -> bool:
        """Whether it runs; false when it lost its port to another process."""
        self.port = port
        self._owner = os.getpid()
        self._home = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._home),
            "TMPDIR": str(self._home),
            **self._environment(port),
        }
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(self._owner)]
        with (self._home / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*launcher, str(self._program), *self._arguments(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._home,
            )
        atexit.register(self.stop)
        give_up_at = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up_at:
            if self._process.poll() is not None:
                break
            if self._answers():
                return True
            time.sleep(0.02)
        code, printed = self._process.poll(), self.output()
        self.stop()
        if code is not None and "in use" in printed:
            return False
        state = "did not answer in time" if code is None else f"ended with {code}"
        raise EngineFailed(f"{self.name} {state}. It printed:\n{printed}")

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": "DynamoDB_20120810.ListTables",
            "X-Amz-Date": "20200101T000000Z",
            "Authorization": f"AWS4-HMAC-SHA256 Credential=local/20200101/{self.region}/dynamodb/aws4_request, "
            "SignedHeaders=host, Signature=00",
        }
        try:
            connection.request("POST", "/", b"{}", headers)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def ministack_engine() -> Engine:
    """MiniStack, without the parts of it that would leave this machine's loopback or ask for Docker."""
    return Engine(
        "ministack",
        ROOT / "ministack" / "bin" / "ministack",
        lambda port: (),
        lambda port: {
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(port),
            "LOG_LEVEL": "WARNING",
            "DOCKER_HOST": "unix:///nowhere",
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
        },
    )


def dynoxide_engine() -> Engine:
    """dynoxide, in memory."""
    return Engine(
        "dynoxide",
        ROOT / "node" / "node_modules" / "@dynoxide" / "linux-x64" / "dynoxide",
        lambda port: ("serve", "--host", HOST, "--port", str(port)),
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
