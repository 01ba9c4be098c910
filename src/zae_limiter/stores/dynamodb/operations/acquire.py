"""Acquire: one conditional write per bucket, all of them or none.

The path of one acquire: resolve the terms (remembered), guess from the buckets as they were last seen (remembered),
write every leg. A refused write brings the bucket as it is, and with it either the right guess or the denial. Legs
are written independently, together when all look healthy and the child first otherwise, and given back when another
leg lacks.

A bucket that is not there begins its life as part of the acquire: one alone is put with what was taken already
taken. With other legs everything goes into one transaction, so that no other caller is denied for the sake of an
acquire that may still fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from zae_limiter.bucket import MILLI, Balance
from zae_limiter.models.status import LimitStatus
from zae_limiter.running.plan import Interrupted, Plan
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead, newest
from zae_limiter.stores.dynamodb.bucket_writer import TRIES_AT_ONCE, BucketWrite, answers_of
from zae_limiter.stores.dynamodb.config_resolver import Prefetched
from zae_limiter.stores.dynamodb.config_versions import adopted, after_taking, due_at, is_fence, lacking
from zae_limiter.stores.dynamodb.items import snapshot_of
from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg, Acquirer, AcquireState
from zae_limiter.stores.dynamodb.operations.acquire_sharded import (
    THROTTLES_BORNE,
    adopt_all,
    bring_back,
    choose_shard,
    divide,
    look_at_all,
    look_elsewhere,
    meets_newer_terms,
    relieve_hot,
)
from zae_limiter.stores.dynamodb.requests import CONDITION_FAILED, READ_MACHINE_TIME, Contended, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key
from zae_limiter.stores.dynamodb.table_client import verb
from zae_limiter.stores.dynamodb.write_load import is_overloaded
from zae_limiter.stores.limit_statuses import denial, statuses_of
from zae_limiter.stores.protocol import Denial, Draw, Grant, Leg, Outcome


def create(acquire: AcquireState) -> Plan[None]:
    """Begin the life of the buckets that are not there; with others, in one transaction."""
    if any(leg.payers for leg in acquire.legs):
        yield from _create_untouched(acquire)
        return
    if any(leg.done or (leg.doubtful and not leg.inc) for leg in acquire.legs):
        yield from acquire.undo(acquire.whole)
        if any(leg.snapshot is None and leg.key != leg.first for leg in acquire.legs):
            return  # the shard is gone: a bucket begins with its first
    space = acquire.space
    if len(acquire.legs) == 1:
        leg = acquire.legs[0]
        call = space.writer.call_to_create(leg, leg.terms, acquire.now, acquire.deadline)
        acquire.flight = acquire.legs
        (answer,) = yield from space.writer.ask_together([call])
        leg.note(answer)
        acquire.flight = ()  # not before: an interrupt may come between any two lines
        if not isinstance(answer, (Refused, NoAnswer)):
            answer = {"Attributes": call.params["Item"]}
        acquire.hear(leg, (yield from space.writer.result(leg.key, answer, acquire.now)))
    else:
        yield from _create_in_transaction(acquire)
    for leg in acquire.legs:
        if leg.done:
            yield from space.propagation.check_terms_of_new(leg.key, leg.terms, acquire.now, acquire.deadline)


def _create_untouched(acquire: AcquireState) -> Plan[None]:
    """Begin the life of the buckets that are not there, full: what several shards paid elsewhere stays paid."""
    space = acquire.space
    for leg in acquire.legs:
        if leg.snapshot is not None:
            continue
        new = BucketWrite(leg.key, leg.leg, {})
        new.write_id = space.write_ids.write_id(acquire.now)
        call = space.writer.call_to_create(new, leg.terms, acquire.now, acquire.deadline)
        (answer,) = yield from space.writer.ask_together([call])
        if not isinstance(answer, (Refused, NoAnswer)):
            leg.snapshot = yield from space.writer.see(leg.key, snapshot_of(call.params["Item"]), acquire.now)
            yield from space.propagation.check_terms_of_new(leg.key, leg.terms, acquire.now, acquire.deadline)
        else:
            acquire.hear(leg, (yield from space.writer.result(leg.key, answer, acquire.now)))


def _create_in_transaction(acquire: AcquireState) -> Plan[None]:
    space = acquire.space
    writes: list[dict[str, Any]] = []
    for leg in acquire.legs:
        if leg.snapshot is not None:
            writes.append({"Update": dict(acquire.params_of(leg))})
        else:
            writes.append({"Put": space.writer.call_to_create(leg, leg.terms, acquire.now, acquire.deadline).params})
    acquire.flight = acquire.legs
    doubts: list[NoAnswer] = []
    try:
        reasons = yield from space.client.transact(writes, acquire.deadline, doubts)
    except Refused as refusal:
        for leg in acquire.legs:
            leg.doubtful = leg.doubtful or bool(doubts)
        if not refusal.by_throttling:
            raise
        for leg in acquire.legs:  # a key takes no more writes: load, not an outage
            leg.throttled = THROTTLES_BORNE + 1
        acquire.flight = ()
        return
    except NoAnswer as silence:
        for leg in acquire.legs:
            leg.doubtful = leg.doubtful or silence.sent
        raise
    if not reasons:
        for leg in acquire.legs:
            leg.done = True
    acquire.flight = ()
    if not reasons:
        for leg, write in zip(acquire.legs, writes, strict=True):
            if "Put" in write:
                leg.snapshot = yield from space.writer.see(leg.key, snapshot_of(write["Put"]["Item"]), acquire.now)
            elif leg.snapshot is not None:
                leg.snapshot = after_taking(leg.snapshot, leg.terms, leg.deltas, acquire.now, leg.write_id)
                space.cache.see(leg.key, leg.snapshot, acquire.now)
        return
    for leg, reason in zip(acquire.legs, reasons, strict=True):
        leg.doubtful = leg.doubtful or bool(doubts)
        if reason.code is not None:
            failed = Refused(CONDITION_FAILED, item=reason.item)
            acquire.hear(leg, (yield from space.writer.result(leg.key, failed, acquire.now)))


SHARE_FOR_TAKING = 3 / 4
"""The part of the deadline in which several legs are written; the rest is for giving back."""

THROTTLED_WAIT_S = 0.1


class Acquire(AcquireState):
    """One draw, from its first guess to its outcome."""

    def run(self) -> Plan[Outcome]:
        """The outcome. Whatever goes wrong, nothing stays taken that can be given back."""
        try:
            leg = self.space.warm_leg(self.draw, self.now, self.deadline)
            if leg is not None:
                leg.write_id, self.legs = self.space.write_ids.write_id(self.now), [leg]
                yield from self.space.batching.post(self.legs, self.params_of, self.now, self.deadline)
                granted = self.space.warm_grant(leg, self.draw, self.now)
                if granted is not None:
                    return granted
            return (yield from self._outcome(begun=leg is not None))
        except (Refused, NoAnswer, GeneratorExit):
            raise
        except BaseException as stop:
            # An interrupt, at a request or anywhere else, or an error nobody foresaw.
            self._hear_interrupt(stop)
            try:
                yield from self.undo((yield from self.space.client.new_deadline()))
            except (Refused, NoAnswer):
                self.space.writer.unresolved += 1
            raise

    def _outcome(self, *, begun: bool) -> Plan[Outcome]:
        """The outcome; ``begun``: there is a leg, and its first write has a verdict."""
        try:
            fresh = False
            while True:
                if begun:
                    begun = False
                    self._hear_all(self.legs)
                    outcome = yield from self._follow(terms_are_fresh=False, tries=1)
                else:
                    outcome = yield from self._attempt(fresh)
                if outcome is not None:
                    return outcome
                yield from self.undo(self.whole)
                self.seen_before = self._versions_seen()
                fresh = True
        except (Refused, NoAnswer) as failure:
            undone = True
            try:
                yield from self.undo(self.whole)
            except (Refused, NoAnswer):
                undone = False
            if self._is_load(failure):
                self.space.writer.unresolved += not undone
                return self._denial_under_load()
            if not undone:
                raise NoAnswer(str(failure)) from failure
            if isinstance(failure, NoAnswer):
                raise NoAnswer(str(failure), sent=False) from failure
            raise

    def _is_load(self, failure: Refused | NoAnswer) -> bool:
        """Whether a draw failed because of others, who write to the same bucket or use up what the table can take.

        Then DynamoDB is there, and the draw is not let through, even if in the end an answer was missing, or if it
        only waited for another draw of this client, which met load.
        """
        if isinstance(failure, Refused):
            return failure.by_load
        loaded = self.space.client.loaded_at > self.whole.moment
        return loaded or isinstance(failure, Contended) or self.overtaken > TRIES_AT_ONCE

    def _versions_seen(self) -> dict[Key, str]:
        """What every bucket, with all its shards, is known to obey."""
        cache = self.space.cache
        seen = {
            key: cached.snapshot.cv
            for leg in self.legs
            for key in cache.shards_of(leg.first)
            if (cached := cache.get(key)) is not None
        }
        return seen | {leg.key: leg.snapshot.cv for leg in self.legs if leg.snapshot is not None}

    def _attempt(self, fresh: bool) -> Plan[Outcome | None]:
        """One set of terms. ``None``: they are too old, and were not obeyed."""
        space = self.space
        prefetched: Prefetched = {}
        route = yield from space.resolver.terms_for(self.draw, self.deadline, fresh=fresh, prefetched=prefetched)
        ns = yield from space.namespace.ns(self.deadline)
        if not self.deadline.checked:  # the first draw of its process: what it has just read tells the time
            self.now, self.whole = yield from space.namespace.checked_time(self.now, self.deadline)
            self.deadline = self.whole
        self.legs = [
            AcquireLeg(bucket_key(ns, terms.leg.entity_id, terms.leg.resource), terms, self.draw)
            for terms in route.terms
        ]
        if len(self.legs) > 1:
            time = int(space.client.deadline_ms * SHARE_FOR_TAKING)
            self.deadline = self.whole._replace(give_up_at=self.whole.started + time)
        for leg in self.legs:
            leg.write_id = space.write_ids.write_id(self.now)
            cached = space.cache.get(leg.key)
            leg.snapshot = None if cached is None else cached.snapshot
        remembered = self._remembered_denial()
        if remembered is not None:
            return remembered
        yield from self._look_at([leg for leg in self.legs if leg.snapshot is None], prefetched)
        if space.cache.any_sharded:
            for leg in self.legs:
                yield from choose_shard(self, leg)
        shut = [leg for leg in self.legs if space.cache.is_shut(leg.key, THROTTLES_BORNE, self.now)]
        for leg in shut:
            leg.throttled = THROTTLES_BORNE + 1
        if shut:
            return (yield from self._deny_under_load())
        return (yield from self._follow(terms_are_fresh=route.fresh))

    def _follow(self, *, terms_are_fresh: bool, tries: int = 0) -> Plan[Outcome | None]:
        """Try until every leg is written, or one lacks."""
        space = self.space
        while True:
            pending = [leg for leg in self.legs if not leg.done]
            if not pending:
                for leg in self.legs:
                    if leg.snapshot is not None and is_overloaded(leg.snapshot, max(self.now, newest(leg.snapshot))):
                        yield from divide(self, leg)
                return self._grant()
            if not all(self._may_write(leg) for leg in pending):
                return None
            astray = [leg for leg in pending if leg.snapshot is not None and is_far_ahead(leg.snapshot, self.now)]
            if (yield from bring_back(self, astray)):
                continue
            hopeless = [leg for leg in pending if not (leg.fresh or (leg.fits() and leg.fits_here()))]
            if hopeless:
                yield from self._look_at(hopeless)
                continue
            if any(leg.throttled > THROTTLES_BORNE for leg in pending):
                return (yield from self._deny_under_load())
            drained = next((leg for leg in pending if leg.fresh and leg.lacks(self.now)), None)
            if drained is not None:
                if not (yield from look_elsewhere(self, drained)):
                    refused = yield from self._deny()
                    if refused is not None:
                        return refused
                continue
            moving = [leg for leg in pending if leg.is_hot or (leg.snapshot is None and leg.key != leg.first)]
            for leg in moving:
                if leg.is_hot:
                    yield from relieve_hot(self, leg)
                else:  # the shard is gone, and perhaps all of them
                    leg.move_to(leg.first, None, fresh=False)
                    yield from self._look_at([leg])
            if moving:
                continue  # where it is now may obey other terms, or lack
            if any(leg.snapshot is None for leg in pending):
                if not terms_are_fresh:
                    return None  # a new bucket obeys what holds now, not what was remembered
                yield from create(self)
            else:
                healthy = all(not self._looks_drained(leg) for leg in pending)
                yield from self._write(pending if healthy else pending[:1])
            tries += 1
            if tries >= TRIES_AT_ONCE and any(not leg.done for leg in self.legs):
                yield from space.client.pause(tries - 1, self.deadline, self.failure or Contended())

    def _may_write(self, leg: AcquireLeg) -> bool:
        return leg.snapshot is None or self.may_follow(leg, leg.key, leg.snapshot.cv)

    def _looks_drained(self, leg: AcquireLeg) -> bool:
        cached = self.space.cache.get(leg.key)
        guesses = cached.guesses(self.now) if cached is not None and not leg.fresh else {}
        balances = adopted(leg.snapshot, leg.terms, self.now)
        return any(
            min(guesses.get(balance.name, balance.tk) + balance.since_rf(self.now), balance.bx)
            < leg.needed.get(balance.name, 0)
            for balance in balances
        )

    # Writing

    def _write(self, legs: Sequence[AcquireLeg]) -> Plan[None]:
        yield from self.space.batching.post(legs, self.params_of, self.now, self.deadline)
        self._hear_all(legs)

    # Hearing

    def _hear_all(self, legs: Sequence[AcquireLeg]) -> None:
        for leg in legs:
            assert leg.result is not None
            self.hear(leg, leg.result)

    def _hear_interrupt(self, stop: BaseException) -> None:
        """An interrupt came while calls were in flight: what they answered still counts."""
        heard = answers_of(stop, len(self.flight)) if isinstance(stop, Interrupted) else [None] * len(self.flight)
        for leg, answer in zip(self.flight, heard, strict=True):
            leg.note(answer)
        self.flight = ()

    # Outcomes

    def _grant(self) -> Grant:
        now = max(self.now, *[leg.granted_at for leg in self.legs])
        balances = [balance for leg in self.legs for balance in leg.whole(self.space.cache, now)]
        legs = tuple(leg.paid_leg() for leg in self.legs)
        return Grant(legs, self.draw.wanted, balances, [balance.tk for balance in balances], now)

    def _remembered_denial(self) -> Denial | None:
        """What was refused a moment ago is refused again without asking."""
        for leg in self.legs:
            cached = self.space.cache.get(leg.first)
            if cached is None or not cached.denied or leg.is_stale_anywhere(self.space.cache):
                continue
            if any(
                cached.still_denies(balance.name, leg.needed.get(balance.name, 0), self.now)
                for balance in self._short(leg)
            ):
                break
        else:
            return None
        return None if any(leg.snapshot is None for leg in self.legs) else self._denial()

    def _deny(self) -> Plan[Denial | None]:
        """Give back, look at every leg, and say what lacks. ``None``: by now nothing does, or other terms hold."""
        yield from self.undo(self.whole)
        with suppress(Refused, NoAnswer):  # it lacks all the same; the others are told as they were last seen
            yield from self._look_at([leg for leg in self.legs if not leg.fresh])
        for leg in self.legs:
            if self._short(leg) and meets_newer_terms(self, leg):
                assert leg.snapshot is not None
                if not is_fence(leg.snapshot.cv):  # which is being removed
                    return None  # what lacks by our terms may be there by those: they are resolved again
        for leg in self.legs:
            if leg.is_stale_anywhere(self.space.cache) and self._short(leg):
                # New terms reach every shard even if the draw is denied: a raised burst must not stay refused, and
                # the wait that is told is that of shards which all obey them.
                with suppress(Refused, NoAnswer):  # it lacks all the same; the next draw writes them
                    yield from adopt_all(self, leg)
        if not any(self._short(leg) for leg in self.legs):
            return None
        found = self._denial()
        for leg in self.legs:
            cached = self.space.cache.get(leg.first)
            if cached is not None:
                due = {
                    balance.name: due_at(balance, leg.needed.get(balance.name, 0), self.now)
                    for balance in self._short(leg)
                }
                cached.deny(leg.needed, due, self.now)
        return found

    def _short(self, leg: AcquireLeg) -> list[Balance]:
        """What lacks of a leg, over all its shards."""
        return lacking(leg.whole(self.space.cache, self.now), leg.needed, self.now)

    def _statuses(self) -> tuple[LimitStatus, ...]:
        legs = [leg.leg for leg in self.legs]
        balances = [leg.whole(self.space.cache, self.now) for leg in self.legs]
        statuses = statuses_of(legs, balances, self.draw.wanted, self.draw.reserved, self.now)
        astray = {
            leg.leg.entity_id: wait
            for leg in self.legs
            if leg.snapshot is not None and is_far_ahead(leg.snapshot, self.now)
            if (wait := self.space.cache.back_again_in(leg.key, self.now)) is not None
        }
        if not astray:
            return statuses
        # Refill goes on when the bucket is brought back, not when that clock's time has come.
        return tuple(
            status._replace(retry_after_seconds=min(status.retry_after_seconds, astray[status.entity_id] / MILLI))
            if status.retry_after_seconds and status.entity_id in astray
            else status
            for status in statuses
        )

    def _denial(self) -> Denial:
        return denial([leg.leg for leg in self.legs], self._statuses())

    def _deny_under_load(self) -> Plan[Denial]:
        """The bucket's own key takes no more writes for now."""
        yield from self.undo(self.whole)
        return self._denial_under_load()

    def _denial_under_load(self) -> Denial:
        """Not now, whatever the bucket holds. If not even the limits could be read, it has no statuses."""
        if not self.legs:
            unread = Leg(self.draw.entity_id, self.draw.resource, (), "system")
            return Denial((), unread, round(THROTTLED_WAIT_S * MILLI))
        throttled = [leg for leg in self.legs if leg.throttled > THROTTLES_BORNE] or self.legs
        hot = {leg.leg.entity_id for leg in throttled}
        return denial(
            [leg.leg for leg in self.legs],
            tuple(
                status._replace(exceeded=True, retry_after_seconds=status.retry_after_seconds or THROTTLED_WAIT_S)
                if status.entity_id in hot
                else status
                for status in self._statuses()
            ),
        )

    def _look_at(self, legs: Iterable[AcquireLeg], prefetched: Prefetched | None = None) -> Plan[None]:
        """See how these buckets are; those that were glimpsed a moment ago are not read again."""
        unseen = list(legs)
        if not unseen:
            return
        for leg in unseen:
            if len(self.space.cache.shards_of(leg.first)) > 1:
                yield from look_at_all(self, leg)
        found = prefetched or {}
        unread = [leg.key for leg in unseen if leg.key not in found]
        found = {**found, **(yield from self.space.client.get_few(unread, self.deadline))}
        for leg in unseen:
            leg.fresh = True
            here = found.get(leg.key)
            leg.snapshot = (
                None if here is None else (yield from self.space.writer.see(leg.key, snapshot_of(here), self.now))
            )
            if leg.doubtful and leg.snapshot is not None:
                leg.done = leg.is_in(leg.snapshot)


class Draws:
    """The verb of every acquire."""

    def __init__(self, acquiring: Acquirer) -> None:
        self.acquiring = acquiring

    @verb
    def draw(self, draw: Draw, now: int) -> Plan[Outcome]:
        acquiring = self.acquiring
        deadline = acquiring.client.deadline_from((yield READ_MACHINE_TIME))
        if not deadline.checked and acquiring.namespace.known_ns is not None:  # the clock was set
            now, deadline = yield from acquiring.namespace.checked_time(now, deadline)
        elif deadline.checked:
            acquiring.cache.correct_by(deadline.clock_error_ms)
            now = acquiring.cache.corrected(now)
        return (yield from Acquire(acquiring, draw, now, deadline).run())
