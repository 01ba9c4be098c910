"""Taking: one conditional write per bucket, all of them or none.

The path of one acquire: resolve the terms (remembered), guess from the images (remembered), write every leg. A
refused write brings the bucket as it is, and with it either the right guess or the denial. Legs are written
independently, together when all look healthy and the child first otherwise, and given back when another leg lacks.
Only when a bucket must be created do all legs go into one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from zae_limiter.running.plan import Interrupted, Plan
from zae_limiter.stores.dynamodb.adopting import adopted, after_taking, due_at, lacking, needed_of, taken_of
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.items import Image, image_of
from zae_limiter.stores.dynamodb.keys import bucket_key
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.booking import TRIES_AT_ONCE, Booking, answers_of
from zae_limiter.stores.dynamodb.plans.rewriting import RewritingPlans
from zae_limiter.stores.dynamodb.requests import (
    CONDITION_FAILED,
    KEY_THROTTLED,
    Answer,
    NoAnswer,
    Refused,
)
from zae_limiter.stores.dynamodb.versions import may_follow
from zae_limiter.stores.dynamodb.writes import Terms, Wish, update
from zae_limiter.stores.judging import denial, statuses_of
from zae_limiter.stores.protocol import Denial, Draw, Grant, Outcome

SHARE_FOR_TAKING = 3 / 4
"""The part of the deadline in which several legs are written; the rest is for giving back."""

THROTTLES_BORNE = 2
"""So often a bucket's own throttled key is tried again before the draw is denied: it is load, not an outage."""

THROTTLED_WAIT_S = 0.1


class LegUnderWay(Booking):
    """One bucket of a draw, and how far it is."""

    __slots__ = ("fresh", "needed", "terms", "throttles")

    def __init__(self, ns: str, terms: Terms, draw: Draw) -> None:
        leg = terms.leg
        self.needed = needed_of(terms, draw.wanted, draw.reserved.get(leg.entity_id, {}))
        super().__init__(bucket_key(ns, leg.entity_id, leg.resource), leg, taken_of(terms, draw.wanted), grants=1)
        self.terms = terms
        self.fresh = False  # the image came during this draw
        self.throttles = 0

    @property
    def is_stale(self) -> bool:
        """Whether its bucket obeys another version than ours."""
        return self.image is not None and self.image.cv != self.terms.cv

    def lacks(self, now: int) -> bool:
        """Whether, by the image, it does not hold what is needed."""
        return bool(lacking(adopted(self.image, self.terms, now), self.needed, now))

    def fits(self) -> bool:
        """Whether a full bucket could ever hold what is needed."""
        return all(self.needed.get(limit.name, 0) <= limit.burst * 1000 for limit in self.leg.limits)


class DrawUnderWay:
    """One draw, from its first guess to its outcome."""

    def __init__(self, space: DrawingPlans, draw: Draw, now: int, until: Window) -> None:
        self.space = space
        self.draw = draw
        self.now = now
        self.whole = self.until = until
        self.legs: list[LegUnderWay] = []
        self.flight: Sequence[LegUnderWay] = ()
        self.failure: Refused | NoAnswer | None = None
        self.seen_before: set[str] = set()
        self.backs: list[Booking] = []

    def run(self) -> Plan[Outcome]:
        """The outcome. Whatever goes wrong, nothing stays taken that can be given back."""
        try:
            return (yield from self._outcome())
        except (Refused, NoAnswer, GeneratorExit):
            raise
        except BaseException as stop:
            # An interrupt, at a request or anywhere else, or an error nobody foresaw.
            self._hear_interrupt(stop)
            try:
                yield from self._undo((yield from self.space.asking.window()))
            except (Refused, NoAnswer):
                self.space.unresolved += 1
            raise

    def _outcome(self) -> Plan[Outcome]:
        try:
            fresh = False
            while True:
                outcome = yield from self._attempt(fresh)
                if outcome is not None:
                    return outcome
                yield from self._undo(self.whole)
                self.seen_before = {leg.image.cv for leg in self.legs if leg.image is not None}
                fresh = True
        except (Refused, NoAnswer) as failure:
            try:
                yield from self._undo(self.whole)
            except (Refused, NoAnswer):
                raise NoAnswer(str(failure)) from failure
            if isinstance(failure, Refused) and failure.code == KEY_THROTTLED and self.legs:
                return (yield from self._deny_under_load())
            if isinstance(failure, NoAnswer):
                raise NoAnswer(str(failure), sent=False) from failure
            raise

    def _attempt(self, fresh: bool) -> Plan[Outcome | None]:
        """One set of terms. ``None``: they are too old, and were not obeyed."""
        space = self.space
        route = yield from space.terms_for(self.draw, self.until, fresh=fresh)
        ns = yield from space.ns(self.until)
        self.legs = [LegUnderWay(ns, terms, self.draw) for terms in route.terms]
        if len(self.legs) > 1:
            time = int(space.asking.deadline_ms * SHARE_FOR_TAKING)
            self.until = self.whole._replace(give_up_at=self.whole.started + time)
        for leg in self.legs:
            leg.nonce = space.marks.nonce(self.now)
            memory = space.images.get(leg.key)
            leg.image = None if memory is None else memory.image
        remembered = self._remembered_denial()
        if remembered is not None:
            return remembered
        yield from self._look_at([leg for leg in self.legs if leg.image is None])
        tries = 0
        while True:
            pending = [leg for leg in self.legs if not leg.done]
            if not pending:
                return self._grant()
            if not all(self._may_write(leg) for leg in pending):
                return None
            hopeless = [leg for leg in pending if not (leg.fresh or leg.fits())]
            if hopeless:
                yield from self._look_at(hopeless)
                continue
            if any(leg.fresh and leg.lacks(self.now) for leg in pending):
                refused = yield from self._deny()
                if refused is not None:
                    return refused
                continue
            if any(leg.throttles > THROTTLES_BORNE for leg in pending):
                return (yield from self._deny_under_load())
            if any(leg.image is None for leg in pending):
                if not route.fresh:
                    return None  # a new bucket obeys what holds now, not what was remembered
                yield from self._create()
            else:
                healthy = all(not self._looks_drained(leg) for leg in pending)
                yield from self._write(pending if healthy else pending[:1])
            tries += 1
            if tries >= TRIES_AT_ONCE and any(not leg.done for leg in self.legs):
                failure = self.failure or NoAnswer("too many others at this bucket", sent=False)
                yield from space.asking.pause(tries - 1, self.until, failure)

    def _may_write(self, leg: LegUnderWay) -> bool:
        theirs = leg.terms.cv if leg.image is None else leg.image.cv
        return theirs == leg.terms.cv or may_follow(leg.terms.cv, theirs, seen_before=theirs in self.seen_before)

    def _looks_drained(self, leg: LegUnderWay) -> bool:
        memory = self.space.images.get(leg.key)
        guesses = memory.guesses(self.now) if memory is not None and not leg.fresh else {}
        balances = adopted(leg.image, leg.terms, self.now)
        return any(
            min(guesses.get(balance.name, balance.tk) + balance.since_rf(self.now), balance.bx)
            < leg.needed.get(balance.name, 0)
            for balance in balances
        )

    # Writing

    def _params(self, leg: LegUnderWay, image: Image) -> dict[str, Any]:
        space = self.space
        leg.drop_anchor()
        sure = leg.can_be_sure()
        if leg.doubtful and not sure:
            space.unresolved += 1  # nobody can tell whether the lost try was done: it may be charged twice
            leg.begin_anew(space.marks.nonce(self.now))
        memory = space.images.get(leg.key)
        write = update(
            image,
            Wish(leg.deltas, leg.needed, leg.terms if leg.is_stale else None, grants=1, rebase=sure),
            anchor=leg.anchor if sure else None,
            now=max(self.now, image.rf + 1) if sure else self.now,
            nonce=leg.nonce,
            epoch_s=self.until.epoch_s,
            ttl_margin_s=space.asking.ttl_margin_s,
            guesses={} if leg.fresh or memory is None else memory.guesses(self.now),
        )
        return write.params(space.asking.table, leg.key)

    def _write(self, legs: Sequence[LegUnderWay]) -> Plan[None]:
        calls = [
            self.space.call_to_update(self._params(leg, leg.image), self.until)
            for leg in legs
            if leg.image is not None
        ]
        self.flight = legs
        answers = yield from self.space.ask_together(calls)
        yield from self._hear_all(legs, answers)

    def _create(self) -> Plan[None]:
        """Begin the life of the buckets that are not there; with others, in one transaction."""
        if any(leg.done or (leg.doubtful and not leg.inc) for leg in self.legs):
            yield from self._undo(self.whole)
        space = self.space
        if len(self.legs) == 1:
            leg = self.legs[0]
            call = space.call_to_create(leg, leg.terms, self.now, self.until)
            self.flight = self.legs
            (answer,) = yield from space.ask_together([call])
            if not isinstance(answer, (Refused, NoAnswer)):
                answer = {"Attributes": call.params["Item"]}
            yield from self._hear_all(self.legs, [answer])
        else:
            yield from self._create_in_transaction()
        for leg in self.legs:
            if leg.done:
                yield from space.check_terms_of_new(leg.key, leg.terms, self.now, self.until)

    def _create_in_transaction(self) -> Plan[None]:
        space = self.space
        writes: list[dict[str, Any]] = []
        for leg in self.legs:
            if leg.image is not None:
                writes.append({"Update": self._params(leg, leg.image)})
            else:
                writes.append({"Put": space.call_to_create(leg, leg.terms, self.now, self.until).params})
        self.flight = self.legs
        doubts: list[NoAnswer] = []
        try:
            reasons = yield from space.asking.transact(writes, self.until, doubts)
        except Refused as refusal:
            for leg in self.legs:
                leg.doubtful = leg.doubtful or bool(doubts)
            if not refusal.by_throttling:
                raise
            for leg in self.legs:  # a key takes no more writes: load, not an outage
                leg.throttles = THROTTLES_BORNE + 1
            self.flight = ()
            return
        except NoAnswer as silence:
            for leg in self.legs:
                leg.doubtful = leg.doubtful or silence.sent
            raise
        self.flight = ()
        if not reasons:
            for leg in self.legs:
                leg.done = True
            for leg, write in zip(self.legs, writes, strict=True):
                if "Put" in write:
                    leg.image = yield from space.see(leg.key, image_of(write["Put"]["Item"]), self.now)
                elif leg.image is not None:
                    leg.image = after_taking(leg.image, leg.terms, leg.deltas, self.now, leg.nonce)
                    space.images.see(leg.key, leg.image, self.now)
            return
        for leg, reason in zip(self.legs, reasons, strict=True):
            leg.doubtful = leg.doubtful or bool(doubts)
            if reason.code is not None:
                yield from self._hear(leg, Refused(CONDITION_FAILED, item=reason.item))

    # Hearing

    def _hear_all(self, legs: Sequence[LegUnderWay], answers: Sequence[Answer]) -> Plan[None]:
        self.flight = ()
        for leg, answer in zip(legs, answers, strict=True):
            leg.note(answer)
        for leg, answer in zip(legs, answers, strict=True):
            yield from self._hear(leg, answer)

    def _hear(self, leg: LegUnderWay, answer: Answer) -> Plan[None]:
        space = self.space
        if isinstance(answer, NoAnswer):
            if answer.final:
                raise self.failure or answer
            self.failure = answer
        elif isinstance(answer, Refused):
            yield from self._hear_refusal(leg, answer)
        else:
            leg.image = yield from space.see(leg.key, image_of(answer["Attributes"]), self.now)
            space.remember_own(leg)

    def _hear_refusal(self, leg: LegUnderWay, refusal: Refused) -> Plan[None]:
        if refusal.by_condition:
            leg.fresh = True
            if refusal.item is None:
                leg.image = None
                self.space.images.forget(leg.key)
                return
            leg.image = yield from self.space.see(leg.key, image_of(refusal.item), self.now)
            if leg.nonce in leg.image.ring or leg.image.inc == leg.inc:
                leg.done = True  # by a try whose answer was lost
            return
        self.failure = refusal
        if refusal.code == KEY_THROTTLED:
            leg.throttles += 1
        elif not (refusal.by_throttling or refusal.by_conflict):
            raise refusal

    def _hear_interrupt(self, stop: BaseException) -> None:
        """An interrupt came while calls were in flight: what they answered still counts."""
        heard = answers_of(stop, len(self.flight)) if isinstance(stop, Interrupted) else [None] * len(self.flight)
        for leg, answer in zip(self.flight, heard, strict=True):
            leg.note(answer)
        self.flight = ()

    # Outcomes

    def _grant(self) -> Grant:
        balances = [balance for leg in self.legs for balance in adopted(leg.image, leg.terms, self.now)]
        return Grant(
            tuple(leg.leg for leg in self.legs),
            self.draw.wanted,
            balances,
            [balance.tk for balance in balances],
            self.now,
        )

    def _remembered_denial(self) -> Denial | None:
        """What was refused a moment ago is refused again without asking."""
        memories = [self.space.images.get(leg.key) for leg in self.legs]
        for leg, memory in zip(self.legs, memories, strict=True):
            if memory is None or leg.is_stale:
                continue
            short = lacking(adopted(leg.image, leg.terms, self.now), leg.needed, self.now)
            if any(memory.still_denies(balance.name, leg.needed.get(balance.name, 0), self.now) for balance in short):
                break
        else:
            return None
        return None if any(leg.image is None for leg in self.legs) else self._denial()

    def _deny(self) -> Plan[Denial | None]:
        """Give back, look at every leg, and say what lacks. ``None``: by now nothing does."""
        yield from self._undo(self.whole)
        with suppress(Refused, NoAnswer):  # it lacks all the same; the others are told as they were last seen
            yield from self._look_at([leg for leg in self.legs if not leg.fresh])
        for leg in self.legs:
            if leg.is_stale and leg.image is not None and self._may_write(leg) and leg.lacks(self.now):
                # New terms are kept even if the draw is denied: a raised burst must not stay refused.
                leg.image = yield from self.space.adopt(leg.key, leg.image, leg.terms, self.now, self.until)
        if not any(leg.lacks(self.now) for leg in self.legs):
            return None
        found = self._denial()
        for leg in self.legs:
            memory = self.space.images.get(leg.key)
            if memory is None:
                continue
            short = lacking(adopted(leg.image, leg.terms, self.now), leg.needed, self.now)
            due = {balance.name: due_at(balance, leg.needed.get(balance.name, 0), self.now) for balance in short}
            memory.deny(leg.needed, due, self.now)
        return found

    def _denial(self) -> Denial:
        legs = [leg.leg for leg in self.legs]
        balances = [adopted(leg.image, leg.terms, self.now) for leg in self.legs]
        return denial(legs, statuses_of(legs, balances, self.draw.wanted, self.draw.reserved, self.now))

    def _deny_under_load(self) -> Plan[Denial]:
        """The bucket's own key takes no more writes for now."""
        yield from self._undo(self.whole)
        legs = [leg.leg for leg in self.legs]
        throttled = [leg for leg in self.legs if leg.throttles > THROTTLES_BORNE] or self.legs
        hot = {leg.leg.entity_id for leg in throttled}
        balances = [adopted(leg.image, leg.terms, self.now) for leg in self.legs]
        statuses = statuses_of(legs, balances, self.draw.wanted, self.draw.reserved, self.now)
        return denial(
            legs,
            tuple(
                status._replace(exceeded=True, retry_after_seconds=status.retry_after_seconds or THROTTLED_WAIT_S)
                if status.entity_id in hot
                else status
                for status in statuses
            ),
        )

    # Undoing

    def _undo(self, until: Window) -> Plan[None]:
        """Give back what was taken, and make sure that what may have been taken is given back or never will be."""
        self.flight = ()
        for leg in self.legs:
            if leg.doubtful and not leg.done:
                leg.done = yield from self.space.void(leg, self.now, until)
        taken = [leg for leg in self.legs if leg.done]
        if taken or self.backs:
            for leg in taken:
                back = Booking(leg.key, leg.leg, {name: -delta for name, delta in leg.deltas.items()}, grants=-1)
                leg.done, self.backs = False, [*self.backs, back]
                leg.begin_anew(self.space.marks.nonce(self.now))
            # Should this be interrupted, it goes on where it was.
            yield from self.space.book(self.backs, self.now, until)
            self.backs = []
            for leg in taken:
                memory = self.space.images.get(leg.key)
                leg.image = None if memory is None else memory.image

    def _look_at(self, legs: Iterable[LegUnderWay]) -> Plan[None]:
        unseen = list(legs)
        if not unseen:
            return
        if len(unseen) == 1:
            item = yield from self.space.asking.get(unseen[0].key, self.until)
            found = {} if item is None else {unseen[0].key: item}
        else:
            found = yield from self.space.asking.get_all([leg.key for leg in unseen], self.until)
        for leg in unseen:
            leg.fresh = True
            here = found.get(leg.key)
            leg.image = None if here is None else (yield from self.space.see(leg.key, image_of(here), self.now))
            if leg.doubtful and leg.image is not None:
                leg.done = leg.nonce in leg.image.ring or leg.image.inc == leg.inc


class DrawingPlans(RewritingPlans):
    """The verb of every acquire."""

    @verb
    def draw(self, draw: Draw, now: int) -> Plan[Outcome]:
        until = yield from self.asking.window()
        return (yield from DrawUnderWay(self, draw, self.images.corrected(now), until).run())
