"""Booking what a process granted by itself while the store was away, as plans.

It is booked before the next draw from the same bucket; of other buckets by the first call that is answered; and when
the store is closed. A process that ends without it leaves a loss: at most what its shares allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable
from zae_limiter.models.events import Reconciled
from zae_limiter.repository.core import Core
from zae_limiter.repository.local_buckets import Booking
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.protocol import BucketPlace

logger = logging.getLogger("zae_limiter")

NO_RECORD = "_local:none"
"""The id of no record: reading it tells whether the store answers."""

SWEPT_AT_ONCE = 100
"""So many other buckets a call that is answered books along."""


def book_what_is_owed(core: Core, places: Iterable[BucketPlace] | None = None, most: int | None = None) -> Plan[None]:
    """Book what is owed by these buckets, or by all; at most so many. Raises why the store could not be asked.

    What a booking takes is computed once, and refill goes on while the store is away. So the store is asked for
    something harmless before.
    """
    booked = 0
    places = None if places is None else list(places)
    if core.local.owes(places):
        now = yield from READ_CLOCK
        yield from core.call("lease_record", core.space.lease_record(NO_RECORD, now))
    while True:
        now = yield from READ_CLOCK
        booking = core.local.next_booking(places, now)
        if booking is None:
            return
        yield from _book(core, booking, now)
        booked += len(booking.places)
        if most is not None and booked >= most:
            return


def _book(core: Core, booking: Booking, now: int) -> Plan[None]:
    """Book one, or leave it as it is for the next try. What can never be booked is let go."""
    is_over = True
    try:
        settle = core.space.settle(booking.postings, now, booking.settlement())
        yield from core.call("settle", settle)
    except (RateLimiterUnavailable, ConfigurationError):
        is_over = False
        raise
    except Exception as error:
        core.unresolved += 1
        logger.error("what was granted from local shares cannot be booked (%s): %s", booking.postings, error)
    except BaseException:
        is_over = False  # an interrupt: the record says later whether it was booked
        raise
    else:
        for posting in booking.postings:
            granted, taken = _tokens(posting.counted_milli), _tokens(posting.deltas_milli)
            core.tell(Reconciled(*posting.leg.place, granted, taken, *core.when()))
    finally:
        core.local.finished(booking, is_over=is_over)
    if any(hold.amount for hold in booking.holds):
        yield from core.call("renew", core.space.renew(booking.holds, now))


def _tokens(milli: Mapping[str, int]) -> dict[str, int]:
    return {name: amount // MILLI for name, amount in milli.items()}


def book_others(core: Core) -> Plan[None]:
    """Book what is owed by buckets that no call may come to soon. If that fails, later."""
    local = core.local
    if local.is_sweeping:
        return
    local.is_sweeping = True
    try:
        yield from book_what_is_owed(core, None, SWEPT_AT_ONCE)
    except (RateLimiterUnavailable, ConfigurationError) as error:
        logger.debug("what was granted from local shares is not all booked yet: %s", error)
    finally:
        local.is_sweeping = False


def book_at_close(core: Core) -> Plan[None]:
    """Book everything that is owed, or say what is lost."""
    try:
        yield from book_what_is_owed(core)
    except Exception as error:
        unbooked = core.local.unbooked()
        core.unresolved += 1
        logger.warning("what was granted from local shares is not booked, %s: %s", dict(unbooked), error)
