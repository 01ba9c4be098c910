"""The local cloud: the same deployment as on AWS, on this machine, without Docker.

>>> cloud = LocalCloud()
>>> cloud.up("my-app").url
'dynamodb://my-app?region=us-east-1&endpoint_url=http://127.0.0.1:4566'
>>> cloud.down()
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.cloud import check_installed
from zae_limiter.infra.deployments import Deployment
from zae_limiter.infra.local_data import check_data, check_discard, discard_data, rewind_streams
from zae_limiter.infra.local_engine import Say, find_engine, install_engine
from zae_limiter.infra.local_home import Home, Running, home
from zae_limiter.infra.local_process import (
    answers,
    any_free_port,
    is_free,
    is_same_process,
    port_taken,
    start,
    stop,
    tail,
)
from zae_limiter.infra.stacks import Listener, StackManager

PORT = 4566
REGION = "us-east-1"
SECONDS_BETWEEN_LOOKS = 0.2


class UpResult(NamedTuple):
    """A local cloud that runs, with a deployment in it."""

    running: Running
    name: str
    url: str
    """What to open a limiter with."""
    started: bool
    """Whether it was started just now, or ran already."""


class Status(NamedTuple):
    """What runs, if anything does, and the deployments in it with the URLs of their tables."""

    running: Running | None
    healthy: bool
    deployments: Sequence[tuple[Deployment, str]]


class LocalCloud:
    """The local cloud of one folder. Raises ``StackOperationError`` for what it cannot do."""

    def __init__(self, folder: Path | None = None) -> None:
        self.home = home() if folder is None else Home(folder)

    def up(
        self,
        name: str,
        *,
        port: int | None = None,
        fresh: bool = False,
        data: Path | None = None,
        program: str | None = None,
        say: Say = lambda words: None,
        on_event: Listener | None = None,
    ) -> UpResult:
        """Start it unless it runs, and deploy a stack into it.

        ``port`` 0 is any that is free. ``fresh`` throws away the data of last time. A ``data`` folder with data that
        is not a local cloud's is refused. ``program`` is a MiniStack that is there already; without one it is
        installed the first time, and ``say`` is told.
        """
        check_installed()
        with self.home.locked():
            running = self._live()
            started = running is None
            if running is None:
                running = self._start(port, fresh, data, program, say)
            elif fresh or port not in (None, 0, running.port) or data not in (None, Path(running.data)):
                raise StackOperationError(
                    f"the local cloud runs already, on port {running.port} with the data in {running.data}; "
                    "end it first: zae-limiter local down"
                )
            with StackManager(running.region, running.endpoint_url) as stacks:
                deployed = stacks.deploy(name, on_event=on_event)
        return UpResult(running, name, deployed.url, started)

    def status(self) -> Status:
        """Whether it runs and answers, and what is deployed in it."""
        running = self._live()
        if running is None or not answers(running.port):
            return Status(running, False, ())
        with StackManager(running.region, running.endpoint_url) as stacks:
            return Status(running, True, [(found, stacks.url(found.table)) for found in stacks.list()])

    def down(self, *, discard: bool = False) -> Running | None:
        """End it; what ran, if anything did. Its data stays for the next time, unless it is discarded.

        Data that is not a local cloud's is not discarded, and then nothing is ended either.
        """
        with self.home.locked():
            known = self.home.read()
            data = self.home.data if known is None else Path(known.data)
            if discard:
                check_discard(data)
            running = self._live()
            if running is not None:
                stop(self.home, running)
            self.home.forget()
            if discard:
                discard_data(data)
            return running

    def log(self, lines: int) -> str:
        """The last lines that it printed."""
        return tail(self.home.log, lines)

    def follow(self) -> Iterator[str]:
        """What it prints from now on, until it ends."""
        with self.home.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(0, 2)
            while True:
                over = self._live() is None
                printed = log.read()
                if printed:
                    yield printed
                if over:
                    return
                time.sleep(SECONDS_BETWEEN_LOOKS)

    def _live(self) -> Running | None:
        running = self.home.read()
        return running if running is not None and is_same_process(running) else None

    def _start(self, port: int | None, fresh: bool, data: Path | None, program: str | None, say: Say) -> Running:
        port = PORT if port is None else port or any_free_port()
        if not is_free(port):
            raise port_taken(port)
        engine = find_engine(self.home, program)
        folder = (data or self.home.data).absolute()
        if fresh:
            discard_data(folder)
        check_data(folder)
        if not engine.installed:
            install_engine(self.home, say)
        rewind_streams(folder)
        return start(self.home, engine.program, port, REGION, folder)


def as_document(up: UpResult, log: Path) -> dict[str, Any]:
    """What runs and how to use it, for programs."""
    return {
        "name": up.name,
        "url": up.url,
        "endpoint_url": up.running.endpoint_url,
        "region": up.running.region,
        "port": up.running.port,
        "pid": up.running.pid,
        "data": up.running.data,
        "log": str(log),
        "started": up.started,
    }
