"""What a repository, its limiter and its leases share."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable, ValidationError
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.events import Event, Observer, StoreCalled
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.naming import DEFAULT_NAMESPACE, check_namespace
from zae_limiter.repository.arguments import check_policy, check_seconds, check_share
from zae_limiter.repository.early_returns import EarlyReturns
from zae_limiter.repository.local_buckets import LocalBuckets
from zae_limiter.repository.outage_log import OutageLog
from zae_limiter.repository.pulse_writer import PulseWriter
from zae_limiter.repository.wait_queue import wait_queue_of
from zae_limiter.running.clocks import Clock, Stopwatch, machine_clock, stopwatch_of, timer_of
from zae_limiter.running.plan import Plan
from zae_limiter.stores.open_store import open_store, without_pulse
from zae_limiter.stores.protocol import BucketPlace, Draw, FastPath, Look, Outcome, Store

Result = TypeVar("Result")

logger = logging.getLogger("zae_limiter")

DEFAULT_DEADLINE = 2.0

NO_FAST_PATHS: Mapping[tuple[str, str], FastPath] = {}
"""Those of a core that does not know whether its store answers acquires: the next one goes the way that notes it."""

CHANGES = frozenset(
    {"create_entity", "delete_config", "delete_entity", "draw", "reset", "set_config", "settle", "update_entity"}
)
"""Verbs whose answers show that acquires can be answered too. A client may be allowed to read, and not to write."""


class StoreHealth:
    """What a process knows of how its store does, whatever the namespace."""

    __slots__ = ("acquires", "has_answered", "owing", "settlements")

    def __init__(self) -> None:
        self.owing: set[Core] = set()
        """The namespaces in which the process granted by itself while the store was away, until that is booked."""
        self.has_answered = False
        """Whether it has granted, denied or written anything: then it is set up rightly."""
        self.acquires = OutageLog()
        self.settlements = OutageLog(logging.ERROR)


class Keeper(Protocol):
    """Renews the slots of calls in flight that last long."""

    def keep(self, holds: Iterable[Hold]) -> None:
        """Renew these from now on."""

    def let_go(self, holds: Iterable[Hold]) -> None:
        """Renew these no longer."""

    def close(self) -> None:
        """Renew none any more."""


class Core:
    """One namespace of one store, as seen by one process."""

    __slots__ = (
        "clock",
        "early_returns",
        "fast_paths",
        "given_observer",
        "health",
        "keep_holds",
        "keeper",
        "limits",
        "local",
        "local_share",
        "namespace",
        "observer",
        "on_unavailable",
        "open_leases",
        "pulse_writer",
        "space",
        "stopwatch",
        "store",
        "timer",
        "unresolved",
        "wait_queue",
        "waiters",
    )

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        clock: Clock | None = None,
        observer: Observer | None = None,
        health: StoreHealth | None = None,
        keep_holds: bool = True,
        limits: Iterable[Limit] | None = None,
        pulse_writer: PulseWriter | None = None,
        on_unavailable: OnUnavailable | str | None = None,
        local_share: float | None = None,
    ) -> None:
        self.store = store
        self.on_unavailable = check_policy(on_unavailable)
        """What an acquire that does not say it does while the store is away; ``None``: as is stored."""
        self.local_share = local_share
        self.local = LocalBuckets(check_share(local_share))
        self.limits = None if limits is None else check_limits(limits)
        """Those of an entity and resource for which no level has any: of this client alone, and stored nowhere."""
        self.health = health or StoreHealth()
        self.keep_holds = keep_holds
        self.keeper: Keeper | None = None
        self.namespace = check_namespace(namespace)
        self.clock = check_clock(clock)
        self.timer = timer_of(self.clock)
        self.stopwatch: Stopwatch = stopwatch_of(self.clock)
        if observer is not None and not callable(observer):
            raise ValidationError("observer", observer, "must be callable with one event")
        self.space = store.space(namespace, corrected=self.clock is machine_clock)
        self.pulse_writer = pulse_writer
        self.given_observer = self.observer = observer
        if pulse_writer is not None:
            self.observer = pulse_writer.observer(self.namespace, self.space, observer)
        self.wait_queue = wait_queue_of((store.identity, namespace))
        self.open_leases = self.wait_queue.open_leases
        self.early_returns = EarlyReturns(self.open_leases)
        self.unresolved = 0
        # What every acquire looks at first, without a hop:
        self.waiters = self.wait_queue.by_bucket
        self.fast_paths = NO_FAST_PATHS

    @classmethod
    def open(
        cls,
        url: str | None,
        *,
        namespace: str,
        clock: Clock | None,
        observer: Observer | None,
        deadline: float,
        config_cache_ttl: float,
        keep_holds: bool,
        limits: Iterable[Limit] | None,
        pulse: bool | None,
        on_unavailable: OnUnavailable | str | None,
        local_share: float | None,
        options: Mapping[str, Any],
    ) -> Core:
        """The core on the store that ``url`` names. Nothing is read or written yet."""
        check_seconds(deadline, "deadline")
        check_seconds(config_cache_ttl, "config_cache_ttl")
        check_namespace(namespace)
        check_clock(clock)
        if type(keep_holds) is not bool:
            raise ValidationError("keep_holds", keep_holds, "must be True or False")
        checked = None if limits is None else check_limits(limits)
        policy = check_policy(on_unavailable)
        check_share(local_share)
        if pulse is not None and type(pulse) is not bool:
            raise ValidationError("pulse", pulse, "must be True or False")
        url, said = without_pulse(url)
        store = open_store(url, deadline=deadline, config_cache_ttl=config_cache_ttl, options=options)
        has_pulse = bool(said) if pulse is None else pulse
        return cls(
            store,
            namespace=namespace,
            clock=clock,
            observer=observer,
            keep_holds=keep_holds,
            limits=checked,
            pulse_writer=PulseWriter(store, check_clock(clock)) if has_pulse else None,
            on_unavailable=policy,
            local_share=local_share,
        )

    def in_namespace(self, namespace: str) -> Core:
        """Another namespace of the same store."""
        return Core(
            self.store,
            namespace=namespace,
            clock=self.clock,
            observer=self.given_observer,
            health=self.health,
            keep_holds=self.keep_holds,
            limits=self.limits,
            pulse_writer=self.pulse_writer,
            on_unavailable=self.on_unavailable,
            local_share=self.local_share,
        )

    def policy(self, asked: OnUnavailable | None) -> OnUnavailable:
        """What an acquire does while the store is away: as its caller says, else this client, else what is stored."""
        return asked or self.on_unavailable or self.space.remembered_on_unavailable() or OnUnavailable.BLOCK

    def draw_by_own(self, draw: Draw, now: int) -> Plan[Outcome]:
        """Draw by the limits that are stored, or else by this client's own."""
        if draw.limits is None and draw.legs is None:
            draw = draw._replace(limits=(yield from self._stand_in(draw.entity_id, draw.resource)))
        return (yield from self.space.draw(draw, now))

    def _stand_in(self, entity_id: str, resource: str) -> Plan[tuple[Limit, ...] | None]:
        """This client's own limits, if no level has any for the entity itself; ancestors and totals may have some."""
        resolution = yield from self.space.resolve(entity_id, resource)
        return None if resolution.limits else self.limits

    def look(
        self, entity_id: str, resource: str, wanted: Mapping[str, int], limits: tuple[Limit, ...] | None, now: int
    ) -> Plan[Look]:
        """Look, likewise."""
        if self.limits is not None and limits is None:
            limits = yield from self._stand_in(entity_id, resource)
        return (yield from self.space.look(entity_id, resource, wanted, limits, now))

    def may_come_back(self, place: BucketPlace, now: int) -> bool:
        """Whether a lease of this process is open that took from this bucket. ``now`` is the timer's."""
        return self.early_returns.may_come_to(place, self.space.fast_paths, now)

    def stop_threads(self) -> None:
        """Renew no calls in flight and write no pulse any more: what they use is being closed."""
        if self.keeper is not None:
            self.keeper.close()
        if self.pulse_writer is not None:
            self.pulse_writer.close()

    @property
    def has_threads(self) -> bool:
        """Whether there is something to stop."""
        return self.keeper is not None or self.pulse_writer is not None

    def call(self, verb: str, plan: Plan[Result]) -> Plan[Result]:
        """Ask the store, and tell the observer about it."""
        if not self.health.has_answered and verb in CHANGES:
            plan = self._noted(plan)
        return plan if self.observer is None else self._observed(verb, plan)

    def _noted(self, plan: Plan[Result]) -> Plan[Result]:
        result = yield from plan
        self.health.has_answered = True
        return result

    def note_answer(self) -> None:
        """An acquire was granted or denied. To be called while there are ``NO_FAST_PATHS``."""
        self.health.has_answered = True
        self.health.acquires.answered(self.timer())
        if not self.health.acquires.is_failing and self.policy(None) is not OnUnavailable.LOCAL:
            self.fast_paths = self.space.fast_paths

    def note_failure(self, error: Exception, became: str, about: str) -> None:
        """An acquire could not be answered."""
        self.fast_paths = NO_FAST_PATHS
        self.health.acquires.failed(error, became, about, self.timer())

    def as_outage(self, error: ConfigurationError) -> RateLimiterUnavailable:
        """What a store that can no longer be used as it is set up is to an acquire: raised if it never could."""
        if not self.health.has_answered:
            raise error
        outage = RateLimiterUnavailable(str(error))
        outage.__cause__ = error
        return outage

    def _observed(self, verb: str, plan: Plan[Result]) -> Plan[Result]:
        started = self.stopwatch()
        failure: BaseException | None = None
        try:
            return (yield from plan)
        except BaseException as error:
            # A denial or a bad argument is an answer; only what kept the store from answering is its error.
            failure = None if isinstance(error, ValidationError) else error
            raise
        finally:
            self.tell(StoreCalled(verb, self.stopwatch() - started, failure, *self.when()))

    def when(self) -> tuple[str, float]:
        """Where and when something happened, as events say it."""
        return self.namespace, self.clock() / 1000

    def tell(self, event: Event) -> None:
        """Tell the observer. What it raises is logged, and disturbs no caller."""
        if self.observer is None:
            return
        try:
            self.observer(event)
        except Exception:
            logger.exception("the observer raised on %s", type(event).__name__)


def check_clock(clock: Clock | None) -> Clock:
    """The caller's clock, or the machine's."""
    if clock is None:
        return machine_clock
    if not callable(clock):
        raise ValidationError("clock", clock, "must be callable and return milliseconds since the epoch")
    return clock
