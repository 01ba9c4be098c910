"""From balances to what callers are told: shared by every store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from zae_limiter.bucket import MILLI, Balance, build_limit_status, calculate_available
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.reports import EntityCapacity, ResourceCapacity
from zae_limiter.models.status import BucketStatus, LimitLevel, LimitStatus
from zae_limiter.naming import MAX_AMOUNT
from zae_limiter.stores.cursors import page_of
from zae_limiter.stores.protocol import BucketPlace, Denial, Leg

Reserved = Mapping[BucketPlace, Mapping[str, int]]


def no_limits(entity_id: str, resource: str) -> ValidationError:
    """The error that nothing is configured."""
    return ValidationError(
        "limits",
        None,
        f"no limits are configured for {entity_id!r} on {resource!r}; set them for the entity, the "
        "resource or the system, or give limits= with the call",
    )


def names_known(legs: Iterable[Leg]) -> frozenset[str]:
    """The names of limits that any level consulted for these legs has."""
    return frozenset[str]().union(*[leg.known for leg in legs])


def knows(legs: Sequence[Leg], names: Iterable[str]) -> bool:
    """Whether every one of these names is known to a level consulted for these legs."""
    return legs[0].known.issuperset(names) or names_known(legs).issuperset(names)


def check_names(legs: Sequence[Leg], wanted: Mapping[str, int]) -> None:
    """Refuse a name that no level consulted knows: a typo must not be unlimited."""
    if knows(legs, wanted):
        return
    names = names_known(legs)
    entity_id, resource, known = legs[0].entity_id, legs[0].resource, ", ".join(sorted(names))
    for name in wanted:
        if name not in names:
            reason = f"no level and no ancestor of {entity_id!r} has such a limit on {resource!r}; known are {known}"
            raise ValidationError("consume", name, reason)


def check_own_names(own: Leg, wanted: Mapping[str, int], field: str = "consume") -> None:
    """Refuse a limit that the entity itself does not have."""
    for name in wanted:
        if name not in own.names:
            known = ", ".join(sorted(own.names))
            reason = f"{own.entity_id!r} has no such limit on {own.resource!r}; its limits are {known}"
            raise ValidationError(field, name, reason)


def check_not_held(own: Leg, names: Iterable[str], field: str) -> None:
    """Refuse to set or give what is free of a limit of calls in flight."""
    for name in sorted(own.held.intersection(names)):
        reason = "is a limit of calls in flight: what is free follows from those that run"
        raise ValidationError(field, name, reason)


def check_liftable(own: Leg, names: Iterable[str]) -> None:
    """Refuse to lift a limit that has no periods."""
    for name in sorted(names):
        if not any(limit.name == name and limit.periods is not None for limit in own.limits):
            reason = "has no periods, so nothing would end what is above its burst; give it tokens without above"
            raise ValidationError("above", name, reason)


def check_extra(amounts: Mapping[str, int], balances: Iterable[Balance], now: int) -> None:
    """Refuse more above a burst than an amount may be, with what these balances have there in this period."""
    given = {name: amount * MILLI for name, amount in amounts.items()}
    for balance in balances:
        if balance.name in given:
            given[balance.name] += balance.extra_at(now)
    for name, milli in sorted(given.items()):
        if milli > MAX_AMOUNT * MILLI:
            reason = f"would hold {milli // MILLI} above its burst in this period; the most is {MAX_AMOUNT}"
            raise ValidationError("amounts", name, reason)


def statuses_of(
    legs: Iterable[Leg],
    balances: Iterable[Iterable[Balance]],
    wanted: Mapping[str, int],
    reserved: Reserved,
    now: int,
) -> tuple[LimitStatus, ...]:
    """How every limit of every leg meets a request."""
    statuses = []
    for leg, held in zip(legs, balances, strict=True):
        waited_for = reserved.get(leg.place) if reserved else None
        for balance in held:
            name = balance.name
            statuses.append(
                build_limit_status(
                    balance,
                    entity_id=leg.entity_id,
                    resource=leg.resource,
                    source=leg.source,
                    requested=wanted.get(name, 0),
                    reserved=waited_for.get(name, 0) * MILLI if waited_for else 0,
                    now=now,
                )
            )
    return tuple(statuses)


def denial(legs: Sequence[Leg], statuses: tuple[LimitStatus, ...]) -> Denial:
    """The denial these statuses are; at least one of them is exceeded."""
    lacks = next((status.entity_id, status.resource) for status in statuses if status.refuses)
    return Denial(statuses, next(leg for leg in legs if leg.place == lacks))


def limit_level(balance: Balance, now: int, denials: Mapping[str, int]) -> LimitLevel:
    """One limit as operators see it."""
    available = calculate_available(balance, now)  # first: the counter of a sharded limit is known once it was read
    return LimitLevel(
        limit_name=balance.name,
        limit=balance.limit,
        available=available,
        total_consumed=balance.tc // MILLI,
        seconds_to_full=balance.full_in(balance.tk, now) / MILLI,
        denials=denials.get(balance.name, 0),
        extra=balance.extra_at(now) // MILLI,
    )


def tightness(bucket: BucketStatus) -> tuple[float, str, str]:
    """By what buckets are ranked: the part that the tightest of their limits has left, less than nothing in debt."""
    left = min((level.available / level.capacity for level in bucket.limits), default=1.0)
    return left, bucket.entity_id, bucket.resource


def capacity_of(
    resource: str, limit_name: str, held: Iterable[tuple[EntityCapacity, Sequence[str]]], limit: int, after: str | None
) -> ResourceCapacity:
    """The capacity of a resource, of what each bucket holds, and which entities its acquires take from besides."""
    by_entity = {row.entity_id: (row, above) for row, above in held}
    rows = [replace(row, in_total=by_entity.keys().isdisjoint(above)) for _, (row, above) in sorted(by_entity.items())]
    capacity = sum(row.capacity for row in rows if row.in_total)
    available = sum(row.available for row in rows if row.in_total)
    listed = [row for row in rows if after is None or row.entity_id > after][: limit + 1]
    return ResourceCapacity(
        resource=resource,
        limit_name=limit_name,
        total_capacity=capacity,
        total_available=available,
        utilization_pct=percent_used(capacity, available),
        entities=page_of(listed, limit, lambda row: (row.entity_id,)),
    )


def percent_used(capacity: int, available: int) -> float:
    """How much of a capacity is taken."""
    return round(100 * (capacity - available) / capacity, 2) if capacity else 0.0
