"""How one scenario is played in both worlds.

A case is an ``async def`` that gets a :class:`World`. In the async world it runs in an event loop against a
``RateLimiter``. In the sync world the same coroutine runs against a ``SyncRateLimiter`` whose methods are
dressed as coroutines that never suspend, so it finishes in one step, in the thread that runs it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from zae_limiter.limiter.limiter import RateLimiter
from zae_limiter.limiter.sync_limiter import SyncRateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.protocol import Store
from zae_limiter.testing.clock import FakeClock
from zae_limiter.testing.failing_store import FailingStore

Mode: TypeAlias = Literal["sync", "async"]
OpenStore: TypeAlias = Callable[[], Store]
"""Opens one more client on the same data."""

Error = TypeVar("Error", bound=BaseException)
PATIENCE_SECONDS = 20.0


class Case(NamedTuple):
    """One promise of the contract and the scenario that shows it.

    ``every_kind``: it is about limits that not every store can keep: those by the calendar, of calls in flight, and
    that only watch. A store that cannot must refuse them.
    """

    promise: str
    play: Callable[[World], Coroutine[Any, Any, None]]
    every_kind: bool = False

    def __str__(self) -> str:
        return self.play.__name__


CASES: list[Case] = []


def case(
    promise: str,
) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], Callable[[World], Coroutine[Any, Any, None]]]:
    """Make a scenario part of the suite."""

    def register(
        play: Callable[[World], Coroutine[Any, Any, None]],
    ) -> Callable[[World], Coroutine[Any, Any, None]]:
        CASES.append(Case(promise, play))
        return play

    return register


def kind_case(
    promise: str,
) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], Callable[[World], Coroutine[Any, Any, None]]]:
    """Likewise, of stores that keep every kind of limit."""

    def register(
        play: Callable[[World], Coroutine[Any, Any, None]],
    ) -> Callable[[World], Coroutine[Any, Any, None]]:
        CASES.append(Case(promise, play, every_kind=True))
        return play

    return register


class Caught(Generic[Error]):
    """The error a block raised."""

    value: Error


class World:
    """What a scenario plays with."""

    def __init__(self, mode: Mode, open_store: OpenStore) -> None:
        self.mode = mode
        self.clock = FakeClock(auto_advance=False)
        self._open_store = open_store
        self._stores: list[Store] = []
        self.store = FailingStore(self._opened())
        self.events: list[Any] = []
        self.limiter = self.client()
        self.failing_limiter = self.client(store=self.store)

    def client(
        self,
        *,
        namespace: str = "default",
        observer: Any = None,
        store: Any = None,
        limits: Iterable[Limit] | None = None,
        pulse: bool = False,
        on_unavailable: str | None = None,
        local_share: float | None = None,
    ) -> Any:
        """One more limiter on the same data, in a process of its own for all it knows."""
        store = store or self._opened()
        options: dict[str, Any] = {"clock": self.clock, "observer": observer, "limits": limits, "pulse": pulse}
        options |= {"on_unavailable": on_unavailable, "local_share": local_share}
        if self.mode == "async":
            return RateLimiter(Repository(store, namespace=namespace, **options))
        return Dressed(SyncRateLimiter(SyncRepository(store, namespace=namespace, **options)))

    def observed(self) -> Any:
        """A limiter on ``store`` whose events come to ``events``."""
        return self.client(observer=self.events.append, store=self.store)

    def _opened(self) -> Store:
        store = self._open_store()
        self._stores.append(store)
        return store

    async def concurrently(self, *work: Awaitable[Any]) -> list[Any]:
        """Run all at once: as tasks, or each in a thread. The results, or what was raised."""
        if self.mode == "async":
            tasks = [asyncio.ensure_future(one) for one in work]
            _, waiting = await asyncio.wait(tasks, timeout=2 * PATIENCE_SECONDS)
            for task in waiting:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert not waiting, f"a caller waits for ever: {outcomes}"
            return outcomes
        results: list[Any] = [None] * len(work)

        def run(place: int, coroutine: Any) -> None:
            try:
                results[place] = finish(coroutine)
            except BaseException as error:
                results[place] = error

        threads = [
            threading.Thread(target=run, args=(place, coroutine), daemon=True) for place, coroutine in enumerate(work)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a caller waits for ever"
        return results

    async def breathe(self) -> None:
        """Let others run."""
        if self.mode == "async":
            await asyncio.sleep(0)

    async def pause(self, seconds: float) -> None:
        """Let time pass, of the machine."""
        if self.mode == "async":
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the others run until it is so."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < give_up, "waited in vain"
            if self.mode == "async":
                await asyncio.sleep(0.001)
            else:
                time.sleep(0.001)

    async def until_waiting(self, count: int) -> None:
        """Let the others run until that many wait for the clock."""
        await self.until(lambda: self.clock.waiting == count)

    @contextmanager
    def raises(self, kind: type[Error]) -> Iterator[Caught[Error]]:
        """The block must raise ``kind``."""
        caught: Caught[Error] = Caught()
        try:
            yield caught
        except kind as error:
            caught.value = error
        else:
            raise AssertionError(f"{kind.__name__} was not raised")

    async def close(self) -> None:
        for store in self._stores:
            if self.mode == "async":
                await store.aclose()
            else:
                store.close()


def play(scenario: Case, mode: Mode, open_store: OpenStore) -> None:
    """Play one case in one world; raises ``AssertionError`` if the promise is broken."""

    async def whole() -> None:
        world = World(mode, open_store)
        try:
            await scenario.play(world)
        finally:
            await world.close()

    if mode == "async":
        asyncio.run(whole())
    else:
        finish(whole())


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        return finished.value
    coroutine.close()
    raise AssertionError("a sync scenario suspended")


class Dressed:
    """A sync limiter, repository or lease with the manners of its async twin."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    @property
    def repository(self) -> Dressed:
        return Dressed(self._plain.repository)

    def acquire(self, *args: Any, **kwargs: Any) -> Dressed:
        return Dressed(self._plain.acquire(*args, **kwargs))

    def resume(self, token: str) -> Dressed:
        return Dressed(self._plain.resume(token))

    def in_namespace(self, namespace: str) -> Dressed:
        return Dressed(self._plain.in_namespace(namespace))

    async def __aenter__(self) -> Dressed:
        self._plain.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._plain.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._plain, name)
        if not callable(value) or name in ("get_cache_stats", "invalidate_config_cache"):
            return value

        async def method(*args: Any, **kwargs: Any) -> Any:
            return value(*args, **kwargs)

        return method
