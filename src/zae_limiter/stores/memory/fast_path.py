"""The fast path of warm grants and their settlements in memory.

Nearly every acquire is like the one before it: the same entity and resource, the same limits, enough tokens.
After the first such draw its route is known, and what remains is arithmetic on two or three balances. In a
loop the loop itself would cost more than that, so here the body of ``bucket.take``, and that of ``Bucket.settle``,
is repeated for each balance instead, as the source text of a method. It is compiled once per shape of a route (how
many limits on how many legs) into a class, of which every route of that shape is an instance.

The buckets of the memory store live in memory only, so their baseline may move: the first draw of a
millisecond makes it the baseline (:meth:`Bucket.advance`, written out as well), and for the others of that
millisecond the tokens in the balance are its level. A baseline that a wrong clock has set is left to the plan.

Straight-line code has a second virtue. CPython delivers interrupts at calls and at jumps backwards, so from
the first write to the noted receipt (or settlement) nothing can come between: the tokens move whole, or not at all.

``with lock`` would cost twice what ``acquire`` and ``release`` do. An interrupt that lands right after
``acquire`` finds no ``finally`` yet; the lock knows its owner, so it is released all the same.

``bucket.take`` and ``Bucket.settle`` are the definition; a property test holds the two against each other. What this
path can neither grant nor deny, or not settle, is answered with ``False``: the store's plan takes it from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from zae_limiter.bucket import FURTHEST_AHEAD_MS, MILLI, Balance, Bucket, HeldBalance, SteppedBalance
from zae_limiter.models.holds import Hold
from zae_limiter.models.status import LimitStatus
from zae_limiter.naming import MAX_AMOUNT
from zae_limiter.stores.limit_statuses import denial, names_known, statuses_of
from zae_limiter.stores.open_leases import SharedMark
from zae_limiter.stores.protocol import DeferredGrant, Denial, Grant, Leg, Receipt, Settlement
from zae_limiter.stores.windows import HOUR_MS

MOST_LIMITS = 24
"""Beyond this a plan is as fast."""

Shape: TypeAlias = tuple[tuple[str, ...], ...]
"""The names of the limits of every leg: those of calendar limits end with ``STEPS``, of calls in flight ``LENDS``, of
other limits that only watch ``WATCHES``."""

STEPS = "@"
LENDS = "^"
WATCHES = "~"

Parts: TypeAlias = tuple[Callable[[], object], Callable[[], object], *tuple[Bucket | tuple[Balance, ...], ...]]


class DeferredDenial(Denial):
    """A denial whose statuses are made when they are read: ``numbers`` has ``tk`` and ``at_rf`` of every balance."""

    __slots__ = ("_now", "_numbers", "_path", "_wait_ms", "_wanted")

    unread_wait_ms = 0
    observed = False
    by_load = False

    def __init__(
        self, path: MemoryFastPath, wanted: Mapping[str, int], now: int, wait_ms: int | None, numbers: Sequence[int]
    ) -> None:
        self._path = path
        self._wanted = wanted
        self._now = now
        self._wait_ms = wait_ms
        self._numbers = numbers

    @property
    def wait_ms(self) -> int | None:
        return self._wait_ms

    retry_ms = wait_ms

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        held = self._held()
        balances = [[next(held) for _ in leg.limits] for leg in self._path.legs]
        return statuses_of(self._path.legs, balances, self._wanted, {}, self._now)

    @property
    def lacking(self) -> Leg:
        return denial(self._path.legs, self.statuses).lacking

    def _held(self) -> Iterator[Balance]:
        numbers = iter(self._numbers)
        for balance, tk, at_rf in zip(self._path.balances, numbers, numbers, strict=False):
            held = balance.with_tokens(tk, 0)
            held.at_rf = at_rf
            yield held


class MemoryFastPath(ABC):
    """A route as it was last granted: good while every bucket stands as it did, in the hour that it counts.

    ``parts`` has what it works on, in one tuple that is cheap to unpack: how to take and release the lock, then each
    bucket with the balances that it had. The abstract methods are compiled for each shape.
    """

    __slots__ = ("legs", "lock", "parts", "shared_mark")

    lends = False

    def __init__(self, lock: Any, legs: tuple[Leg, ...], buckets: Sequence[Bucket]) -> None:
        self.legs = legs
        self.lock = lock
        self.shared_mark = SharedMark()
        held: list[Bucket | tuple[Balance, ...]] = []
        for bucket in buckets:
            held += (bucket, bucket.balances)
        self.parts: Parts = (lock.acquire, lock.release, *held)

    @abstractmethod
    def draw(self, wanted: object, now: int, receipt: Receipt) -> bool | Denial:
        """Take ``wanted``, or say what lacks."""

    @abstractmethod
    def settle(
        self, grant: Grant | DeferredGrant, totals: Mapping[str, int], now: int, settlement: Settlement
    ) -> bool:
        """Book the difference between what was granted here and ``totals``."""

    @abstractmethod
    def end(self, grant: DeferredGrant) -> bool:
        """Give back every slot that a grant of this path lent. ``False``: the plan can, and nothing was changed."""

    @abstractmethod
    def wanted(self, deferred: DeferredGrant) -> Mapping[str, int]:
        """What was taken, in whole tokens."""

    def grant(self, deferred: DeferredGrant) -> Grant:
        """The grant that a receipt has deferred.

        Its numbers are what was wanted of each limit that is known, then what was left in every balance.
        """
        now: Any
        holds: Any
        _, _, now, *numbers = deferred
        holds = numbers.pop() if self.lends else ()
        balances = self.balances
        left = numbers[-len(balances) :]
        return Grant(self.legs, self.wanted(deferred), balances, left, now, self, holds)

    @property
    def balances(self) -> tuple[Balance, ...]:
        """The balances of every leg in turn, as they were when the route was granted."""
        parts: Any = self.parts
        held: tuple[tuple[Balance, ...], ...] = parts[3::2]
        return held[0] if len(held) == 1 else sum(held, ())

    def release_after_interrupt(self) -> None:
        """Release the lock if this thread holds it: an interrupt came between taking it and the ``try`` behind.

        The lock is an ``RLock``, which knows its owner.
        """
        if self.lock._is_owned():
            self.lock.release()


_SHAPE = """\
class ShapedPath(MemoryFastPath):
    __slots__ = ()

    lends = {lends}

    def draw(self, wanted, now, receipt):
        if type(wanted) is not dict:
            return False
        asked = len(wanted)
        if asked == {own_limits}:
            try:
                {own_amounts}
                wanted = None
            except KeyError:
                pass  # there is another name among them
        if wanted is not None:
            wanted = wanted.copy()  # the caller may change theirs later
            {some_amounts}
            if {names_known} != asked:
                return False
        if {no_amount}:
            return False
        {in_milli}
        enter, leave, {buckets} = self.parts; {unpacked}
        try:
            enter()
            try:
{advanced}                {left}
                if {lacks}:
                    if {left_to_plan}:
                        return False
                    wait = 0
{waits}                    denials = lacking.denials; denials[name] = denials.get(name, 0) + 1
                    if wanted is None:
                        wanted = {{{own_names}}}
                    return DeferredDenial(self, wanted, now, wait, ({held}))
{lent}                {sums}
                {writes}; receipt._grant = (self, wanted, now, {new})
            finally:
                leave()
        except BaseException:
            self.release_after_interrupt()
            raise
        return True

    def end(self, grant):
        {holds}grant[-1]
        enter, leave, {buckets} = self.parts; {unpacked}
        try:
            enter()
            try:
                if {changed}:
                    return False
{ends}                {given_back}
            finally:
                leave()
        except BaseException:
            self.release_after_interrupt()
            raise
        return True

    def settle(self, grant, totals, now, settlement):
        if self.lends:
            return False
        if type(grant) is tuple:
            {granted}
        else:
            total = grant.wanted.get
            {granted_before}
        {deltas}
        enter, leave, {buckets} = self.parts; {unpacked}
        try:
            enter()
            try:
{advanced}                {settled}
                {sums}
                {bookings}; settlement.postings = ()
            finally:
                leave()
        except BaseException:
            self.release_after_interrupt()
            raise
        return True

    def wanted(self, deferred):
        wanted = deferred[1]
        return {{{own_numbers}}} if wanted is None else wanted
"""
_ADVANCED = """\
                if k{k}.balances is not h{k}:
                    return False
                if now != k{k}.rf:
                    if now < k{k}.rf:
                        if k{k}.rf - now > {furthest}:
                            return False
                    elif now - k{k}.hour >= {hour}:
                        return False
                    else:
{refilled}                        k{k}.rf = now
"""
_REFILLED = """\
                        at = now * b{n}.ra // b{n}.rp
                        level = b{n}.tk + at - b{n}.at_rf
                        if level > b{n}.bx:
                            level = b{n}.bx
                        b{n}.tk = level; b{n}.at_rf = at
"""
_LENT = """\
                if not {a}:
                    return False
                due = -(-(now + b{n}.ttl_ms) // b{n}.grid_ms) * b{n}.grid; counts = b{n}.counts
                lent = counts.get(due)
                if lent is None:
                    if due <= b{n}.hb or (counts and min(counts) * 1000 <= now):
                        return False
                    lent = 0
                n{n} = {{**counts, due: lent + m{a}}} if counts else {{due: m{a}}}
                o{n} = new(Hold); o{n}.entity_id = k{k}.entity_id; o{n}.resource = k{k}.resource
                o{n}.limit_name = {name!r}; o{n}.amount = {a}
                o{n}.due = due; o{n}.ttl = b{n}.ttl; o{n}.life = k{k}.born
"""
_ENDS = """\
                due = o{n}.due; m{n} = o{n}.amount * 1000; counts = b{n}.counts
                lent = counts.get(due, 0)
                if not m{n} or lent < m{n} or b{n}.hb >= due or o{n}.life != k{k}.born:
                    return False
                n{n} = {{}}
                if lent != m{n} or len(counts) > 1:
                    n{n} = {{**counts, due: lent - m{n}}}
                    if lent == m{n}:
                        del n{n}[due]
"""
_WITHIN = """\
                        if now >= b{n}.ends:
                            return False
"""
_WAIT = """\
                    if t{n} < 0 and wait is not None:
                        due = None if {never} else -((t{n} - b{n}.at_rf) * b{n}.rp // b{n}.ra) - now
                        if due is None or due > wait:
                            wait = due; lacking = k{k}; name = {name!r}
"""


def fast_path(lock: Any, legs: tuple[Leg, ...], buckets: Sequence[Bucket]) -> MemoryFastPath | None:
    """The fast path of a draw on this route, as its buckets stand now.

    ``None``: it has too many limits, a leg that has none, or one of calls in flight that only an ancestor has; or a
    limit that only watches would have refused, so that these legs are not those of the next draw.
    """
    if any(leg.refused for leg in legs):
        return None
    own, known = legs[0].names, names_known(legs)
    shape = tuple(tuple(balance.name + _mark(balance) for balance in bucket.balances) for bucket in buckets)
    if not all(shape) or not all(leg.held <= own for leg in legs):
        return None
    if sum(map(len, shape)) > MOST_LIMITS or len(known) > MOST_LIMITS:
        return None
    return shaped_path(shape, tuple(sorted(known.difference(*(leg.names for leg in legs)))))(lock, legs, buckets)


def _mark(balance: Balance) -> str:
    if isinstance(balance, HeldBalance):
        return LENDS
    if isinstance(balance, SteppedBalance):
        return STEPS
    return "" if balance.limit.enforce else WATCHES


@lru_cache(256)
def shaped_path(shape: Shape, unlimited: tuple[str, ...] = ()) -> type[MemoryFastPath]:
    """The class of fast paths on routes of one shape. Names that are known, but of no leg, are ``unlimited``.

    A calendar limit is one that refills nothing, within its period. One of calls in flight lends from what is free;
    its slots come back by :meth:`MemoryFastPath.end`. One that only watches is like any other while it has enough.
    When a period has ended, when slots are overdue, or when one of these three lacks, the plan decides.
    """
    marked = [name for limits in shape for name in limits]
    stepped = {n for n, name in enumerate(marked) if name[-1] == STEPS}
    held = {n for n, name in enumerate(marked) if name[-1] == LENDS}
    watching = {n for n, name in enumerate(marked) if name[-1] == WATCHES}
    shape = tuple(tuple(name.rstrip(STEPS + LENDS + WATCHES) for name in limits) for limits in shape)
    names = [(leg, name) for leg, limits in enumerate(shape) for name in limits]
    # The entity's own limits come first: most callers name these, and no others.
    amounts = {name: f"a{n}" for n, name in enumerate(dict.fromkeys([*(name for _, name in names), *unlimited]))}
    own = {name: amounts[name] for name in shape[0]}
    others = [a for name, a in amounts.items() if name not in own]
    paid = {n: amounts[name] for n, (_, name) in enumerate(names)}  # what each balance is to pay
    lending = held & paid.keys()
    # What an earlier leg counts too.
    cascaded = [n for n, (leg, name) in enumerate(names) if any(name in earlier for earlier in shape[:leg])]
    legs = range(len(shape))
    numbers = range(len(names))
    source = _SHAPE.format(
        own_limits=len(own),
        own_amounts="; ".join(
            [*(f"{a} = wanted[{name!r}]" for name, a in own.items()), *(f"{a} = 0" for a in others)]
        ),
        own_names=", ".join(f"{name!r}: {a}" for name, a in own.items()),
        own_numbers=", ".join(f"{name!r}: deferred[{place}]" for place, name in enumerate(own, 3)),
        some_amounts="; ".join(f"{a} = wanted.get({name!r}, 0)" for name, a in amounts.items()),
        names_known=" + ".join(f"({name!r} in wanted)" for name in amounts),
        no_amount=" or ".join(
            [
                *(f"type({a}) is not int or {a} < 0" for a in amounts.values()),
                *(f"{amounts[name]} > {MAX_AMOUNT}" for name in unlimited),
            ]
        ),
        in_milli="; ".join(f"m{a} = {a} * {MILLI}" for a in dict.fromkeys(paid.values())),
        granted="; ".join(f"{a} = grant[{place}]" for place, a in enumerate(amounts.values(), 3)),
        granted_before="; ".join(f"{a} = total({name!r}, 0)" for name, a in amounts.items()),
        deltas="; ".join(
            f"m{a} = (totals[{name!r}] - {a}) * {MILLI} if {name!r} in totals else 0"
            for name, a in amounts.items()
            if name not in unlimited
        ),
        buckets=", ".join(f"k{k}, h{k}" for k in legs),
        unpacked="; ".join(
            f"{''.join(f'b{n}, ' for n, (leg, _) in enumerate(names) if leg == k)}= h{k}" for k in legs
        ),
        advanced="".join(
            _ADVANCED.format(
                k=k,
                hour=HOUR_MS,
                furthest=FURTHEST_AHEAD_MS,
                refilled="".join(
                    [
                        *(_WITHIN.format(n=n) for n in sorted(stepped) if names[n][0] == k),
                        *(
                            _REFILLED.format(n=n)
                            for n, (leg, _) in enumerate(names)
                            if leg == k and n not in stepped | held
                        ),
                    ]
                ),
            )
            for k in legs
        ),
        left="; ".join(f"t{n} = b{n}.tk - m{paid[n]}" for n in numbers),
        sums="; ".join(
            [
                *(f"c{k} = k{k}.cascaded" for k in legs[1:]),
                *(f"s{n} = c{names[n][0]}.get({names[n][1]!r}, 0) + m{paid[n]}" for n in cascaded),
            ]
        )
        or "pass",
        lacks=" or ".join(f"t{n} < 0" for n in numbers if n not in held or n in paid) or "False",
        left_to_plan=" or ".join(
            [
                *(f"{a} > {MAX_AMOUNT}" for a in amounts.values()),
                *(f"t{n} < 0" for n in sorted(stepped | lending | watching)),
            ]
        ),
        lends=bool(lending),
        lent="".join(_LENT.format(n=n, k=names[n][0], name=names[n][1], a=paid[n]) for n in sorted(lending)),
        holds="".join(f"o{n}, " for n in sorted(lending)) + "= " if lending else "",
        changed=" or ".join(f"k{k}.balances is not h{k}" for k in legs),
        ends="".join(_ENDS.format(n=n, k=names[n][0]) for n in sorted(lending)),
        given_back="; ".join(f"b{n}.tk += m{n}; b{n}.counts = n{n}; o{n}.amount = 0" for n in sorted(lending))
        or "pass",
        waits="".join(
            _WAIT.format(n=n, k=leg, name=name, never=f"m{paid[n]} > b{n}.bx")
            for n, (leg, name) in enumerate(names)
            if n not in stepped | held | watching
        ),
        held=", ".join(f"b{n}.tk, b{n}.at_rf" for n in numbers),
        writes="; ".join(
            [
                *(f"b{n}.tk = t{n}; b{n}.tc += m{a}" for n, a in paid.items()),
                *(f"b{n}.counts = n{n}" for n in sorted(lending)),
                *(f"c{names[n][0]}[{names[n][1]!r}] = s{n}" for n in cascaded),
                *(f"k{k}.events += 1" for k in legs),
                *(f"k{k}.cascaded_events += 1" for k in legs[1:]),
            ]
        ),
        new=", ".join(
            [
                *amounts.values(),
                *(f"t{n}" for n in numbers),
                *([f"({''.join(f'o{n}, ' for n in sorted(lending))})"] if lending else []),
            ]
        ),
        settled="; ".join(
            f"t{n} = b{n}.tk - m{a}; t{n} = t{n} if t{n} < b{n}.bx else b{n}.bx" for n, a in paid.items()
        ),
        bookings="; ".join(
            [
                *(f"b{n}.tk = t{n}; b{n}.tc += m{a}" for n, a in paid.items()),
                *(f"c{names[n][0]}[{names[n][1]!r}] = s{n}" for n in cascaded),
            ]
        ),
    )
    namespace: dict[str, Any] = {
        "DeferredDenial": DeferredDenial,
        "Hold": Hold,
        "new": object.__new__,
        "MemoryFastPath": MemoryFastPath,
        "__name__": __name__,
    }
    exec(compile(source, "<the fast path of a shape>", "exec"), namespace)
    shaped: type[MemoryFastPath] = namespace["ShapedPath"]
    return shaped
