"""Booking what a process granted by itself while the store was away, as plans.

It is booked before the next draw from the same bucket; of other buckets by the first call that is answered; and when
the store is closed. A process that ends without it leaves a loss: at most what its shares allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable
from zae_limiter.models.events import Reconciled
from zae_limiter.models.holds import Hold
from zae_limiter.repository.core import Core
from zae_limiter.repository.local_buckets import LOST_LIFE, Booking
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.protocol import BucketPlace

logger = logging.getLogger("zae_limiter")

NO_RECORD = "_local:none"
"""The id of no record: reading it tells whether the store answers."""

SWEPT_AT_ONCE = 100
"""So many other buckets a call that is answered books along."""


def book_what_is_owed(
    core: Core,
    places: Iterable[BucketPlace] | None = None,
    most: int | None = None,
    tried: set[Booking] | None = None,
) -> Plan[None]:
    """Book what is owed by these buckets, or by all; at most so many. Raises why the store could not be asked.

    What a booking takes is computed once, and refill goes on while the store is away. So the store is asked for
    something harmless before. With ``tried`` what another caller is at is booked, too.
    """
    booked = 0
    places = None if places is None else list(places)
    if core.local.owes(places):
        now = yield from READ_CLOCK
        yield from core.call("lease_record", core.space.lease_record(NO_RECORD, now))
    while True:
        now = yield from READ_CLOCK
        booking = core.local.next_booking(places, now, tried)
        if booking is None:
            return
        if tried is not None:
            tried.add(booking)
        yield from _book(core, booking, now)
        booked += len(booking.places)
        if most is not None and booked >= most:
            return


def _book(core: Core, booking: Booking, now: int) -> Plan[None]:
    """Book one, or leave it as it is for the next try. What can never be booked is let go."""
    is_booked = is_doubtful = False
    is_over = True
    try:
        settlement = booking.settlement(now)
        if settlement is None:
            raise TimeoutError("no answer came before its record expired, so it may have been booked")
        yield from core.call("settle", core.space.settle(booking.postings, now, settlement))
        is_booked = True
    except (RateLimiterUnavailable, ConfigurationError) as error:
        is_over, is_doubtful = False, getattr(error, "ambiguous", False)
        raise
    except Exception as error:
        core.unresolved += 1
        logger.error("what was granted from local shares cannot be booked (%s): %s", booking.postings, error)
    except BaseException:
        is_over, is_doubtful = False, True  # an interrupt: the record says later whether it was booked
        raise
    finally:
        core.local.finished(booking, is_booked=is_booked, is_over=is_over, is_doubtful=is_doubtful)
    for posting in booking.postings if is_booked else ():
        granted, taken = _tokens(posting.counted_milli), _tokens(posting.deltas_milli)
        core.tell(Reconciled(*posting.leg.place, granted, taken, *core.when()))
    yield from _take_again(core, booking.holds, now)


def _take_again(core: Core, holds: Sequence[Hold], now: int) -> Plan[None]:
    """Let the store lend the slots that leases still hold which this process lent."""
    if not any(hold.amount for hold in holds):
        return
    try:
        yield from core.call("renew", core.space.renew(holds, now))
    except (RateLimiterUnavailable, ConfigurationError):
        raise
    except Exception as error:
        core.unresolved += 1
        logger.error("slots that were lent locally cannot be taken (%s): %s", holds, error)
        for hold in holds:
            hold.life = LOST_LIFE


def _tokens(milli: Mapping[str, int]) -> dict[str, int]:
    return {name: amount // MILLI for name, amount in milli.items()}


def book_before(core: Core, places: Iterable[BucketPlace]) -> Plan[None]:
    """Book what the buckets of a draw owe. Raises why the store is away; one that only refuses to book is drawn from
    all the same, else this process would be local for ever."""
    try:
        yield from book_what_is_owed(core, places)
    except ConfigurationError as error:
        core.health.settlements.failed(error, "local grants not booked", f"{core.local.unbooked()}", core.timer())


def book_others(core: Core) -> Plan[None]:
    """Book what is owed by buckets that no call may come to soon, of every namespace. If that fails, later."""
    for owing in (core, *core.health.owing):
        if owing.local.is_owed and not owing.local.is_sweeping:
            yield from _sweep(owing)
        if not owing.local.is_owed:
            core.health.owing.discard(owing)


def _sweep(core: Core) -> Plan[None]:
    local = core.local
    local.is_sweeping = True
    try:
        yield from book_what_is_owed(core, None, SWEPT_AT_ONCE)
        local.forget_idle((yield from READ_CLOCK))
    except (RateLimiterUnavailable, ConfigurationError) as error:
        logger.debug("what was granted from local shares is not all booked yet: %s", error)
    finally:
        local.is_sweeping = False


def book_at_close(core: Core) -> Plan[None]:
    """Book everything that is owed, in every namespace, or say what is lost."""
    for owing in {core, *core.health.owing}:
        try:
            yield from book_what_is_owed(owing, tried=set())
        except Exception as error:
            unbooked = owing.local.unbooked()
            core.unresolved += 1
            logger.warning("what was granted from local shares is not booked, %s: %s", dict(unbooked), error)
