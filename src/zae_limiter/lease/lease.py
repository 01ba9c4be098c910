"""The lease of a task."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from zae_limiter.exceptions import LeaseExpiredError
from zae_limiter.lease.admission import refusal
from zae_limiter.lease.lease_base import DEFAULT_OPTIONS, LeaseBase
from zae_limiter.running.sync_async import async_method


class Lease(LeaseBase):
    """Tokens held for the length of an ``async with`` block. Made by ``RateLimiter.acquire``."""

    __slots__ = ()

    adjust = async_method(LeaseBase._adjust, to_the_end=True)
    settle = async_method(LeaseBase._settle, to_the_end=True)
    consume = async_method(LeaseBase._consume_more)
    release = async_method(LeaseBase._release, to_the_end=True)
    flush = async_method(LeaseBase._flush, to_the_end=True)
    commit = async_method(LeaseBase._commit, to_the_end=True)

    async def __aenter__(self) -> Self:
        if self._grant is not None or self._ledger is not None:
            raise LeaseExpiredError("a lease can be entered once; call acquire() again")
        core = self._limiter._core
        try:
            if self._options is DEFAULT_OPTIONS and not core.waiters:
                try:
                    fast_path = core.fast_paths[self._entity_id, self._resource]
                except (KeyError, TypeError):
                    pass  # never granted yet, or not even hashable: the plan resolves it, or says what is wrong
                else:
                    drawn = fast_path.draw(self._consume, core.clock(), self)
                    if drawn is True:
                        self._open = True
                        return self
                    if drawn:
                        raise refusal(drawn)
            await self._limiter._driver.run(self._begin())
            return self
        except GeneratorExit:
            raise
        except BaseException:
            if self._grant is not None:
                await self._driver.run(self._end(failed=True), to_the_end=True)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._ledger is None:
                self._open = False
            else:
                await self._driver.run(self._end(failed=kind is not None), to_the_end=True)
        except GeneratorExit:
            raise  # the loop is gone: nothing can be awaited any more
        except BaseException:
            await self._driver.run(self._end(failed=kind is not None), to_the_end=True)  # what is left of it
            raise
