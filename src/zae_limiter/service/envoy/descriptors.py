"""From Envoy's descriptors to what is taken, looked at and settled. Pure.

Envoy describes a request by lists of keys and values. A key says what its value is: an entity, a resource, the name of
a limit, or the token of a lease. The descriptors of one entity and resource are one demand, which is met by one
acquire; several demands are met in their order. An amount is the descriptor's own, else the request's, else 1; an
amount of 0 that the descriptor states itself only looks.

A descriptor that states its own amount of a limit which does not count requests is taken as an estimate: its demand
gets a lease, so that the real cost can be settled when the stream is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from zae_limiter import Limit, ValidationError
from zae_limiter.http_fields import REQUEST_UNITS
from zae_limiter.integrations.web_rules import address_id

DEFAULT_LIMIT = "requests"
"""The limit of a descriptor that names none."""

ANONYMOUS = "anonymous"
"""The entity of descriptors that name none: all callers together."""

ADDRESS_KEYS = ("remote_address", "masked_remote_address")
LEASE_SEPARATOR = ","

UNITS = {1: "second", 2: "minute", 3: "hour", 4: "day", 5: "month", 6: "year"}
"""How Envoy numbers the periods of a limit."""

_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}

Role = Literal["entity", "resource", "limit"]
ROLES: tuple[Role, ...] = ("entity", "resource", "limit")


class Override(NamedTuple):
    """A limit that Envoy sends along: so many in each unit."""

    amount: int
    unit: int


class Descriptor(NamedTuple):
    """One descriptor of a request."""

    entries: Mapping[str, str]
    hits: int | None = None
    override: Override | None = None
    is_negative: bool = False


@dataclass(frozen=True, slots=True)
class DescriptorRules:
    """Which keys name what, and whether limits may come from Envoy."""

    entity_keys: tuple[str, ...] = ("entity",)
    resource_keys: tuple[str, ...] = ("resource", "model", "generic_key")
    limit_keys: tuple[str, ...] = ("limit",)
    allow_overrides: bool = False

    @classmethod
    def of(cls, pairs: Iterable[str], *, allow_overrides: bool = False) -> DescriptorRules:
        """The rules with further keys, as ``KEY=ROLE``: ``user_id=entity``. They go behind those that are known."""
        usual = cls()
        keys = {"entity": [*usual.entity_keys], "resource": [*usual.resource_keys], "limit": [*usual.limit_keys]}
        for pair in pairs:
            key, _, role = pair.rpartition("=")
            if not key or role not in keys:
                raise ValidationError("rls_map", pair, f"must be KEY=ROLE, with one of {', '.join(ROLES)}")
            keys[role].insert(-1 if role == "resource" else len(keys[role]), key)
        entity_keys, resource_keys, limit_keys = (tuple(keys[role]) for role in ROLES)
        return cls(entity_keys, resource_keys, limit_keys, allow_overrides)


@dataclass(slots=True)
class Demand:
    """What is asked of one entity on one resource: one acquire.

    ``looks`` are the limits of which nothing is taken. ``places`` says which descriptors each limit answers.
    """

    entity_id: str
    resource: str
    amounts: dict[str, int] = field(default_factory=dict)
    looks: set[str] = field(default_factory=set)
    overrides: dict[str, Limit] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)
    is_estimate: bool = False

    def add(self, limit: str, amount: int, place: int) -> None:
        """One more descriptor. Two of the same limit are two hits."""
        self.amounts[limit] = self.amounts.get(limit, 0) + amount
        self.places.setdefault(limit, []).append(place)
        if self.amounts[limit]:
            self.looks.discard(limit)
        else:
            self.looks.add(limit)


class Asked(NamedTuple):
    """All that one request asks for."""

    demands: Sequence[Demand]
    settlements: Mapping[str, Mapping[str, int]]
    """By the token of a lease, what was really used. Nothing: the lease ends as it is."""
    descriptors: int
    ignored_negative: int = 0
    ignored_overrides: int = 0


def read_descriptors(
    domain: str, descriptors: Sequence[Descriptor], hits_addend: int, rules: DescriptorRules
) -> Asked:
    """What the descriptors of a request ask for. Raises ``ValidationError`` for an override that is no limit."""
    demands: dict[tuple[str, str], Demand] = {}
    settlements: dict[str, dict[str, int]] = {}
    negative = overrides = 0
    for place, descriptor in enumerate(descriptors):
        if descriptor.is_negative:  # giving back without a lease would mint
            negative += 1
            continue
        entries = descriptor.entries
        limit = _named(entries, rules.limit_keys) or DEFAULT_LIMIT
        lease = entries.get("lease")
        if lease is not None:
            _settle(settlements, lease, limit, descriptor.hits, hits_addend)
            continue
        pair = _entity_of(entries, rules), _named(entries, rules.resource_keys) or domain
        demand = demands.get(pair)
        if demand is None:
            demand = demands[pair] = Demand(*pair)
        demand.add(limit, descriptor.hits if descriptor.hits is not None else hits_addend or 1, place)
        if descriptor.hits and limit not in REQUEST_UNITS:
            demand.is_estimate = True
        if descriptor.override is not None:
            if rules.allow_overrides:
                demand.overrides[limit] = limit_of(limit, descriptor.override)
            else:
                overrides += 1
    return Asked(list(demands.values()), settlements, len(descriptors), negative, overrides)


def limit_of(name: str, override: Override) -> Limit:
    """The limit that an override means. Months and years are those of the calendar, in UTC."""
    unit = UNITS.get(override.unit)
    if unit is None:
        raise ValidationError("limit", override.unit, f"must have a unit from 1 to {len(UNITS)}")
    if unit in _SECONDS:
        return Limit.custom(name, override.amount, override.amount, _SECONDS[unit])
    return Limit.calendar(name, override.amount, "month" if unit == "month" else "12month")


def _settle(
    settlements: dict[str, dict[str, int]], leases: str, limit: str, hits: int | None, hits_addend: int
) -> None:
    """Note what was really used. Without hits nothing is known: the lease ends as it is."""
    used = hits if hits is not None else hits_addend or None
    for token in leases.split(LEASE_SEPARATOR):
        actual = settlements.setdefault(token.strip(), {})
        if used is not None:
            actual[limit] = actual.get(limit, 0) + used


def _entity_of(entries: Mapping[str, str], rules: DescriptorRules) -> str:
    named = _named(entries, rules.entity_keys)
    if named:
        return named
    address = _named(entries, ADDRESS_KEYS)
    return address_id(address) if address else ANONYMOUS


def _named(entries: Mapping[str, str], keys: Iterable[str]) -> str | None:
    for key in keys:
        value = entries.get(key)
        if value:
            return value
    return None
