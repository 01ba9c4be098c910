"""Running the benchmarks for the report, each in a process of its own.

What is timed runs alone, one after the other: a neighbour would be measured too. What is not (simulations, which have
a time of their own, and memory) runs two at a time. A benchmark that fails, or takes too long, loses the others
nothing. An interrupt of the run ends everything that it has started: each benchmark leads a group of processes,
which is told to end, and if it does not listen, is ended.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines.redis_servers import RedisServer
from engines.servers import dynoxide_engine

HERE = Path(__file__).parent
LONGEST_S = 900
END_GENTLY_S = 10
AT_ONCE = 2
REDIS_KIND = "valkey-9.1"

Outcome = dict[str, Any]
Tell = Callable[[str, Outcome], None]


class Step(NamedTuple):
    """One benchmark, as it is run for the report."""

    name: str
    options: tuple[str, ...] = ()
    on_dynoxide: bool = False
    on_redis: bool = False
    timed: bool = True

    @property
    def is_here(self) -> bool:
        """Whether there is such a benchmark."""
        return (HERE / f"{self.name}.py").exists()


_ALL = (
    Step("startup"),
    Step("embedded"),
    Step("dynamodb", on_dynoxide=True),
    Step("redis_store", on_redis=True),
    Step("integrations"),
    Step("service"),
    Step("dashboard"),
    Step("envoy"),
    Step("namesake", on_dynoxide=True),
    Step("growth"),
    Step("aggregator", ("--quick",), on_dynoxide=True),
    Step("memory", timed=False),
    Step("hot_entity", ("--quick",), timed=False),
    Step("costs", ("--quick",), on_dynoxide=True, timed=False),
)
STEPS = tuple(step for step in _ALL if step.is_here)


class Interrupted(Exception):
    """The operator wants everything to end."""


def run_all(steps: Sequence[Step], tell: Tell) -> None:
    """All of them; ``tell`` hears how each went, in this thread."""
    stop = threading.Event()
    try:
        for step in steps:
            if step.timed:
                tell(step.name, run(step, stop))
        _run_together([step for step in steps if not step.timed], stop, tell)
    except BaseException:
        stop.set()
        raise


def _run_together(steps: Iterable[Step], stop: threading.Event, tell: Tell) -> None:
    waiting: queue.SimpleQueue[Step] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, Outcome]] = queue.SimpleQueue()
    left = 0
    for step in steps:
        waiting.put(step)
        left += 1

    def work() -> None:
        while not stop.is_set():
            try:
                step = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((step.name, run(step, stop)))
            except Interrupted:
                return

    workers = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(left):
            tell(*done.get())
    except BaseException:
        stop.set()
        raise
    finally:
        for worker in workers:
            worker.join()


def run(step: Step, stop: threading.Event) -> Outcome:
    """How it went."""
    outcome: Outcome = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "options": list(step.options)}
    missing = dynoxide_engine().why_not_here() if step.on_dynoxide else None
    missing = RedisServer(REDIS_KIND).why_not_here() if step.on_redis else missing
    if missing is not None:
        return {**outcome, "failed": missing}
    began = time.monotonic()
    command = [sys.executable, str(HERE / f"{step.name}.py"), *step.options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    printed: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=_read, args=(process.stdout, printed))
    reader.start()
    try:
        while (cpu := cpu_if_ended(process)) is None:
            if stop.wait(0.1):
                raise Interrupted
            if time.monotonic() - began > LONGEST_S:
                return {**outcome, "failed": f"it took longer than {LONGEST_S} s"}
    finally:
        end_group(process)
        reader.join()
    outcome["seconds"], outcome["cpu_seconds"] = round(time.monotonic() - began, 1), round(cpu, 1)
    if process.returncode != 0:
        lines = b"".join(printed).decode(errors="replace").strip().splitlines()
        print("\n".join(["", *lines[-30:]]), file=sys.stderr)
        outcome["failed"] = lines[-1] if lines else f"exit code {process.returncode}"
    return outcome


def cpu_if_ended(process: subprocess.Popen[bytes]) -> float | None:
    """Seconds of CPU that it and those it waited for have used; nothing while it runs."""
    ended, status, used = os.wait4(process.pid, os.WNOHANG)
    if not ended:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def _read(stream: Any, printed: list[bytes]) -> None:
    with stream:
        printed.extend(stream)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a benchmark, gently first so that it ends its own, and whatever it has left behind."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_GENTLY_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
