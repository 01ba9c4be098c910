"""The service as processes of their own, as an operator starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

PATIENCE_S = 60.0


class ServiceProcess:
    """One replica."""

    def __init__(self, *options: str) -> None:
        words = [sys.executable, "-m", "zae_limiter", "serve", "--bind", "127.0.0.1:0", *options]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "ZAEL_URL": ""}
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        found = re.search(r"http://\S+", line)
        assert found is not None, (line, self.process.communicate(timeout=PATIENCE_S))
        self.address = found[0]
        self.client = httpx.Client(base_url=self.address, timeout=PATIENCE_S)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """Ask with POST."""
        return self.client.post(
            path, json=body, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def terminate(self) -> None:
        """Ask it to end."""
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> tuple[int, str]:
        """How it ended, and what it said to stderr."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors


@contextmanager
def service_process(*options: str) -> Iterator[ServiceProcess]:
    """A replica, until the block ends."""
    replica = ServiceProcess(*options)
    try:
        yield replica
    finally:
        replica.client.close()
        replica.process.kill()
        replica.process.communicate(timeout=PATIENCE_S)
