"""One run of the demo, from opening the store to the result of the proof.

Every run has a namespace of its own, removed when it is over: a demo on a store in use leaves it as it was. Without a
URL the store is a SQLite file in a temporary directory.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from secrets import token_hex
from tempfile import TemporaryDirectory
from types import FrameType
from urllib.parse import quote

from rich.console import Console

from zae_limiter import RateLimiter, WindowType
from zae_limiter.cli.demo.call_profiles import assign_callers
from zae_limiter.cli.demo.proof import prove
from zae_limiter.cli.demo.scenario import RESOURCE_OF, BucketId, Place, build_world, read_levels, survey
from zae_limiter.cli.demo.screen import Moment, screen
from zae_limiter.cli.demo.summary import SUMMARY_COLUMNS, Outcome, summary
from zae_limiter.cli.demo.workers import ProcessWorkers, TaskWorkers, Workers
from zae_limiter.running.clocks import machine_clock

FRAME_SECONDS = 0.1
MEMORY = "memory://"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose."""

    url: str | None
    seconds: float
    seed: int
    workers: int


def run(settings: Settings) -> bool:
    """Run the demo and print its summary; whether the proof holds."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an output without these characters still gets the words
    console = Console(highlight=False)
    with embedded_store() if settings.url is None else nullcontext(settings.url) as url:
        outcome = asyncio.run(run_demo(url, settings, console))
    # A narrow terminal wraps the tables, which is better than numbers cut in half.
    console.width = max(console.width, SUMMARY_COLUMNS)
    console.print(summary(outcome, console.width))
    return outcome.proven


@contextmanager
def embedded_store() -> Iterator[str]:
    """The URL of a temporary SQLite store, for as long as the demo runs."""
    with TemporaryDirectory(prefix="zae-limiter-demo-") as folder:
        yield f"sqlite:///{quote(folder)}/demo.db"


@dataclass(frozen=True, slots=True)
class DemoRun:
    """Everything a run needs once its store is open."""

    title: str
    seconds: float
    limiter: RateLimiter
    places: list[Place]
    workers: Workers


async def run_demo(url: str, settings: Settings, console: Console) -> Outcome:
    """Build the world, let the callers call, and look at what happened."""
    async with demo_namespace(url) as limiter:
        demo = await prepare(url, settings, limiter)
        workers = demo.workers
        try:
            with console.status("starting the callers"):
                await workers.gather()
            console.print(demo.title, style="bold")
            # Before the first call: no bucket exists yet, so none can have refilled for longer than this.
            started_ms = machine_clock()
            workers.begin()
            with screen(console) as show:
                stopped_early = await watch(demo, show)
                tally = await workers.finish()
                readings = await read_levels(limiter, demo.places)
                elapsed_ms = machine_clock() - started_ms
                if show is not None:
                    show(Moment(elapsed_ms / 1000, settings.seconds, readings, tally, over=True))
        finally:
            workers.dismiss()
        return Outcome(
            elapsed_ms=elapsed_ms,
            stopped_early=stopped_early,
            tally=tally,
            usage={bucket: await stored_usage(limiter, bucket) for bucket in map(BucketId._make, RESOURCE_OF.items())},
            accounts=prove(readings, tally, elapsed_ms),
        )


@asynccontextmanager
async def demo_namespace(url: str) -> AsyncIterator[RateLimiter]:
    """A limiter in a namespace that has the world in it, and that is gone afterwards."""
    namespace = f"demo-{token_hex(4)}"
    async with await RateLimiter.open(url, namespace=namespace) as limiter:
        await limiter.repository.register_namespace(namespace)
        try:
            await build_world(limiter)
            yield limiter
        finally:
            await limiter.repository.delete_namespace(namespace)
            await limiter.repository.purge_namespace(namespace)


async def prepare(url: str, settings: Settings, limiter: RateLimiter) -> DemoRun:
    """Resolve the limits of the scenario, and choose the kind of workers that can share this store."""
    groups = assign_callers(settings.seed, settings.workers)
    workers: Workers
    if url.startswith(MEMORY):
        workers, one, several = TaskWorkers(limiter, groups), "task group", "task groups"
    else:
        workers = ProcessWorkers(url, limiter.repository.namespace, groups)
        one, several = "process", "processes"
    kind = one if len(groups) == 1 else several
    return DemoRun(
        title=f"{sum(map(len, groups))} callers in {len(groups)} {kind} share one {url.partition(':')[0]} store "
        f"for {settings.seconds:g} s, seed {settings.seed}",
        seconds=settings.seconds,
        limiter=limiter,
        places=await survey(limiter),
        workers=workers,
    )


async def watch(demo: DemoRun, show: Callable[[Moment], None] | None) -> bool:
    """Show how it goes until the time is over; whether Ctrl-C ended it before."""
    timer = asyncio.get_running_loop().time
    began = timer()
    stop = asyncio.Event()
    with on_interrupt(stop.set):
        while (elapsed := timer() - began) < demo.seconds and not stop.is_set():
            tally = demo.workers.tally()
            if show is not None:
                readings = await read_levels(demo.limiter, demo.places)
                show(Moment(elapsed, demo.seconds, readings, tally))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(FRAME_SECONDS, demo.seconds - elapsed))
    return stop.is_set()


@contextmanager
def on_interrupt(react: Callable[[], object]) -> Iterator[None]:
    """The first Ctrl-C calls ``react``; another one interrupts as usual."""
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        loop.call_soon_threadsafe(react)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def stored_usage(limiter: RateLimiter, bucket: BucketId) -> Mapping[str, int]:
    """What the usage windows say was used. There are two of them if the hour turned meanwhile."""
    used: Counter[str] = Counter()
    page = await limiter.get_usage_snapshots(*bucket, WindowType.HOURLY)
    for snapshot in page.items:
        used.update(snapshot.counters)
    return used
