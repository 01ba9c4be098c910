"""Settling what a lease owes, giving back what an acquire took in vain, and filling buckets again for operators.

Each is one logical write with one write id. It is tried until it is surely done. When an answer was lost, the
recent writers tell whether it was done. If they have moved on, nothing can tell: then a debit is booked
again (at worst it is charged twice) and a credit is not (it must never be given twice).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from zae_limiter.bucket import FURTHEST_AHEAD_MS
from zae_limiter.exceptions import NamespaceNotFoundError, RateLimiterUnavailable
from zae_limiter.running.plan import Interrupted, Plan
from zae_limiter.stores.dynamodb.batching import BatchingWriter, note_interrupt
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead, newest
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite, BucketWriter, SeenBucket, WriteEvent
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.config_versions import after_write
from zae_limiter.stores.dynamodb.departures import coming_back
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.intents import Intent, Terms, cascaded_tallies
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.operations.slots import (
    gives_back_only,
    has_no_such_limits,
    left_of,
    let_slots_change,
)
from zae_limiter.stores.dynamodb.requests import READ_MACHINE_TIME, Contended, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, shard_key
from zae_limiter.stores.dynamodb.shards import fits, placed, shared_out
from zae_limiter.stores.dynamodb.slot_work import SettleWork, life_on
from zae_limiter.stores.dynamodb.table_client import Deadline, unavailable
from zae_limiter.stores.dynamodb.write_forms import plain_settlement
from zae_limiter.stores.dynamodb.write_load import WRITE
from zae_limiter.stores.protocol import Leg, Posting, Settlement

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.leases import LeaseRecords


class SettlementWriter:
    """Writes that are not refused for lack of tokens."""

    def __init__(
        self,
        namespace: Namespace,
        resolver: ConfigResolver,
        writer: BucketWriter,
        batching: BatchingWriter,
        propagation: Propagation,
    ) -> None:
        self.client = namespace.client
        self.cache = namespace.cache
        self.write_ids = namespace.write_ids
        self.resolver = resolver
        self.writer = writer
        self.batching = batching
        self.propagation = propagation

    def writes_of(self, ns: str, postings: Sequence[Posting], *, grants: int = 0) -> list[BucketWrite]:
        """One write per bucket; on a sharded one, per shard that paid or lent."""
        writes: list[BucketWrite] = []
        for posting in postings:
            leg, owes = posting.leg, posting.deltas_milli
            if not leg.paid:
                key = bucket_key(ns, leg.entity_id, leg.resource)
                own = [BucketWrite(key, leg, owes, grants=grants)]
            else:
                own = [
                    BucketWrite(bucket_key(ns, part.entity_id, part.resource, shard), part, deltas, grants=grants)
                    for shard, part, deltas in shared_out(leg, owes)
                ]
            if posting.holds or (posting.undo and leg.refused):
                let_slots_change(own, posting, bucket_key(ns, leg.entity_id, leg.resource))
            if posting.holds:
                own = [write for write in own if write.deltas or write.grants or write.work]
            writes += own
        return writes

    def write_all(self, writes: list[BucketWrite], now: int, deadline: Deadline) -> Plan[None]:
        """Do all of them. Raises when time runs out; those that are ``done`` are done.

        What does not fit into its shard becomes further writes, to other shards.
        """
        at_once, failure = True, None
        for write in writes:
            if not write.write_id:
                write.write_id = self.write_ids.write_id(now)
                write.snapshot = self.cache.last_seen(write.key)
            at_once = at_once and not write.done and _needs_no_care(write, now)
        if at_once:
            params_of = partial(self._params, now=now, deadline=deadline)
            yield from self.batching.post(writes, params_of, now, deadline)
            for write in writes:
                if not write.done:
                    at_once, failure = False, self._hear(write) or failure
        if not at_once:
            yield from self._write_with_care(writes, failure, now, deadline)

    def _write_with_care(
        self, writes: list[BucketWrite], failure: Refused | NoAnswer | None, now: int, deadline: Deadline
    ) -> Plan[None]:
        """Do all of them, of which some need more than to be written."""
        rebuilt: dict[Key, Terms] = {}
        yield from self._write_until_done(writes, rebuilt, failure, now, deadline)
        for write in writes:
            if write.inc and write.key in rebuilt:
                with suppress(NamespaceNotFoundError):  # deleted meanwhile; what was booked is booked
                    yield from self.propagation.check_terms_of_new(write.key, rebuilt[write.key], now, deadline)

    def _write_until_done(
        self,
        writes: list[BucketWrite],
        rebuilt: dict[Key, Terms],
        failure: Refused | NoAnswer | None,
        now: int,
        deadline: Deadline,
    ) -> Plan[None]:
        """Do all of them, and note by which terms buckets that were gone are rebuilt."""
        params_of = partial(self._params, now=now, deadline=deadline)
        while pending := [write for write in writes if not write.done]:
            yield from self._resolve_doubts(pending, now, deadline)
            for write in pending:
                if not write.done and write.snapshot is None and not gives_back_only(write):
                    terms = rebuilt[write.key] = yield from self.terms_to_rebuild(write.leg, deadline)
                    if has_no_such_limits(write, terms):
                        continue
                    failure = (yield from self._rebuild(write, terms, now, deadline)) or failure
            alone = yield from self._written_alone(writes, pending, now, deadline)
            if alone:
                yield from self.batching.post(alone, params_of, now, deadline)
            for write in alone:
                failure = self._hear(write) or failure
            tries = max((write.tries for write in writes if not write.done), default=0)
            yield from self.writer.pause(tries, deadline, failure or Contended())

    def _resolve_doubts(self, pending: Sequence[BucketWrite], now: int, deadline: Deadline) -> Plan[None]:
        """See the buckets that are not known, and which of the writes that may have been done were done."""
        unseen = [write for write in pending if write.snapshot is None]
        if unseen:
            yield from self.writer.look_at(unseen, now, deadline)
        for write in pending:
            if write.done or not write.doubtful:
                write.set_anchor()
            elif write.joint or not write.is_possible(now):
                yield from self._make_sure(write, now, deadline)
            elif not (write.inc and write.snapshot is None) and not write.can_be_sure():
                self._forget_doubt(write, now)  # a repeated creation is recognised by what it creates

    def _written_alone(
        self, writes: list[BucketWrite], pending: Sequence[BucketWrite], now: int, deadline: Deadline
    ) -> Plan[list[BucketWrite]]:
        """Those that are written next, each to its own shard; what other shards are to bear joins ``writes``."""
        for write in pending:
            if not write.done and write.snapshot is not None and is_far_ahead(write.snapshot, now):
                write.snapshot = yield from self.propagation.bring_back(write.key, write.snapshot, now, deadline)
        alone: list[BucketWrite] = []
        elsewhere: list[BucketWrite] = []
        for write in pending:
            if write.done or write.snapshot is None or write.inc:
                continue
            write.decide(write.snapshot, now)
            if not write.done:
                (alone if _is_borne(write, write.snapshot, now) else elsewhere).append(write)
        if elsewhere and not alone:
            # One at a time: of two that look for room in the same shards, the second must see what the first has put.
            write = elsewhere[0]
            assert write.snapshot is not None
            others = yield from self._share_out(write, write.snapshot, now, deadline)
            if others is not None:
                writes.extend(others)
                alone = [write, *others]
        return [write for write in alone if not write.done]

    def _share_out(
        self, write: BucketWrite, snapshot: BucketSnapshot, now: int, deadline: Deadline
    ) -> Plan[list[BucketWrite] | None]:
        """Let other shards bear what its own cannot: by writes of their own, or, if it is a debt, with it at once.

        Nothing (``None``): it was written, or is to be looked at again. A shard that a wrong clock has written, and
        that cannot be brought back yet, bears alone what is booked there: what it seems to owe is no debt of the
        others.
        """
        owed = write.leg.limits
        if write.doubtful:
            yield from self._make_sure(write, now, deadline)
            return None
        first = shard_key(write.key, 0)
        family = {} if write.tries else self.cache.family(first)
        known = write.key in family and len(family) == len(self.cache.shards_of(first))
        if not known or placed(write.key, write.deltas, owed, family, now).in_debt:
            found = yield from self.look_at_all_shards(write.key, now, deadline)
            write.snapshot = found.get(write.key)
            if write.snapshot is None or is_far_ahead(write.snapshot, now):
                return None  # it is gone, and the first speaks for it; or it is looked at again
            family = {key: one for key, one in found.items() if not is_far_ahead(one, now)}
        parts, in_debt = placed(write.key, write.deltas, owed, family, now)
        if in_debt:
            yield from self._write_together(write, family, now, deadline)
            return None
        others = []
        for key, deltas in parts.items():
            if key != write.key:
                other = BucketWrite(key, write.leg, deltas)
                other.write_id, other.snapshot = self.write_ids.write_id(now), family[key]
                others.append(other)
        write.deltas, write.snapshot = parts[write.key], family[write.key]
        if not write.deltas and not write.grants and not write.slots and not write.watched:
            write.advance(WriteEvent.NOTHING_LEFT)
        return others

    def look_at_all_shards(self, key: Key, now: int, deadline: Deadline) -> Plan[dict[Key, BucketSnapshot]]:
        """All shards of a bucket that are there, as they are; those that a wrong clock has written go on from now."""
        first = shard_key(key, 0)
        family: dict[Key, BucketSnapshot] = {}
        seen: set[Key] = set()
        while unseen := [shard for shard in self.cache.shards_of(first) if shard not in seen]:
            found = yield from self.client.get_all(unseen, deadline)
            seen.update(unseen)
            for shard, item in found.items():
                snapshot = yield from self.writer.see(shard, snapshot_of(item), now)
                there = yield from self.propagation.bring_back(shard, snapshot, now, deadline)
                if there is not None:
                    family[shard] = there
        return family

    def _write_together(
        self, write: BucketWrite, family: Mapping[Key, BucketSnapshot], now: int, deadline: Deadline
    ) -> Plan[None]:
        """Write to all shards at once what makes a debt of the whole bucket, or changes it.

        All are computed for one moment, and each must be as it was seen: so each owes its share, and all are out of
        debt at the same time.
        """
        owed = write.leg.limits
        # The baseline of a shard that a limit comes back to must move.
        moment = max(
            now, *(snapshot.rf + bool(coming_back(snapshot, write.deltas, owed)) for snapshot in family.values())
        )
        parts, in_debt = placed(write.key, write.deltas, owed, family, moment)
        write.snapshot = family[write.key]
        write.freshen()
        write.decide(write.snapshot, moment)
        write.begin_anew(self.write_ids.write_id(moment))
        write.set_anchor()
        intents = {}
        for key, deltas in parts.items():
            is_home = key == write.key
            grants, counted = (write.grants, write.counted) if is_home else (0, {})
            tallies = cascaded_tallies(write.leg, {**deltas, **counted}, grants)
            intent = Intent(deltas, grants=grants, held=True, exactly=in_debt, owed=owed, tallies=tallies)
            if is_home:
                intent = intent._replace(slots=write.slots, watched=write.watched)
            intents[key] = intent
        updates = [
            {"Update": dict(self.writer.params(key, family[key], intent, moment, write.write_id, deadline))}
            for key, intent in intents.items()
        ]
        doubts: list[NoAnswer] = []
        try:
            reasons = yield from self.client.transact(updates, deadline, doubts)
        except BaseException as failure:
            if doubts or not isinstance(failure, (Refused, NoAnswer)):
                _lose(write)
            raise
        write.tries += 1
        if reasons:
            write.snapshot = None
            if doubts:
                _lose(write)
            else:
                write.begin_anew(self.write_ids.write_id(now))
            return
        write.advance(WriteEvent.ANSWERED)
        for key, intent in intents.items():
            self.cache.see(key, after_write(family[key], intent, moment, write.write_id), now).took(intent.deltas)

    def _make_sure(self, write: BucketWrite, now: int, deadline: Deadline) -> Plan[None]:
        """A lost try of it may have been done, together with others or by a shard that cannot bear it any more: find
        out before it is written in another way."""
        yield from self.writer.void(write, now, deadline)
        if not write.done and write.untold:
            write.let_credits_go()

    def _params(self, write: BucketWrite, now: int, deadline: Deadline) -> UpdateParams:
        snapshot = write.snapshot
        assert snapshot is not None
        unknown = write.work is not None or not write.deltas.keys() <= snapshot.balances.keys()
        if write.doubtful or snapshot.shards > 1 or unknown or not snapshot.is_plain:
            return self._unusual_params(write, snapshot, now, deadline)
        write.anchor = snapshot.recent_writers[0]
        cached = self.cache.buckets.get(write.key)
        refused = 0 if cached is None or not cached.refused else cached.failed(now)
        shape, values = plain_settlement(
            snapshot,
            write.deltas,
            now=now,
            write_id=write.write_id,
            grants=write.grants,
            load=WRITE * (snapshot.kilobytes + refused),
            age_ms=None if cached is None else now - cached.seen_at,
            epoch_s=deadline.epoch_s,
            ttl_margin_s=self.client.ttl_margin_s,
            tallies=write.tallies(),
        )
        return UpdateParams(shape, self.client.table, write.key, values)

    def _unusual_params(
        self, write: BucketWrite, snapshot: BucketSnapshot, now: int, deadline: Deadline
    ) -> UpdateParams:
        """The same where something is unusual (see ``write_forms``)."""
        write.set_anchor()
        sure = write.can_be_sure()
        if write.doubtful and not sure:
            self._forget_doubt(write, now)
        write.decide(snapshot, now)
        return self.writer.params(
            write.key,
            snapshot,
            Intent(
                write.deltas,
                grants=write.grants,
                rebase=sure,
                held=snapshot.shards > 1 and not is_far_ahead(snapshot, now),
                owed=write.leg.limits,
                tallies=write.tallies(),
                slots=write.slots,
                watched=write.watched,
                life=write.work.life if isinstance(write.work, SettleWork) else None,
            ),
            max(now, snapshot.rf + 1) if sure else now,
            write.write_id,
            deadline,
            anchor=write.anchor if sure else None,
        )

    def _forget_doubt(self, write: BucketWrite, now: int) -> None:
        """No client can tell whether the lost try was done: what is taken may be charged twice."""
        self.writer.unresolved += 1
        write.let_credits_go()
        write.begin_anew(self.write_ids.write_id(now))

    def terms_to_rebuild(self, leg: Leg, deadline: Deadline) -> Plan[Terms]:
        """What a bucket that is gone obeys when it comes back."""
        resolved = yield from self.resolver.resolved_with_way(leg.entity_id, leg.resource, deadline, fresh=True)
        terms = resolved.terms()
        return terms if terms is not None and leg.source != "call" else resolved.terms_of(leg)

    def _rebuild(
        self, write: BucketWrite, terms: Terms, now: int, deadline: Deadline
    ) -> Plan[Refused | NoAnswer | None]:
        """Try to rebuild its bucket. Returns what went wrong, if another client was not just faster."""
        self.batching.take_denials_along([write])
        try:
            return (yield from self._create(write, terms, now, deadline))
        finally:
            if write.denials:
                self.batching.keep_denials(write, deadline)

    def _create(
        self, write: BucketWrite, terms: Terms, now: int, deadline: Deadline
    ) -> Plan[Refused | NoAnswer | None]:
        """Put its bucket, with what it takes taken."""
        if isinstance(write.work, SettleWork) and not write.doubtful:
            write.inc = write.inc or self.write_ids.incarnation()
            write.work.begin_life(terms.leg.limits, life_on(0, write.inc), now)
        call = self.writer.call_to_create(write, terms, now, deadline)
        try:
            (answer,) = yield from self.writer.ask_together([call])
        except Interrupted as stop:
            note_interrupt(stop, (write,))
            raise
        write.note(answer)
        write.tries += 1
        if not isinstance(answer, (Refused, NoAnswer)):
            yield from self.writer.see(write.key, snapshot_of(call.params["Item"]), now)
            return None
        if isinstance(answer, Refused) and answer.by_condition:
            if answer.item is not None:
                write.snapshot = yield from self.writer.see(write.key, snapshot_of(answer.item), now)
                write.freshen()
                self._recognise(write)
            return None
        return self._or_raise(answer)

    def _hear(self, write: BucketWrite) -> Refused | NoAnswer | None:
        """What became of one try. Returns what went wrong, if it was not just a wrong guess."""
        write.tries += 1
        result = write.result
        if isinstance(result, SeenBucket):
            write.snapshot = result.snapshot
            write.freshen()
            self._recognise(write)
            return None
        assert result is not None
        return self._or_raise(result)

    def _recognise(self, write: BucketWrite) -> None:
        if write.snapshot is not None and write.recognise(write.snapshot):
            self.writer.remember_own(write)

    def _or_raise(self, failure: Refused | NoAnswer) -> Refused | NoAnswer:
        """A failure after which the same may be tried again; any other is raised."""
        if isinstance(failure, NoAnswer):
            if failure.final:
                raise failure
        elif not (failure.by_throttling or failure.by_conflict):
            raise failure
        return failure


def _is_borne(write: BucketWrite, snapshot: BucketSnapshot, now: int) -> bool:
    """Whether its own shard bears what is booked: it has room for it, or a wrong clock has written to it."""
    if snapshot.shards == 1:
        return True
    return fits(snapshot, write.deltas, write.leg.limits, now) or is_far_ahead(snapshot, now)


def _lose(write: BucketWrite) -> None:
    """The answer to a transaction that has it was lost."""
    write.joint = True
    write.advance(WriteEvent.LOST)


def _needs_no_care(write: BucketWrite, now: int) -> bool:
    """Whether a write can be sent as it is: to a bucket that is known and undivided, and as its first try."""
    snapshot = write.snapshot
    if snapshot is None or snapshot.shards > 1 or write.doubtful or write.inc:
        return False
    return newest(snapshot) <= now + FURTHEST_AHEAD_MS


class Settlements:
    """The verbs that change buckets without asking whether they may."""

    def __init__(self, namespace: Namespace, settling: SettlementWriter, leases: LeaseRecords) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.cache = namespace.cache
        self.settling = settling
        self.leases = leases

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        """Book after the fact, on every leg at once; with the record of the lease, if it has one."""
        if settlement is not None and settlement.change is not None:
            return self.leases.settle(postings, now, settlement.change, settlement)
        return self._settle(postings, now, settlement)

    def _settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None) -> Plan[None]:
        """Book without a record.

        When time runs out, the error says whether any of it may have been booked: then a credit must not be
        repeated, and a debit must.
        """
        deadline = self.client.deadline_from((yield READ_MACHINE_TIME))
        writes = []
        try:
            ns = self.namespace.known_ns
            if ns is None:
                ns = yield from self.namespace.checked_ns(deadline)
            writes = self.settling.writes_of(ns, postings)
            if deadline.checked:
                now = self.cache.corrected(now, deadline.clock_error_ms)
            else:
                now, deadline = yield from self.namespace.checked_time(now, deadline)
            yield from self.settling.write_all(writes, now, deadline)
        except Exception as failure:
            if isinstance(failure, (Refused, NoAnswer)):
                error = unavailable(failure)
            else:
                error = RateLimiterUnavailable(f"could not book: {failure}")
            error.ambiguous = any(write.done or write.doubtful or write.maybe_done for write in writes)
            self.settling.writer.unresolved += any(write.doubtful and not write.done for write in writes)
            if writes:
                error.remaining = left_of(writes)
            raise error from (failure.__cause__ or failure)
        except BaseException:  # an interrupt between two calls, or in one
            if settlement is not None and writes:
                self.settling.writer.unresolved += any(write.doubtful and not write.done for write in writes)
                settlement.postings = left_of(writes)
            raise
        for write in writes:
            if write.gives_back:
                self.cache.forget_denials((shard_key(write.key, 0),))
