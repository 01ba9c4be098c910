"""A store of things and a plan that takes them, for the tests of the drivers."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

from zae_limiter.running.plan import UNKNOWN, Interrupted, Plan, Request


class Take(Request[str]):
    """Take one thing from the shelf."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class GiveBack(Request[None]):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Shelf:
    """A store of things, for both worlds. ``interrupt_at`` says where the world breaks in."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.steps = 0
        self.interrupts: dict[int, BaseException] = {}
        self.started = asyncio.Event()

    def perform(self, request: Request[Any]) -> Any:
        self.steps += 1
        interrupt = self.interrupts.pop(self.steps, None)
        if isinstance(request, Take):
            if interrupt is not None:
                raise interrupt
            if request.name == "broken":
                raise OSError("broken")
            self.taken.append(request.name)
            return f"got {request.name}"
        if isinstance(request, GiveBack):
            if interrupt is not None:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                time.sleep(0.02)
            self.taken.remove(request.name)
        return None

    async def perform_async(self, request: Request[Any]) -> Any:
        self.started.set()
        await asyncio.sleep(0.002)
        reply = self.perform(request)
        await asyncio.sleep(0.002)
        return reply


def take_all(*names: str) -> Plan[list[str]]:
    """Take several things one by one; if that does not work out, give all of them back."""
    taken: list[str] = []
    try:
        for name in names:
            try:
                yield from Take(name)
            except Interrupted as stop:
                if stop.error is None and stop.reply is not UNKNOWN:
                    taken.append(name)
                raise
            taken.append(name)
        return taken
    except BaseException:
        for name in reversed(taken):
            yield from GiveBack(name)
        raise
