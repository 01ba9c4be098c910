"""Pulses: a key for each process, which the server drops when it expires, and a list of their names.

They are no part of what is configured: writing one moves no epoch, and needs no mark, because doing it twice is doing
it once. What is in the key says when it expires as well: the clock that decides is that of the callers.
"""

from __future__ import annotations

from typing import Final

from zae_limiter.running.plan import Plan
from zae_limiter.stores.redis.home import DELETED, GONE, Home
from zae_limiter.stores.redis.requests import Commands

MARGIN_MS: Final = 60_000
"""How long a name stays in the list after its pulse has expired: clocks differ."""


class Pulses:
    """The verbs on the pulses of one namespace."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def put_pulse(self, process: str, text: str, expires_at: int, now: int) -> Plan[None]:
        yield from self._find()
        home, listed, left = self._home, self._home.prefix + "pulses", max(expires_at - now, 1)
        yield from Commands(
            home.tag,
            ("SET", self._key(process), f"{expires_at} {text}", "PX", left),
            ("ZADD", listed, expires_at, process),
            ("ZREMRANGEBYSCORE", listed, "-inf", now - MARGIN_MS),
            ("PEXPIRE", listed, left + MARGIN_MS),
        )

    def pulses(self, most: int, now: int) -> Plan[tuple[str, ...]]:
        yield from self._find()
        home = self._home
        (names,) = yield from Commands(home.tag, ("ZRANGE", home.prefix + "pulses", -most, -1))
        if not names:
            return ()
        texts = yield from Commands(home.tag, *(("GET", self._key(name.decode())) for name in names))
        parts = (text.decode().partition(" ") for text in texts if text is not None)
        return tuple(text for expires_at, _, text in parts if int(expires_at) > now)

    def _key(self, process: str) -> str:
        return f"{self._home.prefix}p#{process}"

    def _find(self) -> Plan[None]:
        """The namespace, which must be live: it may have been purged, and registered anew, since it was found."""
        while True:
            yield from self._home.find()
            (state,) = yield from Commands(self._home.tag, ("HGET", self._home.key, "state"))
            if state == b"live":
                return
            self._home.refused([DELETED if state == b"deleted" else GONE])
