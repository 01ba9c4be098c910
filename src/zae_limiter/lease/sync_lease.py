"""The lease of a thread."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from zae_limiter.exceptions import LeaseExpiredError
from zae_limiter.lease.base import DEFAULT_OPTIONS, LeaseBase, LeaseOptions
from zae_limiter.repository.core import Core
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.running.twins import returned


class SyncLease(LeaseBase):
    """Tokens held for the length of a ``with`` block. Made by ``SyncRateLimiter.acquire``."""

    __slots__ = ("_driver",)

    def __init__(
        self,
        core: Core,
        driver: SyncDriver,
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

    adjust = returned(LeaseBase._adjust)
    settle = returned(LeaseBase._settle)
    consume = returned(LeaseBase._consume_more)
    release = returned(LeaseBase._release)
    flush = returned(LeaseBase._flush)
    commit = returned(LeaseBase._commit)

    def __enter__(self) -> Self:
        if self._grant is not None or self._ledger is not None:
            raise LeaseExpiredError("a lease can be entered once; call acquire() again")
        core = self._core
        try:
            if (
                self._options is DEFAULT_OPTIONS
                and not core.lines
                and core.observer is None
                and core.space.draw_at_once(self._entity_id, self._resource, self._consume, core.clock(), self)
            ):
                self._open = True
            else:
                self._driver.run(self._begin())
            return self
        except BaseException:
            if self._grant is not None:
                self._driver.run(self._end(failed=True), to_the_end=True)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._ledger is None:
            self._open = False
        else:
            self._driver.run(self._end(failed=kind is not None), to_the_end=True)
