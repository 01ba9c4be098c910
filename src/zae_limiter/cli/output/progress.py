"""What a command that takes long shows on stderr: a spinner with the number of requests, or a bar. On a terminal only,
and not before a second has passed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter.running.plan import Request
    from zae_limiter.stores.protocol import Store

SECONDS_BEFORE_A_SIGN = 1.0
SECONDS_BETWEEN_COUNTS = 0.1


@contextmanager
def patience(words: str, requests: Callable[[], int]) -> Iterator[None]:
    """Say what goes on, for how long, and how many requests to the store it took so far, until it is done."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    sign = threading.Thread(target=_show, args=(words, requests, done), daemon=True)
    sign.start()
    try:
        yield
    finally:
        done.set()
        sign.join()


def _show(words: str, requests: Callable[[], int], done: threading.Event) -> None:
    if done.wait(SECONDS_BEFORE_A_SIGN):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(words)
        while not done.wait(SECONDS_BETWEEN_COUNTS):
            progress.update(task, description=f"{words}: {requests():,} requests to the store")


class SteppingStore:
    """Wraps any store; ``requests`` is how many requests of plans it has answered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests = 0

    def perform(self, request: Request[Any], /) -> Any:
        """Do what a plan asks, and count it."""
        reply = self._store.perform(request)
        self.requests += 1
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
