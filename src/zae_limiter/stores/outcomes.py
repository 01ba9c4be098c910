"""A draw and its two outcomes, a grant and a denial; and the fast path, which draws without a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from zae_limiter.bucket import MILLI, Balance
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import at
from zae_limiter.models.status import LimitStatus
from zae_limiter.stores.legs import BucketPlace, HoldChange, Leg, Posting, Settlement
from zae_limiter.stores.open_leases import SharedMark

if TYPE_CHECKING:
    from zae_limiter.running.plan import Plan
    from zae_limiter.stores.lease_records import LeaseRecord, RecordRequest

NOTHING_RESERVED: Mapping[BucketPlace, Mapping[str, int]] = {}


class Ticket:
    """The place of a caller that waits in the line of all processes, where a store keeps claims.

    ``number`` tells it from the others of its process and namespace. ``since`` is when it first claimed, by the
    clock of the store; ``patience_ms`` for how long it still waits. ``withdraw`` takes its claim back; the store
    sets it while one stands.
    """

    __slots__ = ("number", "patience_ms", "since", "withdraw")

    def __init__(self, number: int, patience_ms: int) -> None:
        self.number = number
        self.patience_ms = patience_ms
        self.since: int | None = None
        self.withdraw: Callable[[int], Plan[None]] | None = None


class Draw(NamedTuple):
    """A request to take ``wanted`` from an entity's bucket and those of the ancestors it cascades to.

    ``reserved`` is what others wait for in the queue of each of these buckets (its place → limit → tokens): a
    request with an amount for such a limit must leave that much. ``legs`` repeats an earlier draw's route
    instead of resolving it (a lease takes more where it took first). ``is_final``: a denial is what the caller is
    told, and is counted; else the caller waits. With a ``record`` the grant is recorded in the step that
    takes, or is the one that was recorded before (``lease_records.py``). With a ``ticket`` a draw that is denied
    leaves a claim, if the store keeps claims: draws of other processes that come later must leave what it wants.
    """

    entity_id: str
    resource: str
    wanted: Mapping[str, int]
    limits: tuple[Limit, ...] | None = None
    reserved: Mapping[BucketPlace, Mapping[str, int]] = NOTHING_RESERVED
    legs: tuple[Leg, ...] | None = None
    is_final: bool = True
    record: RecordRequest | None = None
    ticket: Ticket | None = None


class Grant(NamedTuple):
    """Everything wanted was taken, from every leg.

    ``balances`` has the terms of every limit of every leg in order, ``left`` the new ``tk`` of each; neither, if it
    was read from a record. ``path`` is the fast path that took it, if one did, ``record`` what the store keeps of it.
    ``holds`` are what the legs lent of calls in flight. ``local``: the process granted it by itself while the store
    was away; a number that grows from one to the next booking of what was granted so. 0: the store granted it.
    """

    legs: tuple[Leg, ...]
    wanted: Mapping[str, int]
    balances: Sequence[Balance]
    left: Sequence[int]
    now: int
    path: FastPath | None = None
    holds: tuple[Hold, ...] = ()
    record: LeaseRecord | None = None
    local: int = 0

    @property
    def is_repeated(self) -> bool:
        """Whether it was granted before, and read from its record: nothing was taken now."""
        return self.record is not None and not self.balances

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg with what the grant left in it; none, if it was read from a record."""
        if not self.balances:
            return ()
        places = [(leg, limit) for leg in self.legs for limit in leg.limits]
        return tuple(
            [
                self._status(leg, limit, balance, tk)
                for (leg, limit), balance, tk in zip(places, self.balances, self.left, strict=True)
            ]
        )

    def _status(self, leg: Leg, limit: Limit, balance: Balance, tk: int) -> LimitStatus:
        resets_at = balance.resets_at(self.now)
        wait: float | None = 0.0
        requested = self.wanted.get(limit.name, 0)
        exceeded = limit.name in leg.refused
        if exceeded:
            due = balance.with_tokens(tk, 0).due(requested * MILLI, self.now)
            wait = None if requested * MILLI > balance.bx - balance.extra else max(due - self.now, 0) / MILLI
        return LimitStatus(
            leg.entity_id,
            leg.resource,
            limit.name,
            limit,
            balance.level_with(tk, self.now) // MILLI,
            requested,
            exceeded,
            wait,
            leg.source,
            balance.full_in(tk, self.now) / MILLI,
            limit.enforce,
            None if resets_at is None else at(resets_at),
            exceeded and limit.is_held and wait is not None,
            balance.extra_at(self.now) // MILLI,
        )

    @property
    def would_refuse(self) -> tuple[LimitStatus, ...]:
        """The limits that only watch and would have refused."""
        if not any(leg.refused for leg in self.legs):
            return ()
        return tuple(status for status in self.statuses if status.exceeded)

    def give_back(self) -> list[Posting]:
        """What undoes it."""
        return [
            Posting(
                leg,
                {name: -amount * MILLI for name, amount in self.wanted.items() if name in leg.settled_names},
                tuple(
                    HoldChange(hold, -hold.amount)
                    for hold in self.holds
                    if (hold.entity_id, hold.resource) == (leg.entity_id, leg.resource)
                ),
                undo=True,
            )
            for leg in self.legs
        ]


DeferredGrant: TypeAlias = "tuple[FastPath, Mapping[str, int] | None, int, *tuple[int, ...]]"
"""A :class:`Grant` that is made when it is looked at, which most never are, by its fast path: the first part of it.

A plain tuple: the fast path writes it in the instructions that take the tokens, where nothing may be called.
"""


class Denial:
    """Something lacks, and nothing was taken.

    A store under so much load that not even the limits could be read denies without statuses, and says after how many
    milliseconds to ask again: ``unread_wait_ms``. ``by_load``: it was load that denied, whatever the statuses say.
    ``observed``: a switch says that this is counted and let through. ``local``: by the shares of this process, because
    the store is away.
    """

    __slots__ = ("_lacking", "_statuses", "by_load", "local", "observed", "unread_wait_ms")

    def __init__(
        self, statuses: tuple[LimitStatus, ...], lacking: Leg, unread_wait_ms: int = 0, *, by_load: bool = False
    ) -> None:
        self._statuses = statuses
        self._lacking = lacking
        self.unread_wait_ms = unread_wait_ms
        self.by_load = by_load
        self.observed = self.local = False

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg."""
        return self._statuses

    @property
    def lacking(self) -> Leg:
        """The first leg that lacks."""
        return self._lacking

    @property
    def binding(self) -> LimitStatus | None:
        """The limit that lacks for longest, by which the denial is counted. ``None``: it was for load."""
        lacking = [] if self.by_load else [status for status in self.statuses if status.refuses]
        return max(lacking, key=lambda status: _seconds(status.retry_after_seconds), default=None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {self.lacking.entity_id} on {self.lacking.resource}: {self.statuses}>"

    @property
    def wait_ms(self) -> int | None:
        """Milliseconds until the same draw would be granted; ``None``: never."""
        return self._longest([status.retry_after_seconds for status in self.statuses if status.refuses])

    @property
    def retry_ms(self) -> int | None:
        """Milliseconds until it is worth asking again: less, where the wait is only a bound; ``None``: never."""
        return self._longest([status.suggested_wait_seconds for status in self.statuses if status.refuses])

    @property
    def known_wait_ms(self) -> int | None:
        """Milliseconds until only calls in flight are in the way, which may end at any moment. ``None``: none is."""
        refusing = [status for status in self.statuses if status.refuses]
        if not any(status.at_latest for status in refusing):
            return None
        return self._longest([status.retry_after_seconds for status in refusing if not status.at_latest]) or 0

    def lacking_beyond(self, wait_ms: int) -> list[LimitStatus]:
        """The limits that refuse for longer than this by themselves: not those of calls in flight, nor for load."""
        if self.by_load:
            return []
        seconds = wait_ms / MILLI
        return [
            status
            for status in self.statuses
            if status.refuses and not status.at_latest and (status.retry_after_seconds or 0) > seconds
        ]

    def _longest(self, waits: Sequence[float | None]) -> int | None:
        if None in waits:
            return None
        return max((round((wait or 0) * MILLI) for wait in waits), default=self.unread_wait_ms)


def _seconds(wait: float | None) -> float:
    return math.inf if wait is None else wait


Outcome: TypeAlias = Grant | Denial


class Receipt(Protocol):
    """Where a store notes a grant before the tokens leave: an interrupt then never loses track of them."""

    _grant: Grant | DeferredGrant | None


class NotedGrant:
    """A receipt that is nothing else; a lease is its own."""

    __slots__ = ("_grant",)

    def __init__(self) -> None:
        self._grant: Grant | DeferredGrant | None = None


class FastPath(Protocol):
    """Draws by one entity on one resource, and their settlements, without a plan: the way of a warm grant.

    It knows the route (which legs, which buckets), and never waits. It goes with the route: a store makes one when it
    grants, and drops it when limits or hierarchies change. Its leases have its ``shared_mark`` while they are open.
    """

    legs: tuple[Leg, ...]
    shared_mark: SharedMark

    @property
    def lends(self) -> bool:
        """Whether its grants hold slots of calls in flight: the last part of a deferred one."""

    def end(self, grant: DeferredGrant) -> bool:
        """Give back every slot of a deferred grant of this path, and nothing else.

        ``False``: this path cannot, and nothing was changed; :meth:`Space.settle` can.
        """

    def draw(self, wanted: object, now: int, receipt: Receipt) -> bool | Denial:
        """Take ``wanted``, as the caller gave it. ``True``: granted, and noted on the receipt.

        ``False``: this path cannot decide it, and nothing was taken. :meth:`Space.draw` can.
        """

    def settle(
        self, grant: Grant | DeferredGrant, totals: Mapping[str, int], now: int, settlement: Settlement
    ) -> bool:
        """Let a grant of this path have taken ``totals`` of the limits they name: book the difference on every leg.

        More is taken, into debt if need be, or some comes back, up to the ceiling. ``True``: booked, and noted in the
        settlement in the step that books. ``False``: this path cannot, and nothing was booked; :meth:`Space.settle`
        can.
        """

    def wanted(self, deferred: DeferredGrant) -> Mapping[str, int]:
        """What a deferred grant of this path took."""

    def grant(self, deferred: DeferredGrant) -> Grant:
        """The grant that was deferred."""
