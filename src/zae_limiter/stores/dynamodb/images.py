"""What a client remembers of buckets: only ever a guess, checked by the conditions of every write.

A good guess saves a call. Three things make it good: the image that came with the last answer, the rate at which
*others* drained the bucket between the last images, and denials that were just received.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.keys import Key
from zae_limiter.stores.dynamodb.marks import nonce_time

MAX_BUCKETS = 50_000

MEASURED_OVER_MS = 100
"""The least time between two images that says something about the rate of others."""

SHORTEST_DENIAL_MS, LONGEST_DENIAL_MS = 250, 5_000
"""For how long a denial is believed without asking again: a tenth of the wait, within these."""

FASTEST_CLOCK_MS = 4_000
"""How far ahead of ours the clocks of others are followed."""


class Denied(NamedTuple):
    """So much of a limit was refused, and would be until then."""

    needed: int
    at: int
    until: int


class Memory:
    """One bucket as this client last saw it."""

    __slots__ = ("_base", "_base_at", "_rates", "denied", "image", "own", "seen_at")

    def __init__(self, image: Image, now: int) -> None:
        self.image = image
        self.seen_at = now
        self.own: dict[str, int] = {}
        self.denied: dict[str, Denied] = {}
        self._base = image
        self._base_at = now
        self._rates: dict[str, tuple[int, int]] = {}

    def see(self, image: Image, now: int) -> None:
        """A newer image came."""
        elapsed = now - self._base_at
        if image.inc != self._base.inc or elapsed < 0:
            self._rates = {}
            self._rebase(image, now)
        elif elapsed >= MEASURED_OVER_MS:
            self._rates = {
                name: (taken, elapsed)
                for name, balance in image.balances.items()
                if (before := self._base.balances.get(name)) is not None
                and (taken := balance.tc - before.tc - self.own.get(name, 0)) > 0
            }
            self._rebase(image, now)
        self.image = image
        self.seen_at = now

    def _rebase(self, image: Image, now: int) -> None:
        self._base, self._base_at, self.own = image, now, {}

    def took(self, deltas: Mapping[str, int]) -> None:
        """This client itself took (or gave back) so much."""
        for name, delta in deltas.items():
            self.own[name] = self.own.get(name, 0) + delta

    def guesses(self, now: int) -> dict[str, int]:
        """What ``tk`` may be by now, where others have been draining it."""
        age = now - self.seen_at
        if age <= 0 or not self._rates:
            return {}
        return {
            name: balance.tk - taken * age // elapsed
            for name, (taken, elapsed) in self._rates.items()
            if (balance := self.image.balances.get(name)) is not None
        }

    def deny(self, needed: Mapping[str, int], due: Mapping[str, int], now: int) -> None:
        """These amounts were refused; each is due at its time."""
        for name, at in due.items():
            patience = min(max((at - now) // 10, SHORTEST_DENIAL_MS), LONGEST_DENIAL_MS)
            self.denied[name] = Denied(needed.get(name, 0), now, min(at, now + patience))

    def still_denies(self, name: str, needed: int, now: int) -> bool:
        """Whether at least so little was refused a moment ago."""
        denied = self.denied.get(name)
        return denied is not None and needed >= denied.needed and denied.at <= now < denied.until


class Images:
    """All buckets this client remembers, and how far its clock is behind the others'."""

    __slots__ = ("_behind", "_behind_at", "_corrected", "_known", "clock_error_ms")

    def __init__(self, *, corrected: bool) -> None:
        """``corrected``: follow the clocks of others that are ahead of ours."""
        self._known: dict[Key, Memory] = {}
        self._corrected = corrected
        self.clock_error_ms = 0  # by how much the machine's clock is late, as replies show it
        self._behind = 0
        self._behind_at = 0

    def get(self, key: Key) -> Memory | None:
        """What is remembered of a bucket."""
        return self._known.get(key)

    def see(self, key: Key, image: Image, now: int) -> Memory:
        """Remember a bucket as it is."""
        memory = self._known.get(key)
        if memory is None:
            if len(self._known) >= MAX_BUCKETS:
                for oldest in list(self._known)[: MAX_BUCKETS // 2]:
                    self._known.pop(oldest, None)
            memory = self._known[key] = Memory(image, now)
        else:
            memory.see(image, now)
        return memory

    def forget(self, key: Key) -> None:
        """It is gone, or may be."""
        self._known.pop(key, None)

    def forget_all(self) -> None:
        """Another namespace, or another table."""
        self._known.clear()

    def forget_denials(self, keys: Iterable[Key] | None = None) -> None:
        """Something came back to these buckets (or may have, to any)."""
        for key in list(self._known) if keys is None else keys:
            memory = self._known.get(key)
            if memory is not None and memory.denied:
                memory.denied = {}

    # Clocks

    def corrected(self, clock: int) -> int:
        """Our clock, moved towards the fastest one seen."""
        clock += self.clock_error_ms
        return clock + self._lag(clock)

    def is_ahead(self, image: Image, now: int) -> bool:
        """Whether the last writer's clock may be ahead of ours."""
        return self._corrected and _newest(image) > now

    def compare_clocks(self, image: Image, clock: int) -> None:
        """Learn from the last writer's mark how far ours is behind; ``clock`` is what ours says now."""
        clock += self.clock_error_ms
        ahead = _newest(image) - clock
        self._behind = min(max(ahead, self._lag(clock), 0), FASTEST_CLOCK_MS)
        self._behind_at = clock

    def _lag(self, clock: int) -> int:
        """What is believed of the lag: a millisecond less every second, so that a mistake is forgotten."""
        return max(self._behind - max(clock - self._behind_at, 0) // 1000, 0) if self._behind else 0


def _newest(image: Image) -> int:
    """The latest moment that any of the last writers, or the baseline, stands for."""
    return max(image.rf, *map(nonce_time, image.ring))
