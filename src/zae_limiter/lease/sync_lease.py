"""The lease of a thread."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from zae_limiter.exceptions import LeaseExpiredError
from zae_limiter.lease.admission import refusal
from zae_limiter.lease.lease_base import DEFAULT_OPTIONS, LeaseBase
from zae_limiter.running.sync_async import sync_method


class SyncLease(LeaseBase):
    """Tokens held for the length of a ``with`` block. Made by ``SyncRateLimiter.acquire``."""

    __slots__ = ()

    adjust = sync_method(LeaseBase._adjust, to_the_end=True)
    settle = sync_method(LeaseBase._settle, to_the_end=True)
    consume = sync_method(LeaseBase._consume_more)
    release = sync_method(LeaseBase._release, to_the_end=True)
    flush = sync_method(LeaseBase._flush, to_the_end=True)
    commit = sync_method(LeaseBase._commit, to_the_end=True)

    def __enter__(self) -> Self:
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
            self._limiter._driver.run(self._begin())
            return self
        except BaseException:
            if self._grant is not None:
                self._driver.run_sheltered(self._end(failed=True))
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._ledger is None:
                self._open = False
            else:
                self._driver.run(self._end(failed=kind is not None), to_the_end=True)
        except BaseException:
            self._driver.run_sheltered(self._end(failed=kind is not None))  # what is left of it
            raise
