"""A job is accepted by one process, which is killed, and settled by another: its lease travels with it.

The queue here is a pipe between processes; put the token into your own messages just like that. A message that is
delivered twice settles once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from zae_limiter import Limit, SyncRateLimiter

ESTIMATE = 500


def accept(url: str, queue: Connection) -> None:
    """Take what the job may cost, hand it on, and die."""
    limiter = SyncRateLimiter.open(url)
    with limiter.acquire("team-a", "gpt-4", {"rpm": 1, "tpm": ESTIMATE}, request_id="job-1") as lease:
        queue.send(lease.detach())
    os.kill(os.getpid(), signal.SIGKILL)


def work(url: str, token: str, done: Connection) -> None:
    """Do the job, and settle what it cost; say whether another worker was first."""
    with SyncRateLimiter.open(url) as limiter, limiter.resume(token) as lease:
        lease.settle(tpm=420)
    done.send(lease.already_settled)


def run(folder: Path) -> dict[str, int]:
    """Accept, work twice, and see what is left."""
    url = f"sqlite:///{folder / 'limits.db'}"
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpm", 1_000), Limit.per_day("tpm", 10_000)])
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    acceptor = processes.Process(target=accept, args=(url, there))
    acceptor.start()
    token = here.recv()
    acceptor.join()
    print(f"the process that accepted the job ended with {acceptor.exitcode}; its lease is {token}")
    for _ in range(2):
        worker = processes.Process(target=work, args=(url, token, there))
        worker.start()
        print("the worker was", "second: nothing was booked" if here.recv() else "first, and settled")
        worker.join()
    with SyncRateLimiter.open(url) as limiter:
        left = limiter.available("team-a", "gpt-4")
    print(f"left: {left}")
    return left


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        run(Path(folder))
