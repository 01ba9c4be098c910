"""The forms every change of a bucket takes. Pure: from an image and a wish to one conditional UpdateItem.

**Why they are exact.** A bucket's level is ``min(tk + a, bx)``, where ``a`` is what accrued since the baseline
``rf``. ``rf`` stands still while tokens come and go, so for a given ``now`` the accrual ``a`` is a number the client
can compute, and the only thing it cannot know is ``tk`` at the moment of the write. Each limit of a write therefore
takes one of two forms, told apart by a condition on ``tk``:

======================  ==============================  ===================================
                        below the ceiling               at the ceiling
======================  ==============================  ===================================
condition               ``floor <= tk <= C - up``       ``tk > C - up``
effect                  ``ADD tk  shift + up - down``   ``SET tk = C + shift - down``
======================  ==============================  ===================================

with ``C = bx - a`` (what ``tk`` is when the bucket is full), ``up`` what comes back, ``down`` what is taken. The
conditions exclude each other and cover everything, so a wrong guess costs a call and never a token: the refusal
brings the image for the right one.

A *rebase* moves the baseline to ``now`` and sets new terms: then ``C = min(old bx, new bx) - a`` and everything
shifts by ``a``; otherwise ``shift`` is 0. The ``floor`` is what makes it a *draw* (the tokens must be there, for
limits that are not named at least no debt), and for a *settlement* it only bounds how deep the debt can be, so that
the expiry time written along cannot forgive any. A pure credit has no floor and leaves the expiry time alone. A shard
of a divided bucket settles only what it holds, and gets nothing back while it is in debt (``held``): a debt is that of
all shards, and is written to all of them at once, each ``exactly`` as it was seen.

**Guards.** Every write also demands the baseline, the config version and the number of shards it was computed for,
and that its own mark is not among those of the last four writers: what is applied once is not applied twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter.bucket import MILLI, Balance, accrued_in_a_second, share
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.gauge import GAUGE_TK, PARTITION_WCU, WRITE, gauge_attributes, righted
from zae_limiter.stores.dynamodb.items import RING, Image, terms_of
from zae_limiter.stores.dynamodb.keys import Key, gsi2_bucket, gsi3_bucket, gsi4, ns_of
from zae_limiter.stores.dynamodb.updates import Update
from zae_limiter.stores.dynamodb.values import encode_item
from zae_limiter.stores.protocol import Leg

NOTHING: Mapping[str, int] = {}

FULL_BY = "full_by"
"""What ``ttl`` is to a bucket, for a shard of a divided one: when it is surely full. Single shards must not expire."""


class Terms(NamedTuple):
    """What a bucket is to obey: the limits of its leg, and the version they have."""

    leg: Leg
    cv: str
    parent_id: str | None = None
    cascade: bool = False


class Wish(NamedTuple):
    """What a write is to do, in millitokens by limit.

    ``deltas``: positive ones are taken, negative ones come back. ``needed`` makes it a draw: every limit named
    there must hold that much, and no other may be in debt. ``terms``: rebase the bucket to these first;
    ``rebase``: to those it has, so that nothing computed for the old baseline can be done any more.
    ``fill``: fill every limit. ``grants`` is added to the count of grants.

    ``held``: what is taken must be there, and nothing comes back to a limit in debt, though it is no draw.
    ``exactly``: these limits must hold what they were seen to hold.
    ``unmarked``: this mark must not be in the ring.
    """

    deltas: Mapping[str, int]
    needed: Mapping[str, int] | None = None
    terms: Terms | None = None
    grants: int = 0
    fill: bool = False
    rebase: bool = False
    held: bool = False
    exactly: frozenset[str] = frozenset()
    unmarked: str | None = None


def update(
    image: Image,
    wish: Wish,
    *,
    now: int,
    nonce: str,
    epoch_s: int,
    ttl_margin_s: int,
    guesses: Mapping[str, int] = NOTHING,
    anchor: str | None = None,
    load: int = WRITE,
    age_ms: int | None = None,
) -> Update:
    """The write that does ``wish`` to the bucket of ``image``, if that is how the bucket still is.

    ``guesses`` has what ``tk`` may be by now, where it may differ from the image. ``load`` is what the gauge of the
    bucket's own write load is charged, and ``age_ms`` how old the image is, if anybody knows.
    """
    late = max(image.rf - now, 0)  # our clock is behind whoever set the baseline
    now += late
    terms = wish.terms
    write = Update()
    write.demand("rf", "=", image.rf)
    write.demand("cv", "=", image.cv)
    write.demand("shard_count", "=", image.shards)
    write.push_mark(nonce, anchor)
    if wish.unmarked is not None:
        write.demand_unmarked(wish.unmarked)
    draws = wish.needed is not None
    rebased = terms is not None or wish.rebase
    bounded = draws or terms is not None or any(delta > 0 for delta in wish.deltas.values())
    longest = 0
    kept: Mapping[str, Limit] = {limit.name: limit for limit in terms.leg.limits} if terms else {}
    for name, balance in image.balances.items():
        limit = kept.get(name)
        if rebased and name in image.resting:
            # Its terms are its own, not those of the version: they may have changed within the baseline's millisecond.
            for field, value in terms_of(balance.limit).items():
                if field != "cp":
                    write.demand(f"b_{name}_{field}", "=", value)
        longest = max(
            longest,
            _move(
                write,
                balance,
                wish,
                limit or balance.limit,
                now=now,
                guess=guesses.get(name, balance.tk),
                rebased=rebased,
                active=(name in kept) if terms else name not in image.resting,
                bounded=bounded,
            ),
        )
        if terms:
            _write_terms(write, name, balance, limit, resting=name in image.resting)
    if terms:
        for limit in terms.leg.limits:
            if limit.name not in image.balances:
                longest = max(longest, _add_limit(write, limit, wish, image))
        _write_version(write, image, terms)
    if rebased and now != image.rf:
        write.set("rf", now)
    _weigh(write, image, now, load, rebased=rebased, age_ms=age_ms)
    write.add("ev", wish.grants)
    if bounded:
        write.set("ttl" if image.shards == 1 else FULL_BY, epoch_s + -(-(longest + late) // MILLI) + ttl_margin_s)
    return write


def _move(
    write: Update,
    balance: Balance,
    wish: Wish,
    limit: Limit,
    *,
    now: int,
    guess: int,
    rebased: bool,
    active: bool,
    bounded: bool,
) -> int:
    """Move one limit's tokens by one of the two forms. Returns the milliseconds it may then take to be full."""
    tk = f"b_{balance.name}_tk"
    a = balance.since_rf(now)
    burst = share(limit.burst * MILLI, balance.shard, balance.shards)
    ceiling = min(balance.bx, burst) - a
    shift = a if rebased else 0
    if wish.fill:
        write.set(tk, ceiling + shift)
        return 0
    delta = wish.deltas.get(balance.name, 0)
    up, down = max(-delta, 0), max(delta, 0)
    if balance.name in wish.exactly:
        level = balance.level(now)
        write.demand(tk, "=", balance.tk)
        write.set(tk, level - delta - a)
        write.add(f"b_{balance.name}_tc", delta)
        return _time_to_fill(limit, burst - level + delta, balance.shards)
    floor: int | None = None
    if wish.needed is not None and active:
        floor = wish.needed.get(balance.name, 0) - a
    elif wish.held and delta:
        floor = down - a
    elif bounded:
        floor = min(balance.tk, balance.bx - a) - balance.bx
    if guess > ceiling - up and (delta or rebased) and (floor is None or floor <= ceiling):
        write.demand(tk, ">", ceiling - up)
        write.set(tk, ceiling + shift - down)
        least = ceiling + a - down
    else:
        if floor is not None:
            write.demand(tk, ">=", floor)
        if delta or rebased:
            write.demand(tk, "<=", ceiling - up)
            write.add(tk, shift + up - down)
        least = (ceiling if floor is None else floor) + a - down
    write.add(f"b_{balance.name}_tc", delta)
    return _time_to_fill(limit, burst - least, balance.shards)


def _weigh(write: Update, image: Image, now: int, load: int, *, rebased: bool, age_ms: int | None) -> None:
    """Charge the gauge of the bucket's own write load. It never refuses anything."""
    accrued = accrued_in_a_second(image.gauge_burst, image.rf, now)
    level = None if age_ms is None else righted(image, now, age_ms)
    if level is None:
        write.add(GAUGE_TK, accrued - load if rebased else -load)
    else:
        write.set(GAUGE_TK, level - load if rebased else level - accrued - load)


def _add_limit(write: Update, limit: Limit, wish: Wish, image: Image) -> int:
    """A limit the bucket does not have yet: full, less what is taken."""
    burst = share(limit.burst * MILLI, image.shard, image.shards)
    taken = max(wish.deltas.get(limit.name, 0), 0)
    write.demand_absent(f"b_{limit.name}_tk")
    write.set(f"b_{limit.name}_tk", burst - taken)
    write.set(f"b_{limit.name}_tc", taken)
    for field, value in terms_of(limit).items():
        write.set(f"b_{limit.name}_{field}", value)
    return _time_to_fill(limit, taken, image.shards)


def _write_terms(write: Update, name: str, balance: Balance, limit: Limit | None, *, resting: bool) -> None:
    """The terms that change. A limit that was taken away rests: it loses its ``cp``, and keeps the others."""
    if limit is None:
        if not resting:
            write.remove(f"b_{name}_cp")
        return
    before = {} if resting else terms_of(balance.limit)
    for field, value in terms_of(limit).items():
        if before.get(field) != value:
            write.set(f"b_{name}_{field}", value)


def _write_version(write: Update, image: Image, terms: Terms) -> None:
    if terms.cv != image.cv:
        write.set("cv", terms.cv)
    write.set("cascade", terms.cascade)
    if terms.parent_id is None:
        write.remove("parent_id")
    else:
        write.set("parent_id", terms.parent_id)


def restamp(image: Image, cv: str, *, nonce: str) -> Update:
    """Only another version: the bucket's limits are gone, and whoever knew them must notice."""
    write = Update()
    write.demand("rf", "=", image.rf)
    write.demand("cv", "=", image.cv)
    write.demand("shard_count", "=", image.shards)
    write.push_mark(nonce, None)
    write.set("cv", cv)
    write.add(GAUGE_TK, -WRITE)
    return write


def new_item(
    key: Key,
    terms: Terms,
    deltas: Mapping[str, int],
    *,
    now: int,
    nonce: str,
    inc: str,
    grants: int,
    epoch_s: int,
    ttl_margin_s: int,
    wcu: int = PARTITION_WCU,
) -> dict[str, Any]:
    """A bucket that begins its life: full, less what is taken."""
    ns, entity_id, resource = ns_of(key), terms.leg.entity_id, terms.leg.resource
    attributes: dict[str, Any] = {
        "PK": key.pk,
        "SK": key.sk,
        "entity_id": entity_id,
        "resource": resource,
        "rf": now,
        "cv": terms.cv,
        "inc": inc,
        "ev": grants,
        "shard_count": 1,
        "cascade": terms.cascade,
        "parent_id": terms.parent_id,
        **dict.fromkeys(RING, "-"),
        "w0": nonce,
        **gsi2_bucket(ns, entity_id, resource, 0),
        **gsi3_bucket(ns, entity_id, resource, 0),
        **gsi4(ns, key.pk, "BUCKET"),
        **gauge_attributes(wcu * MILLI),
    }
    longest = 0
    for limit in terms.leg.limits:
        delta = deltas.get(limit.name, 0)
        taken = max(delta, 0)
        attributes[f"b_{limit.name}_tk"] = limit.burst * MILLI - taken
        attributes[f"b_{limit.name}_tc"] = delta
        for field, value in terms_of(limit).items():
            attributes[f"b_{limit.name}_{field}"] = value
        longest = max(longest, _time_to_fill(limit, max(taken, limit.burst * MILLI), 1))
    attributes["ttl"] = epoch_s + -(-longest // MILLI) + ttl_margin_s
    return encode_item(attributes)


def _time_to_fill(limit: Limit, milli: int, shards: int) -> int:
    """Milliseconds until so much has accrued, rounded up generously for a share."""
    return -(-milli * shards * limit.refill_period_seconds // limit.refill_amount)
