"""What may go wrong in a run, as probabilities per request, and how the network behaves otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities are per call unless they say otherwise; times are in milliseconds."""

    lost: float = 0.0
    """The request never arrives, and no answer comes."""
    unanswered: float = 0.0
    """It is applied, and no answer comes."""
    late: float = 0.0
    """The connection breaks, and the request is applied all the same, later: perhaps after its repeat."""
    slow: float = 0.0
    """It takes very long, perhaps longer than the caller waits."""
    throttled: float = 0.0
    conflict: float = 0.0
    """Refused because of a transaction on the same item; real ones do that besides."""
    unprocessed: float = 0.0
    """A batch leaves some of its requests undone."""
    short_page: float = 0.0
    """A query ends after an item or two, with more to come."""
    interrupted: float = 0.0
    """The caller is cancelled (async) or hit by Ctrl-C (sync) while the request is under way."""
    crash: float = 0.0
    """The client dies while the request is under way, and a new one takes its place."""
    vanish: float = 0.0
    """The task stands still for ever while the request is under way, and its client lives on."""
    delete_every: int = 0
    """An operator deletes a bucket, about so often."""
    expire_every: int = 0
    """What has expired is removed, about so often; 0: never."""
    skew: int = 0
    """Clocks are wrong by up to so much, either way."""
    step_every: int = 0
    """The clock of some client is set to another skew, about so often."""
    twice: float = 0.0
    """A request of a setter is applied and answered, and arrives again later."""
    index_lag: int = 0
    """The indexes may not show an item for so long after it was made."""
    hours: int = 0
    """Machines' clocks are wrong by up to so many hours, either way, and replies are dated."""
    given_hours: int = 0
    """One client in three has a clock of its own that jumps up to so many hours ahead, and back."""
    jump_every: int = 0
    """A clock that may be wrong by hours is set, about so often."""
    partition_wcu: int = 0
    """Writes per second one partition takes; 0: any number."""
    fastest_trip: int = 2
    slowest_trip: int = 8
    """One way."""

    @property
    def hides_load(self) -> bool:
        """Whether a shard may look busier than it is, or be split because it was throttled."""
        return bool(
            self.skew
            or self.hours
            or self.given_hours
            or self.throttled
            or self.partition_wcu
            or self.loses_answers
            or self.conflict
        )

    @property
    def loses_answers(self) -> bool:
        """Whether a client may be left in doubt about a write."""
        return bool(self.lost or self.unanswered or self.late or self.slow or self.crash or self.vanish)


NONE = Faults()
