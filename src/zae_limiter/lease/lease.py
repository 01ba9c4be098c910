"""The lease of a task."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from zae_limiter.exceptions import LeaseExpiredError
from zae_limiter.lease.base import DEFAULT_OPTIONS, LeaseBase, LeaseOptions
from zae_limiter.repository.core import Core
from zae_limiter.running.async_driver import AsyncDriver
from zae_limiter.running.twins import awaited


class Lease(LeaseBase):
    """Tokens held for the length of an ``async with`` block. Made by ``RateLimiter.acquire``."""

    __slots__ = ("_driver",)

    def __init__(
        self,
        core: Core,
        driver: AsyncDriver,
        entity_id: str,
        resource: str,
        consume: Mapping[str, int],
        options: LeaseOptions,
    ) -> None:
        self._core = core
        self._driver = driver
        self._entity_id = entity_id
        self._resource = resource
        self._consume = consume
        self._options = options
        self._grant = None
        self._ledger = None
        self._open = False

    adjust = awaited(LeaseBase._adjust)
    settle = awaited(LeaseBase._settle)
    consume = awaited(LeaseBase._consume_more)
    release = awaited(LeaseBase._release)
    flush = awaited(LeaseBase._flush)
    commit = awaited(LeaseBase._commit)

    async def __aenter__(self) -> Self:
        if self._grant is not None or self._ledger is not None:
            raise LeaseExpiredError("a lease can be entered once; call acquire() again")
        core = self._core
        if (
            self._options is DEFAULT_OPTIONS
            and not core.lines
            and core.observer is None
            and core.space.draw_at_once(self._entity_id, self._resource, self._consume, core.clock(), self)
        ):
            self._open = True
        else:
            await self._driver.run(self._begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._ledger is None:
            self._open = False
        else:
            await self._driver.run(self._end(failed=kind is not None), to_the_end=True)
