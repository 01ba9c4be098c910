"""Several bookings on one bucket as one write. Pure.

What comes back and what is taken at the same moment is taken from each other first, so that nothing of it is lost at
the ceiling. Draws are served first come first served, and may use what comes back; what is taken without asking is
booked after them, and refuses nobody. A draw that does not fit behind those before it is left out, and learns from the
write how the bucket is.

A shard of a divided bucket settles only what it holds, and gets nothing back while it is in debt. So what is settled
is booked before the draws there, and left out likewise if it does not fit: then it concerns all shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.bookings import Booking
from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.writes import Wish


class Lot(NamedTuple):
    """Bookings that are written together, and the wish that is all of them."""

    bookings: Sequence[Booking]
    wish: Wish


def joined(image: Image, bookings: Sequence[Booking], now: int, guesses: Mapping[str, int]) -> Lot:
    """Those of ``bookings`` that the bucket seems to hold together; if none, the first alone: it will be told."""
    settled = [booking for booking in bookings if booking.needed is None]
    draws = [booking for booking in bookings if booking.needed is not None]
    if image.shards > 1:
        return _joined_on_shard(image, settled, draws, now, guesses)
    deltas: dict[str, int] = {}
    back: dict[str, int] = {}
    for booking in settled:
        for name, delta in booking.deltas.items():
            deltas[name] = deltas.get(name, 0) + delta
            if delta < 0:
                back[name] = back.get(name, 0) - delta
    left = {
        name: min(guesses.get(name, balance.tk) + balance.since_rf(now), balance.bx) + back.get(name, 0)
        for name, balance in image.balances.items()
        if name not in image.resting
    }
    drawn = dict.fromkeys(left, 0)
    granted = [booking for booking in draws if _fits(booking, left, drawn)]
    if not granted and not settled:
        granted = draws[:1]
    needed = {name: -back.get(name, 0) for name in left}
    drawn = dict.fromkeys(left, 0)
    for booking in granted:
        wanted = booking.needed or {}
        for name, before in drawn.items():
            needed[name] = max(needed[name], before + wanted.get(name, 0) - back.get(name, 0))
        for name, delta in booking.deltas.items():
            drawn[name] += delta
            deltas[name] = deltas.get(name, 0) + delta
    written = [*settled, *granted]
    grants = sum(booking.grants for booking in written)
    owed = _owed(image, deltas, settled)
    return Lot(written, Wish(deltas, needed if granted else None, grants=grants, owed=owed))


def _joined_on_shard(
    image: Image, settled: Sequence[Booking], draws: Sequence[Booking], now: int, guesses: Mapping[str, int]
) -> Lot:
    left = {
        name: min(guesses.get(name, balance.tk) + balance.since_rf(now), balance.bx)
        for name, balance in image.balances.items()
    }
    deltas: dict[str, int] = {}
    held = [booking for booking in settled if _is_held(booking, left, deltas)]
    active = {name: amount for name, amount in left.items() if name not in image.resting}
    drawn = dict.fromkeys(active, 0)
    granted = [booking for booking in draws if _fits(booking, active, drawn)]
    if not granted and not held:
        granted, held = list(draws[:1]), list(() if draws else settled[:1])
        deltas = dict(held[0].deltas) if held else {}
    needed = {name: max(deltas.get(name, 0), 0) for name in active}
    drawn = {name: deltas.get(name, 0) for name in active}
    for booking in granted:
        wanted = booking.needed or {}
        for name, before in drawn.items():
            needed[name] = max(needed[name], before + wanted.get(name, 0))
        for name, delta in booking.deltas.items():
            drawn[name] += delta
            deltas[name] = deltas.get(name, 0) + delta
    written = [*held, *granted]
    grants = sum(booking.grants for booking in written)
    owed = _owed(image, deltas, held)
    return Lot(written, Wish(deltas, needed if granted else None, grants=grants, held=True, owed=owed))


def _is_held(booking: Booking, left: dict[str, int], deltas: dict[str, int]) -> bool:
    """Whether a shard that has so much ``left`` holds what is settled; if so it is settled."""
    if any(name in left and left[name] < max(delta, 0) for name, delta in booking.deltas.items()):
        return False
    for name, delta in booking.deltas.items():
        if name in left:
            left[name] -= delta
        deltas[name] = deltas.get(name, 0) + delta
    return True


def _owed(image: Image, deltas: Mapping[str, int], settled: Sequence[Booking]) -> tuple[Limit, ...]:
    """The limits of those who settle, if some of what they settle the bucket has no longer."""
    if deltas.keys() <= image.balances.keys():
        return ()
    return tuple({limit.name: limit for booking in settled for limit in booking.leg.limits}.values())


def _fits(booking: Booking, left: Mapping[str, int], drawn: dict[str, int]) -> bool:
    """Whether a draw fits behind what was ``drawn`` before; if so it is drawn too."""
    wanted = booking.needed or {}
    if any(amount - drawn[name] < wanted.get(name, 0) for name, amount in left.items()):
        return False
    for name, delta in booking.deltas.items():
        drawn[name] += delta
    return True
