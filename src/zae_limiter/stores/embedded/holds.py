"""What a draw takes and a settlement changes in the buckets of an embedded store, for every kind of limit.

A hold belongs to one life of a bucket, and to one due time there. A lease gives back only where both still stand: in
a bucket that was made anew, reset, or whose overdue holds were returned, there is nothing of it any more. A hold that
is renewed and is not there any more is **taken again without asking**: the call is running, so the count must show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from zae_limiter.bucket import MILLI, Balance, Bucket, HeldBalance, would_take
from zae_limiter.mixed_limits import Taken, would_take_mixed
from zae_limiter.models.holds import Hold
from zae_limiter.stores.protocol import Draw, Grant, HoldChange, Leg, Posting, with_refusals

Drawn: TypeAlias = tuple[Grant, list[Any], list[str], list[Any]]
"""A grant, and what it changes: which objects, which attributes, which values."""


class Changes:
    """Attributes to set in one step."""

    __slots__ = ("changed", "names", "values")

    def __init__(self) -> None:
        self.changed: list[Any] = []
        self.names: list[str] = []
        self.values: list[Any] = []

    def set(self, changed: object, **values: Any) -> None:
        """Note what is to be set."""
        for name, value in values.items():
            self.changed.append(changed)
            self.names.append(name)
            self.values.append(value)


def drawn_plain(legs: tuple[Leg, ...], buckets: Sequence[Bucket], draw: Draw, now: int) -> Drawn | None:
    """The grant of a draw from limits that refill evenly and refuse. ``None``: one lacks."""
    balances = balances_of(buckets)
    taken = would_take(balances, draw.wanted, now)
    if taken is None:
        return None
    left, amounts = taken
    changed: list[Any] = []
    values: list[Any] = []
    for balance, tk, amount in zip(balances, left, amounts):  # noqa: B905 (they have one length)
        changed += (balance, balance)
        values += (tk, balance.tc + amount)
    return Grant(legs, draw.wanted, balances, left, now), changed, ["tk", "tc"] * len(balances), values


def drawn_mixed(legs: tuple[Leg, ...], buckets: Sequence[Bucket], draw: Draw, now: int) -> Drawn | None:
    """The grant of a draw from limits of any kind. ``None``: one lacks."""
    balances = balances_of(buckets)
    taken = would_take_mixed(balances, draw.wanted, now)
    if taken is None:
        return None
    places = [place for place, bucket in enumerate(buckets) for _ in bucket.balances]
    holds = tuple(
        _hold(buckets[places[lent.place]], balances[lent.place], lent.slots, lent.due) for lent in taken.lent
    )
    grant = Grant(_marked(legs, balances, places, taken), draw.wanted, balances, taken.left, now, holds=holds)
    return grant, [*taken.changed], taken.names, taken.values


def balances_of(buckets: Iterable[Bucket]) -> tuple[Balance, ...]:
    """The balances of every bucket in turn."""
    return tuple(chain.from_iterable(bucket.balances for bucket in buckets))


def _marked(
    legs: tuple[Leg, ...], balances: Sequence[Balance], places: Sequence[int], taken: Taken
) -> tuple[Leg, ...]:
    """The legs; those with limits that would have refused say so, and what those before them have counted then."""
    refused: dict[int, set[str]] = {}
    for place in taken.refused:
        refused.setdefault(places[place], set()).add(balances[place].name)
    return with_refusals(legs, refused)


def _hold(bucket: Bucket, balance: Balance, slots: int, due: int) -> Hold:
    assert isinstance(balance, HeldBalance)
    return Hold(bucket.entity_id, bucket.resource, balance.name, slots, due, balance.ttl, bucket.born)


def counted_by(posting: Posting) -> Mapping[str, int]:
    """By how much a settlement changes the counters of its leg, in millitokens. What ends in flight has begun."""
    if not posting.holds:
        return posting.counted_milli
    counted = dict(posting.counted_milli)
    for hold, slots in posting.holds:
        if slots > 0 or posting.undo:
            counted[hold.limit_name] = counted.get(hold.limit_name, 0) + slots * MILLI
    return counted


def change_holds(bucket: Bucket, posting: Posting, now: int, changes: Changes) -> None:
    """Note what a settlement changes in the holds of one bucket, and in the limits that only watch."""
    held: dict[str, HeldBalance] = {}
    for hold, slots in posting.holds:
        balance = held.get(hold.limit_name) or _copy_of_held(bucket, hold.limit_name)
        if balance is not None:
            held[hold.limit_name] = balance
            _change_hold(bucket, balance, HoldChange(hold, slots), posting.undo, now, changes)
        elif slots < 0:
            changes.set(hold, amount=max(hold.amount + slots, 0))
    _note(bucket, held, changes)
    if posting.undo:
        for one in bucket.balances:
            if one.name in posting.leg.refused and not one.limit.enforce:
                changes.set(one, sn=one.sn - 1)


def _copy_of_held(bucket: Bucket, name: str) -> HeldBalance | None:
    found = bucket.held(name)
    return None if found is None else found.with_tokens(found.tk, found.tc)


def _change_hold(
    bucket: Bucket, balance: HeldBalance, change: HoldChange, undo: bool, now: int, changes: Changes
) -> None:
    hold, slots = change
    if slots > 0:
        take_again(bucket, balance, hold, slots, now, changes)
        return
    after = balance.given_back(-slots * MILLI, hold.due) if hold.life == bucket.born else None
    if after is not None:
        balance.become(after)
        balance.tc += slots * MILLI if undo else 0
    changes.set(hold, amount=max(hold.amount + slots, 0))


def take_again(bucket: Bucket, balance: HeldBalance, hold: Hold, slots: int, now: int, changes: Changes) -> None:
    """Take slots without asking, for a hold that is as if it were taken now."""
    after, due = balance.taken(slots * MILLI, now)
    balance.become(after)
    balance.tc += slots * MILLI
    changes.set(hold, amount=slots, due=due, life=bucket.born, ttl=balance.ttl)


def renew_in(bucket: Bucket, holds: Sequence[Hold], now: int, changes: Changes, hold_changes: Changes) -> list[Hold]:
    """Note what renewing changes in one bucket, and in its holds. Those that were lost; they are taken again if the
    limit is still there."""
    lost = []
    held: dict[str, HeldBalance] = {}
    for hold in holds:
        balance = held.get(hold.limit_name) or _copy_of_held(bucket, hold.limit_name)
        if balance is None:
            lost.append(hold)
            hold_changes.set(hold, amount=0)
            continue
        held[hold.limit_name] = balance
        milli = hold.amount * MILLI
        renewed = balance.renewed(milli, hold.due, now) if hold.life == bucket.born else None
        if renewed is None:
            lost.append(hold)
            take_again(bucket, balance, hold, hold.amount, now, hold_changes)
        else:
            balance.become(renewed[0])
            hold_changes.set(hold, due=renewed[1], ttl=balance.ttl)
    _note(bucket, held, changes)
    return lost


def _note(bucket: Bucket, held: Mapping[str, HeldBalance], changes: Changes) -> None:
    for balance in held.values():
        live = bucket.held(balance.name)
        changes.set(live, tk=balance.tk, counts=balance.counts, hb=balance.hb, tc=balance.tc)
