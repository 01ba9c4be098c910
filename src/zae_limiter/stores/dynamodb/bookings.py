"""Something to be written to one bucket, and how far that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from zae_limiter.running.plan import Bell, Interrupted
from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.keys import Key
from zae_limiter.stores.dynamodb.requests import Answer, NoAnswer, Refused
from zae_limiter.stores.protocol import Leg


class Seen(NamedTuple):
    """The bucket as it is now (``None``: it is not there), and whether the write was done."""

    image: Image | None
    done: bool


Verdict: TypeAlias = Seen | Refused | NoAnswer
"""What became of a write. ``Refused`` is never for a condition: that is ``Seen``, and not done."""


class Booking:
    """Something to book on one bucket, and how far that is."""

    key: Key
    leg: Leg
    deltas: Mapping[str, int]

    # How every booking begins.
    grants = 0
    image: Image | None = None
    nonce = ""
    inc = ""
    void_mark = ""
    done = False
    doubtful = False
    """It may have been done: an answer was lost."""
    joint = False
    """Its mark is that of a write for several callers, or to several shards: it is not written alone by that."""
    untold = False
    """Nobody can tell any more whether a lost try of it was done."""
    anchor: str | None = None
    """A mark that was in the ring before it can have been done."""
    tries = 0
    needed: Mapping[str, int] | None = None
    """What must be there, if it asks at all."""
    weight = 1
    """How many callers it stands for."""
    now = 0
    """What it was last computed for."""
    desk: object = None
    """The desk it is at, if it writes."""
    give_up_at = 0
    """Until when it waits there, machine time."""
    bell: Bell | None = None
    """Rings when it is its turn, or when somebody wrote for it."""
    verdict: Verdict | None = None

    def __init__(self, key: Key, leg: Leg, deltas: Mapping[str, int], *, grants: int = 0) -> None:
        self.key = key
        self.leg = leg
        self.deltas = deltas
        self.grants = grants

    def may_join(self, image: Image) -> bool:
        """Whether it can be written together with others."""
        return not (self.doubtful or self.done or self.inc)

    def drop_anchor(self) -> None:
        """Note a mark that is in the ring before the next try: while it is there, the ring has not moved on."""
        if not self.doubtful and self.image is not None:
            self.anchor = self.image.ring[0]

    def note(self, answer: Answer | None) -> None:
        """What must be known of an answer before anything else can go wrong; ``None``: it was never heard."""
        if answer is None:
            self.doubtful = True
        elif isinstance(answer, NoAnswer):
            self.doubtful = self.doubtful or answer.sent
        elif not isinstance(answer, Refused):
            self.done = True

    def is_in(self, image: Image) -> bool:
        """Whether a bucket shows that it was done: by its mark, or by the life it began."""
        return self.nonce in image.ring or image.inc == self.inc

    def can_be_sure(self) -> bool:
        """Whether a try whose answer was lost can be repeated so that only one of the two is ever done.

        The anchor must still be in the ring: then the try was done only if its mark is there too. And the repetition
        must move the baseline: then the try, if it is still under way, is refused when it arrives.
        """
        image = self.image
        return self.doubtful and image is not None and self.anchor in image.ring

    def begin_anew(self, nonce: str) -> None:
        """The next try is another write, with a mark of its own: no mark is ever applied twice."""
        self.doubtful = self.joint = False
        self.nonce, self.inc, self.void_mark = nonce, "", ""

    def let_credits_go(self) -> None:
        """What could come back twice does not come back at all."""
        self.deltas = {name: delta for name, delta in self.deltas.items() if delta > 0}
        self.grants = max(self.grants, 0)
        self.done = not self.deltas and not self.grants

    def left(self) -> Mapping[str, int]:
        """What is to be booked again: of what may have been done, only what may be done twice."""
        if self.done:
            return {}
        return {name: delta for name, delta in self.deltas.items() if delta > 0 or not self.doubtful}

    @property
    def gives_back(self) -> bool:
        return any(delta < 0 for delta in self.deltas.values())


def answers_of(stop: Interrupted, count: int) -> Sequence[Answer | None]:
    """What the calls in flight answered when an interrupt came; ``None`` where nobody knows."""
    heard: Any = stop.reply if stop.error is None else stop.error
    if count == 1 and isinstance(heard, (Mapping, Refused, NoAnswer)):
        return [heard]
    if isinstance(heard, (list, tuple)) and len(heard) == count:
        return heard
    return [None] * count
