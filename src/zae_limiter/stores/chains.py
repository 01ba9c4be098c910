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
from zae_limiter.models.proofs import UsageChain, UsageGap
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
    names = sorted({name for _, milli in counted for name in milli})
    return [_chain(whose, name, joints, hours, live, now, old_ms) for name in (None, *names)]


def _chain(
    whose: Whose,
    name: str | None,
    joints: Sequence[Joint],
    hours: int,
    live: Counters | None,
    now: int,
    old_ms: int,
) -> UsageChain:
    gaps = []
    expired = lost = 0
    for joint in joints:
        missing = _amount(joint.begun, name) - _amount(joint.ended, name)
        lost += missing
        ended = None not in (joint.after, joint.before, name) and name not in joint.begun.milli
        if missing and joint.after is None and joint.before is not None and now - joint.before >= old_ms:
            expired = missing
        elif missing and not ended:
            gaps.append(UsageGap(_moment(joint.after), _moment(joint.before), _tokens(missing, name)))
    last = _amount(joints[-1].begun, name) if joints else 0
    return UsageChain(
        resource=whose.resource,
        limit_name=name,
        shard=whose.shard,
        life=whose.life,
        hours=hours,
        counted=_tokens(last - lost, name),
        expired=_tokens(expired, name),
        behind=None if live is None else _tokens(_behind(live, name, last), name),
        gaps=tuple(gaps),
    )


def _behind(live: Counters, name: str | None, last: int) -> int:
    """What the bucket has counted since; nothing of a limit that ended there."""
    return 0 if name is not None and name not in live.milli else _amount(live, name) - last


def _moment(hour: int | None) -> datetime | None:
    return None if hour is None else at(hour)


def _amount(counted: Counters, name: str | None) -> int:
    return counted.events if name is None else counted.milli.get(name, 0)


def _tokens(amount: int, name: str | None) -> int:
    """Whole tokens, where millitokens are counted; parts of one are rounded away from nothing."""
    if name is None:
        return amount
    whole = -(-abs(amount) // MILLI)
    return whole if amount >= 0 else -whole
