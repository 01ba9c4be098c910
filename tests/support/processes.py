"""Work done by several processes at once, and what each of them answered."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

PATIENCE_S = 60.0
"""Nothing here takes nearly as long; who does is stuck."""


def together(
    work: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    *,
    start: str = "spawn",
    meanwhile: Callable[[], object] = lambda: None,
) -> list[Any]:
    """Run ``work`` in a process of its own for each of ``arguments``, all from the same moment on.

    ``meanwhile`` runs here in the meantime. A process that raises, dies or does not end fails the test.
    """
    world = multiprocessing.get_context(start)
    barrier = world.Barrier(len(arguments) + 1)
    processes, pipes = [], []
    try:
        for given in arguments:
            ours, theirs = world.Pipe(duplex=False)
            process = world.Process(target=_answer, args=(barrier, theirs, work, given), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        barrier.wait(PATIENCE_S)
        meanwhile()
        return [_answer_of(pipe) for pipe in pipes]
    finally:
        for process in processes:
            process.join(PATIENCE_S / 10)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in pipes:
            pipe.close()


def _answer(barrier: Any, pipe: Connection, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    try:
        barrier.wait(PATIENCE_S)
        answer = True, work(*given)
    except BaseException:
        answer = False, traceback.format_exc()
    pipe.send(answer)
    pipe.close()


def _answer_of(pipe: Connection) -> Any:
    assert pipe.poll(PATIENCE_S), "a process is stuck"
    try:
        succeeded, answer = pipe.recv()
    except EOFError:
        raise AssertionError("a process died") from None
    assert succeeded, f"in another process: {answer}"
    return answer
