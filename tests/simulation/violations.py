"""The promises a run is judged by, and what is raised when one is broken."""

from __future__ import annotations

Place = tuple[str, str]
"""Where a bucket, or one shard of it, is: its partition and sort key."""

EXACT = "the level is that of the exact bucket"
CEILING = "after a write at now, tk + a <= bx"
OVERDRAFT = "a draw takes only what is there"
WINDOW = "granted in every window <= burst + accrual"
ONCE = "what is applied once is not applied twice"
MEANT = "what an operator asks for is done once, to the life that was meant"
EXPIRY = "a bucket that expires is full"
KEPT = "only an undivided bucket may expire"
SOLVENT = "no shard grants while the whole bucket is in debt"
CONSERVED = "a split conserves tokens, counters and terms"
OWNED = "shares add up to the limit at all times"
PAUSE = "shard 0 rests between splits"
PRESSURE = "only real pressure divides a bucket"
PAID = "what is owed is settled where it was paid"
NEWEST = "who starts after a setter returned obeys it"
BASELINE = "the baseline moves only to now, and forward"
CLOCKS = "no write id is ahead of the fastest clock"
MENDED = "a bucket is brought back from far ahead only, with what it held there"
BOOKS = "the counters are what the clients know"
TOLD = "what is charged too much is reported"
EACH_ONCE = "every call is counted once, however many legs it has"
DENIALS = "every denial is counted once"
PROGRESS = "no caller runs out of tries"
GATE = "load and contention deny, and are no outage"
WAIT = "a wait is exact"
WATCHED = "a limit that only watches counts what it would have refused"
NOTICE = "callers are told the truth"
NEVER_FOR_EVER = "what fits the undivided burst is never refused for ever"
DESKS = "no caller is left waiting when nothing moves any more"


class Violation(AssertionError):
    """Something that must always be true was not."""

    def __init__(self, invariant: str, place: Place | None, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.place = place
        self.detail = detail


class Verb:
    """One verb of one client, as the oracle must know it."""

    __slots__ = ("client", "committed", "done_to", "kind", "over", "stakes", "started", "what")

    def __init__(self, kind: str, client: str, started: int, what: str = "") -> None:
        self.kind = kind
        self.client = client
        self.started = started
        self.what = what
        self.over = False
        self.committed: dict[Place, int] = {}
        self.done_to: set[Place] = set()  # buckets that it deleted or filled
        self.stakes: dict[tuple[str, str], dict[str, int]] = {}  # what it is to do to whose bucket, in any case


def owner_of(place: Place) -> tuple[str, str]:
    """Whose bucket it is: entity and resource."""
    _, entity, resource, _ = place[0].split("#")
    return entity, resource


def shard_of(place: Place) -> int:
    """Which shard of it."""
    return int(place[0].rpartition("#")[2])
