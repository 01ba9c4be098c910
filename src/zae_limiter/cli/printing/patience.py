"""A sign of life for whoever waits: on stderr, on a terminal only, and not before a second has passed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
