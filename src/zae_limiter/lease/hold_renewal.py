"""Renewing the slots of calls in flight, as a plan."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.models.events import HoldLost, HoldsRenewed
from zae_limiter.models.holds import Hold
from zae_limiter.repository.core import Core
from zae_limiter.running.plan import READ_CLOCK, Plan


def renew_holds(core: Core, holds: Sequence[Hold]) -> Plan[None]:
    """Renew what is held, and tell the observer; also what was lost meanwhile."""
    now = yield from READ_CLOCK
    before = [(hold, hold.amount) for hold in holds]
    lost = yield from core.call("renew", core.space.renew(holds, now))
    if core.observer is None:
        return
    slots: dict[tuple[str, str], dict[str, int]] = {}
    for hold, amount in before:
        if hold in lost:
            taken_again = hold.amount > 0
            core.tell(HoldLost(hold.entity_id, hold.resource, hold.limit_name, amount, taken_again, *core.when()))
        elif hold.amount:
            renewed = slots.setdefault((hold.entity_id, hold.resource), {})
            renewed[hold.limit_name] = renewed.get(hold.limit_name, 0) + hold.amount
    for (entity_id, resource), renewed in slots.items():
        core.tell(HoldsRenewed(entity_id, resource, renewed, *core.when()))
