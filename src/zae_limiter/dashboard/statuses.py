"""What a call would meet, as the page shows it: legs, and in each its limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zae_limiter import Check, LimitStatus
from zae_limiter.manifests.limit_syntax import format_limit, period_of

NEAR_PERMILLE = 800
GATE = "gate"
"""The limit that is in debt for as long as a provider pauses its callers (``zae_limiter.llm``)."""


def used_permille(status: LimitStatus) -> int:
    """How much of a limit is used, in thousandths of its burst; above 1000 in debt."""
    return 1000 - 1000 * status.available // status.capacity


def status_document(status: LimitStatus) -> dict[str, Any]:
    """One limit of one leg: what it has, what it lacks, where it was set, and when it fits again."""
    limit = status.limit
    wait = status.retry_after_seconds
    return {
        "name": status.limit_name,
        "word": format_limit(limit),
        "amount": limit.burst if limit.refill_amount == 0 else limit.refill_amount,
        "period": period_of(limit),
        "burst": limit.burst,
        "available": status.available,
        "used_permille": used_permille(status),
        "requested": status.requested,
        "lacks": max(status.requested - status.available, 0) if status.exceeded else 0,
        "refuses": status.refuses,
        "wait_seconds": wait,
        "at_latest": status.at_latest,
        "source": status.source,
        "enforced": status.enforced,
        "in_flight": limit.hold_seconds is not None,
        "resets_at": None if status.resets_at is None else status.resets_at.isoformat(),
        "seconds_to_full": status.seconds_to_full,
    }


def legs_of(statuses: Sequence[LimitStatus]) -> list[dict[str, Any]]:
    """The limits by the leg that they are of, the caller's own first."""
    legs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for status in statuses:
        legs.setdefault((status.entity_id, status.resource), []).append(status_document(status))
    return [{"entity": place[0], "resource": place[1], "limits": limits} for place, limits in legs.items()]


def tightest(statuses: Iterable[LimitStatus]) -> LimitStatus | None:
    """The limit of which the largest part is used: the next to bind. Gates are no limits of the caller."""
    bearing = (status for status in statuses if status.enforced and status.limit_name != GATE)
    return max(bearing, key=used_permille, default=None)


def binding_of(check: Check) -> LimitStatus | None:
    """The limit that a row is about: the one that refuses, else the tightest."""
    return check.binding or tightest(check.statuses)


def check_document(check: Check) -> dict[str, Any]:
    """Whether a call would fit, and what binds."""
    binding = binding_of(check)
    return {
        "fits": check.fits,
        "wait_seconds": check.wait_seconds,
        "binding": None if binding is None else {"entity": binding.entity_id, **status_document(binding)},
        "access": None if check.access is None else str(check.access.mode),
        "legs": legs_of(check.statuses),
    }
