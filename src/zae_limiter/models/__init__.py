"""Plain values: what callers give and get. No behaviour beyond their own validity.

All of them are also in :mod:`zae_limiter` itself. Names are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what typing's is at run time, without the price of importing typing
if TYPE_CHECKING:
    from zae_limiter.models.choices import OnError as OnError
    from zae_limiter.models.choices import OnUnavailable as OnUnavailable
    from zae_limiter.models.choices import WindowType as WindowType
    from zae_limiter.models.entity import Entity as Entity
    from zae_limiter.models.events import Decided as Decided
    from zae_limiter.models.events import Degraded as Degraded
    from zae_limiter.models.events import Event as Event
    from zae_limiter.models.events import Observer as Observer
    from zae_limiter.models.events import Reconciled as Reconciled
    from zae_limiter.models.events import Settled as Settled
    from zae_limiter.models.events import StoreCalled as StoreCalled
    from zae_limiter.models.events import WentLocal as WentLocal
    from zae_limiter.models.limit import Limit as Limit
    from zae_limiter.models.proofs import UsageChain as UsageChain
    from zae_limiter.models.proofs import UsageGap as UsageGap
    from zae_limiter.models.proofs import UsageProof as UsageProof
    from zae_limiter.models.reports import AuditEvent as AuditEvent
    from zae_limiter.models.reports import CacheStats as CacheStats
    from zae_limiter.models.reports import EntityCapacity as EntityCapacity
    from zae_limiter.models.reports import NamespaceInfo as NamespaceInfo
    from zae_limiter.models.reports import Page as Page
    from zae_limiter.models.reports import ResourceCapacity as ResourceCapacity
    from zae_limiter.models.reports import UsageSnapshot as UsageSnapshot
    from zae_limiter.models.reports import UsageSummary as UsageSummary
    from zae_limiter.models.status import BucketStatus as BucketStatus
    from zae_limiter.models.status import Check as Check
    from zae_limiter.models.status import EntityStatus as EntityStatus
    from zae_limiter.models.status import LimitLevel as LimitLevel
    from zae_limiter.models.status import LimitStatus as LimitStatus
else:

    def __getattr__(name: str) -> object:
        if not name.startswith("_"):
            import zae_limiter

            home = zae_limiter._HOME_OF.get(name, "")
            if home.startswith("models."):
                return getattr(zae_limiter, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
