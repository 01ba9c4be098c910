"""The common draw, written out.

Nearly every acquire is like the one before it: the same entity and resource, the same limits, enough tokens.
After the first such draw its route is known, and what remains is arithmetic on two or three balances. In a
loop the loop itself would cost more than that, so here the body of ``bucket.take`` is repeated for each
balance instead, as source text that is compiled once per shape of a route (how many limits on how many
legs). A shortcut is that function, and what it works on.

The buckets of the memory store live in memory only, so their baseline may move: the first draw of a
millisecond makes it the baseline (:meth:`Bucket.advance`, written out as well), and for the others of that
millisecond the tokens in the balance are its level. A baseline that a wrong clock has set is left to the long way.

Straight-line code has a second virtue. CPython delivers interrupts at calls and at jumps backwards, so from
the first write to the noted receipt nothing can come between: the tokens leave whole, or not at all.

``with lock`` would cost twice what ``acquire`` and ``release`` do. An interrupt that lands right after
``acquire`` finds no ``finally`` yet; the lock knows its owner, so it is released all the same.

``bucket.take`` is the definition; a property test holds the two against each other. A shortcut that can
neither say yes nor what lacks says nothing: the store then goes the long way, which knows why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from zae_limiter.bucket import FURTHEST_AHEAD_MS, MILLI, Bucket
from zae_limiter.naming import MAX_AMOUNT
from zae_limiter.stores.limit_statuses import denial, statuses_of
from zae_limiter.stores.protocol import Denial, Folded, Grant, Leg, Shortcut
from zae_limiter.stores.windows import HOUR_MS

MOST_LIMITS = 24
"""Beyond this the long way is as good."""

_SHAPE = """\
def make(lock):
    enter, leave, is_mine = lock.acquire, lock.release, lock._is_owned
    def draw(shortcut, wanted, now, receipt):
        if type(wanted) is not dict:
            return False
        asked = len(wanted)
        if asked == {own_limits}:
            {every_amount}
            wanted = None
        else:
            wanted = wanted.copy()  # the caller may change theirs later
            {some_amounts}
            if {names_known} != asked:
                return False
        if {no_amount}:
            return False
        {in_milli}
        _, _, ({balances}), {buckets} = shortcut
        try:
            enter()
            try:
{advanced}                {left}
                if {lacks}:
                    if {too_much}:
                        return False
                    return denied(shortcut, {{{every_name}}} if wanted is None else wanted, now)
                {writes}; receipt._grant = (unfolded, shortcut, wanted, now, {new})
            finally:
                leave()
        except BaseException:
            if is_mine():
                leave()
            raise
        return True
    return draw
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


def shortcut(lock: Any, legs: tuple[Leg, ...], buckets: Sequence[Bucket]) -> Shortcut | None:
    """The draw on this route: good while every bucket stands as it does now, in the hour that it counts."""
    shape = tuple(tuple(balance.name for balance in bucket.balances) for bucket in buckets)
    if sum(map(len, shape)) > MOST_LIMITS:
        return None
    held = [bucket.balances for bucket in buckets]
    balances = held[0] if len(held) == 1 else tuple(chain.from_iterable(held))
    return (_drawer(lock, shape), legs, balances, *chain.from_iterable(zip(buckets, held, strict=True)))


def unfolded(folded: Folded) -> Grant:
    """The grant of a shortcut. ``wanted`` is there only if it did not name every limit."""
    _, shortcut, wanted, now, *numbers = folded
    legs, balances = shortcut[1:3]
    names = [limit.name for limit in legs[0].limits]
    if wanted is None:
        wanted = {name: amount // MILLI for name, amount in zip(names, numbers, strict=False)}
    return Grant(legs, wanted, balances, numbers[len(names) :], now)


def denied(shortcut: Shortcut, wanted: Mapping[str, int], now: int) -> Denial:
    """What lacks."""
    legs = shortcut[1]
    return denial(legs, statuses_of(legs, shortcut[4::2], wanted, {}, now))


@lru_cache(256)
def _drawer(lock: Any, shape: tuple[tuple[str, ...], ...]) -> Callable[..., bool | Denial]:
    made: Callable[..., bool | Denial] = _maker(shape)(lock)
    return made


@lru_cache(256)
def _maker(shape: tuple[tuple[str, ...], ...]) -> Callable[[Any], Callable[..., bool | Denial]]:
    names = [(leg, name) for leg, limits in enumerate(shape) for name in limits]
    own = dict.fromkeys(shape[0])
    amounts = {name: f"a{number}" for number, name in enumerate(own)}
    # What each balance is to pay; a name that only an ancestor has is asked of nobody.
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
        balances="".join(f"b{n}, " for n in range(len(names))),
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
    namespace: dict[str, Any] = {"denied": denied, "unfolded": unfolded}
    exec(compile(source, "<the common draw>", "exec"), namespace)
    maker: Callable[[Any], Callable[..., bool | Denial]] = namespace["make"]
    return maker
