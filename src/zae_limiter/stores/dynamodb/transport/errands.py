"""Slow things that many may wait for and one does: in a thread of its own, so that everybody may stop waiting."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Generic, TypeVar

Result = TypeVar("Result")


def begun(work: Callable[[], Result], name: str) -> Future[Result]:
    """The outcome of ``work``, which a thread is at from now on. It does not keep the program from ending."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    try:
        Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:  # the interpreter is about to end, and starts no threads any more
        run()
    return future


class Errand(Generic[Result]):
    """Work of which there is one at a time: who comes while it is being done waits for the same outcome."""

    def __init__(self, work: Callable[[], Result], name: str) -> None:
        self._work = work
        self._name = name
        self._lock = Lock()
        self._future: Future[Result] | None = None

    def run(self, *, unless_done: bool = False) -> Future[Result]:
        """The outcome of the work that is being done, or else begins now; ``unless_done``: or was done before."""
        with self._lock:
            future = self._future
            if future is None or (future.done() and not unless_done):
                future = self._future = begun(self._work, self._name)
            return future
