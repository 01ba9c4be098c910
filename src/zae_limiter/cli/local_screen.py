"""The local cloud in words, and progress while it starts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zae_limiter.infra.local_cloud import Status, UpResult
from zae_limiter.infra.stack_events import StackEvent


@contextmanager
def local_screen(words: str) -> Iterator[Callable[[Any], None]]:
    """A listener for events: on a terminal they are shown in one line, elsewhere not at all."""
    if not sys.stderr.isatty():
        yield lambda event: None
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False, markup=False).status(words) as line:

        def told(event: Any) -> None:
            if isinstance(event, StackEvent):
                line.update(f"{words}: {event.resource}")

        yield told


def up_in_words(up: UpResult) -> str:
    """What runs, and how to use it."""
    how = "runs" if up.started else "was already running"
    return (
        f"{up.name} is up. The local cloud {how} at {up.running.endpoint_url}, region {up.running.region}\n"
        "\n"
        f"  export ZAEL_URL='{up.url}'\n"
        "\n"
        "stop it with: zae-limiter local down"
    )


def status_in_words(status: Status, log: Path) -> str:
    """What runs, and what is in it."""
    running = status.running
    if running is None:
        return "no local cloud is running; start one: zae-limiter local up"
    if not status.healthy:
        return f"the local cloud (process {running.pid}) does not answer on port {running.port}; its log: {log}"
    lines = [
        f"the local cloud runs at {running.endpoint_url}, region {running.region} (process {running.pid})",
        f"  data  {running.data}",
        f"  log   {log}",
    ]
    lines += [f"  {found.name}  {url}" for found, url in status.deployments]
    return "\n".join(lines)


def status_document(status: Status, log: Path) -> dict[str, Any]:
    """The same for programs."""
    running = status.running
    return {
        "running": running is not None,
        "healthy": status.healthy,
        "endpoint_url": None if running is None else running.endpoint_url,
        "region": None if running is None else running.region,
        "port": None if running is None else running.port,
        "pid": None if running is None else running.pid,
        "data": None if running is None else running.data,
        "log": str(log),
        "deployments": [{"name": found.name, "state": found.state, "url": url} for found, url in status.deployments],
    }
