"""One logical write to a bucket: what it is to book, how far it is, and what becomes of it.

A write is tried until it is surely done or surely not. Every try has the write id of the write, and every bucket
remembers the ids of its recent writers: a write that is done cannot be done twice, and a client whose answer was lost
finds there whether it was done. The *anchor* of a try is an id that was there before. While the anchor is still there
the recent writers have not moved on, and then the absence of the write id says as much as its presence.

=============================================================  =========  ========  ====
event                                                          from OPEN  IN_DOUBT  DONE
=============================================================  =========  ========  ====
ANSWERED: DynamoDB did the last try                            DONE       DONE      DONE
REFUSED: by a condition or by load, the last try was not done  OPEN       IN_DOUBT  DONE
NOT_SENT: the last try never left this client                  OPEN       IN_DOUBT  DONE
LOST: the last try may have arrived, and has no answer         IN_DOUBT   IN_DOUBT  DONE
SEEN: its id is among the recent writers, or its life began    DONE       DONE      DONE
EXCLUDED: another client began the life it was to begin        OPEN       OPEN      DONE
BEGUN_ANEW: it was voided or given up, and has another id now  OPEN       OPEN      DONE
NOTHING_LEFT: what it still had to do is done elsewhere        DONE       DONE      DONE
GIVEN_BACK: what it took was booked back                       OPEN       OPEN      OPEN
=============================================================  =========  ========  ====

A refusal says nothing of an earlier try that was lost, so doubt outlives it. There are three ways out of doubt:

- The bucket shows the write id: SEEN. :meth:`BucketWriter.result` and :meth:`BucketWriter.look_at` bring the bucket.
- It is repeated with the same id while the anchor is there, by a write that moves the baseline: whichever of the two
  tries comes second is refused (:meth:`BucketWrite.can_be_sure`).
- It is *voided*: :meth:`BucketWriter.void` moves the baseline by a write that does nothing but demand that the id is
  absent. Then the lost try can never be done, and the write begins anew, with another id.

If the recent writers have moved on, no client can tell whether the lost try was done. The write begins anew all the
same: what it takes may be charged twice, and what it gives back is let go (:meth:`BucketWrite.let_credits_go`, after
which ``maybe_done`` says that the caller cannot be told for sure).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from zae_limiter.running.plan import READ_CLOCK, CutShort, Plan, WakeUp
from zae_limiter.stores.dynamodb.bucket_cache import CachedBucket
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.intents import (
    NO_SLOTS,
    NONE_WATCHED,
    NOTHING,
    Intent,
    SlotMoves,
    Terms,
    Watched,
    cascaded_tallies,
    denial_tallies,
)
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.requests import Answer, Call, NoAnswer, Refused, Together
from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.dynamodb.slot_work import SettleWork, Work
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.dynamodb.write_forms import new_item, update
from zae_limiter.stores.dynamodb.write_load import load_of
from zae_limiter.stores.protocol import Leg


class WriteState(Enum):
    """How far a write is."""

    OPEN = auto()
    """No try of it was done: it may be sent as it is, alone or together with others."""
    IN_DOUBT = auto()
    """The answer to a try was lost: it may have been done, or be done when it arrives late."""
    DONE = auto()
    """It was done, or there is nothing left of it to do."""


class WriteEvent(Enum):
    """What can become known of a write."""

    ANSWERED = auto()
    REFUSED = auto()
    NOT_SENT = auto()
    LOST = auto()
    SEEN = auto()
    EXCLUDED = auto()
    BEGUN_ANEW = auto()
    NOTHING_LEFT = auto()
    GIVEN_BACK = auto()


OPEN, IN_DOUBT, DONE = WriteState

TRANSITIONS: Final[Mapping[WriteEvent, Mapping[WriteState, WriteState]]] = {
    WriteEvent.ANSWERED: {OPEN: DONE, IN_DOUBT: DONE, DONE: DONE},
    WriteEvent.REFUSED: {OPEN: OPEN, IN_DOUBT: IN_DOUBT, DONE: DONE},
    WriteEvent.NOT_SENT: {OPEN: OPEN, IN_DOUBT: IN_DOUBT, DONE: DONE},
    WriteEvent.LOST: {OPEN: IN_DOUBT, IN_DOUBT: IN_DOUBT, DONE: DONE},
    WriteEvent.SEEN: {OPEN: DONE, IN_DOUBT: DONE, DONE: DONE},
    WriteEvent.EXCLUDED: {OPEN: OPEN, IN_DOUBT: OPEN, DONE: DONE},
    WriteEvent.BEGUN_ANEW: {OPEN: OPEN, IN_DOUBT: OPEN, DONE: DONE},
    WriteEvent.NOTHING_LEFT: {OPEN: DONE, IN_DOUBT: DONE, DONE: DONE},
    WriteEvent.GIVEN_BACK: {OPEN: OPEN, IN_DOUBT: OPEN, DONE: OPEN},
}


class SeenBucket(NamedTuple):
    """The bucket as it is now (``None``: it is not there), and whether the write was done."""

    snapshot: BucketSnapshot | None
    done: bool


WriteResult: TypeAlias = SeenBucket | Refused | NoAnswer
"""What became of a write. ``Refused`` is never for a condition: that is ``SeenBucket``, and not done."""


class BucketWrite:
    """Something to book on one bucket, and how far that is.

    Its state is kept as two flags, because a warm acquire reads them without a call: ``done``, and ``doubtful``, which
    says nothing of a write that is done. :meth:`advance` moves them as :data:`TRANSITIONS` says, and nothing else does
    but :meth:`BatchingWriter.post`, for the event that nearly every write meets.
    """

    key: Key
    leg: Leg
    deltas: Mapping[str, int]

    # How every write begins.
    grants = 0
    snapshot: BucketSnapshot | None = None
    write_id = ""
    inc = ""
    """The life of the bucket that it is to begin, if there is none."""
    void_id = ""
    """The write id of the write that voids it."""
    done = False
    doubtful = False
    joint = False
    """Its write id is that of a write for several callers, or to several shards: its id does not say that it was done
    alone."""
    untold = False
    """The last attempt to void it could not tell whether the lost try was done."""
    maybe_done = False
    """A lost try of it may have been done, and what is tried since is another write."""
    anchor: str | None = None
    """A write id that was among the recent writers before it can have been done."""
    tries = 0
    needed: Mapping[str, int] | None = None
    """What the bucket must hold, if it is a draw."""
    weight = 1
    """How many callers it stands for."""
    now = 0
    """The time it was last computed for."""
    queue: object = None
    """The queue it leads, if it is its turn to write."""
    give_up_at = 0
    """Until when it waits in a queue, machine time."""
    wake_up: WakeUp | None = None
    """Wakes its caller when it is its turn, or when the leader of the queue has written for it."""
    result: WriteResult | None = None
    denials: Mapping[str, int] = NOTHING
    """Denials by its bucket that it writes along."""
    usage: Mapping[str, int] | None = None
    """What it counts, where that is not what it takes."""
    work: Work | None = None
    """What it does to calls in flight, and what limits that only watch say to it; most have none to do with."""

    def __init__(self, key: Key, leg: Leg, deltas: Mapping[str, int], *, grants: int = 0) -> None:
        self.key = key
        self.leg = leg
        self.deltas = deltas
        self.grants = grants

    def tallies(self) -> Mapping[str, int]:
        """What it counts beside what it takes (see ``intents``)."""
        leg, work = self.leg, self.work
        counted = self.deltas if self.usage is None else self.usage
        if work is not None:
            counted = {**counted, **work.counted}
        cascaded = NOTHING if leg.cascaded is None else cascaded_tallies(leg, counted, self.grants)
        return {**cascaded, **denial_tallies(self.denials)} if self.denials else cascaded

    @property
    def state(self) -> WriteState:
        """How far it is."""
        return DONE if self.done else IN_DOUBT if self.doubtful else OPEN

    def advance(self, event: WriteEvent) -> None:
        """Go to the state that an event leads to."""
        before = self.state
        state = TRANSITIONS[event][before]
        self.done, self.doubtful = state is DONE, state is IN_DOUBT
        if self.work is not None and self.done and before is not DONE:
            self.work.note_done()

    def may_join(self, snapshot: BucketSnapshot) -> bool:
        """Whether it can be written together with others."""
        work = self.work
        if isinstance(work, SettleWork) and work.life not in (None, snapshot.inc):
            return False
        return not (self.doubtful or self.done or self.inc)

    def set_anchor(self) -> None:
        """Note the newest of the recent writers before the next try: while it is there, they have not moved on."""
        if not self.doubtful and self.snapshot is not None:
            self.anchor = self.snapshot.recent_writers[0]

    def note(self, answer: Answer | None) -> None:
        """What must be known of an answer before anything else can go wrong; ``None``: it was never heard."""
        if answer is None:
            self.advance(WriteEvent.LOST)
        elif isinstance(answer, NoAnswer):
            self.advance(WriteEvent.LOST if answer.sent else WriteEvent.NOT_SENT)
        else:
            self.advance(WriteEvent.REFUSED if isinstance(answer, Refused) else WriteEvent.ANSWERED)

    def is_in(self, snapshot: BucketSnapshot) -> bool:
        """Whether a bucket shows that it was done: by its write id, or by the life it began."""
        return self.write_id in snapshot.recent_writers or snapshot.inc == self.inc

    def recognise(self, snapshot: BucketSnapshot) -> bool:
        """Whether a bucket, as it was seen, shows that a try of it was done whose answer was lost."""
        if self.done:
            return False
        if self.is_in(snapshot):
            self.advance(WriteEvent.SEEN)
            return True
        if self.inc:  # another client created the bucket: ours was not done
            self.advance(WriteEvent.EXCLUDED)
            self.inc = ""
        return False

    def can_be_sure(self) -> bool:
        """Whether a try whose answer was lost can be repeated so that only one of the two is ever done.

        The anchor must still be among the recent writers: then the try was done only if its write id is there too. And
        the repetition must move the baseline: then the try, if it is still under way, is refused when it arrives.
        """
        snapshot = self.snapshot
        return self.doubtful and snapshot is not None and self.anchor in snapshot.recent_writers

    def begin_anew(self, write_id: str) -> None:
        """The next try is another write, with a write id of its own: no id is ever applied twice."""
        self.advance(WriteEvent.BEGUN_ANEW)
        self.write_id, self.inc, self.void_id, self.joint = write_id, "", "", False

    def let_credits_go(self) -> None:
        """No client can tell whether a lost try was done: what could come back twice does not come back at all."""
        self.maybe_done = True
        self.deltas = {name: delta for name, delta in self.deltas.items() if delta > 0}
        self.grants = max(self.grants, 0)
        self.denials = NOTHING
        is_left = self.work is not None and self.work.let_go()
        if not self.deltas and not self.grants and not is_left:
            self.advance(WriteEvent.NOTHING_LEFT)

    def left(self) -> Mapping[str, int]:
        """What is to be booked again: of what may have been done, only what may be done twice."""
        if self.done:
            return {}
        return {name: delta for name, delta in self.deltas.items() if delta > 0 or not self.doubtful}

    @property
    def gives_back(self) -> bool:
        return min(self.deltas.values(), default=0) < 0 or (self.work is not None and self.work.gives_back)

    @property
    def counted(self) -> Mapping[str, int]:
        """What it counts of calls in flight."""
        return NOTHING if self.work is None else self.work.counted

    @property
    def slots(self) -> Mapping[str, SlotMoves]:
        """What it does to calls in flight."""
        return NO_SLOTS if self.work is None else self.work.slots

    @property
    def watched(self) -> Mapping[str, Watched]:
        """What limits that only watch say to it."""
        return NONE_WATCHED if self.work is None else self.work.watched

    def decide(self, snapshot: BucketSnapshot, now: int) -> None:
        """Decide what it does to calls in flight, by a bucket as it was seen; what is in doubt stays as it was."""
        if isinstance(self.work, SettleWork) and not self.doubtful:
            self.work.decide(snapshot, now)
            if self.work.fresh and self.work.does_nothing and not self.deltas and not self.grants:
                self.advance(WriteEvent.NOTHING_LEFT)

    def is_possible(self, now: int) -> bool:
        """Whether what is in doubt can be repeated as it was."""
        work, snapshot = self.work, self.snapshot
        return not isinstance(work, SettleWork) or snapshot is None or work.is_possible(snapshot)

    def freshen(self) -> None:
        """Its bucket was seen since it began: what that says of holds is so."""
        if isinstance(self.work, SettleWork):
            self.work.fresh = True


TRIES_AT_ONCE = 2
"""So often a refused write is repeated at once, with the snapshot the refusal brought; later ones wait a little."""


class BucketWriter:
    """From an intent to a write, and from its answer to a result."""

    def __init__(self, namespace: Namespace) -> None:
        self.client = namespace.client
        self.cache = namespace.cache
        self.write_ids = namespace.write_ids
        self.denials = namespace.denials
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
        params.returns_new = True
        return Call("UpdateItem", params, deadline.give_up_at)

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
            tallies=write.tallies(),
            slots=write.slots,
            watched=write.watched,
            usage=write.usage,
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
        try:
            return (yield from Together(calls)) if len(calls) > 1 else [(yield from calls[0])]
        except (Refused, NoAnswer) as failure:
            return [failure] * len(calls)
        except CutShort as cut:
            return [NoAnswer(str(cut))] * len(calls)

    # Hearing

    def result(self, key: Key, answer: Answer, now: int, taken: Mapping[str, int] = NOTHING) -> Plan[WriteResult]:
        """What an answer says, once the snapshot it brings is remembered, and that this client has ``taken`` that."""
        if isinstance(answer, NoAnswer):
            return answer
        if not isinstance(answer, Refused):
            written = self.cache.see_own(key, answer, taken, now)
            if written.newest > now:
                yield from self.compare_clocks(written, now)
            return SeenBucket(written.snapshot, True)
        if not answer.by_condition:
            if answer.by_load:
                self.client.note_load(answer)
            return answer
        if answer.item is None:
            self.cache.forget(key)
            return SeenBucket(None, False)
        cached = self.cache.get(key)
        before = None if cached is None else cached.snapshot
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
        while True:
            if write.snapshot is None:
                yield from self.look_at([write], now, deadline)
            snapshot = write.snapshot
            if snapshot is None:
                break
            if write.is_in(snapshot):
                write.advance(WriteEvent.SEEN)
                return True
            if write.void_id in snapshot.recent_writers:
                break
            failure = yield from self._try_to_void(write, snapshot, now, deadline)
            if failure is not None:
                tries += 1
                yield from self.pause(tries, deadline, failure)
        # A bucket that is not there cannot keep a write id.
        write.untold = snapshot is None or write.anchor not in snapshot.recent_writers
        if write.untold:
            self.unresolved += write.weight
            write.denials = NOTHING  # they may have been counted
        write.begin_anew(self.write_ids.write_id(now))
        return False

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
                write.snapshot = self.cache.last_seen(first)
                again.append(write)
            elif item is not None:
                snapshot = write.snapshot = yield from self.see(write.key, snapshot_of(item), now)
                write.freshen()
                if not write.doubtful:
                    write.inc = ""  # another client created it: ours was refused
                elif write.is_in(snapshot):
                    write.advance(WriteEvent.SEEN)
        unseen = [write for write in again if write.snapshot is None]
        if unseen:
            yield from self.look_at(unseen, now, deadline)
