"""A draw in progress: its legs, what is in flight, and what must be given back if it fails.

``drawing`` leads it from its first guess to its outcome; ``sharing`` and ``creating`` take the steps that only divided
and only new buckets need.
"""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bookings import Booking, Verdict
from zae_limiter.stores.dynamodb.keys import Key
from zae_limiter.stores.dynamodb.legs import LegUnderWay
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.at_hand import Acquiring
from zae_limiter.stores.dynamodb.requests import KEY_THROTTLED, Contended, DeadlineOver, NoAnswer, Refused
from zae_limiter.stores.dynamodb.updates import UpdateParams
from zae_limiter.stores.dynamodb.versions import may_follow
from zae_limiter.stores.dynamodb.writes import Wish
from zae_limiter.stores.protocol import Draw


class Taking:
    """One draw in progress."""

    def __init__(self, space: Acquiring, draw: Draw, now: int, until: Window) -> None:
        self.space = space
        self.draw = draw
        self.now = now
        self.whole = self.until = until
        self.legs: list[LegUnderWay] = []
        self.flight: Sequence[LegUnderWay] = ()
        self.failure: Refused | NoAnswer | None = None
        self.overtaken = 0
        """So often others were faster."""
        self.seen_before: dict[Key, str] = {}
        self.backs: list[Booking] = []

    def may_follow(self, leg: LegUnderWay, key: Key, theirs: str) -> bool:
        """Whether a bucket that obeys ``theirs`` may obey our terms from now on."""
        seen_before = self.seen_before.get(key) == theirs
        return theirs == leg.terms.cv or may_follow(leg.terms.cv, theirs, seen_before=seen_before)

    def params_of(self, leg: LegUnderWay) -> UpdateParams:
        """The write of a leg whose bucket is there."""
        space, image = self.space, leg.image
        assert image is not None
        leg.drop_anchor()
        if not leg.doubtful and not leg.is_stale and image.shards == 1 and not image.resting:
            return space.writer.draw_params(
                leg.key, image, leg.deltas, leg.needed, self.now, leg.nonce, self.until, guess=not leg.fresh
            )
        sure = leg.can_be_sure()
        if leg.doubtful and not sure:
            space.writer.unresolved += 1  # nobody can tell whether the lost try was done: it may be charged twice
            leg.begin_anew(space.marks.nonce(self.now))
        return space.writer.params(
            leg.key,
            image,
            Wish(leg.deltas, leg.needed, leg.terms if leg.is_stale else None, grants=1, rebase=sure),
            max(self.now, image.rf + 1) if sure else self.now,
            leg.nonce,
            self.until,
            anchor=leg.anchor if sure else None,
            guess=not leg.fresh,
        )

    def hear(self, leg: LegUnderWay, verdict: Verdict) -> None:
        """Note what became of a leg."""
        if isinstance(verdict, NoAnswer):
            if isinstance(verdict, DeadlineOver):
                raise self.failure or verdict
            if verdict.final:
                raise verdict
            self.failure = verdict
        elif isinstance(verdict, Refused):
            self.failure = verdict
            if verdict.code == KEY_THROTTLED:
                leg.throttled += 1
                leg.is_hot = True
            elif not (verdict.by_throttling or verdict.by_conflict):
                raise verdict
        else:
            if not verdict.done:
                self.failure = Contended()
                self.overtaken += 1
            leg.fresh, leg.image = leg.fresh or not verdict.done, verdict.image
            leg.granted_at = max(leg.now, self.now)
            if leg.image is not None and not leg.done:
                if leg.is_in(leg.image):
                    leg.done = True  # by a try whose answer was lost
                elif leg.inc:
                    leg.doubtful, leg.inc = False, ""  # somebody else created it: ours was not

    def undo(self, until: Window) -> Plan[None]:
        """Give back what was taken, and make sure that what may have been taken is given back or never will be."""
        self.flight = ()
        for leg in self.legs:
            if leg.doubtful and not leg.done:
                leg.done = yield from self.space.writer.void(leg, self.now, until)
        taken = [leg for leg in self.legs if leg.done]
        if taken or self.backs:
            for leg in taken:
                backs = [
                    Booking(key, leg.leg, {name: -delta for name, delta in deltas.items()}, grants=-(not place))
                    for place, (key, deltas) in enumerate(leg.payment())
                ]
                leg.done, leg.payers, self.backs = False, (), [*self.backs, *backs]
                leg.begin_anew(self.space.marks.nonce(self.now))
            # Should this be interrupted, it goes on where it was.
            yield from self.space.bookings.book(self.backs, self.now, until)
            self.backs = []
            for leg in taken:
                memory = self.space.images.get(leg.key)
                leg.image = None if memory is None else memory.image
