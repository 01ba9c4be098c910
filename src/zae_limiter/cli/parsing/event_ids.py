"""The ids of audit events, as somebody types them."""

from __future__ import annotations

import re

from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.audit_events import DIGITS, moment_of

_FORM = re.compile(rf"[0-7][{DIGITS}]{{9,25}}")


def moment_typed(event_id: str) -> int:
    """When an event happened, in milliseconds since the epoch, from its id or the beginning of it, in either case.

    Raises ``ValidationError``.
    """
    digits = event_id.upper()
    if not _FORM.fullmatch(digits):
        raise ValidationError("event", event_id, "must be the letters and digits that 'audit list' shows")
    return moment_of(digits)
