"""What must be true after every write that is applied to a bucket, and of every bucket that expires.

The oracle sees the item before and after, and who wrote it. What the write *did* it reads off the counters (``tc``,
``ev``), which move by exactly what is taken or given back; *when*, off the mark, which begins with the ``now`` the
write was computed for. It tells both to the reference, and then compares.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from simulation.reference import Bucket, Reference, Terms, read_bucket

Place = tuple[str, str]
"""Where a bucket is: its partition and sort key."""

EXACT = "the level is that of the exact bucket"
CEILING = "after a write at now, tk + a <= bx"
OVERDRAFT = "a draw takes only what is there"
WINDOW = "granted in every window <= burst + accrual"
ONCE = "what is applied once is not applied twice"
EXPIRY = "a bucket that expires is full"
NEWEST = "who starts after a setter returned obeys it"
BASELINE = "the baseline moves only to now, and forward"
CLOCKS = "no mark is ahead of the fastest clock"
BOOKS = "the counters are what the clients know"
TOLD = "what is charged too much is reported"
PROGRESS = "nobody runs out of tries"
WAIT = "a wait is exact"
NOTICE = "callers are told the truth"


class Violation(AssertionError):
    """Something that must always be true was not."""

    def __init__(self, invariant: str, place: Place | None, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.place = place
        self.detail = detail


class Verb:
    """One verb of one client, as the oracle must know it."""

    __slots__ = ("client", "committed", "kind", "stakes", "started", "what")

    def __init__(self, kind: str, client: str, started: int, what: str = "") -> None:
        self.kind = kind
        self.client = client
        self.started = started
        self.what = what
        self.committed: dict[Place, int] = {}
        self.stakes: dict[tuple[str, str], dict[str, int]] = {}  # what it is to do to whose bucket, in any case


class Window:
    """The most that was granted in any window, by rational arithmetic and without a bucket.

    With ``S`` the sum of what was taken, a window from the write ``i`` to ``j`` holds ``S(j) - S(i-1)``, and may
    hold ``bx + (t(j) - t(i)) * ra / rp``. The smallest ``S(i-1) * rp - t(i) * ra`` so far decides for all ``i``.
    """

    __slots__ = ("least", "taken", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.taken = 0
        self.least: int | None = None

    def excess(self, t: int, delta: int) -> int:
        """How many millitokens too many the worst window up to this write holds."""
        bx, ra, rp = self.terms
        start = self.taken * rp - t * ra
        if self.least is None or start < self.least:
            self.least = start
        self.taken += delta
        return (self.taken * rp - t * ra - self.least) // rp - bx - 1


class Oracle:
    """Watches every bucket."""

    def __init__(self, *, fastest_clock_ms: int = 0) -> None:
        """``fastest_clock_ms``: how far marks may be ahead of true time."""
        self.fastest_clock_ms = fastest_clock_ms
        self.references: dict[Place, Reference] = {}
        self.applied: dict[tuple[str, str], Counter[str]] = {}
        self.incomplete: set[tuple[tuple[str, str], str]] = set()
        self.stale_births: set[Place] = set()
        self.excused = 0
        self._read: dict[Place, tuple[Any, Bucket]] = {}
        self._windows: dict[Place, dict[str, Window]] = {}
        self._marks: dict[Place, set[str]] = {}
        self._names: set[str] = set()
        self._versions: dict[Place, int] = {}
        self._returned: dict[Place, list[tuple[int, int]]] = {}

    # What happens

    def changed(self, place: Place, old: Any, new: Any, verb: Verb | None, at: int) -> None:
        """An item is another than before. ``at`` is true time."""
        if place[1] == "#STATE":
            if new is None:
                self.references.pop(place, None)
                self._windows.pop(place, None)
                self._read.pop(place, None)
            elif old is None:
                self._born(place, new, verb, at)
            else:
                self._moved(place, old, new, verb, at)
        elif new is not None and "config_version" in new:
            version = int(new["config_version"]["N"])
            if verb is not None and version != self._versions.get(place):
                verb.committed[place] = version
            self._versions[place] = version

    def expired(self, place: Place, at: int) -> None:
        """A bucket's time was over: is it full?"""
        reference = self.references.pop(place)
        self._windows.pop(place, None)
        self._read.pop(place, None)
        for name in reference.positions:
            full_at = reference.full_at(name)
            if full_at > at:
                raise Violation(
                    EXPIRY, place, f"{name} held {reference.level(name, at)} and is full in {full_at - at} ms"
                )

    def returned(self, verb: Verb, at: int) -> None:
        """A setter has returned: from now on what it committed is obeyed."""
        for place, version in verb.committed.items():
            self._returned.setdefault(place, []).append((at, version))

    # What must be true

    def _born(self, place: Place, item: Any, verb: Verb | None, at: int) -> None:
        bucket = read_bucket(item)
        self._read[place] = (item, bucket)
        self._check_clock(place, bucket, at)
        self._marks[place] = {bucket.ring[0]}
        reference = self.references[place] = Reference()
        self._windows[place] = {}
        total = self._total(place, bucket)
        for name, held in bucket.limits.items():
            reference.begin(name, held.terms, bucket.rf, held.tc)
            total[name] += held.tc
        total["ev"] += bucket.ev
        if bucket.ev <= 0:
            self._note_missing(place, bucket)
        self._check_state(place, bucket, bucket.rf, draws=bucket.ev > 0, touched=set(bucket.limits))
        for name, held in bucket.limits.items():
            self._check_window(place, name, held.terms, bucket.rf, held.tc, draws=bucket.ev > 0)
        if any(version < self._versions.get(source, 0) for source, version in _sources(place, bucket.cv)):
            self.stale_births.add(place)
        else:
            self.stale_births.discard(place)
        if bucket.ev > 0:
            self._check_versions(place, bucket, verb)

    def _moved(self, place: Place, old: Any, new: Any, verb: Verb | None, at: int) -> None:
        known = self._read.get(place)
        before = known[1] if known is not None and known[0] is old else read_bucket(old)
        after = read_bucket(new)
        self._read[place] = (new, after)
        mark = after.ring[0]
        idle = after.ev == before.ev and all(
            name in before.limits and before.limits[name].tc == held.tc for name, held in after.limits.items()
        )
        if (mark in before.ring and not idle) or not follows(after.ring, before.ring):
            raise Violation(ONCE, place, f"the ring went from {before.ring} to {after.ring}")
        self._check_clock(place, after, at)
        t = max(stamp(mark), before.rf)
        if after.rf == before.rf + 1 > t:
            t = after.rf  # the smallest step, by a client whose now is not later: the baseline must move
        rebased = self._is_rebased(before, after, t)
        if rebased and after.rf != t:
            raise Violation(BASELINE, place, f"rebased at {t}, but rf went from {before.rf} to {after.rf}")
        if after.cv != before.cv:
            self.stale_births.discard(place)
        reference = self.references[place]
        total = self._total(place, after)
        fills = verb is not None and verb.kind == "reset" and after.ev == before.ev
        deltas: dict[str, int] = {}
        touched: set[str] = set()
        for name, held in after.limits.items():
            was = before.limits.get(name)
            delta = held.tc - (0 if was is None else was.tc)
            if was is None:
                reference.begin(name, held.terms, t, delta)
            else:
                if rebased:
                    reference.change(name, held.terms, t)
                if fills:
                    reference.fill(name, t)
                reference.move(name, t, delta)
            if delta:
                deltas[name] = delta
                total[name] += delta
            if delta or rebased or fills:
                touched.add(name)
            if fills or (was is not None and was.terms != held.terms):
                self._windows[place].pop(name, None)
        granted = after.ev - before.ev
        total["ev"] += granted
        if granted <= 0:
            self._note_missing(place, after)
        self._check_state(place, after, t, draws=granted > 0, touched=touched)
        for name, delta in deltas.items():
            self._check_window(place, name, after.limits[name].terms, t, delta, draws=granted > 0)
        if not idle:
            self._check_once(place, mark)
        if granted > 0:
            self._check_versions(place, after, verb)

    def _is_rebased(self, before: Bucket, after: Bucket, t: int) -> bool:
        """Whether the write set other terms, or the baseline. Another version alone, later than rf, is none."""
        if after.rf != before.rf or before.limits.keys() != after.limits.keys():
            return True
        if after.cv != before.cv and t == before.rf:
            return True
        return any(held[2:] != before.limits[name][2:] for name, held in after.limits.items())

    def _check_state(self, place: Place, bucket: Bucket, t: int, *, draws: bool, touched: set[str]) -> None:
        reference = self.references[place]
        rf = bucket.rf
        for name, (tk, _, terms, active) in bucket.limits.items():
            base = terms.accrued(rf)
            held = tk + terms.accrued(t) - base
            if draws and active and held < 0:
                raise Violation(OVERDRAFT, place, f"a draw at {t} left {name} at {held}")
            if name in touched and held > terms.bx:
                raise Violation(CEILING, place, f"{name} is at {held} of {terms.bx} after a write at {t}")
            exact = reference.level(name, rf)
            if min(tk, terms.bx) != exact:
                raise Violation(EXACT, place, f"{name} has tk={tk}, the exact bucket {exact}, after a write at {t}")

    def _check_window(self, place: Place, name: str, terms: Terms, t: int, delta: int, *, draws: bool) -> None:
        windows = self._windows[place]
        window = windows.get(name)
        if window is None:
            window = windows[name] = Window(terms)
        excess = window.excess(t, delta)
        if draws and excess > 0:
            raise Violation(WINDOW, place, f"{name}: {excess} millitokens more than burst and accrual")

    def _check_once(self, place: Place, mark: str) -> None:
        marks = self._marks[place]
        if mark in marks:
            raise Violation(ONCE, place, f"{mark} was applied again")
        marks.add(mark)

    def _check_clock(self, place: Place, bucket: Bucket, at: int) -> None:
        ahead = stamp(bucket.ring[0]) - at
        if ahead > self.fastest_clock_ms:
            raise Violation(CLOCKS, place, f"{bucket.ring[0]} is {ahead} ms ahead of true time")

    def _check_versions(self, place: Place, bucket: Bucket, verb: Verb | None) -> None:
        if verb is None:
            return
        for source, version in _sources(place, bucket.cv):
            for at, least in reversed(self._returned.get(source, ())):
                if at < verb.started and version < least:
                    if place in self.stale_births:
                        self.excused += 1
                        break
                    raise Violation(
                        NEWEST, place, f"granted at version {bucket.cv}; {source} was set to {least} before"
                    )

    def _total(self, place: Place, bucket: Bucket) -> Counter[str]:
        owner = owner_of(place)
        total = self.applied.get(owner)
        if total is None:
            total = self.applied[owner] = Counter()
        self._names.update(bucket.limits)
        return total

    def _note_missing(self, place: Place, bucket: Bucket) -> None:
        """What is settled on a limit the bucket does not have (any more, or yet) is not counted."""
        if len(bucket.limits) < len(self._names):
            self.incomplete.update((owner_of(place), name) for name in self._names if name not in bucket.limits)


def stamp(mark: str) -> int:
    """The ``now`` a mark begins with."""
    head, dot, _ = mark.partition(".")
    return int(head, 16) if dot else 0


def owner_of(place: Place) -> tuple[str, str]:
    """Whose bucket it is: entity and resource."""
    _, entity, resource, _ = place[0].split("#")
    return entity, resource


def _sources(place: Place, cv: str) -> list[tuple[Place, int]]:
    """The config items a version speaks of, and the counter it has of each."""
    ns = place[0].partition("/")[0]
    entity, resource = owner_of(place)
    own = f"{ns}/ENTITY#{entity}"
    places = [
        (f"{ns}/SYSTEM#", "#CONFIG"),
        (f"{ns}/RESOURCE#{resource}", "#CONFIG"),
        (own, "#CONFIG#_default_"),
        (own, f"#CONFIG#{resource}"),
        (own, "#META"),
    ]
    counters = cv.split(".")
    if len(counters) != len(places):
        return [(places[-1], int(counters[-1]))]
    return [(source, int(counter)) for source, counter in zip(places, counters, strict=True)]


def follows(ring: tuple[str, ...], earlier: tuple[str, ...]) -> bool:
    """Whether a ring is an earlier one with a mark pushed, or with a mark and the one that voids it."""
    return ring[1:] == earlier[:3] or (ring[0] == f"{ring[1]}-" and ring[2:] == earlier[:2])
