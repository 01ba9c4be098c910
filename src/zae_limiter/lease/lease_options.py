"""What an acquire may be told besides what it takes: options, and the record of its lease."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zae_limiter.models.choices import OnError, OnUnavailable, check_choice
from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.repository.arguments import check_seconds


class LeaseOptions:
    """The options of an acquire, or of resuming a lease. Few callers give any."""

    __slots__ = ("identity", "limits", "on_error", "on_unavailable", "timeout_ms")

    def __init__(
        self,
        limits: tuple[Limit, ...] | None,
        timeout_ms: int,
        on_unavailable: OnUnavailable | None,
        on_error: OnError,
        identity: LeaseIdentity | None = None,
    ) -> None:
        self.limits = limits
        self.timeout_ms = timeout_ms
        self.on_unavailable = on_unavailable
        self.on_error = on_error
        self.identity = identity


class LeaseIdentity(NamedTuple):
    """The record under which a lease is to be granted once, or that it goes on with (``is_resumed``).

    ``writer`` is what this lease signs its record with: no two have the same.
    """

    record_id: str
    writer: str
    lifetime_ms: int = 0
    is_resumed: bool = False


KEEP = OnError.KEEP  # looked up once: an enum is slow to ask

DEFAULT_OPTIONS = LeaseOptions(None, 0, None, OnError.REFUND)


def lease_options(
    limits: Iterable[Limit] | None,
    timeout: float,
    on_unavailable: OnUnavailable | str | None,
    on_error: OnError | str,
    identity: LeaseIdentity | None = None,
) -> LeaseOptions:
    """The checked options of an acquire."""
    policy = None
    if on_unavailable is not None:
        policy = check_choice(OnUnavailable, on_unavailable, "on_unavailable")
    return LeaseOptions(
        None if limits is None else check_limits(limits),
        round(check_seconds(timeout, "timeout") * 1000),
        policy,
        check_choice(OnError, on_error, "on_error"),
        identity,
    )
