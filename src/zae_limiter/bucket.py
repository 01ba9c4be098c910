"""Token buckets in whole numbers.

Tokens are counted in thousandths (*millitokens*), time in milliseconds since the epoch, and a rate is a
fraction: ``ra`` millitokens per ``rp`` milliseconds. There are no floats, so every node computes the same.

**The theory.** One function over absolute time says how much a limit has ever accrued::

    accrued(t) = t * ra // rp

A balance is kept relative to a baseline ``rf``, and refill is never stored::

    a     = accrued(now) - accrued(rf)          # now is never before rf
    level = min(tk + a, bx)

For a calendar limit ``accrued`` is a stair, ``amount * ordinal(t)``, and what a limit of calls in flight lends does
not accrue at all (``balances.py``). Differences of ``accrued`` telescope: however often a bucket is looked at or
rebased, the parts add up to the whole, so nothing is minted and nothing is lost, whatever the rate. Three rules
follow, and every store obeys them:

1. *Taking* knows on which side of the ceiling it is. Below, ``tk`` falls by the amount; at the ceiling the
   surplus above ``bx`` is forgotten first. Both are ``tk = level - amount - a``.
2. *Giving back* stops at the ceiling.
3. The *wait* is exact: the least ``t`` with ``accrued(t) >= accrued(rf) + need - tk``, by ceiling division.

A bucket may be split over ``n`` shards. A share of any amount, ceilings and accrual alike, is
``share(x, s, n)``; shares add up to ``x`` exactly, also while some shards are split further than others.

The single-limit functions below are pure: they return the new ``tk``. :class:`Bucket` is the working form
of the embedded stores, several limits over one ``rf``, and the only thing here that changes in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from zae_limiter.balance_terms import balance_of as balance_of
from zae_limiter.balance_terms import rebase as rebase
from zae_limiter.balances import MILLI as MILLI
from zae_limiter.balances import Balance as Balance
from zae_limiter.balances import HeldBalance as HeldBalance
from zae_limiter.balances import SteppedBalance as SteppedBalance
from zae_limiter.balances import share as share
from zae_limiter.models.choices import ConfigSource
from zae_limiter.models.limit import MAX_ENDED, MAX_RETIRED, Limit, too_many_retired
from zae_limiter.models.moments import at
from zae_limiter.models.status import LimitStatus

MOST_STORED = 10**36
"""No balance and no counter comes near that, and every store can add to what is below: DynamoDB is exact up to 38
digits. What a store reads that is beyond is none of ours."""

WOULD_REFUSE = "!"
"""Behind the name of a limit that only watches, where counters have what it would have refused. No name has it."""

FURTHEST_AHEAD_MS = 60_000
"""A bucket that was written further ahead of ``now`` than this was written by a clock that was wrong."""


def accrued_in_a_second(ceiling: int, since: int, now: int) -> int:
    """What accrued between two moments to a balance that is full after a second."""
    return max(now - since, 0) * ceiling // MILLI


def refill_bucket(balance: Balance, now: int) -> int:
    """The level at ``now``: what is stored plus what accrued, up to the ceiling."""
    return balance.level(now)


def try_consume(balance: Balance, amount: int, now: int) -> int | None:
    """The new ``tk`` after taking ``amount``, or ``None`` if the level is below it."""
    return force_consume(balance, amount, now) if would_refill_satisfy(balance, amount, now) else None


def force_consume(balance: Balance, amount: int, now: int) -> int:
    """The new ``tk`` after taking ``amount``, into debt if need be."""
    return refill_bucket(balance, now) - amount - balance.since_rf(now)


def give_back(balance: Balance, amount: int, now: int) -> int:
    """The new ``tk`` after returning ``amount``; what would rise above the ceiling is forgotten."""
    accrual = balance.since_rf(now)
    return min(balance.tk + amount, balance.bx - accrual)


def book(balance: Balance, delta: int, now: int) -> int:
    """The new ``tk`` after :func:`force_consume` of ``delta``, or :func:`give_back` of it if it is negative."""
    most = balance.bx - balance.since_rf(now)
    tk = balance.tk
    if delta < 0:
        tk -= delta
        return tk if tk < most else most
    return (tk if tk < most else most) - delta


def lower(balance: Balance, most: int, now: int) -> int:
    """The new ``tk`` if the level at ``now`` is to be at most ``most``; it never rises."""
    return min(balance.tk, most - balance.since_rf(now))


def would_refill_satisfy(balance: Balance, amount: int, now: int) -> bool:
    """Whether the level at ``now``, refill included, covers ``amount``."""
    return refill_bucket(balance, now) >= amount


def calculate_available(balance: Balance, now: int) -> int:
    """The level in whole tokens, rounded down, negative in debt."""
    return refill_bucket(balance, now) // MILLI


def calculate_due(balance: Balance, amount: int) -> int:
    """The first millisecond at which ``amount`` has accrued, if nothing is taken or given back in between."""
    return balance.when(amount)


def calculate_retry_after(balance: Balance, amount: int, now: int) -> int | None:
    """Milliseconds until ``amount`` can be taken: 0 if it can be now, ``None`` if it exceeds the ceiling."""
    if would_refill_satisfy(balance, amount, now):
        return 0
    if amount > balance.bx - balance.extra:  # an extra that was spent does not come again
        return None
    return balance.due(amount, now) - now


def build_limit_status(
    balance: Balance,
    *,
    entity_id: str,
    resource: str,
    source: ConfigSource,
    requested: int,
    reserved: int,
    now: int,
) -> LimitStatus:
    """How one limit meets a request of ``requested`` whole tokens.

    ``reserved`` millitokens belong to callers in the wait queue: a request with an amount must leave them, so
    they are not available to it.
    """
    amount = requested * MILLI
    wanted = amount + reserved if amount else 0
    level = balance.level(now)
    wait: float | None = 0.0
    is_held = balance.limit.is_held
    lacks = level < wanted and (amount > 0 or not is_held)  # a limit of calls in flight judges only who wants a slot
    if lacks:
        wait = None if amount > balance.bx - balance.extra else (balance.due(wanted, now) - now) / MILLI
    free = level if not reserved or not amount else min(level, max(level - reserved, 0))
    resets_at = balance.resets_at(now)
    return LimitStatus(
        entity_id,
        resource,
        balance.name,
        balance.limit,
        free // MILLI,
        requested,
        lacks,
        wait,
        source,
        balance.full_in(balance.tk, now) / MILLI,
        balance.limit.enforce,
        None if resets_at is None else at(resets_at),
        is_held and lacks and wait is not None,
        balance.extra_at(now) // MILLI,
    )


class Bucket:
    """Several limits of one entity and resource, over one baseline.

    ``balances`` is replaced as a whole when the limits change, never edited: holding on to the tuple and
    comparing it by identity tells whether what one knows about the bucket still holds. A limit that was
    removed is kept in ``retired`` and goes on from there if it comes back, so that removing limits and
    adding them again mints nothing. It is kept until a change finds it full: one that is full and one that was
    never there are the same. A limit of calls in flight and another limit of the same name are two balances, and
    either may be retired. ``born`` tells the lives of a bucket apart that was removed and made again: a hold belongs
    to one of them. ``hour`` is the usage window that is being counted, ``latest`` the latest moment it
    was written for, and ``carried`` has the counters of limits that ended in it, or with an earlier life of this
    bucket, so that they go on where they ended. ``cascaded`` and ``cascaded_events`` are what another leg of the same
    acquires has counted too, and ``denials`` how many acquires each limit refused.
    """

    __slots__ = (
        "balances",
        "born",
        "carried",
        "cascaded",
        "cascaded_events",
        "denials",
        "entity_id",
        "events",
        "hour",
        "latest",
        "limits",
        "resource",
        "retired",
        "rf",
        "stored_terms",
    )

    def __init__(self, entity_id: str, resource: str, rf: int) -> None:
        self.entity_id = entity_id
        self.resource = resource
        self.rf = rf
        self.limits: tuple[Limit, ...] = ()
        self.balances: tuple[Balance, ...] = ()
        self.born = 0
        self.retired: dict[str, Balance] = {}
        self.carried: dict[str, int] = {}
        self.cascaded: dict[str, int] = {}
        self.cascaded_events = 0
        self.denials: dict[str, int] = {}
        self.events = 0
        self.hour = 0
        self.latest = rf
        self.stored_terms: str | None = None  # how the store that keeps it has written its limits, if it has

    def adopt(self, limits: tuple[Limit, ...], now: int, *, bounded: bool = True) -> bool:
        """Make ``limits`` the terms of this bucket from ``now`` on. Returns whether that changed anything.

        Limits that are removed and are not full are retired. If too many would be, a ``ValidationError`` says so, and
        nothing changes; without ``bounded`` they are.
        """
        if limits == self.limits:
            return False
        now = max(now, self.rf)
        known = {key_of(balance.limit): balance for balance in self.balances} | self.retired
        keys = {key_of(limit) for limit in limits}
        retired = {key: rebase(known[key], known[key].limit, now) for key in known if key not in keys}
        ended = dict(self.carried)
        for key, balance in list(retired.items()):
            counted = counters_of(balance) or ({balance.name: 0} if self.denials.get(balance.name) else {})
            if balance.level(now) == balance.bx and not balance.extra and (not counted or len(ended) < MAX_ENDED):
                del retired[key]
                for name, count in counted.items():
                    ended[name] = ended.get(name, 0) + count
        if bounded and len(retired) > max(MAX_RETIRED, len(self.retired)):
            raise too_many_retired(self.entity_id, self.resource, len(retired))
        self.carried = ended
        self.balances = tuple(
            self._go_on_counting(
                rebase(known[key], limit, now) if (key := key_of(limit)) in known else balance_of(limit, now)
            )
            for limit in limits
        )
        self.retired = {key: self._go_on_counting(balance) for key, balance in retired.items()}
        self.limits = limits
        self.stored_terms = None
        self.rf = now
        return True

    def _go_on_counting(self, balance: Balance) -> Balance:
        """Let a limit count on from where another one of its name, or an earlier life of it, has ended."""
        balance.tc += self.carried.pop(balance.name, 0)
        balance.sn += self.carried.pop(balance.name + WOULD_REFUSE, 0) // MILLI
        return balance

    def advance(self, now: int) -> None:
        """Make ``now`` the baseline, if it is later: what accrued becomes tokens, and no level changes."""
        if now > self.rf:
            for balance in (*self.balances, *self.retired.values()):
                balance.advance(now)
            self.rf = now

    def begin_periods(self, now: int) -> None:
        """Let calendar limits whose next period has begun stand in it: every write does so first."""
        for balance in (*self.balances, *self.retired.values()):
            if isinstance(balance, SteppedBalance):
                balance.advance(now)

    def retire_again(self, limits: Iterable[Limit], deltas: Mapping[str, int]) -> None:
        """Retire those of ``limits`` again that have ended and that a lease still settles: they are full."""
        held = {balance.name for balance in self.balances}
        for limit in limits:
            known = limit.is_held or limit.name in held or limit.name in self.retired
            if deltas.get(limit.name) and not known:
                if len(self.retired) >= MAX_RETIRED:
                    return
                self.retired[limit.name] = self._go_on_counting(balance_of(limit, self.rf))
                self.stored_terms = None

    def written(self, now: int) -> None:
        """Something is written for ``now``: that is how a clock that was wrong is recognised later."""
        if now > self.latest:
            self.latest = now
            if now > self.rf + FURTHEST_AHEAD_MS:
                self.balances = (*self.balances,)  # what is known of it is to be looked at again

    def is_far_ahead(self, now: int) -> bool:
        """Whether it was written by a clock that was wrong, if ``now`` is right."""
        furthest = now + FURTHEST_AHEAD_MS
        return self.rf > furthest or self.latest > furthest

    def go_on_from(self, now: int) -> None:
        """Make ``now`` the baseline, although it is earlier: every limit goes on with what it held at the latest
        moment the bucket was written for.

        Limit by limit, so that an interrupt in between leaves none that is brought back twice.
        """
        self.advance(self.latest)
        for balance in (*self.balances, *self.retired.values()):
            balance.go_back(now)
        self.rf = self.latest = now

    def settle(self, deltas: Mapping[str, int], now: int, counted: Mapping[str, int] | None = None) -> None:
        """Book millitokens after the fact: positive ones are taken, into debt if need be, negative ones
        come back up to the ceiling. A limit that is gone is still counted.

        ``counted`` is what is counted, where that is not what moves."""
        for balance, tk, tc in self.settled(deltas, now, counted):
            balance.tk, balance.tc = tk, tc

    def settled(
        self, deltas: Mapping[str, int], now: int, counted: Mapping[str, int] | None = None
    ) -> list[tuple[Balance, int, int]]:
        """What :meth:`settle` changes: which balances, and their new ``tk`` and ``tc``."""
        changes: list[tuple[Balance, int, int]] = []
        counts = deltas if counted is None else counted
        for balance in (*self.balances, *self.retired.values()):
            delta, count = deltas.get(balance.name, 0), counts.get(balance.name, 0)
            if (delta or count) and not isinstance(balance, HeldBalance):
                tk = book(balance, delta, now) if delta else balance.tk
                changes.append((balance, tk, balance.tc + count))
        return changes

    def held(self, name: str) -> HeldBalance | None:
        """The balance of calls in flight of this name, retired or not."""
        for balance in (*self.balances, *self.retired.values()):
            if balance.name == name and isinstance(balance, HeldBalance):
                return balance
        return None

    def refill(self, now: int, concerns: Callable[[str], bool] = lambda name: True) -> None:
        """Full again as of ``now``, the retired limits too, those of the names it ``concerns``."""
        self.advance(now)
        for balance in (*self.balances, *self.retired.values()):
            if concerns(balance.name):
                balance.refill(now)
        self.balances = (*self.balances,)  # the baseline is now's, and the hour may not be: look at it again

    def credit(self, amounts: Mapping[str, int], now: int) -> None:
        """Give millitokens, up to the ceiling of each limit. What was taken stays counted."""
        self.advance(now)
        for balance in self.balances:
            balance.tk = give_back(balance, amounts.get(balance.name, 0), now)
        self.balances = (*self.balances,)  # as above

    def lift(self, amounts: Mapping[str, int], now: int) -> None:
        """Give calendar limits millitokens above their ceiling, for the period of ``now``."""
        self.advance(now)
        for balance in self.balances:
            if isinstance(balance, SteppedBalance):
                balance.lift(amounts.get(balance.name, 0))
        self.balances = (*self.balances,)  # as above

    def counters(self) -> dict[str, int]:
        """What was ever taken, net, per limit, in millitokens; and what limits that watch would have refused."""
        if self.is_plain and not self.retired and not any(balance.sn for balance in self.balances):
            return self.carried | {balance.name: balance.tc for balance in self.balances}
        counted = dict(self.carried)
        for balance in (*self.balances, *self.retired.values()):
            counted.setdefault(balance.name, 0)
            for name, count in counters_of(balance).items():
                counted[name] = counted.get(name, 0) + count
        return counted

    @property
    def is_plain(self) -> bool:
        """Whether all limits in force refill evenly and refuse."""
        return are_plain(self.limits)

    def full_at(self) -> int:
        """The millisecond at which every limit is full if nothing more is taken."""
        full_at = max(self.rf, 0)
        for balance in (*self.balances, *self.retired.values()):
            due = balance.full_at()
            if due > full_at:
                full_at = due
        return full_at


def key_of(limit: Limit) -> str:
    """Under what a bucket knows the balance of a limit: those of calls in flight apart from the others."""
    return f"{limit.name}/" if limit.is_held else limit.name


def counters_of(balance: Balance) -> dict[str, int]:
    """What one balance has counted, if anything, under the names that usage has."""
    counted = {balance.name: balance.tc} if balance.tc else {}
    if balance.sn:
        counted[balance.name + WOULD_REFUSE] = balance.sn * MILLI
    return counted


@lru_cache(4096)
def are_plain(limits: tuple[Limit, ...]) -> bool:
    """Whether all of these refill evenly and refuse."""
    return all(limit.is_plain for limit in limits)


def take(balances: Sequence[Balance], wanted: Mapping[str, int], now: int) -> list[int] | None:
    """Take whole tokens from all of ``balances`` or from none: the new ``tk`` of each, or ``None``.

    An interrupt that lands in the middle takes nothing.
    """
    taken = would_take(balances, wanted, now)
    if taken is None:
        return None
    left, amounts = taken
    done = 0
    try:
        for balance, tk, amount in zip(balances, left, amounts):  # noqa: B905 (they have one length)
            balance.tk, balance.tc, done = tk, balance.tc + amount, done + 1
        return left
    except BaseException:
        untake(balances[:done], wanted, now)
        raise


def would_take(balances: Sequence[Balance], wanted: Mapping[str, int], now: int) -> tuple[list[int], list[int]] | None:
    """What :func:`take` would leave in each of ``balances``, and take from it in millitokens; ``None``: one lacks.

    The single-limit functions above, written out for the unsplit buckets of the embedded stores: this is
    the hottest loop of the library. Names that ``wanted`` lacks count as 0 and stay as they are; an amount
    that is no amount is never granted.
    """
    left = []
    amounts = []
    get = wanted.get
    for balance in balances:
        amount = get(balance.name, 0)
        if amount.__class__ is not int or amount < 0:
            return None
        accrual = now * balance.ra // balance.rp - balance.at_rf
        if accrual < 0:
            accrual = 0
        tk = balance.tk
        level = tk + accrual
        if amount:
            amount *= MILLI
            if level > balance.bx:
                level = balance.bx
            if level < amount:
                return None
            tk = level - amount - accrual
        elif level < 0:
            return None
        left.append(tk)
        amounts.append(amount)
    return left, amounts


def untake(balances: Iterable[Balance], wanted: Mapping[str, int], now: int) -> None:
    """Undo :func:`take`."""
    for balance in balances:
        amount = wanted.get(balance.name, 0) * MILLI
        balance.tk, balance.tc = give_back(balance, amount, now), balance.tc - amount
