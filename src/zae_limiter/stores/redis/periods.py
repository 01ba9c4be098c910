"""The periods of calendars as scripts are told them.

A server has its own time and no time zones: it is the client that numbers periods. It tells those around the moment it
expects, the one and the next, so that a boundary costs nothing; a script that needs another one says so, does nothing,
and is asked again (see ``lua/kinds.lua``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from zae_limiter.calendars import Calendar, calendar_from
from zae_limiter.exceptions import RateLimiterUnavailable, ValidationError, VersionError
from zae_limiter.stores.embedded.bounded_dict import BoundedDict

PERIODS_MISSING: Final = -12
MOST_CALENDARS: Final = 64
"""How many calendars a client remembers, for draws by entities whose limits it does not know yet."""
MOST_ASKED: Final = 20
"""So often a script may ask within one verb."""


class Window:
    """One period of a calendar and the next, as they are told, and for which moments that does."""

    __slots__ = ("begins", "ends", "text")

    def __init__(self, calendar: Calendar, number: int) -> None:
        self.begins, self.ends = calendar.start(number), calendar.start(number + 1)
        self.text = f"{boundaries_of(calendar)} {number} {self.begins} {self.ends} {calendar.start(number + 2)}"


class Periods:
    """What a script is told for one verb: the periods around ``now``, and those that it has asked for."""

    __slots__ = ("_asked", "_known", "_times")

    def __init__(self, known: KnownCalendars) -> None:
        self._known = known
        self._asked: list[str] = []
        self._times = 0

    @property
    def are_asked(self) -> bool:
        """Whether a script has asked for any."""
        return bool(self._asked)

    def told(self, calendars: Iterable[Calendar], now: int) -> str:
        """The text for these calendars."""
        return " ".join([*(self._known.window(calendar, now).text for calendar in calendars), *self._asked])

    def all_told(self, now: int) -> str:
        """The text for all calendars that the client has met."""
        return self.told(self._known.calendars(), now)

    def are_missing(self, reply: Sequence[Any]) -> bool:
        """Whether a reply asks for more, which is told from now on."""
        if reply[0] != PERIODS_MISSING:
            return False
        self._times += 1
        if self._times > MOST_ASKED:
            raise RateLimiterUnavailable("the server's clock and the periods of a calendar do not meet; try again")
        for text, what in zip(reply[2::2], reply[3::2], strict=True):
            calendar = self._known.learn(text.decode())
            of = what.decode()
            number = int(of[1:]) if of.startswith("@") else calendar.ordinal(int(of))
            self._asked.append(Window(calendar, number).text)
        return True


class KnownCalendars:
    """The calendars that this client has met in a namespace."""

    __slots__ = ("_by_boundaries", "_windows")

    def __init__(self) -> None:
        self._by_boundaries: BoundedDict[str, Calendar] = BoundedDict(MOST_CALENDARS)
        self._windows: BoundedDict[Calendar, Window] = BoundedDict(MOST_CALENDARS)

    def calendars(self) -> list[Calendar]:
        """The latest of them."""
        return list(self._by_boundaries.values())

    def learn(self, boundaries: str) -> Calendar:
        """A calendar that a script names."""
        try:
            return self._by_boundaries[boundaries]
        except KeyError:
            pass
        try:
            calendar = calendar_from(boundaries)
        except (ValueError, ValidationError) as error:
            raise VersionError(f"the periods of {boundaries!r} cannot be told here: {error}") from error
        self._by_boundaries[boundaries] = calendar
        return calendar

    def window(self, calendar: Calendar, now: int) -> Window:
        """The period around a moment, and the next."""
        try:
            window = self._windows[calendar]
        except KeyError:
            self.learn(boundaries_of(calendar))
        else:
            if window.begins <= now < window.ends:
                return window
        window = self._windows[calendar] = Window(calendar, calendar.ordinal(now))
        return window


def boundaries_of(calendar: Calendar) -> str:
    """A calendar in words, without what does not move its boundaries."""
    return str(calendar).removesuffix(",fresh")
