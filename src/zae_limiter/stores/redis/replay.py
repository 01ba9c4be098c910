"""Transactions by replay: how the shared verbs run where a read takes a round trip.

A verb is a function on tables. A read that is not at hand ends its run; what it lacks is fetched in one round trip,
and the function begins anew. What it writes is kept to its end, and then done by one script, if the epoch of the
namespace has not moved since it was read: then another client changed something, and all of it begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.running.plan import Plan
from zae_limiter.stores.redis.home import Home
from zae_limiter.stores.redis.periods import Periods
from zae_limiter.stores.redis.requests import Commands, MarkedScript, packed
from zae_limiter.stores.redis.scripts import COMMIT
from zae_limiter.stores.redis.tables import Command, Missing, RedisTables

Result = TypeVar("Result")

MOST_CONFLICTS = 100
"""So often a change that meets changes by others begins anew."""


class Replay:
    """Runs functions on the tables of one namespace, each as one transaction."""

    def __init__(self, home: Home, corrected: bool) -> None:
        self._home = home
        self._corrected = corrected

    def bucket_time(self, now: int) -> str:
        """Bucket time as a script is told it: nothing where it is the server's own."""
        return "" if self._corrected else str(now)

    def transact(self, work: Callable[[RedisTables], Result], now: int = 0) -> Plan[Result]:
        """The result of the function, when all that it wrote is done."""
        for _ in range(MOST_CONFLICTS):
            seen: dict[Command, Any] = {}
            periods = Periods(self._home.calendars)
            while True:
                yield from self._home.find()
                try:
                    tables = RedisTables(
                        self._home.prefix,
                        self.bucket_time(now),
                        seen,
                        partial(periods.all_told, now),
                        periods.are_missing,
                    )
                    if tables.state != b"live":
                        self._home.refused([-4 if tables.state == b"deleted" else -3])
                        seen.clear()
                        continue
                    result = work(tables)
                    break
                except Missing as missing:
                    replies = yield from Commands(self._home.tag, *missing.commands)
                    seen.update(zip(missing.commands, replies, strict=True))
            if not tables.writes:
                return result
            done = yield from self.commit(tables.writes, now or tables.changed_at, (tables.read_epoch or b"").decode())
            if done:
                return result
        raise RateLimiterUnavailable("other clients change this namespace all the time; try again")

    def commit(self, writes: Sequence[Sequence[Any]], now: int, epoch: str = "") -> Plan[bool]:
        """Do these writes, if the epoch is as it was read; whether they are done."""
        periods = Periods(self._home.calendars)
        while True:
            reply = yield from self._commit_once(writes, now, epoch, periods)
            if reply[0] in (0, 1):
                return bool(reply[0] == 1)
            if not periods.are_missing(reply):
                self._home.refused(reply)
                return False

    def _commit_once(self, writes: Sequence[Sequence[Any]], now: int, epoch: str, periods: Periods) -> Plan[list[Any]]:
        home = self._home
        named = dict.fromkeys(write[1] for write in writes if not write[0].startswith("@"))
        keys = (home.key, *named)
        request = MarkedScript(
            home.tag,
            COMMIT,
            3 + len(keys) + 1 + 7,
            packed(len(keys) + 1, *keys),
            packed(home.prefix, self.bucket_time(now)),
            packed(epoch, json.dumps(writes), periods.all_told(now)),
            home.mark(),
        )
        (reply,) = yield from request
        return list(reply)
