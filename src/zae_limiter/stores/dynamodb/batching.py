"""Batching: one write for all callers of this process who write to the same bucket.

A write to a bucket that has none in flight goes out at once. Otherwise it waits in the bucket's queue, and one of
those who wait writes for all of them (``batches``). Either way each gets a result of its own: done, or not done and
how the bucket is, or why that is not known. A lost answer to a joint write is resolved by its leader for all before it
is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from zae_limiter.running.plan import CutShort, Interrupted, Plan
from zae_limiter.stores.dynamodb.batches import Batch, batch_of
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.bucket_write import (
    TRIES_AT_ONCE,
    BucketWrite,
    BucketWriter,
    SeenBucket,
    WriteEvent,
    WriteResult,
)
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.intents import NOTHING
from zae_limiter.stores.dynamodb.requests import Answer, AwaitNews, Call, DeadlineOver, NoAnswer, Refused, Together
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.dynamodb.write_queue import GRACE_MS, WriteQueues

LONGEST_WRITE_ROUNDS = 3
"""So many times the grace a caller waits for the leader that writes for it, once that has begun."""

AnyWrite = TypeVar("AnyWrite", bound=BucketWrite)


class Beside(NamedTuple):
    """A read that goes out with writes, and who hears the answer."""

    call: Call
    hear: Callable[[Answer], None]


class LeaderLost(NoAnswer):
    """The leader that wrote for this caller did not come back in time. It may have been done."""

    final = True


class BatchingWriter:
    """Writes to buckets, one result each."""

    def __init__(self, writer: BucketWriter, *, coalesce: bool) -> None:
        self.writer = writer
        self.cache = writer.cache
        self.write_ids = writer.write_ids
        self.denials = writer.denials
        self.coalesce = coalesce
        self.queues = WriteQueues()

    def post(
        self,
        writes: Sequence[AnyWrite],
        params_of: Callable[[AnyWrite], UpdateParams],
        now: int,
        deadline: Deadline,
        beside: Beside | None = None,
    ) -> Plan[None]:
        """Write all of them, each to a bucket that exists. Each has its result then.

        ``params_of`` makes the request of a write that goes out alone. What is to be read ``beside`` goes out with
        those that need not wait; if all have to, it is left to the next caller.
        """
        leading, waiting = writes, list[AnyWrite]()
        if self.denials.unwritten:
            self.take_denials_along(writes)
        try:
            try:
                if self.coalesce:
                    leading = []
                    for write in writes:
                        is_free = self.queues.lead_if_free(write, deadline.started, deadline.give_up_at)
                        (leading if is_free else waiting).append(write)
                if leading:
                    yield from self._send(leading, params_of, now, deadline, beside)
            finally:
                for write in writes:
                    if write.queue is not None:
                        self.queues.leave(write)
            # One after the other: a caller that leads one queue must not be waiting in another.
            for write in waiting:
                yield from self._post_in_turn(write, params_of, now, deadline)
        finally:
            for write in writes:
                if write.denials:
                    self.keep_denials(write, deadline)

    def take_denials_along(self, writes: Sequence[BucketWrite]) -> None:
        """Let these write the denials by their buckets that are not written yet."""
        for write in writes:
            if not (write.denials or write.doubtful):
                write.denials = self.denials.take(write.key)

    def keep_denials(self, write: BucketWrite, deadline: Deadline) -> None:
        """The denials of a write that was not done are written later; while that is in doubt they stay with it."""
        if write.doubtful and not write.done:
            return
        if not write.done:
            self.denials.add(write.key, write.leg, write.denials, deadline.started)
        write.denials = NOTHING

    def _post_in_turn(
        self, write: AnyWrite, params_of: Callable[[AnyWrite], UpdateParams], now: int, deadline: Deadline
    ) -> Plan[None]:
        write.now = now
        leads = self.queues.enter(write, deadline.started, deadline.give_up_at)
        if not leads:
            leads = yield from self._wait_in_line(write, deadline)
        if not leads:
            return
        try:
            snapshot = self.cache.last_seen(write.key) or write.snapshot
            if snapshot is None or write.write_id in snapshot.recent_writers or not _is_like(snapshot, write):
                # The bucket changed while it waited: its caller decides again.
                if snapshot is not None and write.write_id in snapshot.recent_writers:
                    write.advance(WriteEvent.SEEN)
                write.result = SeenBucket(snapshot, write.done)
                return
            write.snapshot = snapshot
            followers: list[BucketWrite] = []
            if write.queue is not None and write.may_join(snapshot):
                followers = self.queues.take_joinable(write, lambda other: other.may_join(snapshot))
            if followers:
                yield from self._write_for_all([write, *followers], snapshot, deadline)
            else:
                yield from self._send((write,), params_of, now, deadline)
        finally:
            self.queues.leave(write)

    def _wait_in_line(self, write: BucketWrite, deadline: Deadline) -> Plan[bool]:
        """Until it is its turn (then it leads) or another caller has written for it.

        The event loop of a leader may have been stopped. So when a quarter of its time is left it waits no longer, and
        writes alone without leading a queue: its write is as conditional as any.
        """
        wake_up, stop = write.wake_up, None
        assert wake_up is not None
        rounds = -1
        patient_until = deadline.give_up_at - (deadline.give_up_at - deadline.started) // 4
        while write.queue is None and write.result is None:
            try:
                yield from AwaitNews(wake_up, patient_until if rounds < 0 else deadline.give_up_at + rounds * GRACE_MS)
                rounds += 1
            except Interrupted as interrupt:
                stop = interrupt
            except CutShort:
                continue
            except BaseException:  # the caller is gone
                self._leave_line(write)
                raise
            if wake_up.is_set:
                continue
            if self.queues.withdraw(write):
                if rounds == 0 and stop is None:
                    return True
                write.result = DeadlineOver()
            elif rounds > LONGEST_WRITE_ROUNDS and write.queue is None and write.result is None:
                write.advance(WriteEvent.LOST)
                write.result = LeaderLost("the caller that wrote for this one never came back")
        if stop is not None:
            self._leave_line(write)
            raise stop
        return write.queue is not None

    def _leave_line(self, write: BucketWrite) -> None:
        if not self.queues.withdraw(write) and write.queue is not None:
            self.queues.leave(write)

    # Writing

    def _send(
        self,
        writes: Sequence[AnyWrite],
        params_of: Callable[[AnyWrite], UpdateParams],
        now: int,
        deadline: Deadline,
        beside: Beside | None = None,
    ) -> Plan[None]:
        """Send these writes, each alone and all at the same time; it is their turn."""
        calls = []
        for write in writes:
            params = params_of(write)
            params.returns_new = True
            calls.append(Call("UpdateItem", params, deadline.give_up_at))
        if beside is not None:
            calls.append(beside.call)
        answers: Sequence[Answer]
        try:
            try:
                answers = (yield Together(calls)) if len(calls) > 1 else ((yield calls[0]),)
            except (Refused, NoAnswer, CutShort) as failure:
                answers = [NoAnswer(str(failure)) if isinstance(failure, CutShort) else failure] * len(calls)
            for write, answer in zip(writes, answers, strict=False):
                if isinstance(answer, (Refused, NoAnswer)):
                    write.note(answer)
                else:
                    write.done, write.doubtful = True, False  # ANSWERED, as nearly all are
                    if write.work is not None:
                        write.work.note_done()
        except BaseException as stop:
            note_interrupt(stop, writes, len(calls))
            raise
        for write, answer in zip(writes, answers, strict=False):
            write.now = now
            write.result = yield from self.writer.result(write.key, answer, now, write.deltas)
        if beside is not None:
            beside.hear(answers[-1])

    def _write_for_all(
        self, writes: Sequence[BucketWrite], snapshot: BucketSnapshot, deadline: Deadline
    ) -> Plan[None]:
        """One write for all of them, whose leader is the first."""
        in_flight: list[BucketWrite] = []
        try:
            yield from self._write_batches(list(writes), snapshot, in_flight, deadline)
        finally:
            for write in writes:
                if write.result is None and write is not writes[0]:  # an unforeseen error
                    if any(write is one for one in in_flight):
                        write.advance(WriteEvent.LOST)
                    write.result = LeaderLost("the caller that wrote for this one is gone")
                if write.wake_up is not None:
                    write.wake_up.wake()

    def _write_batches(
        self, pending: list[BucketWrite], snapshot: BucketSnapshot, in_flight: list[BucketWrite], deadline: Deadline
    ) -> Plan[None]:
        """Write as many of them as fit together, and again those that a wrong guess left out."""
        now = max(write.now for write in pending)
        for write in pending:
            write.result = None
        stop: Interrupted | None = None
        tries = 0
        while pending:
            cached = self.cache.get(pending[0].key)
            guesses = {} if tries or cached is None else cached.guesses(now)
            batch = batch_of(snapshot, pending, now, guesses)
            in_flight[:] = batch.writes
            result, stop = yield from self._write_batch(batch, snapshot, now, deadline, guess=not tries)
            in_flight.clear()
            tries += 1
            if not isinstance(result, SeenBucket):
                self._tell(pending, result, now)
                break
            again: Sequence[BucketWrite] = ()
            if result.done:
                self._tell(batch.writes, result, now)
            elif result.snapshot is not None and stop is None and tries <= TRIES_AT_ONCE:
                snapshot = result.snapshot
                for write in pending:
                    write.freshen()
                again = batch_of(snapshot, [one for one in pending if one.may_join(snapshot)], now, {}).writes
            told = {id(write) for write in (*again, *(batch.writes if result.done else ()))}
            self._tell([one for one in pending if id(one) not in told], result._replace(done=False), now)
            pending = list(again)
        if stop is not None:
            raise stop

    def _write_batch(
        self, batch: Batch, snapshot: BucketSnapshot, now: int, deadline: Deadline, *, guess: bool
    ) -> Plan[tuple[WriteResult, Interrupted | None]]:
        """One write for a batch, made sure of if its answer is lost; and the interrupt that came meanwhile, if any."""
        key, write_id, stop = batch.writes[0].key, self.write_ids.write_id(now), None
        params = self.writer.params(key, snapshot, batch.intent, now, write_id, deadline, guess=guess)
        for write in batch.writes:  # should the answer be lost, this is what to look for
            write.write_id, write.anchor, write.joint = write_id, snapshot.recent_writers[0], True
        try:
            (answer,) = yield from self.writer.ask_together([self.writer.call_to_update(params, deadline)])
        except Interrupted as interrupt:
            stop = interrupt
            answer = answers_of(stop, 1)[0] or NoAnswer("interrupted")
        answered = not isinstance(answer, (Refused, NoAnswer))
        if answered:
            for write in batch.writes:
                self.writer.remember_own(write)
        result = yield from self.writer.result(key, answer, now)
        if isinstance(result, NoAnswer) and result.sent:
            result = yield from self._resolve(batch, snapshot, write_id, now, deadline, result)
        if isinstance(result, SeenBucket) and result.done:
            for write in batch.writes:
                write.advance(WriteEvent.ANSWERED)
                if not answered:
                    self.writer.remember_own(write)
        return result, stop

    def _tell(self, writes: Sequence[BucketWrite], result: WriteResult, now: int) -> None:
        for write in writes:
            if not write.done and not write.doubtful:
                write.begin_anew(self.write_ids.write_id(write.now))  # by its own now, not by that of all
            write.now = now
            write.result = result
            if isinstance(result, NoAnswer) and result.final and not result.sent and write.queue is None:
                write.result = NoAnswer(str(result), sent=False)  # the leader's time is over, perhaps not theirs

    def _resolve(
        self, batch: Batch, snapshot: BucketSnapshot, write_id: str, now: int, deadline: Deadline, silence: NoAnswer
    ) -> Plan[WriteResult]:
        """Make sure of a joint write whose answer was lost, for every caller in it.

        If the recent writers have moved on no client can tell: what is taken may be charged twice, and nothing comes
        back twice.
        """
        first = batch.writes[0]
        whole = BucketWrite(first.key, first.leg, {})
        whole.write_id, whole.snapshot, whole.anchor = write_id, snapshot, snapshot.recent_writers[0]
        whole.advance(WriteEvent.LOST)
        whole.weight = len(batch.writes)
        for write in batch.writes:
            write.advance(WriteEvent.LOST)
        try:
            done = yield from self.writer.void(whole, now, deadline)
        except (Refused, NoAnswer):
            return LeaderLost(str(silence))
        for write in batch.writes:
            write.begin_anew(self.write_ids.write_id(write.now))
            if whole.untold:
                write.let_credits_go()
        return SeenBucket(whole.snapshot, done)


def _is_like(snapshot: BucketSnapshot, write: BucketWrite) -> bool:
    """Whether the bucket still is what the write was decided for."""
    before = write.snapshot
    return before is None or (snapshot.cv, snapshot.shards) == (before.cv, before.shards)


def note_interrupt(stop: BaseException, writes: Sequence[BucketWrite], calls: int | None = None) -> None:
    """An interrupt came while so many calls were in flight, the first of them these writes: what they answered still
    counts."""
    for write, answer in zip(writes, answers_of(stop, calls or len(writes)), strict=False):
        write.note(answer)


def answers_of(stop: BaseException, count: int) -> Sequence[Answer | None]:
    """What the calls in flight answered when an interrupt came; ``None`` where that is unknown.

    An interrupt may come between any two lines: then an answer that has arrived may not have been noted.
    """
    if not isinstance(stop, Interrupted):
        return [None] * count
    heard: Any = stop.reply if stop.error is None else stop.error
    if count == 1 and isinstance(heard, (Mapping, Refused, NoAnswer)):
        return [heard]
    if isinstance(heard, (list, tuple)) and len(heard) == count:
        return heard
    return [None] * count
