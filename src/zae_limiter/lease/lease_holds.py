"""What a lease does with the slots it holds of limits of calls in flight. Pure.

They come back at the end of the lease whatever happened: the ledger, which keeps what was used, has no say in that.
What the lease adjusts of such a limit changes how many slots it holds from the next flush on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zae_limiter.models.holds import Hold
from zae_limiter.stores.protocol import Grant, HoldChange, Leg, Posting

LegKey = tuple[str, str]


def postings_with_end_of_holds(grant: Grant, postings: Sequence[Posting]) -> list[Posting]:
    """The same postings; and every slot that the lease holds comes back."""
    ending: dict[LegKey, list[HoldChange]] = {}
    for hold in grant.holds:
        if hold.amount:
            ending.setdefault((hold.entity_id, hold.resource), []).append(HoldChange(hold, -hold.amount))
    return _with_changes(grant, postings, ending)


def postings_with_changed_holds(
    grant: Grant, postings: Sequence[Posting], owed: Mapping[str, int]
) -> tuple[list[Posting], tuple[Hold, ...]]:
    """The same postings, and slots that the lease takes or gives back in between; and the holds that are new."""
    changes: dict[LegKey, list[HoldChange]] = {}
    new: list[Hold] = []
    for leg in grant.legs:
        for name in leg.held & owed.keys():
            key = (leg.entity_id, leg.resource)
            if owed[name] > 0:
                hold = Hold(*key, name, 0, 0, 0, 0)
                new.append(hold)
                changes.setdefault(key, []).append(HoldChange(hold, owed[name]))
            else:
                changes.setdefault(key, []).extend(_given_back(grant, key, name, -owed[name]))
    return _with_changes(grant, postings, changes), tuple(new)


def _given_back(grant: Grant, key: LegKey, name: str, slots: int) -> list[HoldChange]:
    """So many slots of the holds of one limit, the latest first."""
    changes = []
    for hold in reversed(grant.holds):
        if (hold.entity_id, hold.resource, hold.limit_name) == (*key, name) and hold.amount and slots:
            part = min(hold.amount, slots)
            changes.append(HoldChange(hold, -part))
            slots -= part
    return changes


def _with_changes(
    grant: Grant, postings: Sequence[Posting], changes: Mapping[LegKey, Sequence[HoldChange]]
) -> list[Posting]:
    if not changes:
        return list(postings)
    by_leg = {_key(posting.leg): posting for posting in postings}
    return [
        by_leg.get(_key(leg), Posting(leg, {}))._replace(holds=changes.get(_key(leg), ()))
        for leg in grant.legs
        if _key(leg) in by_leg or _key(leg) in changes
    ]


def _key(leg: Leg) -> LegKey:
    return leg.entity_id, leg.resource


def slots_told(postings: Sequence[Posting]) -> dict[str, int]:
    """By how many slots these change what is held, per limit of the first leg that has it."""
    told: dict[str, int] = {}
    for posting in postings[:1]:
        for hold, slots in posting.holds:
            told[hold.limit_name] = told.get(hold.limit_name, 0) + slots
    return told
