"""What a command that takes long shows on stderr: a spinner with the number of requests so far, or a bar.

On a terminal only, and not before a second has passed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter.running.plan import Request
    from zae_limiter.stores.protocol import Store

SECONDS_BEFORE_SHOWN = 1.0
SECONDS_BETWEEN_COUNTS = 0.1


class CountingStore:
    """Wraps any store; ``requests`` is how many requests of plans it has answered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests = 0

    def perform(self, request: Request[Any], /) -> Any:
        """Answer the request of a plan, and count it."""
        reply = self._store.perform(request)
        self.requests += 1
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@contextmanager
def spinner(words: str, requests: Callable[[], int]) -> Iterator[None]:
    """Show what the command does, for how long, and how many requests to the store it took so far."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    shown = threading.Thread(target=_spin, args=(words, requests, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _spin(words: str, requests: Callable[[], int], done: threading.Event) -> None:
    if done.wait(SECONDS_BEFORE_SHOWN):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(words)
        while not done.wait(SECONDS_BETWEEN_COUNTS):
            progress.update(task, description=f"{words}: {requests():,} requests to the store")


@contextmanager
def progress_bar(words: str) -> Iterator[Callable[[int, int], None]]:
    """A callback for how many steps are done, of how many; a bar shows it."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn(words), BarColumn(), MofNCompleteColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(words)
    shown_from = monotonic() + SECONDS_BEFORE_SHOWN

    def on_progress(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if monotonic() >= shown_from:
            bar.start()

    try:
        yield on_progress
    finally:
        bar.stop()
