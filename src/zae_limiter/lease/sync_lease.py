"""The lease of a thread."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from zae_limiter.exceptions import LeaseExpiredError
from zae_limiter.lease.admission import refusal
from zae_limiter.lease.lease_base import LeaseBase
from zae_limiter.lease.lease_ids import new_record_id, new_writer
from zae_limiter.lease.lease_options import DEFAULT_OPTIONS
from zae_limiter.lease.recorded_ledger import DEFAULT_LIFETIME_S, MAX_LIFETIME_S
from zae_limiter.repository.arguments import check_seconds
from zae_limiter.running.sync_async import sync_method
from zae_limiter.stores.protocol import Denial, Grant


class SyncLease(LeaseBase):
    """Tokens held for the length of a ``with`` block. Made by ``SyncRateLimiter.acquire``."""

    __slots__ = ()

    consume = sync_method(LeaseBase._consume_more)
    flush = sync_method(LeaseBase._flush, to_the_end=True)
    commit = sync_method(LeaseBase._commit, to_the_end=True)
    close = sync_method(LeaseBase._close, to_the_end=True)
    renew = sync_method(LeaseBase._renew, to_the_end=True)

    def adjust(self, deltas: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Correct what was consumed: ``adjust(tpm=used - estimated)``, or ``adjust({"tpm": …})``.

        Never raises for lack of tokens; may go into debt, which refill repays. Written at the end of the
        ``with`` block (or by :meth:`flush`). Raises ``ValidationError`` for a name that no level and no ancestor
        knows, and for giving back more than the lease took.
        """
        ledger = self._open_ledger()
        if ledger.adjust(named if deltas is None else {**deltas, **named}, self._limiter._core.timer()):
            self._driver.run(self._flush_old(), to_the_end=True)

    def settle(self, actual: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Say what was really used in all: ``settle(tpm=used)``. What is settled survives errors."""
        ledger = self._open_ledger()
        if ledger.settle(named if actual is None else {**actual, **named}, self._limiter._core.timer()):
            self._driver.run(self._flush_old(), to_the_end=True)

    def release(self, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Give back part of what was taken: ``release(tpm=200)``."""
        ledger = self._open_ledger()
        if ledger.release(named if amounts is None else {**amounts, **named}, self._limiter._core.timer()):
            self._driver.run(self._flush_old(), to_the_end=True)

    def detach(self, *, ttl: float = DEFAULT_LIFETIME_S) -> str:
        """End the block without ending the lease; the token that ``limiter.resume()`` goes on with, anywhere.

        Pending adjustments are written. Whatever happens to the block, what was taken stays taken until the lease is
        resumed. If that does not happen within ``ttl`` seconds the charge stays. The token carries no amounts; a
        process that has it and may use the namespace can settle the lease, once.
        """
        lifetime_ms = round(check_seconds(ttl, "ttl", MAX_LIFETIME_S) * 1000)
        token: str = self._driver.run(self._detach(new_record_id(), new_writer(), lifetime_ms), to_the_end=True)
        return token

    def __enter__(self) -> Self:
        if self._grant is not None or self._ledger is not None:
            raise LeaseExpiredError("a lease can be entered once; call acquire() again")
        core = self._limiter._core
        drawn: bool | Denial = False
        try:
            if self._options is DEFAULT_OPTIONS and not core.waiters:
                try:
                    fast_path = core.fast_paths[self._entity_id, self._resource]
                except (KeyError, TypeError):
                    pass  # never granted yet, or not even hashable: the plan resolves it, or says what is wrong
                else:
                    drawn = (
                        fast_path.draw(self._consume, core.clock(), self)
                        if core.observer is None
                        else self._drawn_observed(core, fast_path)
                    )
            if drawn is True:
                self._open = self._keep_holds(fast_path) if fast_path.lends else fast_path.shared_mark.mark
                return self
            if drawn is False:
                self._limiter._driver.run(self._begin())
                return self
            denial = drawn
        except BaseException:
            if self._grant is not None:
                self._driver.run_sheltered(self._end(failed=True))
            raise
        raise refusal(denial)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            grant: Any = self._grant
            lends = grant[0].lends if grant.__class__ is tuple else isinstance(grant, Grant) and grant.holds
            if kind is None and self._ledger is None and not (lends and self._must_give_back()):
                self._open = False
            elif not self._end_at_once(kind is not None):
                self._limiter._driver.run(self._end(failed=kind is not None), to_the_end=True)
        except BaseException:
            self._driver.run_sheltered(self._end(failed=kind is not None))  # what is left of it
            raise
