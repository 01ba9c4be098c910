"""Token buckets in whole numbers.

Tokens are counted in thousandths (*millitokens*), time in milliseconds since the epoch, and a rate is a
fraction: ``ra`` millitokens per ``rp`` milliseconds. There are no floats, so every node computes the same.

**The theory.** One function over absolute time says how much a limit has ever accrued::

    accrued(t) = t * ra // rp

A balance is kept relative to a baseline ``rf``, and refill is never stored::

    a     = accrued(now) - accrued(rf)          # now is never before rf
    level = min(tk + a, bx)

Differences of ``accrued`` telescope: however often a bucket is looked at or rebased, the parts add up to
the whole, so nothing is minted and nothing is lost, whatever the rate. Three rules follow, and every
store obeys them:

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

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import gcd

from zae_limiter.models.choices import ConfigSource
from zae_limiter.models.limit import MAX_ENDED, MAX_RETIRED, Limit, too_many_retired
from zae_limiter.models.status import LimitStatus

MILLI = 1000
"""Millitokens per token, and milliseconds per second."""

MOST_STORED = 10**36
"""No balance and no counter comes near that, and every store can add to what is below: DynamoDB is exact up to 38
digits. What a store reads that is beyond is none of ours."""

FURTHEST_AHEAD_MS = 60_000
"""A bucket that was written further ahead of ``now`` than this was written by a clock that was wrong."""


def share(x: int, shard: int, shards: int) -> int:
    """What shard number ``shard`` of ``shards`` has of ``x``. Over all shards this adds up to ``x``."""
    return (x + shards - 1 - shard) // shards


def accrued_in_a_second(ceiling: int, since: int, now: int) -> int:
    """What accrued between two moments to a balance that is full after a second."""
    return max(now - since, 0) * ceiling // MILLI


@lru_cache(4096)
def _rate_of(limit: Limit) -> tuple[int, int]:
    """``ra`` and ``rp`` of a limit: the same fraction in the smallest numbers, cheaper on every look."""
    amount, period = limit.refill_amount * MILLI, limit.refill_period_seconds * MILLI
    common = gcd(amount, period)
    return amount // common, period // common


class Balance:
    """One limit of one bucket (or of one shard of it): its terms, its tokens and its counter."""

    __slots__ = ("at_rf", "bx", "limit", "name", "ra", "rp", "shard", "shards", "tc", "tk")

    def __init__(
        self, limit: Limit, rf: int, *, tk: int | None = None, tc: int = 0, shard: int = 0, shards: int = 1
    ) -> None:
        """A balance with the terms of ``limit`` since ``rf``; full unless ``tk`` says otherwise."""
        self.limit = limit
        self.name = limit.name
        self.bx = limit.burst * MILLI if shards == 1 else share(limit.burst * MILLI, shard, shards)
        self.ra, self.rp = _rate_of(limit)
        self.shard = shard
        self.shards = shards
        self.tk = self.bx if tk is None else tk
        self.tc = tc
        self.at_rf = self.accrued(rf)

    def with_tokens(self, tk: int, tc: int) -> Balance:
        """The same limit since the same moment, with other tokens and another counter."""
        same: Balance = Balance.__new__(Balance)
        same.limit, same.name, same.bx, same.ra, same.rp = self.limit, self.name, self.bx, self.ra, self.rp
        same.shard, same.shards, same.at_rf = self.shard, self.shards, self.at_rf
        same.tk, same.tc = tk, tc
        return same

    def accrued(self, t: int) -> int:
        """All that this limit has accrued from the epoch to ``t``."""
        whole = t * self.ra // self.rp
        return whole if self.shards == 1 else share(whole, self.shard, self.shards)

    def since_rf(self, now: int) -> int:
        """What accrued since the baseline; nothing when ``now`` is before it."""
        whole = now * self.ra // self.rp
        accrual = (whole if self.shards == 1 else share(whole, self.shard, self.shards)) - self.at_rf
        return accrual if accrual > 0 else 0

    def level(self, now: int) -> int:
        """What is stored plus what accrued, up to the ceiling."""
        return min(self.tk + self.since_rf(now), self.bx)

    def level_with(self, tk: int, now: int) -> int:
        """The level if ``tk`` were stored."""
        return min(tk + max(self.accrued(now) - self.at_rf, 0), self.bx)

    def full_in(self, tk: int, now: int) -> int:
        """In how many milliseconds it would be full, if ``tk`` were stored and nothing is taken."""
        if self.level_with(tk, now) >= self.bx:
            return 0
        return -(-_undivided(self, self.at_rf + self.bx - tk) * self.rp // self.ra) - now

    def least_full_by(self, t: int) -> int:
        """The least ``tk`` that is full again by ``t``, if nothing is taken."""
        return self.at_rf + self.bx - self.accrued(t)

    def due(self, amount: int, now: int) -> int:
        """When ``amount`` has accrued, if nothing is taken or given back in between.

        It may lie above the ceiling, for a caller that waits behind others: they will have taken theirs by then. What
        is above the ceiling at ``now`` does not count.
        """
        surplus = self.tk + self.since_rf(now) - self.level(now)
        return calculate_due(self, amount + surplus)


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
    return -(-_undivided(balance, balance.at_rf + amount - balance.tk) * balance.rp // balance.ra)


def _undivided(balance: Balance, accrued: int) -> int:
    """How much a limit has accrued over all shards when this one has ``accrued``."""
    return balance.shards * (accrued - 1) + balance.shard + 1


def calculate_retry_after(balance: Balance, amount: int, now: int) -> int | None:
    """Milliseconds until ``amount`` can be taken: 0 if it can be now, ``None`` if it exceeds the ceiling."""
    if would_refill_satisfy(balance, amount, now):
        return 0
    if amount > balance.bx:
        return None
    return balance.due(amount, now) - now


def rebase(balance: Balance, limit: Limit, now: int) -> Balance:
    """The same tokens under new terms from ``now`` on: a lower burst clamps, a higher one mints nothing.

    ``now`` must not be before the baseline: that would credit the time in between twice.
    """
    fresh = Balance(limit, now, tc=balance.tc, shard=balance.shard, shards=balance.shards)
    fresh.tk = min(refill_bucket(balance, now), fresh.bx)
    return fresh


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
    if level < wanted:
        wait = None if amount > balance.bx else (balance.due(wanted, now) - now) / MILLI
    free = level if not reserved or not amount else min(level, max(level - reserved, 0))
    return LimitStatus(
        entity_id,
        resource,
        balance.name,
        balance.limit,
        free // MILLI,
        requested,
        level < wanted,
        wait,
        source,
        balance.full_in(balance.tk, now) / MILLI,
    )


class Bucket:
    """Several limits of one entity and resource, over one baseline.

    ``balances`` is replaced as a whole when the limits change, never edited: holding on to the tuple and
    comparing it by identity tells whether what one knows about the bucket still holds. A limit that was
    removed is kept in ``retired`` and goes on from there if it comes back, so that removing limits and
    adding them again mints nothing. It is kept until a change finds it full: one that is full and one that was
    never there are the same. ``hour`` is the usage window that is being counted, ``latest`` the latest moment it
    was written for, and ``carried`` has the counters of limits that ended in it, or with an earlier life of this
    bucket, so that they go on where they ended. ``cascaded`` and ``cascaded_events`` are what another leg of the same
    acquires has counted too, and ``denials`` how many acquires each limit refused.
    """

    __slots__ = (
        "balances",
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
        known = {balance.name: balance for balance in self.balances} | self.retired
        names = {limit.name for limit in limits}
        retired = {name: rebase(known[name], known[name].limit, now) for name in known if name not in names}
        ended = dict(self.carried)
        for name, balance in list(retired.items()):
            if balance.tk == balance.bx and (not balance.tc or len(ended) < MAX_ENDED):
                del retired[name]
                if balance.tc:
                    ended[name] = balance.tc
        if bounded and len(retired) > max(MAX_RETIRED, len(self.retired)):
            raise too_many_retired(self.entity_id, self.resource, len(retired))
        self.carried = ended
        self.balances = tuple(
            rebase(known[limit.name], limit, now)
            if limit.name in known
            else Balance(limit, now, tc=self.carried.pop(limit.name, 0))
            for limit in limits
        )
        self.retired = retired
        self.limits = limits
        self.stored_terms = None
        self.rf = now
        return True

    def advance(self, now: int) -> None:
        """Make ``now`` the baseline, if it is later: what accrued becomes tokens, and no level changes."""
        if now > self.rf:
            for balance in (*self.balances, *self.retired.values()):
                at_now = balance.accrued(now)
                level = min(balance.tk + at_now - balance.at_rf, balance.bx)
                balance.tk, balance.at_rf = level, at_now  # nothing can come between the two
            self.rf = now

    def retire_again(self, limits: Iterable[Limit], deltas: Mapping[str, int]) -> None:
        """Retire those of ``limits`` again that have ended and that a lease still settles: they are full."""
        held = {balance.name for balance in self.balances}
        for limit in limits:
            if deltas.get(limit.name) and not (limit.name in held or limit.name in self.retired):
                if len(self.retired) >= MAX_RETIRED:
                    return
                self.retired[limit.name] = Balance(limit, self.rf, tc=self.carried.pop(limit.name, 0))
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
            at_now = balance.accrued(now)
            if at_now < balance.at_rf:
                balance.at_rf = at_now
        self.rf = self.latest = now

    def settle(self, deltas: Mapping[str, int], now: int) -> None:
        """Book millitokens after the fact: positive ones are taken, into debt if need be, negative ones
        come back up to the ceiling. A limit that is gone is still counted."""
        for balance, tk, tc in self.settled(deltas, now):
            balance.tk, balance.tc = tk, tc

    def settled(self, deltas: Mapping[str, int], now: int) -> list[tuple[Balance, int, int]]:
        """What :meth:`settle` changes: which balances, and their new ``tk`` and ``tc``."""
        changes: list[tuple[Balance, int, int]] = []
        for balance in (*self.balances, *self.retired.values()):
            delta = deltas.get(balance.name, 0)
            if delta:
                changes.append((balance, book(balance, delta, now), balance.tc + delta))
        return changes

    def refill(self, now: int) -> None:
        """Full again, the retired limits too, as of ``now``: also for a clock that steps back."""
        self.advance(now)
        for balance in (*self.balances, *self.retired.values()):
            balance.tk = balance.bx
        self.balances = (*self.balances,)  # the baseline is now's, and the hour may not be: look at it again

    def counters(self) -> dict[str, int]:
        """What was ever taken, net, per limit, in millitokens."""
        return self.carried | {balance.name: balance.tc for balance in (*self.balances, *self.retired.values())}

    def full_at(self) -> int:
        """The millisecond at which every limit is full if nothing more is taken."""
        full_at = max(self.rf, 0)
        for balance in (*self.balances, *self.retired.values()):
            due = calculate_due(balance, balance.bx)
            if due > full_at:
                full_at = due
        return full_at


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
