"""A store that fails on demand: what an outage does to your code, without an outage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.running.plan import Interrupted, Pause, Plan
from zae_limiter.stores.lease_records import RecordedSettlement
from zae_limiter.stores.protocol import Denial, Draw, FastPath, Grant, Leg, Posting, Settlement, Space, Store

OVERLOADED_WAIT_MS = 100


@dataclass(slots=True)
class Trouble:
    """What is to go wrong, and how often."""

    verb: str | None
    times: int | None
    error: Exception | None = None
    overloaded: bool = False
    applied: bool = False
    milliseconds_before: int = 0
    milliseconds_after: int = 0


class FailingStore:
    """Wraps any store. Healthy until told otherwise.

    >>> from zae_limiter.stores.memory.store import MemoryStore
    >>> store = FailingStore(MemoryStore())
    >>> store.fail("draw", times=2)                 # the next two acquires find the store unavailable
    >>> store.fail("settle", applied=True)          # booked, but the reply is lost
    >>> store.overload(times=1)                     # the next acquire is denied, and not even its limits are known
    >>> store.delay(0.5)                            # everything takes half a second longer
    >>> store.heal()

    Verbs are the methods of ``zae_limiter.stores.protocol``; ``calls`` lists the ones that were asked.
    """

    def __init__(self, store: Store, *, deadline: float = 2.0) -> None:
        self._store = store
        self._deadline_ms = round(deadline * 1000)
        self._troubles: list[Trouble] = []
        self.calls: list[str] = []

    def fail(
        self,
        verb: str | None = None,
        *,
        times: int | None = None,
        error: Exception | None = None,
        applied: bool = False,
    ) -> None:
        """Let a verb (or all) fail, a number of times (or until :meth:`heal`).

        With ``applied=True`` the store does what it was asked, and only the reply is lost.
        """
        self._troubles.append(Trouble(verb, times, error or _lost(applied), applied=applied))

    def overload(self, *, times: int | None = None) -> None:
        """Let acquires be denied because of load, a number of times (or until :meth:`heal`).

        They are denied without statuses, as by a store that cannot even say which limits hold.
        """
        self._troubles.append(Trouble("draw", times, overloaded=True))

    def delay(self, seconds: float, verb: str | None = None, *, times: int | None = None, after: bool = False) -> None:
        """Let a verb (or all) take longer: before it is done, or before its reply comes.

        Longer than the deadline means what it does on any store: unavailable, when the deadline has passed.
        """
        milliseconds = round(seconds * 1000)
        if after:
            self._troubles.append(Trouble(verb, times, milliseconds_after=milliseconds))
        else:
            self._troubles.append(Trouble(verb, times, milliseconds_before=milliseconds))

    def heal(self) -> None:
        """Let everything work again."""
        self._troubles.clear()

    def space(self, namespace: str, *, corrected: bool = False) -> Space:
        return FailingSpace(self, self._store.space(namespace, corrected=corrected))

    def __getattr__(self, name: str) -> Any:
        if name in _NEVER_FAILING:
            return getattr(self._store, name)
        return self._troubled(self._store, name)

    def _troubled(self, target: Any, verb: str) -> Callable[..., Plan[Any]]:
        method = getattr(target, verb)

        def plan(*args: Any, **kwargs: Any) -> Plan[Any]:
            return self._run(target, verb, method(*args, **kwargs), args)

        return plan

    def _run(self, target: Any, verb: str, plan: Plan[Any], args: tuple[Any, ...]) -> Plan[Any]:
        self.calls.append(verb)
        trouble = self._next_trouble(verb)
        if trouble is None:
            return (yield from plan)
        if trouble.overloaded:
            draw: Draw = args[0]
            return Denial((), Leg(draw.entity_id, draw.resource, (), "system"), OVERLOADED_WAIT_MS)
        if trouble.milliseconds_before >= self._deadline_ms:
            yield from Pause(self._deadline_ms)
            raise _lost(False)
        if trouble.milliseconds_before:
            yield from Pause(trouble.milliseconds_before)
        if trouble.error is not None and not trouble.applied:
            raise trouble.error
        result = yield from plan
        if trouble.milliseconds_after:
            try:
                yield from Pause(min(trouble.milliseconds_after, self._deadline_ms))
            except Interrupted:
                if isinstance(result, Grant):
                    yield from self._give_back(target, result, args[-1])
                raise
        if trouble.error is not None:
            raise trouble.error
        return result

    def _give_back(self, space: Space, grant: Grant, now: int) -> Plan[None]:
        """As every store does when it is interrupted after it took."""
        yield from self._run(space, "settle", space.settle(grant.give_back(), now), ())

    def _next_trouble(self, verb: str) -> Trouble | None:
        for trouble in self._troubles:
            if trouble.verb in (None, verb) and trouble.times != 0:
                if trouble.times is not None:
                    trouble.times -= 1
                return trouble
        return None


class FailingSpace:
    """One namespace of a failing store."""

    def __init__(self, store: FailingStore, space: Space) -> None:
        self._store = store
        self._space = space

    @property
    def unresolved(self) -> int:
        return self._space.unresolved

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        """Only the reply tells the caller that it was booked, and a reply can be lost."""
        if settlement is not None:
            settlement.doubtful = True
        recorded = None if settlement is None else RecordedSettlement(postings, settlement.change)
        yield from self._store._troubled(self._space, "settle")(postings, now, recorded)
        if settlement is not None:
            settlement.postings, settlement.doubtful = (), False

    fast_paths: Mapping[tuple[str, str], FastPath] = {}  # none: everything goes the way that can fail

    def __getattr__(self, name: str) -> Any:
        if name in _NEVER_FAILING:
            return getattr(self._space, name)
        return self._store._troubled(self._space, name)


_NEVER_FAILING = frozenset(
    {
        "aclose",
        "attempt",
        "cache_stats",
        "claims_for_ms",
        "close",
        "identity",
        "invalidate_config_cache",
        "perform",
        "perform_async",
        "remembered_access",
        "remembered_on_unavailable",
        "slot_pauses_ms",
    }
)


def _lost(applied: bool) -> RateLimiterUnavailable:
    what = "the reply of the store was lost" if applied else "the store does not answer"
    return RateLimiterUnavailable(what, hint="FailingStore.heal() ends this", ambiguous=applied)
