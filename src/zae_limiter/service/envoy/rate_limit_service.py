"""Envoy's rate limit service: what a request asks for is taken, looked at or settled, and Envoy is answered.

What the operator decides is followed: limits that only watch let through, a store that is away is followed by
``on_unavailable``. What a client can cause, like an id that is none, is refused and never an error, because Envoy
lets errors through unless it is told otherwise. What only the operator can cause (no such namespace, a store that is
set up wrongly) is an error, and Envoy's ``failure_mode_deny`` decides.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any

from zae_limiter import (
    AccessBlocked,
    LeaseNotFoundError,
    LimitStatus,
    RateLimiterUnavailable,
    RateLimitExceeded,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.service.envoy.descriptors import Demand, Descriptor, DescriptorRules, read_descriptors
from zae_limiter.service.envoy.responses import (
    Response,
    blocked,
    granted,
    not_limitable,
    nothing_to_limit,
    over_limit,
    unavailable,
)

logger = logging.getLogger("zae_limiter.envoy")

MOST_DOMAINS = 256
"""So many namespaces a process keeps at hand; the one that was used longest ago makes room."""

LOG_INTERVAL_S = 60.0
"""So often a kind of failure is logged: a line per request would bury every other line."""

LEASE_TTL_S = 3_600.0
"""How long a stream may take until its lease can no longer be settled. Then it stays charged as estimated."""


class DomainLimiters:
    """One limiter for each domain: a namespace of the same name."""

    def __init__(self, repository: SyncRepository, *, most: int = MOST_DOMAINS) -> None:
        self._repository = repository
        self._most = most
        self._limiters: OrderedDict[str, SyncRateLimiter] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, domain: str) -> SyncRateLimiter:
        """The limiter of a domain. Raises ``ValidationError`` for one that cannot be a namespace."""
        with self._lock:
            limiter = self._limiters.get(domain)
            if limiter is None:
                limiter = SyncRateLimiter(self._repository.in_namespace(domain))
                self._limiters[domain] = limiter
                if len(self._limiters) > self._most:
                    self._limiters.popitem(last=False)
            else:
                self._limiters.move_to_end(domain)
            return limiter

    def names(self) -> list[str]:
        """The domains that are at hand."""
        with self._lock:
            return list(self._limiters)


class Counts:
    """What the service did, as whole numbers: by name, since it was started. Failures are logged now and then."""

    def __init__(self, timer: Callable[[], float] = monotonic) -> None:
        self._timer = timer
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._quiet_until: dict[str, float] = {}

    def add(self, what: str, number: int = 1) -> None:
        """So many more."""
        with self._lock:
            self._numbers[what] += number

    def failed(self, what: str, error: Exception) -> None:
        """One more, with a line in the log if there was none of its kind for a minute."""
        self.add(what)
        now = self._timer()
        with self._lock:
            is_quiet = now < self._quiet_until.get(what, now)
            if not is_quiet:
                self._quiet_until[what] = now + LOG_INTERVAL_S
        if not is_quiet:
            logger.warning("%s (%d so far): %s", what.replace("_", " "), self._numbers[what], error)

    def as_dict(self) -> dict[str, int]:
        """All of them."""
        with self._lock:
            return dict(self._numbers)


class RateLimitService:
    """Answers Envoy. Threads may share it."""

    def __init__(
        self, repository: SyncRepository, *, rules: DescriptorRules | None = None, lease_ttl: float = LEASE_TTL_S
    ) -> None:
        self.counts = Counts()
        self._limiters = DomainLimiters(repository)
        self._rules = rules or DescriptorRules()
        self._lease_ttl = lease_ttl

    def answer(
        self, domain: str, descriptors: Sequence[Descriptor], hits_addend: int = 0, *, entity_prefix: str = ""
    ) -> Response:
        """What Envoy is answered. Raises only what is the operator's to correct.

        ``entity_prefix``: of which entities may be taken. Others are a ``PermissionError``, and nothing is taken.
        """
        limiter = self._limiters.of(domain)
        count = len(descriptors)
        try:
            asked = read_descriptors(domain, descriptors, hits_addend, self._rules)
        except ValidationError as error:
            self.counts.failed("refused_as_not_limitable", error)
            return not_limitable(count)
        if asked.ignored_negative:
            self.counts.add("ignored_negative_hits", asked.ignored_negative)
        if asked.ignored_overrides:
            self.counts.add("ignored_overrides", asked.ignored_overrides)
        for demand in asked.demands:
            if not demand.entity_id.startswith(entity_prefix):
                raise PermissionError(f"this token is for entities that begin with {entity_prefix}, and for no others")
        for token, actual in asked.settlements.items():
            self._settle(limiter, token, actual, entity_prefix)
        return self._admit(limiter, asked.demands, count) if asked.demands else nothing_to_limit(count)

    def domains(self) -> list[str]:
        """Those that were asked about."""
        return self._limiters.names()

    # Taking

    def _admit(self, limiter: SyncRateLimiter, demands: Sequence[Demand], count: int) -> Response:
        """Meet all demands, or none: what the first ones took is given back if a later one is refused."""
        grants: list[tuple[Demand, Sequence[LimitStatus]]] = []
        tokens: list[str] = []
        demand = demands[0]
        try:
            with ExitStack() as held:
                leases: list[SyncLease] = []
                for demand in demands:
                    lease = self._take(held, limiter, demand)
                    leases.append(lease)
                    grants.append((demand, lease.statuses))
                tokens = [
                    token
                    for demand, lease in zip(demands, leases, strict=True)
                    if (token := self._detached(demand, lease)) is not None
                ]
        except RateLimitExceeded as error:
            self.counts.add("refused")
            return over_limit(count, demand, error)
        except AccessBlocked as error:
            self.counts.add("refused_as_blocked")
            return blocked(count, demand, error)
        except RateLimiterUnavailable as error:
            self.counts.failed("refused_as_unavailable", error)
            return unavailable(count)
        except ValidationError as error:
            self.counts.failed("refused_as_not_limitable", error)
            return not_limitable(count)
        self.counts.add("let_through")
        return granted(count, grants, tokens)

    def _take(self, held: ExitStack, limiter: SyncRateLimiter, demand: Demand) -> SyncLease:
        """One acquire for a demand. Limits that are only looked at must have at least one token."""
        options = self._options(limiter, demand)
        lease = held.enter_context(limiter.acquire(demand.entity_id, demand.resource, demand.amounts, **options))
        if lease.refused_by:
            self.counts.add("let_through_by_watching_limits")
        if demand.looks:
            empty = {
                status.limit_name: 1
                for status in lease.statuses
                if status.limit_name in demand.looks and status.enforced and status.available < 1
            }
            if empty:
                # Whether that refuses is for the limiter to say: an access switch may let limits only watch.
                with limiter.acquire(demand.entity_id, demand.resource, empty, **options) as one:
                    one.release(one.consumed)
        return lease

    def _options(self, limiter: SyncRateLimiter, demand: Demand) -> dict[str, Any]:
        """The limits that Envoy sent for a demand, beside those that are stored and that it does not replace."""
        if not demand.overrides:
            return {}
        limits = dict(demand.overrides)
        if limits.keys() != demand.amounts.keys():
            try:
                found = limiter.repository.resolve_limits(demand.entity_id, demand.resource)
            except RateLimiterUnavailable:
                return {}  # the acquire will find the same, and do as on_unavailable says
            limits = {limit.name: limit for limit in found.limits or ()} | limits
        return {"limits": list(limits.values())}

    # Leases

    def _detached(self, demand: Demand, lease: SyncLease) -> str | None:
        """The token of a lease that is to be settled when the stream is done: of an estimate, or a call in flight.

        Without a store that answers there is none, and the estimate stays charged.
        """
        if not lease.consumed or not (demand.is_estimate or lease.holds):
            return None
        try:
            return lease.detach(ttl=self._lease_ttl)
        except RateLimiterUnavailable as error:
            self.counts.failed("leases_without_a_record", error)
            return None

    def _settle(
        self, limiter: SyncRateLimiter, token: str, actual: Mapping[str, int], entity_prefix: str = ""
    ) -> None:
        """Settle a lease to what was used of the limits that it took. What fails stays charged as estimated."""
        try:
            if entity_prefix and not limiter.get_lease(token).entity_id.startswith(entity_prefix):
                raise LeaseNotFoundError(token)
            with limiter.resume(token) as lease:
                taken = lease.consumed
                used = {name: amount for name, amount in actual.items() if name in taken}
                outcome = "leases_settled" if used else "leases_ended"
                if lease.already_settled:
                    outcome = "leases_settled_before"
                else:
                    lease.settle(used)
            self.counts.add(outcome)
        except (LeaseNotFoundError, ValidationError) as error:
            self.counts.failed("leases_not_found", error)
        except ZAELimiterError as error:
            self.counts.failed("leases_not_settled", error)
