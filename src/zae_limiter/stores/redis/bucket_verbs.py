"""Taking, settling, looking: what happens to buckets, each a script of one round trip."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from time import monotonic_ns
from typing import Any, Final

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import AccessBlocked, RateLimiterUnavailable
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import Interrupted, Plan
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.embedded.routes import MAX_ROUTES
from zae_limiter.stores.lease_records import LeaseRecord, RecordChange, RecordMoved
from zae_limiter.stores.limit_statuses import check_names, denial, no_limits, statuses_of
from zae_limiter.stores.protocol import (
    Draw,
    Grant,
    Leg,
    Look,
    Outcome,
    Posting,
    Scope,
    Settlement,
    access_from_text,
)
from zae_limiter.stores.redis.home import Home
from zae_limiter.stores.redis.lease_texts import record_in, told_record
from zae_limiter.stores.redis.recorded_draws import RecordedDraw
from zae_limiter.stores.redis.requests import MarkedScript, packed
from zae_limiter.stores.redis.routes import Balances, Left, Route, route_in, time_in, unknown_route
from zae_limiter.stores.redis.scripts import DRAW, SETTLE
from zae_limiter.stores.redis.terms import call_version, terms_of
from zae_limiter.stores.redis.wire import bulk
from zae_limiter.stores.redis.write_marks import ONLY_LOOK, Mark

GRANTED: Final = struct.pack(">d", 1.0)
OBSERVED: Final = struct.pack(">d", -1.0)
NOTHING: Final = bulk("")
BOOKED, UNKNOWN_NAME, NO_LIMITS, SAY_THE_TERMS, BLOCKED, ANOTHER_RECORD = 1, -1, -2, -8, -9, -11
LOOK: Final = Mark("", packed("{look}"), ONLY_LOOK, False)
GRACE_MS = 20
"""How much longer than the caller's deadline the server may take a draw for wanted."""

packed_name = lru_cache(1024)(bulk)


class BucketScripts:
    """Draws and settlements of one namespace, as one client sees them."""

    def __init__(self, home: Home, corrected: bool, deadline: float) -> None:
        self.home = home
        self._corrected = corrected
        self._patience_ms = round(deadline * MILLI) + GRACE_MS
        self._routes: BoundedDict[tuple[str, str], Route] = BoundedDict(MAX_ROUTES)
        self._server_ahead_ms: int | None = None
        self._blocks: dict[tuple[str, str], Access] = {}
        self.policy: OnUnavailable | None = None
        self.unresolved = 0

    # Taking

    def draw(self, draw: Draw, now: int) -> Plan[Outcome]:
        """Take all or nothing. One that is interrupted is resolved by its mark, and undone."""
        if draw.record is not None:
            return (yield from RecordedDraw(self, draw, draw.record, now).run())
        home = self.home
        while True:
            if not home.found:
                yield from home.find()
            route = self.route(draw.entity_id, draw.resource)
            mark = home.mark()
            request = self.request(route, draw, now, mark)
            replies = None
            try:
                replies = yield request
                outcome = self.outcome(replies[0], draw, route, mark)
            except (Exception, GeneratorExit):
                raise
            except BaseException as interrupt:
                yield from self._undo(request, draw, route, interrupt, replies, now)
                raise
            if outcome is not None:
                return outcome

    def _undo(
        self,
        request: MarkedScript,
        draw: Draw,
        route: Route,
        interrupt: BaseException,
        replies: list[Any] | None,
        now: int,
    ) -> Plan[None]:
        """Give back what an interrupted draw took, if it did. ``replies``: if they had come by then."""
        if isinstance(interrupt, Interrupted):
            if isinstance(interrupt.error, Exception) and not getattr(interrupt.error, "ambiguous", False):
                return
            replies = interrupt.reply if isinstance(interrupt.reply, list) else None
        try:
            if replies is None:
                request.repeated = True
                replies = yield request  # the same mark: it takes now, or says what it took
            outcome = self.outcome(replies[0], draw, route, request.mark)
            if isinstance(outcome, Grant):
                yield from self.settle(outcome.give_back(), now)
        except RateLimiterUnavailable:
            self.unresolved += 1
        except BaseException:
            self.unresolved += 1
            raise

    def look(
        self, entity_id: str, resource: str, wanted: Mapping[str, int], limits: tuple[Limit, ...] | None, now: int
    ) -> Plan[Look]:
        """What a draw would meet."""
        draw = Draw(entity_id, resource, wanted, limits)
        while True:
            yield from self.home.find()
            route = self.route(entity_id, resource)
            (reply,) = yield from self.request(
                route, draw, now, LOOK._replace(packed_key=bulk(self.home.prefix + "w#"))
            )
            found = self._understood(reply, draw, route)
            if found is not None:
                legs, levels = found
                held = Balances(legs, levels).by_leg()
                return Look(legs, statuses_of(legs, held, wanted, {}, time_in(levels)))

    def route_of(self, record: LeaseRecord) -> Route:
        """The route that a record was made by."""
        return Route(self.home.prefix, record.entity_id, record.resource, record.legs, "")

    def route(self, entity_id: str, resource: str) -> Route:
        """The route as this client knows it."""
        try:
            return self._routes[entity_id, resource]
        except KeyError:
            return unknown_route(self.home.prefix, entity_id, resource)

    def request(
        self, route: Route, draw: Draw, now: int, mark: Mark, record: Mapping[str, Any] | None = None
    ) -> MarkedScript:
        """A draw as it is sent. ``record``: what is recorded with it."""
        given_up = NOTHING
        if self._corrected:
            time = NOTHING
            if self._server_ahead_ms is not None:
                given_up = b"$13\r\n%d\r\n" % (monotonic_ns() // 1_000_000 + self._server_ahead_ms + self._patience_ms)
        else:
            time = bulk(now)
        options = NOTHING
        if (
            draw.limits is not None
            or draw.reserved
            or draw.legs is not None
            or not draw.is_final
            or record is not None
        ):
            options = bulk(json.dumps(_options(draw, record)))
        after = [route.signed, options, given_up]
        for name, amount in draw.wanted.items():
            after += (packed_name(name), bulk(amount))
        parts = route.parts + 2 * len(draw.wanted)
        return MarkedScript(self.home.tag, DRAW, parts, route.before, route.middle + time, b"".join(after), mark)

    def outcome(self, reply: Any, draw: Draw, route: Route, mark: Mark) -> Outcome | None:
        """What came of a draw; ``None``: the namespace has to be looked up again."""
        found = self._understood(reply, draw, route)
        if found is None:
            return None
        legs, levels = found
        if levels.startswith(GRANTED):
            if mark.moves_expiry:
                self.home.marks.written(mark, monotonic_ns() // 1_000_000)
            if self._blocks:
                self._blocks.pop((draw.entity_id, draw.resource), None)
            balances = Balances(legs, levels)
            return Grant(legs, draw.wanted, balances, Left(balances), time_in(levels))
        statuses = statuses_of(legs, Balances(legs, levels).by_leg(), draw.wanted, draw.reserved, time_in(levels))
        refused = denial(legs, statuses)
        refused.observed = levels.startswith(OBSERVED)
        return refused

    def _understood(self, reply: Any, draw: Draw, route: Route) -> tuple[tuple[Leg, ...], bytes] | None:
        """Legs and levels. A route that is new is remembered."""
        if reply.__class__ is bytes:
            if self._corrected:
                self._server_ahead_ms = time_in(reply) - monotonic_ns() // 1_000_000
            return route.legs, reply
        if reply[0].__class__ is bytes:
            levels, signature, told = reply
            self._server_ahead_ms = time_in(levels) - monotonic_ns() // 1_000_000
            return self.learnt(draw, signature, told).legs, levels
        if reply[0] == UNKNOWN_NAME:
            legs = route.legs if reply[3] is None else self.learnt(draw, reply[2], reply[3]).legs
            check_names(legs, draw.wanted)
        if reply[0] == NO_LIMITS:
            raise no_limits(draw.entity_id, draw.resource)
        if reply[0] == BLOCKED:
            raise self._block(draw, *map(bytes.decode, reply[2:5]))
        self.home.refused(reply)
        self._routes.clear()
        return None

    def _block(self, draw: Draw, switch: str, entity_id: str, resource: str) -> AccessBlocked:
        access = access_from_text(Scope(entity_id or None, resource or None), switch)
        self._blocks[draw.entity_id, draw.resource] = access
        return AccessBlocked(draw.entity_id, draw.resource, access)

    def remembered_block(self, entity_id: str, resource: str, now: int) -> Access | None:
        """The switch by which the last draw was blocked, if it still holds."""
        access = self._blocks.get((entity_id, resource))
        return access if access is not None and access.holds_at(now) else None

    def learnt(self, draw: Draw, signature: bytes, told: bytes) -> Route:
        """The route that a script told; remembered, if it holds for other draws too."""
        route = route_in(self.home.prefix, draw.entity_id, draw.resource, signature, told)
        self.policy = route.on_unavailable
        if draw.limits is None and draw.legs is None:
            self._routes[draw.entity_id, draw.resource] = route
        return route

    # Settling

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        """Book after the fact. What cannot be known to be booked is doubtful."""
        noted = settlement or Settlement(postings)
        postings = [posting for posting in postings if posting.deltas_milli]
        if not postings and noted.change is None:
            noted.postings = ()
            return
        with_terms = False
        while True:
            yield from self.home.find()
            request = self._settle_request(postings, now, with_terms, noted.change)
            reply = yield from self._booked(request, noted)
            if reply[0] == BOOKED:
                return
            if reply[0] == SAY_THE_TERMS:
                with_terms = True
            elif reply[0] == ANOTHER_RECORD and noted.change is not None:
                record_id = noted.change.record.id
                raise RecordMoved(record_id, record_in(record_id, reply[2]) if reply[2] else None)
            else:
                self.home.refused(reply)

    def _booked(self, request: MarkedScript, settlement: Settlement) -> Plan[list[Any]]:
        """The reply, noted in the settlement, also when the caller is interrupted: then it is asked for again."""
        settlement.doubtful = True
        try:
            (reply,) = yield request
            self._note_booked(reply, request, settlement)
            return list(reply)
        except RateLimiterUnavailable as error:
            settlement.doubtful = error.ambiguous
            raise
        except Interrupted as stop:
            if isinstance(stop.error, RateLimiterUnavailable):
                settlement.doubtful = stop.error.ambiguous
            elif settlement.doubtful:
                yield from self._booked_after_all(request, stop, settlement)
            raise

    def _booked_after_all(self, request: MarkedScript, stop: Interrupted, settlement: Settlement) -> Plan[None]:
        replies = stop.reply
        if not isinstance(replies, list):
            request.repeated = True
            try:
                replies = yield request
            except RateLimiterUnavailable:
                self.unresolved += 1
                return
        self._note_booked(replies[0], request, settlement)

    def _note_booked(self, reply: list[Any], request: MarkedScript, settlement: Settlement) -> None:
        settlement.doubtful = False
        if reply[0] == BOOKED:
            settlement.postings = ()
            if request.mark.moves_expiry:
                self.home.marks.written(request.mark, monotonic_ns() // 1_000_000)

    def _settle_request(
        self, postings: Sequence[Posting], now: int, with_terms: bool, change: RecordChange | None
    ) -> MarkedScript:
        home = self.home
        keys = [home.key]
        told = []
        record = None
        if change is not None:
            record = told_record(home.prefix, change.record, change.expected_version, now)
        for leg, deltas, *_ in postings:
            keys.append(f"{home.prefix}b#{leg.entity_id}#{leg.resource}")
            amounts = {name: _tokens(milli) for name, milli in deltas.items()}
            parts = [name for name in amounts if leg.cascaded and name in leg.cascaded]
            one: list[Any] = [leg.entity_id, leg.resource, amounts, parts]
            told.append([*one, call_version(leg.limits), terms_of(leg.limits)] if with_terms else one)
        return MarkedScript(
            home.tag,
            SETTLE,
            3 + len(keys) + 1 + 6,
            packed(len(keys) + 1, *keys),
            packed(home.prefix, "" if self._corrected else now),
            packed(json.dumps(told), "" if record is None else json.dumps(record)),
            home.mark(),
        )


def _options(draw: Draw, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What few draws have, as the script is told it."""
    options: dict[str, Any] = {} if record is None else {"record": record}
    if not draw.is_final:
        options["waits"] = True
    if draw.limits is not None:
        options["given"] = {"v": call_version(draw.limits), "terms": terms_of(draw.limits)}
    if draw.reserved:
        reserved: dict[str, dict[str, Mapping[str, int]]] = {}
        for (entity_id, resource), amounts in draw.reserved.items():
            reserved.setdefault(entity_id, {})[resource] = amounts
        options["reserved"] = reserved
    if draw.legs is not None:
        options["legs"] = [
            {
                "id": leg.entity_id,
                "on": leg.resource,
                "call": leg.source == "call",
                "v": call_version(leg.limits),
                "terms": terms_of(leg.limits),
            }
            for leg in draw.legs
        ]
    return options


def _tokens(milli: int) -> int:
    tokens, rest = divmod(milli, MILLI)
    if rest:
        raise ValueError(f"settlements are in whole tokens here, not {milli} millitokens")
    return tokens
