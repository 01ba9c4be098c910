"""What names the limits of a level as they are at one moment: for changes that must not undo another client's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from zae_limiter.models.limit import Limit

ANY_LIMITS = "*"
"""As an expected version: whatever limits the level has, if it has some."""


def limits_version(limits: Iterable[Limit], on_unavailable: str | None = None) -> str:
    """The version of the limits of a level: the same for the same limits, in whichever order.

    ``on_unavailable`` is the system's policy for outages; other levels have none.
    """
    said = [limit.as_dict() for limit in sorted(limits, key=lambda limit: limit.name)]
    policy = None if on_unavailable is None else str(on_unavailable)
    return hashlib.sha256(json.dumps([said, policy], separators=(",", ":")).encode()).hexdigest()[:24]
