"""Booking after the fact, and renewing slots of calls in flight: each a script of one round trip."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from time import monotonic_ns
from typing import Any, Final

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.models.holds import Hold
from zae_limiter.running.plan import Interrupted, Plan, assign
from zae_limiter.stores.embedded.holds import Changes, counted_by
from zae_limiter.stores.lease_records import RecordChange, RecordMoved
from zae_limiter.stores.protocol import BucketPlace, Posting, Settlement
from zae_limiter.stores.redis.home import Home
from zae_limiter.stores.redis.keys import bucket_key, namespace_key
from zae_limiter.stores.redis.lease_texts import record_in, told_record
from zae_limiter.stores.redis.periods import Periods
from zae_limiter.stores.redis.requests import MarkedScript, packed
from zae_limiter.stores.redis.routes import calendars_of
from zae_limiter.stores.redis.scripts import RENEW, SETTLE, Script
from zae_limiter.stores.redis.terms import call_version, terms_of
from zae_limiter.stores.redis.wire import bulk

BOOKED: Final = 1
SAY_THE_TERMS, ANOTHER_RECORD = -8, -11
NEITHER_RECORD_NOR_PERIODS: Final = packed("", "")
VALUES_PER_LOAN = 3
VALUES_PER_RENEWAL = 4


class SettleScripts:
    """Settlements and renewals of one namespace, as one client sees them."""

    def __init__(self, home: Home, corrected: bool) -> None:
        self._home = home
        self._corrected = corrected
        self.unresolved = 0

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        """Book after the fact. What cannot be known to be booked is doubtful."""
        noted = settlement or Settlement(postings)
        change = noted.change
        told = None if change is not None else _told_plainly(postings)
        if told is None:
            postings = [posting for posting in postings if _has_something(posting)]
        if not postings and change is None:
            noted.postings = ()
            return
        with_terms = False
        periods = Periods(self._home.calendars)
        while True:
            if not self._home.found:
                yield from self._home.find()
            if told is not None:
                request, told = self._request(SETTLE, _places_of(postings), now, told), None
            else:
                request = self._settle_request(postings, now, with_terms, change, periods)
            reply = yield from self._booked(request, postings, noted)
            if reply[0] == BOOKED:
                return
            if reply[0] == SAY_THE_TERMS:
                with_terms = True
            elif reply[0] == ANOTHER_RECORD and noted.change is not None:
                record_id = noted.change.record.id
                raise RecordMoved(record_id, record_in(record_id, reply[2]) if reply[2] else None)
            elif not periods.are_missing(reply):
                self._home.refused(reply)

    def _booked(self, request: MarkedScript, postings: Sequence[Posting], settlement: Settlement) -> Plan[list[Any]]:
        """The reply, noted in the settlement, also when the caller is interrupted: then it is asked for again."""
        settlement.doubtful = True
        try:
            (reply,) = yield request
            return self._note_booked(reply, request, postings, settlement)
        except RateLimiterUnavailable as error:
            settlement.doubtful = error.ambiguous
            raise
        except Interrupted as stop:
            if isinstance(stop.error, RateLimiterUnavailable):
                settlement.doubtful = stop.error.ambiguous
            elif settlement.doubtful:
                yield from self._booked_after_all(request, stop, postings, settlement)
            raise

    def _booked_after_all(
        self, request: MarkedScript, stop: Interrupted, postings: Sequence[Posting], settlement: Settlement
    ) -> Plan[None]:
        replies = stop.reply
        if not isinstance(replies, list):
            request.repeated = True
            try:
                replies = yield request
            except RateLimiterUnavailable:
                self.unresolved += 1
                return
        self._note_booked(replies[0], request, postings, settlement)

    def _note_booked(
        self, reply: list[Any] | int, request: MarkedScript, postings: Sequence[Posting], settlement: Settlement
    ) -> list[Any]:
        """Note what became of it. The reply as a list: one that only says that it is booked is a number."""
        settlement.doubtful = False
        told = [reply, 0] if isinstance(reply, int) else reply
        if reply == BOOKED and not any(posting.holds for posting in postings):
            settlement.postings = ()
            self._note_written(request)
        elif told[0] == BOOKED:
            changes = _changes_of(postings, told[2:])
            changes.set(settlement, postings=())
            assign(changes.changed, changes.names, changes.values)
            self._note_written(request)
        return told

    def _note_written(self, request: MarkedScript) -> None:
        if request.mark.moves_expiry:
            self._home.marks.written(request.mark, monotonic_ns() // 1_000_000)

    def _settle_request(
        self,
        postings: Sequence[Posting],
        now: int,
        with_terms: bool,
        change: RecordChange | None,
        periods: Periods,
    ) -> MarkedScript:
        home = self._home
        record = None
        if change is not None:
            record = told_record(home.prefix, change.record, change.expected_version, now)
        told = json.dumps([_told_posting(posting, with_terms) for posting in postings])
        calendars = calendars_of([posting.leg for posting in postings])
        around = periods.told(calendars, now)
        after = packed(told, "" if record is None else json.dumps(record), around)
        return self._request(SETTLE, _places_of(postings), now, after)

    def _request(self, script: Script, places: tuple[BucketPlace, ...], now: int, after: bytes) -> MarkedScript:
        home = self._home
        return MarkedScript(
            home.tag,
            script,
            9 + len(places) + (3 if script is SETTLE else 2),
            _packed_keys(home.prefix, places),
            _packed_time(home.prefix, None if self._corrected else now),
            after,
            home.mark(),
        )

    def renew(self, holds: Sequence[Hold], now: int) -> Plan[Sequence[Hold]]:
        """Let holds be due later. Those that were lost, and were taken again where their limit is still there."""
        by_bucket: dict[tuple[str, str], list[Hold]] = {}
        for hold in holds:
            if hold.amount:  # else its lease has ended meanwhile
                by_bucket.setdefault((hold.entity_id, hold.resource), []).append(hold)
        if not by_bucket:
            return ()
        periods = Periods(self._home.calendars)
        while True:
            yield from self._home.find()
            told = [[*place, [_told_hold(hold, hold.amount) for hold in held]] for place, held in by_bucket.items()]
            after = packed(json.dumps(told), periods.all_told(now))
            request = self._request(RENEW, tuple(by_bucket), now, after)
            (reply,) = yield from request
            if reply[0] == BOOKED:
                self._note_written(request)
                return _note_renewed([hold for held in by_bucket.values() for hold in held], reply[2:])
            if not periods.are_missing(reply):
                self._home.refused(reply)


@lru_cache(4096)
def _packed_keys(prefix: str, places: tuple[BucketPlace, ...]) -> bytes:
    """The keys of a script on these buckets, but for the marks."""
    return packed(len(places) + 2, namespace_key(prefix), *(bucket_key(prefix, *place) for place in places))


@lru_cache(64)
def _packed_time(prefix: str, now: int | None) -> bytes:
    return packed(prefix, "" if now is None else now)


def _has_something(posting: Posting) -> bool:
    return bool(posting.named or posting.holds or (posting.undo and posting.leg.refused))


def _places_of(postings: Sequence[Posting]) -> tuple[BucketPlace, ...]:
    return tuple([posting.leg.place for posting in postings])


def _told_plainly(postings: Sequence[Posting]) -> bytes | None:
    """What a script is told of postings that do nothing but move limits which refill evenly and refuse; ``None``: one
    of them does more, or nothing. The same as :func:`_told_posting` in JSON; names of limits need no escapes."""
    told = []
    for leg, deltas, holds, _, usage in postings:
        if holds or usage is not None or not (deltas and leg.is_plain):
            return None
        amounts = ",".join([f'"{name}":{_tokens(milli)}' for name, milli in deltas.items()])
        parts = ",".join([f'"{name}"' for name in deltas if name in leg.cascaded]) if leg.cascaded else ""
        told.append(f"[{_told_place(leg.entity_id, leg.resource)},{{{amounts}}},[{parts}]]")
    return bulk(f"[{','.join(told)}]") + NEITHER_RECORD_NOR_PERIODS if told else None


@lru_cache(4096)
def _told_place(entity_id: str, resource: str) -> str:
    return f"{json.dumps(entity_id)},{json.dumps(resource)}"


def _told_posting(posting: Posting, with_terms: bool) -> list[Any]:
    leg = posting.leg
    amounts = {name: _tokens(posting.deltas_milli.get(name, 0)) for name in posting.named}
    parts = [name for name in counted_by(posting) if leg.cascaded and name in leg.cascaded]
    told: list[Any] = [leg.entity_id, leg.resource, amounts, parts]
    if with_terms:
        told += (call_version(leg.limits), terms_of(leg.limits))
    if posting.holds or leg.refused or posting.usage_milli is not None:
        told += [False] * (6 - len(told))
        told.append([_told_hold(hold, slots) for hold, slots in posting.holds])
        told.append(sorted(leg.refused) if posting.undo else False)
    if posting.usage_milli is not None:
        told.append({name: _tokens(milli) for name, milli in posting.usage_milli.items()})
    return told


def _told_hold(hold: Hold, slots: int) -> list[Any]:
    return [hold.limit_name, slots, hold.due, hold.life]


def _changes_of(postings: Sequence[Posting], loans: Sequence[int]) -> Changes:
    """What a settlement changes in the holds of the lease. ``loans``: due, life and ttl of what was taken."""
    changes = Changes()
    place = 0
    for posting in postings:
        for hold, slots in posting.holds:
            if slots > 0:
                due, life, ttl = loans[place : place + VALUES_PER_LOAN]
                place += VALUES_PER_LOAN
                changes.set(hold, amount=slots if due else 0, due=due, life=life, ttl=ttl)
            else:
                changes.set(hold, amount=max(hold.amount + slots, 0))
    return changes


def _note_renewed(holds: Sequence[Hold], told: Sequence[int]) -> list[Hold]:
    """Let the holds be as they were renewed; those that were lost."""
    changes = Changes()
    lost = []
    for place, hold in enumerate(holds):
        due, life, ttl, was_lost = told[place * VALUES_PER_RENEWAL : (place + 1) * VALUES_PER_RENEWAL]
        if was_lost:
            lost.append(hold)
        if due:
            changes.set(hold, due=due, life=life, ttl=ttl)
        else:
            changes.set(hold, amount=0)
    assign(changes.changed, changes.names, changes.values)
    return lost


def _tokens(milli: int) -> int:
    tokens, rest = divmod(milli, MILLI)
    if rest:
        raise ValueError(f"settlements are in whole tokens here, not {milli} millitokens")
    return tokens
