"""An exact rate limiter for LLM and API platforms.

>>> from zae_limiter import Limit, SyncRateLimiter
>>> limiter = SyncRateLimiter.open("memory://")
>>> held = limiter.set_system_defaults([Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)])
>>> with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
...     lease.adjust(tpm=120)
>>> limiter.available("key-1", "gpt-4")
{'rpm': 99, 'tpm': 9380}

Names are loaded when they are first used, so importing this package costs next to nothing.
"""

from __future__ import annotations

from zae_limiter.version import __version__

TYPE_CHECKING = False  # what typing's is at run time, without the price of importing typing
if TYPE_CHECKING:
    from zae_limiter.calendars import Calendar as Calendar
    from zae_limiter.exceptions import AccessBlocked as AccessBlocked
    from zae_limiter.exceptions import ConfigurationError as ConfigurationError
    from zae_limiter.exceptions import EntityChangedError as EntityChangedError
    from zae_limiter.exceptions import EntityExistsError as EntityExistsError
    from zae_limiter.exceptions import EntityNotFoundError as EntityNotFoundError
    from zae_limiter.exceptions import LeaseExpiredError as LeaseExpiredError
    from zae_limiter.exceptions import LeaseNotFoundError as LeaseNotFoundError
    from zae_limiter.exceptions import LimitsChangedError as LimitsChangedError
    from zae_limiter.exceptions import MissingExtra as MissingExtra
    from zae_limiter.exceptions import NamespaceNotFoundError as NamespaceNotFoundError
    from zae_limiter.exceptions import RateLimiterUnavailable as RateLimiterUnavailable
    from zae_limiter.exceptions import RateLimitExceeded as RateLimitExceeded
    from zae_limiter.exceptions import RequestExceedsBurst as RequestExceedsBurst
    from zae_limiter.exceptions import StackOperationError as StackOperationError
    from zae_limiter.exceptions import ValidationError as ValidationError
    from zae_limiter.exceptions import VersionError as VersionError
    from zae_limiter.exceptions import ZAELimiterError as ZAELimiterError
    from zae_limiter.lease.lease import Lease as Lease
    from zae_limiter.lease.sync_lease import SyncLease as SyncLease
    from zae_limiter.limiter.limiter import RateLimiter as RateLimiter
    from zae_limiter.limiter.sync_limiter import SyncRateLimiter as SyncRateLimiter
    from zae_limiter.models.access import Access as Access
    from zae_limiter.models.choices import AccessMode as AccessMode
    from zae_limiter.models.choices import OnError as OnError
    from zae_limiter.models.choices import OnUnavailable as OnUnavailable
    from zae_limiter.models.choices import WindowType as WindowType
    from zae_limiter.models.entity import Entity as Entity
    from zae_limiter.models.events import Decided as Decided
    from zae_limiter.models.events import Degraded as Degraded
    from zae_limiter.models.events import Event as Event
    from zae_limiter.models.events import HoldLost as HoldLost
    from zae_limiter.models.events import HoldsRenewed as HoldsRenewed
    from zae_limiter.models.events import Observer as Observer
    from zae_limiter.models.events import Reconciled as Reconciled
    from zae_limiter.models.events import Settled as Settled
    from zae_limiter.models.events import StoreCalled as StoreCalled
    from zae_limiter.models.events import WentLocal as WentLocal
    from zae_limiter.models.holds import Hold as Hold
    from zae_limiter.models.leases import LeaseInfo as LeaseInfo
    from zae_limiter.models.level_changes import LimitsSet as LimitsSet
    from zae_limiter.models.level_changes import ReplacedLimit as ReplacedLimit
    from zae_limiter.models.limit import Limit as Limit
    from zae_limiter.models.limit_versions import limits_version as limits_version
    from zae_limiter.models.proofs import UsageChain as UsageChain
    from zae_limiter.models.proofs import UsageGap as UsageGap
    from zae_limiter.models.proofs import UsageProof as UsageProof
    from zae_limiter.models.pulse import Pulse as Pulse
    from zae_limiter.models.pulse import PulseLevel as PulseLevel
    from zae_limiter.models.pulse import PulseRow as PulseRow
    from zae_limiter.models.pulse import RefusedBy as RefusedBy
    from zae_limiter.models.reports import AuditEvent as AuditEvent
    from zae_limiter.models.reports import CacheStats as CacheStats
    from zae_limiter.models.reports import EntityCapacity as EntityCapacity
    from zae_limiter.models.reports import NamespaceInfo as NamespaceInfo
    from zae_limiter.models.reports import Page as Page
    from zae_limiter.models.reports import ResourceCapacity as ResourceCapacity
    from zae_limiter.models.reports import UsageSnapshot as UsageSnapshot
    from zae_limiter.models.reports import UsageSummary as UsageSummary
    from zae_limiter.models.reports import UsageTotal as UsageTotal
    from zae_limiter.models.status import BucketStatus as BucketStatus
    from zae_limiter.models.status import Check as Check
    from zae_limiter.models.status import EntityStatus as EntityStatus
    from zae_limiter.models.status import LimitLevel as LimitLevel
    from zae_limiter.models.status import LimitStatus as LimitStatus
    from zae_limiter.repository.repository import Repository as Repository
    from zae_limiter.repository.sync_repository import SyncRepository as SyncRepository
    from zae_limiter.stores.dynamodb.write_ids import renew_identity as renew_identity

_HOMES = {
    "calendars": ("Calendar",),
    "exceptions": (
        "AccessBlocked",
        "ConfigurationError",
        "EntityChangedError",
        "EntityExistsError",
        "EntityNotFoundError",
        "LeaseExpiredError",
        "LeaseNotFoundError",
        "LimitsChangedError",
        "MissingExtra",
        "NamespaceNotFoundError",
        "RateLimitExceeded",
        "RateLimiterUnavailable",
        "RequestExceedsBurst",
        "StackOperationError",
        "ValidationError",
        "VersionError",
        "ZAELimiterError",
    ),
    "lease.lease": ("Lease",),
    "lease.sync_lease": ("SyncLease",),
    "limiter.limiter": ("RateLimiter",),
    "limiter.sync_limiter": ("SyncRateLimiter",),
    "models.access": ("Access",),
    "models.choices": ("AccessMode", "OnError", "OnUnavailable", "WindowType"),
    "models.entity": ("Entity",),
    "models.events": (
        "Decided",
        "Degraded",
        "Event",
        "HoldLost",
        "HoldsRenewed",
        "Observer",
        "Reconciled",
        "Settled",
        "StoreCalled",
        "WentLocal",
    ),
    "models.holds": ("Hold",),
    "models.leases": ("LeaseInfo",),
    "models.level_changes": ("LimitsSet", "ReplacedLimit"),
    "models.limit": ("Limit",),
    "models.limit_versions": ("limits_version",),
    "models.proofs": ("UsageChain", "UsageGap", "UsageProof"),
    "models.pulse": ("Pulse", "PulseLevel", "PulseRow", "RefusedBy"),
    "models.reports": (
        "AuditEvent",
        "CacheStats",
        "EntityCapacity",
        "NamespaceInfo",
        "Page",
        "ResourceCapacity",
        "UsageSnapshot",
        "UsageSummary",
        "UsageTotal",
    ),
    "models.status": ("BucketStatus", "Check", "EntityStatus", "LimitLevel", "LimitStatus"),
    "repository.repository": ("Repository",),
    "repository.sync_repository": ("SyncRepository",),
    "stores.dynamodb.write_ids": ("renew_identity",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]


if not TYPE_CHECKING:  # or every misspelled name would have a type

    def __getattr__(name: str) -> object:
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
