"""What is recorded of a lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease with a record: one that has a request id, or that was detached.

    ``granted`` is what it took in the first place, ``consumed`` what of it is booked, in whole tokens per limit. It is
    ``open`` until it is settled or given back, then ``closed``; ``void`` if its work failed and all of it came back.
    """

    id: str
    token: str
    entity_id: str
    resource: str
    state: Literal["open", "closed", "void"]
    granted: Mapping[str, int]
    consumed: Mapping[str, int]
    granted_at: datetime
    expires_at: datetime
