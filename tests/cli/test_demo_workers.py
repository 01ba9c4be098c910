"""Worker processes: what they say, and what is said about them when they die."""

from __future__ import annotations

import asyncio
import os
import signal

import click
import pytest

from zae_limiter import ValidationError
from zae_limiter.cli.demo.call_profiles import assign_callers
from zae_limiter.cli.demo.workers import ProcessWorkers

NOWHERE = ("memory://", "default")
"""Each process has a memory of its own, with no limits in it: good enough to begin, and to fail."""


async def follow(workers: ProcessWorkers) -> None:
    """Read on until something is wrong."""
    async with asyncio.timeout(20):
        while True:
            workers.tally()
            await asyncio.sleep(0.02)


def test_what_a_worker_dies_of_reaches_the_parent() -> None:
    async def story() -> None:
        workers = ProcessWorkers(*NOWHERE, assign_callers(7, 2))
        try:
            await workers.gather()
            workers.begin()
            with pytest.raises(ValidationError, match="no limits are configured"):
                await follow(workers)
        finally:
            workers.dismiss()
        assert [process.is_alive() for process in workers._processes] == [False, False]

    asyncio.run(story())


def test_a_killed_worker_is_reported() -> None:
    async def story() -> None:
        workers = ProcessWorkers(*NOWHERE, [[]])
        try:
            await workers.gather()
            workers.begin()
            [process] = workers._processes
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(click.ClickException, match="demo worker 1 ended with code -9"):
                await follow(workers)
        finally:
            workers.dismiss()

    asyncio.run(story())


def test_workers_go_when_they_are_dismissed_in_the_middle() -> None:
    async def story() -> None:
        workers = ProcessWorkers(*NOWHERE, [[]])
        await workers.gather()
        workers.begin()
        workers.dismiss()
        assert [process.exitcode for process in workers._processes] == [0]

    asyncio.run(story())
