"""Routes as this client knows them: the legs of an entity on a resource, and the bytes that ask for them.

A route is never taken for granted: it goes with every draw as a signature, and the script says when another one holds.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from zae_limiter.bucket import MILLI, Balance
from zae_limiter.calendars import Calendar
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.holds import Hold
from zae_limiter.stores.protocol import Leg, in_order, with_refusals
from zae_limiter.stores.redis.keys import bucket_key, entity_key, namespace_key
from zae_limiter.stores.redis.requests import packed
from zae_limiter.stores.redis.terms import LEVELS, balance_from, limit_of

UNKNOWN = "?"
"""The signature of a route that is not known."""


class Route:
    """The legs, and the parts of a draw that are the same for each."""

    __slots__ = ("before", "calendars", "is_plain", "legs", "middle", "parts", "signature", "signed")

    def __init__(self, prefix: str, entity_id: str, resource: str, legs: tuple[Leg, ...], signature: str) -> None:
        self.legs = legs
        self.signature = signature
        self.calendars = calendars_of(legs)
        self.is_plain = all(leg.is_plain for leg in legs)
        places = [(leg.entity_id, leg.resource) for leg in legs] or [(entity_id, resource)]
        keys = [namespace_key(prefix)]
        for name, on in places:
            keys += (entity_key(prefix, name), bucket_key(prefix, name, on))
        self.parts = len(keys) + 14
        self.before = packed(len(keys) + 1, *keys)
        self.middle = packed(prefix, entity_id, resource)
        self.signed = packed(signature)

    @property
    def on_unavailable(self) -> OnUnavailable | None:
        """The stored policy, which the signature begins with."""
        policy = self.signature.partition("#")[0]
        return None if policy == "-" else OnUnavailable(policy)


def calendars_of(legs: Sequence[Leg]) -> tuple[Calendar, ...]:
    """The calendars that the limits of these legs go by."""
    found = (limit.periods for leg in legs if not leg.is_plain for limit in leg.limits)
    return tuple(dict.fromkeys(calendar for calendar in found if calendar is not None))


def unknown_route(prefix: str, entity_id: str, resource: str) -> Route:
    """A route that only the server knows."""
    return Route(prefix, entity_id, resource, (), UNKNOWN)


def route_in(prefix: str, entity_id: str, resource: str, signature: bytes, legs: bytes) -> Route:
    """The route that a script told."""
    told = in_order(
        Leg(name, on, tuple(limit_of(values) for values in limits), LEVELS[version[0]], known=frozenset(known))
        for name, on, version, limits, known in json.loads(legs)
    )
    return Route(prefix, entity_id, resource, told, signature.decode())


class Drawn:
    """What a reply tells of limits of all kinds: the balances in the order of legs and limits; the legs, which say
    what would have refused; and what was lent of ``wanted``."""

    __slots__ = ("balances", "holds", "legs")

    def __init__(self, legs: tuple[Leg, ...], packed: bytes, wanted: Mapping[str, int]) -> None:
        _, now, *values = map(int, struct.unpack(f">{len(packed) // 8}d", packed))
        self.balances: list[Balance] = []
        refused: dict[int, set[str]] = {}
        holds = []
        place = 0
        for number, leg in enumerate(legs):
            for limit in leg.limits:
                tk, tc = values[place] * MILLI + values[place + 1], values[place + 2] * MILLI
                place += 3
                if limit.is_plain:
                    self.balances.append(Balance(limit, now, tk=tk, tc=tc))
                    continue
                refuses, due, count = values[place : place + 3]
                x = values[place + 3 : place + 3 + count]
                place += 3 + count
                self.balances.append(balance_from(limit, now, tk, tc, x))
                if refuses:
                    refused.setdefault(number, set()).add(limit.name)
                if due:
                    lent = wanted[limit.name], due, limit.hold_seconds or 0, x[2]
                    holds.append(Hold(leg.entity_id, leg.resource, limit.name, *lent))
        self.legs = with_refusals(legs, refused)
        self.holds = tuple(holds)

    def left(self, now: int) -> list[int]:
        """What every balance has."""
        return [balance.left(now) for balance in self.balances]


class Balances(Sequence[Balance]):
    """The balances of a reply, made when they are looked at: those of most grants never are."""

    __slots__ = ("_legs", "_made", "_packed")

    def __init__(self, legs: tuple[Leg, ...], packed: bytes) -> None:
        self._legs = legs
        self._packed = packed
        self._made: list[Balance] | None = None

    def made(self) -> list[Balance]:
        """All of them, in the order of legs and limits."""
        if self._made is None:
            self._made = Drawn(self._legs, self._packed, {}).balances
        return self._made

    def by_leg(self) -> list[list[Balance]]:
        """The balances of each leg."""
        rest = iter(self.made())
        return [[next(rest) for _ in leg.limits] for leg in self._legs]

    def __len__(self) -> int:
        return sum(len(leg.limits) for leg in self._legs)

    @overload
    def __getitem__(self, place: int, /) -> Balance: ...
    @overload
    def __getitem__(self, place: slice, /) -> list[Balance]: ...
    def __getitem__(self, place: int | slice, /) -> Balance | list[Balance]:
        return self.made()[place]

    def __iter__(self) -> Iterator[Balance]:
        return iter(self.made())


class Left(Sequence[int]):
    """What a grant left in each of its balances."""

    __slots__ = ("_balances",)

    def __init__(self, balances: Balances) -> None:
        self._balances = balances

    def __len__(self) -> int:
        return len(self._balances)

    @overload
    def __getitem__(self, place: int, /) -> int: ...
    @overload
    def __getitem__(self, place: slice, /) -> list[int]: ...
    def __getitem__(self, place: int | slice, /) -> int | list[int]:
        found = self._balances.made()[place]
        return [balance.tk for balance in found] if isinstance(found, list) else found.tk

    def __iter__(self) -> Iterator[int]:
        return iter([balance.tk for balance in self._balances.made()])


def time_in(packed: bytes) -> int:
    """The server's time in a reply."""
    return int(struct.unpack_from(">d", packed, 8)[0])
