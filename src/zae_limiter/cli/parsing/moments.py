"""A point in time as people type it: a date, a date and time (UTC), or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.moments import at, milliseconds_at

MILLISECONDS = {"sec": 1_000, "min": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}

_AGO = re.compile(r"([0-9]{1,6}) ?(sec|min|hour|day|week)s?(?: ago)?")


def parse_moment(text: str, now_ms: int, field: str) -> datetime:
    """The moment, in UTC. Raises ``ValidationError``, which shows the right forms."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return at(max(now_ms - int(ago[1]) * MILLISECONDS[ago[2]], 0))
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if milliseconds_at(moment) < 0:
            raise ValueError("before 1970")
        return moment
    except (ValueError, OverflowError):
        reason = "must be a date (2026-01-31), a time in UTC (2026-01-31T12:00), or an age (90min, 24hours, 7days)"
        raise ValidationError(field, text, reason) from None
