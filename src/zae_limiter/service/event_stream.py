"""What happens in this process, told to those who listen: decisions, settlements and outages, as they come.

A listener that does not keep up misses events, and is told how many. While there is none, an event costs one look at
an empty list.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from zae_limiter import Decided, Degraded, Event, Observer, Settled

MOST_LISTENERS = 64
MOST_WAITING = 1_000
"""So many events wait for a listener."""

SECONDS_BETWEEN_SIGNS = 15.0
"""A stream that has nothing to say gives a sign of life so often, or proxies would end it."""


class EventStream:
    """An observer that tells another one, and listeners if there are any."""

    def __init__(self, first: Observer = lambda event: None) -> None:
        self._first = first
        self._listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()
        self._is_closed = False

    def __call__(self, event: Event) -> None:
        """Tell an event. It may be called by any thread."""
        self._first(event)
        if self._listeners:
            for listener in self._listeners:
                listener.offer(event)

    def listen(self, wants: Callable[[Event], bool]) -> Listener | None:
        """A listener for the events that ``wants`` says yes to; ``None`` if there are too many already."""
        with self._lock:
            if self._is_closed or len(self._listeners) >= MOST_LISTENERS:
                return None
            listener = Listener(self, wants, asyncio.get_running_loop())
            self._listeners = (*self._listeners, listener)
            return listener

    def leave(self, listener: Listener) -> None:
        """Tell this one nothing more."""
        with self._lock:
            self._listeners = tuple(known for known in self._listeners if known is not listener)

    def close(self) -> None:
        """End all streams."""
        with self._lock:
            self._is_closed = True
            listeners, self._listeners = self._listeners, ()
        for listener in listeners:
            listener.end()


class Listener:
    """One client that listens."""

    def __init__(self, stream: EventStream, wants: Callable[[Event], bool], loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._wants = wants
        self._loop = loop
        self._waiting: deque[Event] = deque(maxlen=MOST_WAITING)
        self._offered = 0
        self._taken = 0
        self._news = asyncio.Event()
        self._is_over = False

    def offer(self, event: Event) -> None:
        """Take an event, if it is wanted."""
        if self._wants(event):
            self._waiting.append(event)
            self._offered += 1
            self._wake()

    def end(self) -> None:
        """No more events come."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def pieces(self) -> AsyncIterator[list[dict[str, Any]]]:
        """What came since the last time; an empty list as a sign of life."""
        try:
            while not self._is_over:
                try:
                    async with asyncio.timeout(SECONDS_BETWEEN_SIGNS):
                        await self._news.wait()
                except TimeoutError:
                    yield []
                    continue
                self._news.clear()
                yield self._take()
        finally:
            self._stream.leave(self)

    def _take(self) -> list[dict[str, Any]]:
        told = []
        while self._waiting:
            told.append(event_document(self._waiting.popleft()))
        missed = self._offered - self._taken - len(told)
        self._taken = self._offered
        return [{"event": "missed", "count": missed}, *told] if missed > 0 else told


def event_document(event: Event) -> dict[str, Any]:
    """An event for programs."""
    told: dict[str, Any] = {
        "event": type(event).__name__.lower(),
        "namespace": event.namespace,
        "timestamp": event.timestamp,
    }
    if isinstance(event, Decided | Degraded | Settled):
        told |= {"entity": event.entity_id, "resource": event.resource}
    if isinstance(event, Decided):
        told |= {
            "requested": dict(event.requested),
            "granted": event.granted,
            "blocked": event.blocked,
            "waited_seconds": event.waited_seconds,
        }
        if not event.granted:
            told["violations"] = [status.as_dict() for status in event.statuses if status.refuses]
    elif isinstance(event, Settled):
        told |= {"deltas": dict(event.deltas), "error": None if event.error is None else type(event.error).__name__}
    elif isinstance(event, Degraded):
        told |= {"requested": dict(event.requested), "cause": type(event.cause).__name__}
    return told
