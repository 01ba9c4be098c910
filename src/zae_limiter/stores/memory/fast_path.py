"""The fast path of a warm grant in memory.

Nearly every acquire is like the one before it: the same entity and resource, the same limits, enough tokens.
After the first such draw its route is known, and what remains is arithmetic on two or three balances. In a
loop the loop itself would cost more than that, so here the body of ``bucket.take`` is repeated for each
balance instead, as the source text of a method. It is compiled once per shape of a route (how many limits on
how many legs) into a class, of which every route of that shape is an instance.

The buckets of the memory store live in memory only, so their baseline may move: the first draw of a
millisecond makes it the baseline (:meth:`Bucket.advance`, written out as well), and for the others of that
millisecond the tokens in the balance are its level. A baseline that a wrong clock has set is left to the plan.

Straight-line code has a second virtue. CPython delivers interrupts at calls and at jumps backwards, so from
the first write to the noted receipt nothing can come between: the tokens leave whole, or not at all.

``with lock`` would cost twice what ``acquire`` and ``release`` do. An interrupt that lands right after
``acquire`` finds no ``finally`` yet; the lock knows its owner, so it is released all the same.

``bucket.take`` is the definition; a property test holds the two against each other. A draw that this path can
neither grant nor deny is answered with ``False``: the store's plan takes it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from zae_limiter.bucket import FURTHEST_AHEAD_MS, MILLI, Balance, Bucket
from zae_limiter.naming import MAX_AMOUNT
from zae_limiter.stores.limit_statuses import denial, statuses_of
from zae_limiter.stores.protocol import Denial, Grant, Leg, Receipt
from zae_limiter.stores.windows import HOUR_MS

MOST_LIMITS = 24
"""Beyond this a plan is as fast."""

Shape: TypeAlias = tuple[tuple[str, ...], ...]
"""The names of the limits of every leg."""

Parts: TypeAlias = tuple[Callable[[], object], Callable[[], object], *tuple[Bucket | tuple[Balance, ...], ...]]


class MemoryFastPath:
    """A route as it was last granted: good while every bucket stands as it did, in the hour that it counts.

    ``parts`` has what the draw works on, in one tuple that is cheap to unpack: how to take and release the store's
    lock, then each bucket with the balances that it had. A subclass for each shape has the draw.
    """

    __slots__ = ("legs", "lock", "parts")

    def __init__(self, lock: Any, legs: tuple[Leg, ...], buckets: Sequence[Bucket]) -> None:
        self.legs = legs
        self.lock = lock
        held: list[Bucket | tuple[Balance, ...]] = []
        for bucket in buckets:
            held += (bucket, bucket.balances)
        self.parts: Parts = (lock.acquire, lock.release, *held)

    def draw(self, wanted: object, now: int, receipt: Receipt) -> bool | Denial:
        raise NotImplementedError  # compiled for each shape

    def grant(self, wanted: Mapping[str, int] | None, now: int, numbers: Sequence[int]) -> Grant:
        """The grant that a receipt has deferred.

        ``wanted`` is there only if it did not name every limit; ``numbers`` are the millitokens that were wanted of
        the entity's own limits, then what was left in every balance.
        """
        names = [limit.name for limit in self.legs[0].limits]
        if wanted is None:
            wanted = {name: amount // MILLI for name, amount in zip(names, numbers, strict=False)}
        return Grant(self.legs, wanted, sum(self.held(), ()), numbers[len(names) :], now)

    def denied(self, wanted: Mapping[str, int], now: int) -> Denial:
        """What lacks."""
        return denial(self.legs, statuses_of(self.legs, self.held(), wanted, {}, now))

    def held(self) -> tuple[tuple[Balance, ...], ...]:
        """The balances of every leg, as they were when the route was granted."""
        parts: Any = self.parts
        held: tuple[tuple[Balance, ...], ...] = parts[3::2]
        return held

    def release_after_interrupt(self) -> None:
        """Release the lock if this thread holds it: an interrupt came between taking it and the ``try`` behind.

        The lock is an ``RLock``, which knows its owner.
        """
        if self.lock._is_owned():
            self.lock.release()


_SHAPE = """\
class ShapedPath(MemoryFastPath):
    __slots__ = ()

    def draw(self, wanted, now, receipt):
        if type(wanted) is not dict:
            return False
        asked = len(wanted)
        if asked == {own_limits}:
            try:
                {every_amount}
            except KeyError:
                return False
            wanted = None
        else:
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
                    if {too_much}:
                        return False
                    return self.denied({{{every_name}}} if wanted is None else wanted, now)
                {writes}; receipt._grant = (self, wanted, now, {new})
            finally:
                leave()
        except BaseException:
            self.release_after_interrupt()
            raise
        return True
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


def fast_path(lock: Any, legs: tuple[Leg, ...], buckets: Sequence[Bucket]) -> MemoryFastPath | None:
    """The fast path of a draw on this route, as its buckets stand now. ``None``: it has too many limits."""
    shape = tuple(tuple(balance.name for balance in bucket.balances) for bucket in buckets)
    if sum(map(len, shape)) > MOST_LIMITS:
        return None
    return shaped_path(shape)(lock, legs, buckets)


@lru_cache(256)
def shaped_path(shape: Shape) -> type[MemoryFastPath]:
    """The class of fast paths on routes of one shape."""
    names = [(leg, name) for leg, limits in enumerate(shape) for name in limits]
    own = dict.fromkeys(shape[0])
    amounts = {name: f"a{number}" for number, name in enumerate(own)}
    # What each balance is to pay. A limit that only an ancestor has is never drawn from.
    paid = {n: amounts[name] for n, (_, name) in enumerate(names) if name in amounts}
    legs = range(len(shape))
    source = _SHAPE.format(
        own_limits=len(own),
        every_amount="; ".join(f"{a} = wanted[{name!r}]" for name, a in amounts.items()),
        every_name=", ".join(f"{name!r}: {a} // 1000" for name, a in amounts.items()),
        some_amounts="; ".join(f"{a} = wanted.get({name!r}, 0)" for name, a in amounts.items()),
        names_known=" + ".join(f"({name!r} in wanted)" for name in own),
        no_amount=" or ".join(f"type({a}) is not int or {a} < 0" for a in amounts.values()),
        in_milli="; ".join(f"{a} *= 1000" for a in amounts.values()),
        buckets=", ".join(f"k{k}, h{k}" for k in legs),
        unpacked="; ".join(
            f"{''.join(f'b{n}, ' for n, (leg, _) in enumerate(names) if leg == k)}= h{k}" for k in legs
        ),
        advanced="".join(
            _ADVANCED.format(
                k=k,
                hour=HOUR_MS,
                furthest=FURTHEST_AHEAD_MS,
                refilled="".join(_REFILLED.format(n=n) for n, (leg, _) in enumerate(names) if leg == k),
            )
            for k in legs
        ),
        left="; ".join(f"t{n} = b{n}.tk" + (f" - {paid[n]}" if n in paid else "") for n in range(len(names))),
        too_much=" or ".join(f"{a} > {MAX_AMOUNT * MILLI}" for a in amounts.values()),
        lacks=" or ".join(f"t{n} < 0" for n in range(len(names))),
        writes="; ".join(
            [
                *(f"b{n}.tk = t{n}; b{n}.tc += {a}" for n, a in paid.items()),
                *(f"k{k}.events += 1" for k in legs),
            ]
        ),
        new=", ".join([*amounts.values(), *(f"t{n}" for n in range(len(names)))]),
    )
    namespace: dict[str, Any] = {"MemoryFastPath": MemoryFastPath, "__name__": __name__}
    exec(compile(source, "<the fast path of a shape>", "exec"), namespace)
    shaped: type[MemoryFastPath] = namespace["ShapedPath"]
    return shaped
