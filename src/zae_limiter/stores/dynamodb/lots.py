"""Several bookings on one bucket as one write. Pure.

What comes back and what is taken at the same moment is taken from each other first, so that nothing of it is lost at
the ceiling. Draws are served first come first served, and may use what comes back; what is taken without asking is
booked after them, and refuses nobody. A draw that does not fit behind those before it is left out, and learns from the
write how the bucket is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
    missing = deltas.keys() - image.balances.keys()
    owed = {limit.name: limit for booking in settled for limit in booking.leg.limits} if missing else {}
    return Lot(written, Wish(deltas, needed if granted else None, grants=grants, owed=tuple(owed.values())))


def _fits(booking: Booking, left: Mapping[str, int], drawn: dict[str, int]) -> bool:
    """Whether a draw fits behind what was ``drawn`` before; if so it is drawn too."""
    wanted = booking.needed or {}
    if any(amount - drawn[name] < wanted.get(name, 0) for name, amount in left.items()):
        return False
    for name, delta in booking.deltas.items():
        drawn[name] += delta
    return True
