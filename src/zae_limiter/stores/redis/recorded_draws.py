"""Draws that are recorded: the script that takes writes the record of the lease, or finds the one that is there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.running.plan import Interrupted, Plan
from zae_limiter.stores.lease_records import (
    DrawRecord,
    LeaseRecord,
    RecordedSettlement,
    RecordMoved,
    RecordRequest,
    held_by,
)
from zae_limiter.stores.protocol import Draw, Grant, Outcome
from zae_limiter.stores.redis.lease_texts import record_in, told_record
from zae_limiter.stores.redis.periods import Periods
from zae_limiter.stores.redis.requests import MarkedScript
from zae_limiter.stores.redis.routes import Route

if TYPE_CHECKING:
    from zae_limiter.stores.redis.bucket_verbs import BucketScripts

RECORDED, ANOTHER_ROUTE = 2, -10
"""What the script answers if there is a record, and if it knows another route."""


class RecordedDraw:
    """One draw, until it is granted once or denied."""

    def __init__(self, scripts: BucketScripts, draw: Draw, request: RecordRequest, now: int) -> None:
        self._scripts = scripts
        self._draw = draw
        self._record = DrawRecord(request, draw)
        self._now = now

    def run(self) -> Plan[Outcome]:
        """The outcome. One that is interrupted is undone."""
        scripts, draw = self._scripts, self._draw
        route: Route | None = None
        periods: Periods | None = None
        while True:
            yield from scripts.home.find()
            route = route or scripts.route(draw.entity_id, draw.resource)
            granted = Grant(route.legs, draw.wanted, (), (), self._now)
            record = self._record.granting(granted, self._now)
            told = told_record(scripts.home.prefix, record, self._record.expected_version or 0, self._now)
            script = scripts.request(route, draw, self._now, scripts.home.mark(), periods, told)
            try:
                (reply,) = yield script
            except Interrupted as stop:
                yield from self._undo(script, record, stop)
                raise
            if reply.__class__ is list and reply[0] == RECORDED:
                repeated = self._record.heard(record_in(record.id, reply[2]), self._now)
                if repeated is not None:
                    return repeated
            elif reply.__class__ is list and reply[0] == ANOTHER_ROUTE:
                route = scripts.learnt(draw, reply[2], reply[3])
            else:
                outcome = scripts.outcome(reply, draw, route, script.mark)
                if isinstance(outcome, Grant):
                    return outcome._replace(record=as_granted(record, outcome))
                if outcome is not None:
                    return outcome
                periods = scripts.asked_for(reply, periods)
                route = None

    def _undo(self, script: MarkedScript, record: LeaseRecord, stop: Interrupted) -> Plan[None]:
        """Give back what an interrupted draw took, if it did, and let its record be void."""
        if isinstance(stop.error, Exception) and not getattr(stop.error, "ambiguous", False):
            return
        scripts, reply = self._scripts, stop.reply
        try:
            if not isinstance(reply, list) or not reply:
                script.repeated = True
                reply = yield script  # the same mark: it takes now, or says what it took
            if reply[0].__class__ is list and reply[0][0] == RECORDED:
                record = record_in(record.id, reply[0][2])
            else:
                outcome = scripts.outcome(reply[0], self._draw, scripts.route_of(record), script.mark)
                if not isinstance(outcome, Grant):
                    return
                record = as_granted(record, outcome)
            change = self._record.undoing(record)
            if change is not None:
                back = record.grant().give_back()
                with suppress(RecordMoved):  # a repetition of the request was answered by it: the lease goes on there
                    yield from scripts.settle(back, self._now, RecordedSettlement(back, change))
        except RateLimiterUnavailable:
            scripts.note_unresolved()


def as_granted(record: LeaseRecord, grant: Grant) -> LeaseRecord:
    """The record with what only the script knew: the slots that were lent, and what would have refused."""
    return replace(record, legs=grant.legs, holds=held_by(grant.holds))
