"""From an intent to a write, from its answer to a result, and out of doubt. ``bucket_write`` has the theory."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.running.plan import READ_CLOCK, CutShort, Plan
from zae_limiter.stores.dynamodb.bucket_cache import CachedBucket
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite, SeenBucket, WriteEvent, WriteResult
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.intents import NOTHING, Intent, Terms
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.requests import Answer, Call, NoAnswer, Refused, Together
from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.dynamodb.write_forms import new_item, update
from zae_limiter.stores.dynamodb.write_load import load_of

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
        """What an answer says, once the snapshot it brings is remembered."""
        if isinstance(answer, NoAnswer):
            return answer
        if not isinstance(answer, Refused):
            written = self.cache.see_own(key, answer, NOTHING, now)
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
        while (snapshot := (yield from self._seen(write, now, deadline))) is not None:
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
