"""One logical write to a bucket: how it is put, what its answer says, and how far it is.

A write is tried until it is surely done or surely not. While it is neither it is *doubtful*: an answer was lost.
Then its mark among those of the last writers tells whether it was done, as long as its anchor, a mark that was
there before, is still there too; and a repetition that moves the baseline makes sure that only one of the two is
ever done. :meth:`BucketWriter.void` makes sure of a write that is given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from zae_limiter.running.plan import READ_CLOCK, Bell, CutShort, Interrupted, Plan
from zae_limiter.stores.dynamodb.bucket_cache import CachedBucket
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.requests import Answer, Call, NoAnswer, Refused, Together
from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.dynamodb.write_forms import NOTHING, Intent, Terms, new_item, update
from zae_limiter.stores.dynamodb.write_load import load_of
from zae_limiter.stores.protocol import Leg


class SeenBucket(NamedTuple):
    """The bucket as it is now (``None``: it is not there), and whether the write was done."""

    snapshot: BucketSnapshot | None
    done: bool


WriteResult: TypeAlias = SeenBucket | Refused | NoAnswer
"""What became of a write. ``Refused`` is never for a condition: that is ``SeenBucket``, and not done."""


class BucketWrite:
    """Something to book on one bucket, and how far that is."""

    key: Key
    leg: Leg
    deltas: Mapping[str, int]

    # How every booking begins.
    grants = 0
    snapshot: BucketSnapshot | None = None
    write_id = ""
    inc = ""
    void_id = ""
    done = False
    doubtful = False
    """It may have been done: an answer was lost."""
    joint = False
    """Its mark is that of a write for several callers, or to several shards: it is not written alone by that."""
    untold = False
    """Nobody can tell any more whether a lost try of it was done."""
    maybe_done = False
    """A lost try of it may have been done, and what is tried since is another write."""
    anchor: str | None = None
    """A mark that was in the ring before it can have been done."""
    tries = 0
    needed: Mapping[str, int] | None = None
    """What must be there, if it asks at all."""
    weight = 1
    """How many callers it stands for."""
    now = 0
    """What it was last computed for."""
    queue: object = None
    """The desk it is at, if it writes."""
    give_up_at = 0
    """Until when it waits there, machine time."""
    bell: Bell | None = None
    """Rings when it is its turn, or when somebody wrote for it."""
    result: WriteResult | None = None

    def __init__(self, key: Key, leg: Leg, deltas: Mapping[str, int], *, grants: int = 0) -> None:
        self.key = key
        self.leg = leg
        self.deltas = deltas
        self.grants = grants

    def may_join(self, snapshot: BucketSnapshot) -> bool:
        """Whether it can be written together with others."""
        return not (self.doubtful or self.done or self.inc)

    def set_anchor(self) -> None:
        """Note a mark that is in the ring before the next try: while it is there, the ring has not moved on."""
        if not self.doubtful and self.snapshot is not None:
            self.anchor = self.snapshot.recent_writers[0]

    def note(self, answer: Answer | None) -> None:
        """What must be known of an answer before anything else can go wrong; ``None``: it was never heard."""
        if answer is None:
            self.doubtful = True
        elif isinstance(answer, NoAnswer):
            self.doubtful = self.doubtful or answer.sent
        elif not isinstance(answer, Refused):
            self.done = True

    def is_in(self, snapshot: BucketSnapshot) -> bool:
        """Whether a bucket shows that it was done: by its mark, or by the life it began."""
        return self.write_id in snapshot.recent_writers or snapshot.inc == self.inc

    def can_be_sure(self) -> bool:
        """Whether a try whose answer was lost can be repeated so that only one of the two is ever done.

        The anchor must still be in the ring: then the try was done only if its mark is there too. And the repetition
        must move the baseline: then the try, if it is still under way, is refused when it arrives.
        """
        snapshot = self.snapshot
        return self.doubtful and snapshot is not None and self.anchor in snapshot.recent_writers

    def begin_anew(self, write_id: str) -> None:
        """The next try is another write, with a mark of its own: no mark is ever applied twice."""
        self.doubtful = self.joint = False
        self.write_id, self.inc, self.void_id = write_id, "", ""

    def let_credits_go(self) -> None:
        """Nobody can tell whether a lost try was done: what could come back twice does not come back at all."""
        self.maybe_done = True
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


TRIES_AT_ONCE = 2
"""So often a refused write is repeated at once, with the image the refusal brought; later ones wait a little."""


class BucketWriter:
    """From a wish to a write, and from its answer to a verdict."""

    def __init__(self, namespace: Namespace) -> None:
        self.client = namespace.client
        self.cache = namespace.cache
        self.write_ids = namespace.write_ids
        self.unresolved = 0

    def params(
        self,
        key: Key,
        snapshot: BucketSnapshot,
        intent: Intent,
        now: int,
        write_id: str,
        deadline: Deadline,
        *,
        anchor: str | None = None,
        guess: bool = False,
    ) -> UpdateParams:
        """The write that does ``intent``; with ``guess``, to the bucket as it may be by now."""
        cached = self.cache.get(key)
        built = update(
            snapshot,
            intent,
            now=now,
            write_id=write_id,
            epoch_s=deadline.epoch_s,
            ttl_margin_s=self.client.ttl_margin_s,
            anchor=anchor,
            guesses={} if cached is None or not guess else cached.guesses(now),
            load=load_of(snapshot, 0 if cached is None else cached.failed(now)),
            age_ms=None if cached is None else now - cached.seen_at,
        )
        return built.params(self.client.table, key)

    def call_to_update(self, params: UpdateParams, deadline: Deadline) -> Call:
        """An UpdateItem that answers with the bucket as it is afterwards."""
        return Call("UpdateItem", params.returning_new(), deadline.give_up_at)

    def call_to_create(self, write: BucketWrite, terms: Terms, now: int, deadline: Deadline) -> Call:
        """A PutItem that begins the life of a bucket, unless there is one."""
        write.inc = write.inc or self.write_ids.incarnation()
        item = new_item(
            write.key,
            terms,
            write.deltas,
            now=now,
            write_id=write.write_id,
            inc=write.inc,
            grants=write.grants,
            epoch_s=deadline.epoch_s,
            ttl_margin_s=self.client.ttl_margin_s,
            wcu=self.client.wcu,
        )
        params = {
            "TableName": self.client.table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(PK)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return Call("PutItem", params, deadline.give_up_at)

    def ask_together(self, calls: Sequence[Call]) -> Plan[Sequence[Answer]]:
        """The answers to several calls, errors as values."""
        if len(calls) > 1:
            try:
                return (yield from Together(calls))
            except CutShort as cut:
                return [NoAnswer(str(cut))] * len(calls)
        try:
            return [(yield from calls[0])]
        except (Refused, NoAnswer) as failure:
            return [failure]
        except CutShort as cut:
            return [NoAnswer(str(cut))]

    # Hearing

    def result(self, key: Key, answer: Answer, now: int) -> Plan[WriteResult]:
        """What an answer says, once the image it brings is remembered."""
        if isinstance(answer, NoAnswer):
            return answer
        if not isinstance(answer, Refused):
            written = self.cache.see_own(key, answer, NOTHING, now)
            yield from self.compare_clocks(written, now)
            return SeenBucket(written.snapshot, True)
        cached = self.cache.get(key)
        before = None if cached is None else cached.snapshot
        if not answer.by_condition:
            if answer.by_load:
                self.client.note_load(answer)
            return answer
        if answer.item is None:
            self.cache.forget(key)
            return SeenBucket(None, False)
        snapshot = yield from self.see(key, snapshot_of(answer.item, before), now)
        if cached is not None:
            cached.count_refused(now)
        return SeenBucket(snapshot, False)

    def see(self, key: Key, snapshot: BucketSnapshot, now: int) -> Plan[BucketSnapshot]:
        """Remember a snapshot, and learn from it whether our clock is late."""
        yield from self.compare_clocks(self.cache.see(key, snapshot, now), now)
        return snapshot

    def compare_clocks(self, cached: CachedBucket, now: int) -> Plan[None]:
        """Learn from the last writer's clock, if it is ahead, how late ours is."""
        if cached.newest > now and self.cache.uses_machine_clock:
            self.cache.compare_clocks(cached.newest, (yield READ_CLOCK))

    def remember_own(self, write: BucketWrite) -> None:
        """This client did it: what else happened to the bucket was done by others."""
        cached = self.cache.get(write.key)
        if cached is not None:
            cached.took(write.deltas)

    def pause(self, tries: int, deadline: Deadline, failure: Refused | NoAnswer) -> Plan[None]:
        """Wait before the next try, unless ``tries`` of them were so few that it follows at once."""
        if tries >= TRIES_AT_ONCE:
            yield from self.client.pause(tries - 1, deadline, failure)

    def void(self, write: BucketWrite, now: int, deadline: Deadline) -> Plan[bool]:
        """Make sure of a write whose answer was lost: was it done? If not, it never will be.

        A write that does nothing demands that the write id is not among the recent writers, and moves the baseline. If
        the id is there, the write was done; if the recent writers have moved on since, no client can tell.
        """
        write.void_id = write.void_id or self.write_ids.write_id(now)
        write.untold = False
        tries = 0
        while (snapshot := (yield from self._seen(write, now, deadline))) is not None:
            if write.is_in(snapshot):
                return True
            if write.void_id in snapshot.recent_writers:
                break
            failure = yield from self._try_to_void(write, snapshot, now, deadline)
            if failure is not None:
                tries += 1
                yield from self.pause(tries, deadline, failure)
        # A bucket that is not there cannot keep a write id.
        write.untold = snapshot is None or write.anchor not in snapshot.recent_writers
        self.unresolved += write.weight * write.untold
        write.begin_anew(self.write_ids.write_id(now))
        return False

    def _seen(self, write: BucketWrite, now: int, deadline: Deadline) -> Plan[BucketSnapshot | None]:
        """The bucket of a write as it was last seen, or as it is; ``None``: it is not there."""
        if write.snapshot is None:
            yield from self.look_at([write], now, deadline)
        return write.snapshot

    def _try_to_void(
        self, write: BucketWrite, snapshot: BucketSnapshot, now: int, deadline: Deadline
    ) -> Plan[Refused | NoAnswer | None]:
        """Send the write that voids another one, and see the bucket as it is then. Returns why it was not done."""
        intent = Intent({}, rebase=True, not_written=write.write_id)
        moment = max(now, snapshot.rf + 1)
        params = self.params(write.key, snapshot, intent, moment, write.void_id, deadline)
        (answer,) = yield from self.ask_together([self.call_to_update(params, deadline)])
        if not isinstance(answer, (Refused, NoAnswer)):
            write.snapshot = yield from self.see(write.key, snapshot_of(answer["Attributes"]), now)
            return None
        if isinstance(answer, Refused) and answer.by_condition:
            item = answer.item
            write.snapshot = None if item is None else (yield from self.see(write.key, snapshot_of(item), now))
        elif answer.final if isinstance(answer, NoAnswer) else not answer.by_load:
            raise answer
        return answer

    def look_at(self, unseen: Sequence[BucketWrite], now: int, deadline: Deadline) -> Plan[None]:
        found = yield from self.client.get_all([write.key for write in unseen], deadline)
        again: list[BucketWrite] = []
        for write in unseen:
            item = found.get(write.key)
            if item is None and write.key != (first := shard_key(write.key, 0)):
                write.key = first  # a shard that is gone: the first speaks for it
                cached = self.cache.get(first)
                write.snapshot = None if cached is None else cached.snapshot
                again.append(write)
            elif item is not None:
                snapshot = write.snapshot = yield from self.see(write.key, snapshot_of(item), now)
                if write.doubtful and write.is_in(snapshot):
                    write.done = True
                elif not write.doubtful:
                    write.inc = ""  # somebody else created it: ours was refused
        unseen = [write for write in again if write.snapshot is None]
        if unseen:
            yield from self.look_at(unseen, now, deadline)
