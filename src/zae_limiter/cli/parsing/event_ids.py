"""The ids of audit events: they begin with the moment, in Crockford's base 32."""

from __future__ import annotations

import re

from zae_limiter.exceptions import ValidationError

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_FORM = re.compile(rf"[0-7][{_DIGITS}]{{9,25}}")
_MOMENT_DIGITS = 10


def moment_of(event_id: str) -> int:
    """When an event happened, in milliseconds since the epoch, from its id or the beginning of it.

    Raises ``ValidationError``.
    """
    if not _FORM.fullmatch(event_id):
        raise ValidationError("event", event_id, "must be the letters and digits that 'audit list' shows")
    milliseconds = 0
    for digit in event_id[:_MOMENT_DIGITS]:
        milliseconds = milliseconds * 32 + _DIGITS.index(digit)
    return milliseconds
