"""Taking and looking: what happens to buckets, each a script of one round trip."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from time import monotonic_ns
from typing import Any, Final

from zae_limiter.bucket import MILLI
from zae_limiter.calendars import Calendar
from zae_limiter.exceptions import AccessBlocked, RateLimiterUnavailable
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import Interrupted, Plan
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.embedded.routes import MAX_ROUTES
from zae_limiter.stores.lease_records import LeaseRecord
from zae_limiter.stores.limit_statuses import check_names, denial, no_limits, statuses_of
from zae_limiter.stores.protocol import (
    BucketPlace,
    Draw,
    Grant,
    Leg,
    Look,
    Outcome,
    Ticket,
)
from zae_limiter.stores.redis.home import Home
from zae_limiter.stores.redis.periods import PERIODS_MISSING, Periods
from zae_limiter.stores.redis.recorded_draws import RecordedDraw
from zae_limiter.stores.redis.requests import Commands, MarkedScript, packed
from zae_limiter.stores.redis.routes import (
    Balances,
    Drawn,
    Left,
    Route,
    calendars_of,
    route_in,
    time_in,
    unknown_route,
)
from zae_limiter.stores.redis.scripts import DRAW, WITHDRAW
from zae_limiter.stores.redis.settle_verbs import SettleScripts
from zae_limiter.stores.redis.terms import access_of, call_version, terms_of
from zae_limiter.stores.redis.wire import bulk
from zae_limiter.stores.redis.write_marks import ONLY_LOOK, Mark, process_name

GRANTED: Final = struct.pack(">d", 1.0)
OBSERVED: Final = struct.pack(">d", -1.0)
NOTHING: Final = bulk("")
UNKNOWN_NAME, NO_LIMITS, BLOCKED = -1, -2, -9
CLAIMS_AT = 3
"""Where a reply has the claims of others, if there are any."""
SWITCH_AT = 3
"""Where the reply to a look has the access switch that decides, if there is one."""
LOOK: Final = Mark("", packed("{look}"), ONLY_LOOK, False)
GRACE_MS = 20
"""How much longer than the caller's deadline the server may take a draw for wanted."""

CLAIMED_FOR_MS = 3_000
"""How long the claim of a caller that waits is kept, unless it is renewed: it may be gone."""


@lru_cache(4096)
def packed_amount(wanted: tuple[str, int]) -> bytes:
    """Name and amount, as a draw has them."""
    return packed(*wanted)


class BucketScripts:
    """Draws and settlements of one namespace, as one client sees them."""

    def __init__(self, home: Home, corrected: bool, deadline: float) -> None:
        self.home = home
        self._corrected = corrected
        self._patience_ms = round(deadline * MILLI) + GRACE_MS
        self._routes: BoundedDict[tuple[str, str], Route] = BoundedDict(MAX_ROUTES)
        self._server_ahead_ms: int | None = None
        self._blocks: dict[tuple[str, str], Access] = {}
        self._settlements = SettleScripts(home, corrected)
        self.settle, self.renew = self._settlements.settle, self._settlements.renew
        self.policy: OnUnavailable | None = None
        self._unresolved = 0

    @property
    def unresolved(self) -> int:
        """How often it could not be known what became of a write."""
        return self._unresolved + self._settlements.unresolved

    def note_unresolved(self) -> None:
        """It cannot be known what became of a write."""
        self._unresolved += 1

    # Taking

    def draw(self, draw: Draw, now: int) -> Plan[Outcome]:
        """Take all or nothing. One that is interrupted is resolved by its mark, and undone."""
        if draw.record is not None:
            return (yield from RecordedDraw(self, draw, draw.record, now).run())
        home = self.home
        periods: Periods | None = None
        while True:
            if not home.found:
                yield from home.find()
            route = self.route(draw.entity_id, draw.resource)
            mark = home.mark()
            request = self.request(route, draw, now, mark, periods)
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
            periods = self.asked_for(replies[0], periods)

    def asked_for(self, reply: Any, periods: Periods | None) -> Periods:
        """The periods that are told from now on: with those that a reply asks for, if it does."""
        periods = periods or Periods(self.home.calendars)
        periods.are_missing(reply)
        return periods

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
            self.note_unresolved()
        except BaseException:
            self.note_unresolved()
            raise

    def look(
        self, entity_id: str, resource: str, wanted: Mapping[str, int], limits: tuple[Limit, ...] | None, now: int
    ) -> Plan[Look]:
        """What a draw would meet."""
        draw = Draw(entity_id, resource, wanted, limits)
        periods: Periods | None = None
        while True:
            yield from self.home.find()
            route = self.route(entity_id, resource)
            mark = LOOK._replace(packed_key=bulk(self.home.prefix + "w#"))
            (reply,) = yield from self.request(route, draw, now, mark, periods)
            found = self._understood(reply, draw, route)
            if found is not None:
                legs, levels = found
                held = Balances(legs, levels).by_leg()
                return Look(legs, statuses_of(legs, held, wanted, {}, time_in(levels)), _switch_in(reply))
            periods = self.asked_for(reply, periods)

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
        self,
        route: Route,
        draw: Draw,
        now: int,
        mark: Mark,
        periods: Periods | None = None,
        record: Mapping[str, Any] | None = None,
    ) -> MarkedScript:
        """A draw as it is sent. ``periods``: what the script has asked for, ``record``: what is recorded with it."""
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
            or draw.ticket is not None
            or record is not None
        ):
            options = bulk(json.dumps(_options(draw, record)))
        after = [route.signed, options, given_up, self._told_periods(route, draw, now, periods)]
        after.extend(map(packed_amount, draw.wanted.items()))
        parts = route.parts + 2 * len(draw.wanted)
        return MarkedScript(self.home.tag, DRAW, parts, route.before, route.middle + time, b"".join(after), mark)

    def _told_periods(self, route: Route, draw: Draw, now: int, periods: Periods | None) -> bytes:
        """Those of the calendars that the draw will meet; if its route is not known, of all that were met so far."""
        is_known = route.legs and draw.limits is None
        if is_known and not route.calendars and draw.legs is None and periods is None:
            return NOTHING
        calendars: Iterable[Calendar] = route.calendars if is_known else self.home.calendars.calendars()
        if draw.limits is not None:
            calendars = (*calendars, *(limit.periods for limit in draw.limits if limit.periods is not None))
        if draw.legs is not None:
            calendars = (*calendars, *calendars_of(draw.legs))
        if not calendars and periods is None:
            return NOTHING
        if self._corrected and self._server_ahead_ms is not None:
            now = monotonic_ns() // 1_000_000 + self._server_ahead_ms
        return bulk((periods or Periods(self.home.calendars)).told(dict.fromkeys(calendars), now))

    def outcome(self, reply: Any, draw: Draw, route: Route, mark: Mark) -> Outcome | None:
        """What came of a draw; ``None``: the namespace has to be looked up again."""
        found = self._understood(reply, draw, route)
        if found is None:
            return None
        legs, levels = found
        at = time_in(levels)
        if levels.startswith(GRANTED):
            if mark.moves_expiry:
                self.home.marks.written(mark, monotonic_ns() // 1_000_000)
            if self._blocks:
                self._blocks.pop((draw.entity_id, draw.resource), None)
            if not (route.is_plain if legs is route.legs else all(leg.is_plain for leg in legs)):
                drawn = Drawn(legs, levels, draw.wanted)
                return Grant(drawn.legs, draw.wanted, drawn.balances, drawn.left(at), at, holds=drawn.holds)
            balances = Balances(legs, levels)
            return Grant(legs, draw.wanted, balances, Left(balances), at)
        reserved = draw.reserved if reply.__class__ is bytes else self._with_claims(reply, draw)
        statuses = statuses_of(legs, Balances(legs, levels).by_leg(), draw.wanted, reserved, at)
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
            levels, signature, told, *_ = reply
            self._server_ahead_ms = time_in(levels) - monotonic_ns() // 1_000_000
            return self.learnt(draw, signature, told).legs if told else route.legs, levels
        if reply[0] == UNKNOWN_NAME:
            legs = route.legs if reply[3] is None else self.learnt(draw, reply[2], reply[3]).legs
            check_names(legs, draw.wanted)
        if reply[0] == NO_LIMITS:
            raise no_limits(draw.entity_id, draw.resource)
        if reply[0] == BLOCKED:
            raise self._block(draw, *map(bytes.decode, reply[2:5]))
        if reply[0] != PERIODS_MISSING:
            self.home.refused(reply)
            self._routes.clear()
        return None

    def _with_claims(self, reply: Sequence[Any], draw: Draw) -> Mapping[BucketPlace, Mapping[str, int]]:
        """What a denied draw had to leave: to callers of this process, and to those of others that came earlier."""
        if len(reply) <= CLAIMS_AT:
            return draw.reserved
        told = json.loads(reply[CLAIMS_AT])
        if (ticket := draw.ticket) is not None:
            ticket.since = told["since"]
            ticket.withdraw = partial(self._withdraw, _claim_id(ticket), *told["at"]) if told["at"] else None
        reserved = {place: dict(amounts) for place, amounts in draw.reserved.items()}
        for entity_id, resource, amounts in told["ahead"]:
            sums = reserved.setdefault((entity_id, resource), {})
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0) + amount
        return reserved

    def _withdraw(self, claim: str, entity_id: str, resource: str, now: int) -> Plan[None]:
        """Take a claim back."""
        time = "" if self._corrected else now
        told = (self.home.prefix, time, claim, entity_id, resource)
        yield from Commands(self.home.tag, ("EVALSHA", WITHDRAW.sha, 1, self.home.key, *told))

    def _block(self, draw: Draw, switch: str, entity_id: str, resource: str) -> AccessBlocked:
        access = access_of(switch, entity_id, resource)
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


def _switch_in(reply: Any) -> Access | None:
    """The switch that decides, if the reply to a look tells of one."""
    if reply.__class__ is bytes or len(reply) <= SWITCH_AT:
        return None
    return access_of(*map(bytes.decode, reply[SWITCH_AT:]))


def _claim_id(ticket: Ticket) -> str:
    return f"{process_name()}.{ticket.number}"


def _options(draw: Draw, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What few draws have, as the script is told it."""
    options: dict[str, Any] = {} if record is None else {"record": record}
    if not draw.is_final:
        options["waits"] = True
    if (ticket := draw.ticket) is not None:
        lasts = min(ticket.patience_ms, CLAIMED_FOR_MS)
        options["ticket"] = {"id": _claim_id(ticket), "lasts": lasts, "patience": ticket.patience_ms}
        if ticket.since is not None:
            options["ticket"]["since"] = ticket.since
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
