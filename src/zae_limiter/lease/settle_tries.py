"""How often, and for how long, a lease tries to write what it owes."""

from __future__ import annotations

from zae_limiter.running.plan import READ_TIMER, Pause, Plan

SETTLE_PAUSES_MS = (20, 100)
"""Between the tries to write what a finished lease owes."""

PAUSES_MS = (0, *SETTLE_PAUSES_MS)

SETTLE_RETRIES_MS = 1_000
"""No further try after this long: the caller's work is done, and it wants to go on."""


def may_try(pause: int, started: int) -> Plan[bool]:
    """Pause before another try. ``False``: the first began too long ago, and nothing was waited for."""
    if (yield from READ_TIMER) - started > SETTLE_RETRIES_MS:
        return False
    yield from Pause(pause)
    return True
