"""The common draw, written out.

Nearly every acquire is like the one before it: the same entity and resource, the same limits, enough tokens.
After the first such draw its route is known, and what remains is arithmetic on two or three balances. In a
loop the loop itself would cost more than that, so here the body of ``bucket.take`` is repeated for each
balance instead, as source text that is compiled once per shape of a route (how many limits on how many
legs). A shortcut is such a function, closed over one route's own buckets.

Straight-line code has a second virtue. CPython delivers interrupts at calls and at jumps backwards, so from
the first write to the noted receipt nothing can come between: the tokens leave whole, or not at all.

``bucket.take`` is the definition; a property test holds the two against each other. A shortcut that cannot
say yes says nothing: the store then goes the long way, which knows why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from zae_limiter.bucket import Bucket
from zae_limiter.stores.memory.tables import MemoryTables
from zae_limiter.stores.protocol import Leg, Receipt

Shortcut: TypeAlias = Callable[[dict[str, int], int, Receipt], bool]

MOST_LIMITS = 24
"""Beyond this the long way is as good."""

_SHAPE = """\
def make(lock, tables, epoch, good_until, legs, balances, {buckets}):
    {balances} = balances
    def draw(wanted, now, receipt):
        unknown = len(wanted)
        wanted = wanted.copy()  # the caller may change it later
        get = wanted.get
        with lock:
            if tables._epoch != epoch or now >= good_until:
                return False
{stands}{checks}            if unknown:
                return False
            {writes}; receipt._grant = (legs, wanted, balances, ({left}), now)
        return True
    return draw
"""
_STANDS = """\
            if k{k}.balances is not h{k}:
                return False
"""
_CHECK = """\
            w{n} = get({name!r})
            if w{n} is None:
                w{n} = 0
            elif w{n}.__class__ is not int or w{n} < 0:
                return False{own}
            if now == b{n}._seen:
                accrual = b{n}._accrual
            else:
                accrual = now * b{n}.ra // b{n}.rp - b{n}.at_rf
                if accrual < 0:
                    accrual = 0
                b{n}._accrual, b{n}._seen = accrual, now
            t{n} = b{n}.tk
            level = t{n} + accrual
            if w{n}:
                w{n} *= 1000
                if level > b{n}.bx:
                    level = b{n}.bx
                if level < w{n}:
                    return False
                t{n} = level - w{n} - accrual
            elif level < 0:
                return False
"""
_OWN = """
            else:
                unknown -= 1"""


def shortcut(
    lock: threading.Lock,
    tables: MemoryTables,
    legs: tuple[Leg, ...],
    buckets: Sequence[Bucket],
    good_until: int,
) -> Shortcut | None:
    """The draw on this route: good while the epoch and every bucket stand as they do now, until that hour ends."""
    balances = tuple(balance for bucket in buckets for balance in bucket.balances)
    if len(balances) > MOST_LIMITS:
        return None
    shape = tuple(tuple(balance.name for balance in bucket.balances) for bucket in buckets)
    held = [part for bucket in buckets for part in (bucket, bucket.balances)]
    made: Shortcut = _maker(shape)(lock, tables, tables.epoch(), good_until, legs, balances, *held)
    return made


@lru_cache(256)
def _maker(shape: tuple[tuple[str, ...], ...]) -> Callable[..., Shortcut]:
    names = [(name, leg == 0) for leg, limits in enumerate(shape) for name in limits]
    legs = range(len(shape))
    writes = [f"b{n}.tk = t{n}; b{n}.tc += w{n}" for n in range(len(names))]
    source = _SHAPE.format(
        buckets=", ".join(f"k{k}, h{k}" for k in legs),
        balances="".join(f"b{n}, " for n in range(len(names))),
        stands="".join(_STANDS.format(k=k) for k in legs),
        checks="".join(_CHECK.format(n=n, name=name, own=_OWN if own else "") for n, (name, own) in enumerate(names)),
        writes="; ".join([*writes, *(f"k{k}.events += 1" for k in legs)]),
        left="".join(f"t{n}, " for n in range(len(names))),
    )
    namespace: dict[str, Any] = {}
    exec(compile(source, "<the common draw>", "exec"), namespace)
    maker: Callable[..., Shortcut] = namespace["make"]
    return maker
