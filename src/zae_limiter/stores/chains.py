"""Hours that must join: the chain from nothing over every hour to the live bucket. Pure, for every store.

A bucket never stops counting. Each hour has its counters at both ends, so every hour must begin where the one before
ended. What is missing where two of them should meet is a gap, and was taken without being in any hour.

A limit that was removed, and has ended in its bucket, is counted to the end of that hour. The next one lacks it, and
if it comes back it begins at nothing again: neither is a gap.

A chain that does not begin at nothing has lost its beginning. If its oldest hour is old, that is expiry and no gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from zae_limiter.bucket import MILLI
from zae_limiter.models.moments import at
from zae_limiter.models.proofs import Counted, UsageChain, UsageGap
from zae_limiter.stores.windows import DAY_MS, Counters

OLD_MS: Final = 30 * DAY_MS
"""If the oldest hour is younger, none before it has expired: hours stay for 90 days, and no bucket that is in use
rests for 60."""


class Whose(NamedTuple):
    """One bucket, or one life of one shard of it."""

    resource: str
    shard: int = 0
    life: str | None = None


class Joint(NamedTuple):
    """Where one hour ends and the next begins, in milliseconds: the counters on both sides.

    There is no hour ``after`` which the first one begins, and none ``before`` which the last one ends.
    """

    after: int | None
    before: int | None
    ended: Counters
    begun: Counters


def chains_of(
    whose: Whose,
    joints: Sequence[Joint],
    hours: int,
    live: Counters | None,
    now: int,
    *,
    beginnings_lost: bool = False,
) -> Iterable[UsageChain]:
    """The chain of every limit, the grants first. ``live`` is what the bucket has counted, unless it is gone.

    ``beginnings_lost``: the oldest hours are dropped before they are old.
    """
    old_ms = 0 if beginnings_lost else OLD_MS
    counted = [joint.begun for joint in joints] + [joint.ended for joint in joints] + ([] if live is None else [live])
    return [_chain(whose, counter, joints, hours, live, now, old_ms) for counter in _counters_in(counted)]


class Counter(NamedTuple):
    """Of what a chain is: grants or tokens taken, the parts of them that cascaded, or denials; and by which limit."""

    counts: Counted
    name: str | None


def _counters_in(counted: Iterable[Counters]) -> list[Counter]:
    """All there are, the grants first, and what is seldom counted only where it was."""
    taken: set[str] = set()
    seldom: set[Counter] = set()
    for counters in counted:
        taken.update(counters.milli)
        if counters.cascaded_events:
            seldom.add(Counter("cascaded", None))
        seldom.update(Counter("cascaded", name) for name, amount in counters.cascaded.items() if amount)
        seldom.update(Counter("denials", name) for name, number in counters.denials.items() if number)
    return [
        Counter("grants", None),
        *(Counter("taken", name) for name in sorted(taken)),
        *sorted(seldom, key=lambda counter: (counter.counts, counter.name or "")),
    ]


def _chain(
    whose: Whose,
    counter: Counter,
    joints: Sequence[Joint],
    hours: int,
    live: Counters | None,
    now: int,
    old_ms: int,
) -> UsageChain:
    name = counter.name
    gaps = []
    expired = lost = 0
    for joint in joints:
        missing = _amount(joint.begun, counter) - _amount(joint.ended, counter)
        lost += missing
        ended = None not in (joint.after, joint.before, name) and name not in joint.begun.milli
        if missing and joint.after is None and joint.before is not None and now - joint.before >= old_ms:
            expired = missing
        elif missing and not ended:
            gaps.append(UsageGap(_moment(joint.after), _moment(joint.before), _tokens(missing, counter)))
    last = _amount(joints[-1].begun, counter) if joints else 0
    return UsageChain(
        resource=whose.resource,
        limit_name=name,
        shard=whose.shard,
        life=whose.life,
        hours=hours,
        counted=_tokens(last - lost, counter),
        expired=_tokens(expired, counter),
        behind=None if live is None else _tokens(_behind(live, counter, last), counter),
        gaps=tuple(gaps),
        counts=counter.counts,
    )


def _behind(live: Counters, counter: Counter, last: int) -> int:
    """What the bucket has counted since; nothing of a limit that ended there."""
    return 0 if counter.name is not None and counter.name not in live.milli else _amount(live, counter) - last


def _moment(hour: int | None) -> datetime | None:
    return None if hour is None else at(hour)


def _amount(counted: Counters, counter: Counter) -> int:
    counts, name = counter
    if name is None:
        return counted.events if counts == "grants" else counted.cascaded_events
    amounts = {"taken": counted.milli, "cascaded": counted.cascaded, "denials": counted.denials}
    return amounts[counts].get(name, 0)


def _tokens(amount: int, counter: Counter) -> int:
    """Whole tokens, where millitokens are counted; parts of one are rounded away from nothing."""
    if counter.name is None or counter.counts == "denials":
        return amount
    whole = -(-abs(amount) // MILLI)
    return whole if amount >= 0 else -whole
