"""Drawing while the store may be away: from the store if it answers, else from the shares of this process."""

from __future__ import annotations

from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable
from zae_limiter.local_share import WHOLE_SHARE
from zae_limiter.models.choices import AccessMode
from zae_limiter.models.events import WentLocal
from zae_limiter.repository.core import NO_FAST_PATHS, Core
from zae_limiter.repository.local_bookings import book_before, book_others, book_what_is_owed
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.protocol import Draw, Grant, Outcome, Posting, Receipt, Settlement


def draw_or_grant_locally(core: Core, draw: Draw, now: int, receipt: Receipt) -> Plan[Outcome]:
    """The outcome of a draw. What this process granted of its buckets by itself is booked before."""
    core.fast_paths = NO_FAST_PATHS  # the shares are measured by what plans draw
    try:
        if core.local.is_owed:
            yield from book_before(core, core.local.places_of(draw))
        plan = core.space.draw(draw, now) if core.limits is None else core.draw_by_own(draw, now)
        outcome = yield from plan
        if isinstance(outcome, Grant):
            receipt._grant = outcome
    except (RateLimiterUnavailable, ConfigurationError) as error:
        return _granted_locally(core, draw, error, now, receipt)
    core.local.note(draw, outcome, now)
    if core.local.is_owed or core.health.owing:
        yield from book_others(core)
    return outcome


def _granted_locally(
    core: Core, draw: Draw, error: RateLimiterUnavailable | ConfigurationError, now: int, receipt: Receipt
) -> Outcome:
    """A decision by the shares of this process. Raises the error if it knows nothing of the limits; a block holds."""
    outage = core.as_outage(error) if isinstance(error, ConfigurationError) else error
    access = core.space.remembered_access(draw.entity_id, draw.resource, now)
    if access is not None and access.mode is AccessMode.BLOCK:
        raise error
    outcome = core.local.decide(draw, now)
    if outcome is None:
        raise error
    if isinstance(outcome, Grant):
        receipt._grant = outcome
        core.health.owing.add(core)
    core.unresolved += outage.ambiguous
    core.note_failure(outage, "callers judged by local shares", f"{draw.entity_id} on {draw.resource}")
    if core.observer is not None:
        _tell(core, outage)
    return outcome


def _tell(core: Core, outage: RateLimiterUnavailable) -> None:
    """Tell of every bucket once that the process grants from it by itself, and how much."""
    for (entity_id, resource), shares in core.local.new_shares():
        parts = {name: share / WHOLE_SHARE for name, share in shares.items()}
        core.tell(WentLocal(entity_id, resource, parts, outage, *core.when()))


def settle_local(core: Core, settlement: Settlement, granted: int) -> Plan[None]:
    """Book what a lease owes that this process granted by itself: on its shares, or where these are booked already.

    It is put off where the store does not answer, and so never fails.
    """
    now = yield from READ_CLOCK
    left = core.local.settle(settlement.postings or (), granted, now)
    settlement.postings = ()
    usage = [posting._replace(holds=()) for posting in left if posting.named]
    if usage:
        core.local.put_off(usage, now)
    try:
        if usage:
            yield from book_what_is_owed(core, [posting.leg.place for posting in usage])
        slots = [Posting(posting.leg, {}, posting.holds) for posting in left if posting.holds]
        if slots:
            yield from core.call("settle", core.space.settle(slots, now))
    except (RateLimiterUnavailable, ConfigurationError) as error:
        log = core.health.settlements
        log.failed(error, "settlements put off", f"{len(left)} buckets", core.timer())
