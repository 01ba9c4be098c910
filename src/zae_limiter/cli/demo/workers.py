"""Callers spread over workers: groups of tasks in this process, or processes of their own.

A store in this process's memory can only be shared by tasks. Any other is shared the way a fleet would: each
worker process opens its own limiter on the same URL. A process and its parent are joined by one pipe::

    worker → parent     READY, then a Tally now and then, then Done with the last one (or Failed)
    parent → worker     GO, then STOP

A closed pipe means STOP too, so that no worker outlives a parent that was killed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Protocol

import click

from zae_limiter import RateLimiter, ZAELimiterError
from zae_limiter.cli.demo.call_profiles import Caller
from zae_limiter.cli.demo.callers import run_callers
from zae_limiter.cli.demo.tally import Tally, added_up

READY, GO, STOP = "ready", "go", "stop"

REPORT_SECONDS = 0.1
"""How often a worker process reports its tally."""

LISTEN_SECONDS = 0.02
"""How often either end looks into the pipe when it has nothing else to do."""

EXIT_SECONDS = 5.0
"""How long a worker process may take to end once its pipe is closed."""


class Workers(Protocol):
    """Some callers, in groups."""

    async def gather(self) -> None:
        """Get ready."""

    def begin(self) -> None:
        """Start calling."""

    def tally(self) -> Tally:
        """What has happened so far. Raises what a worker died of."""

    async def finish(self) -> Tally:
        """Stop calling; all that has happened."""

    def dismiss(self) -> None:
        """Let go of everything, whatever state it is in."""


class TaskWorkers:
    """Groups of tasks on one limiter."""

    def __init__(self, limiter: RateLimiter, groups: list[list[Caller]]) -> None:
        self._limiter = limiter
        self._groups = groups
        self._tallies = [Tally() for _ in groups]
        self._stop = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []

    async def gather(self) -> None:
        """Tasks are always ready."""

    def begin(self) -> None:
        self._running = [
            asyncio.create_task(run_callers(self._limiter, group, tally, self._stop))
            for group, tally in zip(self._groups, self._tallies, strict=True)
        ]

    def tally(self) -> Tally:
        for task in self._running:
            if task.done():
                task.result()
        return added_up(self._tallies)

    async def finish(self) -> Tally:
        self._stop.set()
        await asyncio.gather(*self._running)
        total = added_up(self._tallies)
        total.unresolved = self._limiter.repository.unresolved
        return total

    def dismiss(self) -> None:
        for task in self._running:
            task.cancel()


@dataclass(frozen=True, slots=True)
class Done:
    """The last message of a worker."""

    tally: Tally


@dataclass(frozen=True, slots=True)
class Failed:
    """The last message of a worker that failed."""

    error: ZAELimiterError


class ProcessWorkers:
    """Processes, each with a limiter of its own."""

    def __init__(self, url: str, namespace: str, groups: list[list[Caller]]) -> None:
        self._destination = (url, namespace)
        self._groups = groups
        self._processes: list[SpawnProcess] = []
        self._pipes: list[Connection[Any, Any]] = []
        self._tallies = [Tally() for _ in groups]
        self._ready: set[int] = set()
        self._done: set[int] = set()

    async def gather(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        # An ignored signal is inherited: Ctrl-C reaches the parent alone, which then stops the workers in order.
        with interrupts_ignored():
            for number, group in enumerate(self._groups, 1):
                ours, theirs = spawn.Pipe()
                process = spawn.Process(
                    target=work, args=(theirs, *self._destination, group), name=f"demo worker {number}", daemon=True
                )
                process.start()
                theirs.close()  # so that the pipe ends when the worker does
                self._processes.append(process)
                self._pipes.append(ours)
        await self._until_all_are_in(self._ready)

    def begin(self) -> None:
        self._tell_all(GO)

    def tally(self) -> Tally:
        self._listen()
        return added_up(self._tallies)

    async def finish(self) -> Tally:
        self._tell_all(STOP)
        await self._until_all_are_in(self._done)
        return added_up(self._tallies)

    def dismiss(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(EXIT_SECONDS)
            if process.is_alive():
                process.terminate()
                process.join()

    def _tell_all(self, word: str) -> None:
        for pipe in self._pipes:
            with suppress(BrokenPipeError):  # its last message, or the lack of one, says why
                send(pipe, word)

    async def _until_all_are_in(self, those: set[int]) -> None:
        while len(those) < len(self._pipes):
            self._listen()
            await asyncio.sleep(LISTEN_SECONDS)

    def _listen(self) -> None:
        for number, pipe in enumerate(self._pipes):
            while number not in self._done and pipe.poll():
                match self._next_word(number):
                    case Tally() as tally:
                        self._tallies[number] = tally
                    case Done(tally):
                        self._tallies[number] = tally
                        self._done.add(number)
                    case Failed(error):
                        raise error
                    case _:
                        self._ready.add(number)

    def _next_word(self, number: int) -> object:
        try:
            return self._pipes[number].recv()
        except (EOFError, ConnectionResetError):
            process = self._processes[number]
            process.join(EXIT_SECONDS)
            raise click.ClickException(f"{process.name} ended with code {process.exitcode}") from None


def send(pipe: Connection[Any, Any], word: object) -> None:
    """What ``pipe.send`` does, which on some Pythons crashes if the other end is gone."""
    pipe.send_bytes(pickle.dumps(word))


def work(pipe: Connection[Any, Any], url: str, namespace: str, callers: list[Caller]) -> None:
    """The life of a worker process."""
    # If the parent process is gone, there is no pipe to report to.
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        try:
            asyncio.run(_work(pipe, url, namespace, callers))
        except ZAELimiterError as error:
            send(pipe, Failed(error))


async def _work(pipe: Connection[Any, Any], url: str, namespace: str, callers: list[Caller]) -> None:
    tally = Tally()
    stop = asyncio.Event()
    async with await RateLimiter.open(url, namespace=namespace) as limiter:
        send(pipe, READY)
        pipe.recv()
        calling = asyncio.create_task(run_callers(limiter, callers, tally, stop))
        while not calling.done() and not pipe.poll():
            send(pipe, tally)
            await asyncio.sleep(REPORT_SECONDS)
        stop.set()
        await calling
        tally.unresolved = limiter.repository.unresolved
    send(pipe, Done(tally))


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ctrl-C does nothing in here, nor in processes started here."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
