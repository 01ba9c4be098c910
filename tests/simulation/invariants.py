"""What must be true after every write that is applied to a bucket, and of every bucket that expires.

The oracle sees the item before and after, and who wrote it. What the write *did* it reads off the counters (``tc``,
``ev``), which move by exactly what is taken or given back; *when*, off the write id, which begins with the ``now`` the
write was computed for. It tells both to the reference, and then compares. Every shard of a sharded bucket is judged
as a bucket of its own with a share of the limits; what must be true of all of them together is in ``families``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simulation.families import Families, Owner
from simulation.reference import Bucket, Reference, Steps, Terms, read_bucket
from simulation.violations import (
    BASELINE,
    CEILING,
    CLOCKS,
    CONSERVED,
    EXACT,
    EXPIRY,
    KEPT,
    MEANT,
    MENDED,
    NEWEST,
    ONCE,
    OVERDRAFT,
    SOLVENT,
    WINDOW,
    Place,
    Verb,
    Violation,
    owner_of,
)
from simulation.windows import Window, WindowOfAll
from zae_limiter.bucket import WOULD_REFUSE
from zae_limiter.stores.dynamodb.config_versions import is_fence

Debts = Mapping[Owner, Mapping[str, int]]
"""What those who wrote together may have taken without asking, by bucket and limit."""

NO_DEBTS: Debts = {}

BROUGHT_BACK = "!"
TOLERATED_MS = 60_000
CORRECTED_BY_MS = 10_000
"""How far those who look may be ahead of true time themselves."""


class Oracle:
    """Watches every bucket."""

    def __init__(self, *, fastest_clock_ms: int = 0, wcu: int = 0, index_lag_ms: int = 0) -> None:
        """``fastest_clock_ms``: how far write ids may be ahead of true time. ``wcu``: see ``Families``.

        ``index_lag_ms``: how long a new bucket may be unseen by setters that find buckets through an index.
        """
        self.fastest_clock_ms = fastest_clock_ms
        self.index_lag_ms = index_lag_ms
        self._born_at: dict[Place, int] = {}
        self.families = Families(wcu=wcu)
        self.joined = 0
        self.mended = 0
        self._furthest: dict[Place, int] = {}
        self.astray: set[str] = set()
        """Clients whose given clocks are wrong by hours."""
        self.references: dict[Place, Reference] = {}
        self.applied: dict[tuple[str, str], Counter[str]] = {}
        self.incomplete: set[tuple[tuple[str, str], str]] = set()
        self.stale_births: set[Place] = set()
        self.excused = 0
        self.swept = 0
        self._read: dict[Place, tuple[Any, Bucket]] = {}
        self._windows: dict[Place, dict[str, Window]] = {}
        self._windows_of_all: dict[Owner, dict[str, WindowOfAll]] = {}
        self._latest: dict[Owner, int] = {}
        self._uneven: set[tuple[Owner, str]] = set()
        """Limits of sharded buckets whose terms changed, or were filled, shard by shard, while some were in debt.

        Not those that were new to a shard: what is owed of a limit is owed by shards too that do not have it yet.
        """
        self._marks: dict[Place, set[str]] = {}
        self._names: set[str] = set()
        self._versions: dict[Place, int] = {}
        self._returned: dict[Place, list[tuple[int, int, int]]] = {}

    # What happens

    def happened(
        self,
        changes: Sequence[tuple[Place, Any, Any]],
        verb: Verb | None,
        at: int,
        debts: Debts = NO_DEBTS,
        *,
        together: bool = False,
    ) -> None:
        """One call has changed these items, from what to what. ``at`` is true time. ``together``: in a transaction."""
        new_shards = {place: new for place, old, new in changes if old is None and place[1] == "#STATE"}
        for place, old, new in changes:
            if together and old is not None and new is not None and old.get("shard_count") != new.get("shard_count"):
                self._divided(place, old, new, new_shards, at)
        for place, old, new in changes:
            if place[1] != "#STATE":
                self._configured(place, new, verb)
            elif new is None and verb is not None and verb.kind == "sweep":
                self.swept += 1
                self.expired(place, at + self.fastest_clock_ms)  # it may be full by a clock that is ahead
            elif new is None:
                self._check_meant(place, verb, "delete")
                self._forget(place)
            elif old is None:
                if place in new_shards:
                    self._born(place, new, verb, at)
            elif old["shard_count"] == new["shard_count"]:
                # Several shards that pay together are asked for what they pay, and for nothing else.
                partly = together and new["shard_count"]["N"] != "1"
                self._moved(place, old, new, verb, at, debts.get(owner_of(place), {}), partly=partly)
            elif not together:
                raise Violation(CONSERVED, place, "it was divided, and no other shard was made")

    def _configured(self, place: Place, new: Any, verb: Verb | None) -> None:
        if new is not None and "config_version" in new:
            version = int(new["config_version"]["N"])
            if verb is not None and version != self._versions.get(place):
                verb.committed[place] = version
            self._versions[place] = version

    def _forget(self, place: Place) -> Reference | None:
        self._windows.pop(place, None)
        self._read.pop(place, None)
        self._furthest.pop(place, None)
        self.families.gone(place)
        self._windows_of_all.pop(owner_of(place), None)  # its debts are gone with it
        return self.references.pop(place, None)

    def expired(self, place: Place, at: int) -> None:
        """A bucket's time was over: is it full?"""
        far_ahead = self.is_far_ahead(place, at)
        reference = self._forget(place)
        assert reference is not None
        if far_ahead:
            return  # by the machine's time it was full; what a wrong clock took from the future is gone with it
        for name in reference.positions:
            full_at = reference.full_at(name)
            if full_at > at + self.fastest_clock_ms:  # one who is ahead fills it up to a ceiling of that moment
                raise Violation(
                    EXPIRY, place, f"{name} held {reference.level(name, at)} and is full in {full_at - at} ms"
                )

    def returned(self, verb: Verb, at: int) -> None:
        """A setter has returned: from now on what it committed is obeyed."""
        for place, version in verb.committed.items():
            self._returned.setdefault(place, []).append((at, version, verb.started))

    # What must be true

    def _born(self, place: Place, item: Any, verb: Verb | None, at: int) -> None:
        bucket = read_bucket(item)
        self._read[place] = (item, bucket)
        self._born_at[place] = at
        self._check_clock(place, bucket, at)
        self._check_expiry(place, bucket)
        self.families.born(place, bucket.shards)
        self._marks[place] = {bucket.recent_writers[0]}
        reference = self.references[place] = Reference()
        self._windows[place] = {}
        total = self._total(place, bucket)
        for name, held in bucket.limits.items():
            reference.begin(name, held.terms, bucket.rf, held.tc)
            total[name] += held.tc
            total[name + WOULD_REFUSE] += held.sn
        total["ev"] += bucket.ev
        if bucket.ev <= 0:
            self._note_missing(place, bucket)
        asked = bucket.limits if bucket.ev > 0 else ()
        self._check_state(place, bucket, bucket.rf, asked=asked, debts={}, touched=set(bucket.limits))
        for name, held in bucket.limits.items():
            self._check_window(place, name, held.terms, bucket.rf, held.tc, draws=bucket.ev > 0)
        if self._is_behind(place, bucket.cv):
            self.stale_births.add(place)
        else:
            self.stale_births.discard(place)
        if bucket.ev > 0:
            self._check_versions(place, bucket, verb)

    def _is_behind(self, place: Place, cv: str) -> bool:
        """Whether a version is older than what is configured; that of a bucket that is being removed is none."""
        return not is_fence(cv) and any(
            version < self._versions.get(source, 0) for source, version in _sources(place, cv)
        )

    def _divided(self, place: Place, old: Any, new: Any, new_shards: dict[Place, Any], at: int) -> None:
        """One shard has become two."""
        before, after = read_bucket(old), read_bucket(new)
        other = (f"{place[0].rpartition('#')[0]}#{before.shard + before.shards}", place[1])
        item = new_shards.pop(other, None)
        if item is None:
            raise Violation(CONSERVED, place, f"it was divided, and {other[0]} was not made with it")
        half = read_bucket(item)
        self._read[place], self._read[other] = (new, after), (item, half)
        self._check_clock(place, after, at)
        if after.recent_writers[0] in before.recent_writers or not follows(
            after.recent_writers, before.recent_writers
        ):
            raise Violation(
                ONCE, place, f"the recent writers went from {before.recent_writers} to {after.recent_writers}"
            )
        self._marks[other] = {half.recent_writers[0]}
        t = max(stamp(after.recent_writers[0]), before.rf)
        if not after.rf == half.rf == t:
            raise Violation(BASELINE, place, f"divided at {t}, but rf is {after.rf} and {half.rf}")
        for bucket in (after, half):
            self._check_expiry(place, bucket)
        same = (after.ev, half.ev, after.cv, half.cv) == (before.ev, 0, before.cv, before.cv)
        if not same or not before.limits.keys() == after.limits.keys() == half.limits.keys():
            raise Violation(CONSERVED, place, f"{before} was divided into {after} and {half}")
        self.families.divided(place, other, before.shards, t=t, at=at)
        self._note_moment(place, t)
        reference = self.references[place]
        for name, was in before.limits.items():
            mine, theirs = after.limits[name], half.limits[name]
            level = reference.level(name, t)
            if mine.tk + theirs.tk != level:
                raise Violation(CONSERVED, place, f"{name} held {level}, then {mine.tk} and {theirs.tk}")
            if mine.tk > mine.terms.bx or theirs.tk > theirs.terms.bx:
                raise Violation(CEILING, place, f"{name} was divided into {mine} and {theirs}")
            if (mine.terms, theirs.terms) != was.terms.divided() or not mine.active == theirs.active == was.active:
                raise Violation(CONSERVED, place, f"{name} has {mine.terms} and {theirs.terms} of {was.terms}")
            if (mine.tc, theirs.tc, mine.sn, theirs.sn) != (was.tc, 0, was.sn, 0):
                raise Violation(CONSERVED, place, f"{name} had counted {was}, then {mine} and {theirs}")
        self.references[other] = reference.divide(t, {name: held.tk for name, held in after.limits.items()})
        self._windows[place], self._windows[other] = {}, {}
        self._born_at[other] = self._born_at[place]
        if place in self.stale_births:
            self.stale_births.add(other)

    def _moved(
        self,
        place: Place,
        old: Any,
        new: Any,
        verb: Verb | None,
        at: int,
        debts: Mapping[str, int],
        *,
        partly: bool,
    ) -> None:
        if {**old, "cv": new["cv"]} == new and is_fence(new["cv"]["S"]):
            self._read.pop(place, None)
            return  # its namespace was deleted: a fence leaves no write id
        known = self._read.get(place)
        before = known[1] if known is not None and known[0] is old else read_bucket(old)
        after = read_bucket(new)
        self._read[place] = (new, after)
        mark = after.recent_writers[0]
        idle = after.ev == before.ev and all(
            name in before.limits and before.limits[name].tc == held.tc for name, held in after.limits.items()
        )
        if (mark in before.recent_writers and not idle) or not follows(after.recent_writers, before.recent_writers):
            raise Violation(
                ONCE, place, f"the recent writers went from {before.recent_writers} to {after.recent_writers}"
            )
        self._check_clock(place, after, at)
        self._check_expiry(place, after)
        if mark.endswith(BROUGHT_BACK):
            self._mended(place, before, after, at)
            return
        t = max(stamp(mark), before.rf)
        if after.rf == before.rf + 1 > t:
            t = after.rf  # the smallest step, by a client whose now is not later: the baseline must move
        rebased = self._is_rebased(before, after, t)
        if rebased and after.rf != t:
            raise Violation(BASELINE, place, f"rebased at {t}, but rf went from {before.rf} to {after.rf}")
        if after.cv != before.cv and not self._is_behind(place, after.cv):
            self.stale_births.discard(place)
        reference = self.references[place]
        total = self._total(place, after)
        fills = verb is not None and verb.kind == "reset" and after.ev == before.ev
        if fills:
            self._check_meant(place, verb, "reset")
        deltas: dict[str, int] = {}
        touched: set[str] = set()
        for name in before.limits.keys() - after.limits.keys():
            self._check_end(place, before, after, name, t)
            reference.end(name)
        for name, held in after.limits.items():
            was = before.limits.get(name)
            delta = held.tc - (before.counted(name, stamp(mark)) if was is None else was.tc)
            if was is None:
                reference.begin(name, held.terms, t, delta)
            else:
                changed = fills or was.terms != held.terms
                if changed and after.shards > 1 and self._is_owed(place, name, t):
                    self._uneven.add((owner_of(place), name))
                if rebased:
                    reference.change(name, held.terms, t)
                if changed and isinstance(held.terms, Steps) and after.shards > 1 and reference.level(name, t) < 0:
                    self._uneven.add((owner_of(place), name))  # a lowered amount is owed where it was spent
                if fills:
                    reference.fill(name, t)
                reference.move(name, t, delta)
            total[name + WOULD_REFUSE] += held.sn - (
                before.counted(name + WOULD_REFUSE, stamp(mark)) if was is None else was.sn
            )
            if delta:
                deltas[name] = delta
                total[name] += delta
            if delta or rebased or fills:
                touched.add(name)
            if fills or was is None or was.terms != held.terms:
                self._windows[place].pop(name, None)
                self._windows_of_all.get(owner_of(place), {}).pop(name, None)
        granted = after.ev - before.ev
        self.joined += granted > 1
        total["ev"] += granted
        if granted <= 0:
            self._note_missing(place, after)
        asked = () if granted <= 0 else deltas.keys() if partly else after.limits.keys()
        asked = [
            name
            for name in asked  # one that only watches has a say where a draw took from it
            if not after.limits[name].terms.watches or deltas.get(name, 0) > debts.get(name, 0)
        ]
        self._check_state(place, after, t, asked=asked, debts=debts, touched=touched)
        for name, delta in deltas.items():
            owed = debts.get(name, 0)
            held = after.limits[name]
            draws = granted > 0 and held.active  # a retired limit is settled along, and refuses no caller
            draws = draws and (not held.terms.watches or delta > owed)
            self._check_window(place, name, held.terms, t, delta, draws=draws, owed=owed)
        self._note_moment(place, t)
        if granted > 0 and after.shards > 1:
            obeyed = [name for name, held in after.limits.items() if held.active and not held.terms.watches]
            self._check_debts(place, obeyed, at)
        if not idle:
            self._check_once(place, mark)
        if granted > 0:
            self._check_versions(place, after, verb)

    def _is_owed(self, place: Place, name: str, t: int) -> bool:
        """Whether any shard is in debt of a limit: one that still refills by other terms may be out of it before."""
        family = [self.references[shard] for shard in self.families.places(place)]
        return any(name in reference.terms and reference.level(name, t) < 0 for reference in family)

    def is_far_ahead(self, place: Place, at: int) -> bool:
        """Whether a clock that is wrong has written to a bucket, and no client has brought it back yet."""
        return self.latest_moment(place) > at + TOLERATED_MS - CORRECTED_BY_MS

    def latest_moment(self, place: Place) -> int:
        """The latest moment that a bucket was written for, as far as it tells."""
        known = self._read.get(place)
        return 0 if known is None else latest(known[1])

    def _mended(self, place: Place, before: Bucket, after: Bucket, at: int) -> None:
        """A bucket was brought back: it goes on from now with what it held at a moment it was written for.

        That was the latest when it was seen. A later one may have come since, or have left the recent ones: the bounds
        are what the bucket holds now, and what it held at the latest moment of all since it was last brought back.
        """
        self.mended += 1
        now, furthest = stamp(after.recent_writers[0]), max(self._furthest[place], latest(before))
        self._furthest[place] = after.rf
        if furthest <= now + TOLERATED_MS:
            raise Violation(MENDED, place, f"it was written for {furthest}, and brought back at {now}")
        if after.rf not in (now, now + 1) or (after.ev, after.cv) != (before.ev, before.cv):
            raise Violation(MENDED, place, f"{before} was brought back as {after}")
        reference = self.references[place]
        for name, held in after.limits.items():
            was, least, most = before.limits[name], reference.level(name, now), reference.level(name, furthest)
            if (held.tc, held.terms, held.active) != (was.tc, was.terms, was.active):
                raise Violation(MENDED, place, f"{was} was brought back as {held}")
            if not least <= held.tk <= most:
                raise Violation(MENDED, place, f"{name} held {least} to {most}, and came back with {held.tk}")
            reference.positions[name] = held.tk - held.terms.accrued(after.rf)
        self._windows[place] = {}
        self._windows_of_all.pop(owner_of(place), None)

    def _is_rebased(self, before: Bucket, after: Bucket, t: int) -> bool:
        """Whether the write set other terms, or the baseline. Another version alone, later than rf, is none."""
        if after.rf != before.rf or before.limits.keys() - after.limits.keys():
            return True
        if any(after.limits[name].active for name in after.limits.keys() - before.limits.keys()):
            return True  # one that is settled although it had ended comes back to rest
        if after.cv != before.cv and t == before.rf:
            return True
        return any(
            held[2:4] != before.limits[name][2:4] for name, held in after.limits.items() if name in before.limits
        )

    def _check_end(self, place: Place, before: Bucket, after: Bucket, name: str, t: int) -> None:
        """A limit that is let go of is full, and what it counted is kept for the hour."""
        level, full = self.references[place].level(name, t), before.limits[name].terms.bx
        if level != full:
            raise Violation(CEILING, place, f"{name} was let go of at {t} with {level} of {full}")
        now = stamp(after.recent_writers[0])
        was, kept = before.limits[name], (after.counted(name, now), after.counted(name + WOULD_REFUSE, now))
        if kept != (was.tc, was.sn):
            raise Violation(CONSERVED, place, f"{name} had counted {was}, and {kept} is kept")

    def _check_state(
        self,
        place: Place,
        bucket: Bucket,
        t: int,
        *,
        asked: Iterable[str],
        debts: Mapping[str, int],
        touched: set[str],
    ) -> None:
        """``asked``: of which limits a draw had to see that they are not in debt."""
        reference = self.references[place]
        rf = bucket.rf
        asked = set(asked)
        for name, (tk, _, terms, active, _) in bucket.limits.items():
            base = terms.accrued(rf)
            held = tk + terms.accrued(t) - base
            owed = debts.get(name, 0) if bucket.shards == 1 else 0
            if active and held < 0 and name in asked and held < -owed:
                raise Violation(OVERDRAFT, place, f"a draw at {t} left {name} at {held}")
            if name in touched and held > terms.bx:
                raise Violation(CEILING, place, f"{name} is at {held} of {terms.bx} after a write at {t}")
            exact = reference.level(name, rf)
            if min(tk, terms.bx) != exact:
                raise Violation(EXACT, place, f"{name} has tk={tk}, the exact bucket {exact}, after a write at {t}")

    def _note_moment(self, place: Place, t: int) -> None:
        owner = owner_of(place)
        self._latest[owner] = max(self._latest.get(owner, 0), t)

    def _check_debts(self, place: Place, names: Iterable[str], at: int) -> None:
        """What all shards hold together once one of them has granted. Each has its own rounding."""
        owner = owner_of(place)
        latest = self._latest[owner]
        if latest > at + TOLERATED_MS:
            return  # clocks do not agree at all: what one shard owes at this moment is no debt at that of another
        family = [self.references[shard] for shard in self.families.places(place)]
        for name in names:
            parts = [reference for reference in family if name in reference.terms]
            levels = [reference.level(name, latest) for reference in parts]
            if (owner, name) in self._uneven:
                if min(levels) < 0:
                    continue
                self._uneven.discard((owner, name))
            if len({reference.terms[name].whole for reference in parts}) > 1:
                continue  # some shards do not know the new terms yet
            if sum(levels) < -2 * len(levels):
                raise Violation(SOLVENT, place, f"{name} was at {sum(levels)} over all shards after a grant: {levels}")

    def _check_window(
        self, place: Place, name: str, terms: Terms, t: int, delta: int, *, draws: bool, owed: int = 0
    ) -> None:
        windows = self._windows[place]
        window = windows.get(name)
        if window is None:
            window = windows[name] = Window(terms)
        excess = window.excess(t, delta) - owed
        if draws and excess > 0:
            raise Violation(WINDOW, place, f"{name}: {excess} millitokens more than burst and accrual")
        owner = owner_of(place)
        of_all = self._windows_of_all.setdefault(owner, {})
        whole = of_all.get(name)
        family = self.families.places(place) if terms.shards > 1 else ()
        if any(self._whole_terms(shard, name) != terms.whole for shard in family):
            of_all.pop(name, None)  # some shards do not know the new terms yet
            return
        if whole is None:
            whole = of_all[name] = WindowOfAll(terms)
        excess = whole.excess(t, delta, terms.shards) - owed
        if draws and excess > 0:  # a shard in debt does not keep the others from giving
            excess -= sum(max(-self.references[shard].level(name, whole.latest), 0) for shard in family)
        if draws and excess > 0:
            raise Violation(WINDOW, place, f"{name}: {excess} millitokens more than burst and accrual of all shards")

    def _whole_terms(self, place: Place, name: str) -> tuple[int, int, int] | None:
        terms = self.references[place].terms.get(name)
        return None if terms is None else terms.whole

    def _check_expiry(self, place: Place, bucket: Bucket) -> None:
        if bucket.shards > 1 and bucket.ttl is not None:
            raise Violation(KEPT, place, f"shard {bucket.shard} of {bucket.shards} expires at {bucket.ttl}")

    def _check_meant(self, place: Place, verb: Verb | None, kind: str) -> None:
        """A deletion or a reset that arrives late finds another life, or another baseline."""
        if verb is None or verb.kind != kind:
            return
        if verb.over or place in verb.done_to:
            raise Violation(MEANT, place, f"{verb.what} {'has returned' if verb.over else 'did it before'}")
        verb.done_to.add(place)

    def _check_once(self, place: Place, mark: str) -> None:
        marks = self._marks[place]
        if mark in marks:
            raise Violation(ONCE, place, f"{mark} was applied again")
        marks.add(mark)

    def _check_clock(self, place: Place, bucket: Bucket, at: int) -> None:
        ahead = stamp(bucket.recent_writers[0]) - at
        self._furthest[place] = max(self._furthest.get(place, 0), latest(bucket))
        if self.astray and any(name in bucket.recent_writers[0] for name in self.astray):
            self._windows[place] = {}  # it takes from the future
            self._windows_of_all.pop(owner_of(place), None)
            return
        if ahead > self.fastest_clock_ms:
            raise Violation(CLOCKS, place, f"{bucket.recent_writers[0]} is {ahead} ms ahead of true time")

    def _check_versions(self, place: Place, bucket: Bucket, verb: Verb | None) -> None:
        if verb is None:
            return
        for source, version in _sources(place, bucket.cv):
            for at, least, asked_at in reversed(self._returned.get(source, ())):
                if at < verb.started and version < least:
                    if place in self.stale_births or self._was_unseen(place, source, asked_at):
                        self.excused += 1
                        break
                    raise Violation(
                        NEWEST, place, f"granted at version {bucket.cv}; {source} was set to {least} before"
                    )

    def born_at(self, place: Place) -> int | None:
        """When a bucket that is there began its life."""
        return self._born_at.get(place) if place in self.references else None

    def _was_unseen(self, place: Place, source: Place, asked_at: int) -> bool:
        """Whether a setter that finds buckets through an index may have missed it. Those of one entity and resource
        are addressed by their key."""
        resource = owner_of(place)[1]
        return source[1] != f"#CONFIG#{resource}" and self._born_at[place] + self.index_lag_ms > asked_at

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


def latest(bucket: Bucket) -> int:
    """The latest moment a bucket was written for since it was last brought back."""
    moments = [bucket.rf]
    for mark in bucket.recent_writers:
        moments.append(stamp(mark))
        if mark.endswith(BROUGHT_BACK):
            break
    return max(moments)


def stamp(mark: str) -> int:
    """The ``now`` a write id begins with."""
    head, dot, _ = mark.partition(".")
    return int(head, 16) if dot else 0


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
        (own, "#CONFIG#*"),
        (own, "#META"),
    ]
    counters = cv.partition("/")[0].split(".")
    if len(counters) != len(places):
        return [(place, int(counter)) for place, counter in zip(places[-2:], counters[-2:], strict=True)]
    sources = [(source, int(counter)) for source, counter in zip(places, counters, strict=True)]
    return sources[-2:] if resource == "*" else sources  # no level concerns a total


def follows(ring: tuple[str, ...], earlier: tuple[str, ...]) -> bool:
    """Whether these are the earlier ones with an id pushed, or with an id and the one that voids it."""
    return ring[1:] == earlier[:3] or (ring[0] == f"{ring[1]}-" and ring[2:] == earlier[:2])
