"""Whether an open store is one of these, for those that work on the table itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.plans.asking import Asking


def asking_of(store: Any) -> Asking | None:
    """What plans on the table of a store ask with; ``None`` if the store is no DynamoDB table."""
    asking: Asking | None = getattr(store, "asking", None)
    return asking
