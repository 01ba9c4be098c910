"""Taking, settling, looking: what happens to buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zae_limiter.bucket import MILLI, Bucket, lower
from zae_limiter.exceptions import AccessBlocked
from zae_limiter.mixed_limits import lacks
from zae_limiter.models.choices import AccessMode
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import BucketStatus, EntityStatus
from zae_limiter.running.plan import Plan, assign
from zae_limiter.stores.embedded.clock_correction import (
    copy_of,
    correct_time,
    retried_by_the_clock,
    with_corrected_time,
    with_corrected_waits,
)
from zae_limiter.stores.embedded.holds import Changes, change_holds, counted_by, drawn_mixed, drawn_plain, renew_in
from zae_limiter.stores.embedded.lease_verbs import recorded, recorded_grant, to_book
from zae_limiter.stores.embedded.routes import live_switches
from zae_limiter.stores.embedded.tables import LeaseSlot, Tables, Transacting, reads
from zae_limiter.stores.lease_records import LeaseRecord, RecordChange
from zae_limiter.stores.limit_statuses import (
    check_names,
    check_not_held,
    check_own_names,
    denial,
    limit_level,
    no_limits,
    statuses_of,
)
from zae_limiter.stores.protocol import (
    Denial,
    Draw,
    Leg,
    Look,
    Outcome,
    Posting,
    Receipt,
    Settlement,
    in_order,
)
from zae_limiter.stores.windows import HOUR_MS, Counters, counted, hour_of


class BucketVerbs(Transacting):
    """The verbs on buckets."""

    unresolved = 0  # a transaction is done or not
    slot_pauses_ms: tuple[int, int] | None = None
    claims_for_ms: int | None = None

    def _draw(
        self, tables: Tables, draw: Draw, now: int, receipt: Receipt | None = None, proven: int | None = None
    ) -> tuple[Outcome, list[Bucket]]:
        """The outcome, and the buckets. A grant is noted on the receipt in the step that takes.

        ``proven``: see :func:`correct_time`.
        """
        access = tables.routes.access(tables, draw.entity_id, draw.resource, now)
        if access is not None and access.mode is AccessMode.BLOCK:
            raise AccessBlocked(draw.entity_id, draw.resource, access)
        if (repeated := recorded_grant(tables, draw, now)) is not None:
            return repeated, []
        legs = legs_of(tables, draw)
        check_names(legs, draw.wanted)
        buckets = [bucket_to_draw_from(tables, leg, now, proven) for leg in legs]
        before = [counters_if_new_hour(bucket, now) for bucket in buckets]
        spoken_for = draw.reserved and not leaves_reserve(legs, buckets, draw, now)
        judge = drawn_plain if all(leg.is_plain for leg in legs) else drawn_mixed
        drawn = None if spoken_for else judge(legs, buckets, draw, now)
        if drawn is None:
            held = [bucket.balances for bucket in buckets]
            statuses = statuses_of(legs, held, draw.wanted, draw.reserved, now)
            denied = denial(legs, with_corrected_waits(tables, buckets, statuses, now))
            denied.observed = access is not None
            count_denial(tables, buckets, denied if draw.is_final else None, before, now)
            return denied, buckets
        taken, changed, names, values = drawn
        grant = recorded(tables, draw, taken, now)
        for bucket, counters in zip(buckets, before):  # noqa: B905 (they have one length)
            bucket.written(now)
            if counters is not None:
                begin_hour_if_new(tables, bucket, counters, now)
            changed.append(bucket)
            names.append("events")
            values.append(bucket.events + 1)
        for leg, bucket in zip(grant.legs[1:], buckets[1:]):  # noqa: B905 (they have one length)
            changed += (bucket, bucket)
            names += ("cascaded_events", "cascaded")
            values += (bucket.cascaded_events + 1, with_cascaded(bucket, leg.cascaded or (), draw.wanted, MILLI))
        if receipt is not None:
            changed.append(receipt)
            names.append("_grant")
            values.append(grant)
        change_at_once(tables, buckets, changed, names, values, grant.record)
        return grant, buckets

    def _settle(
        self,
        tables: Tables,
        postings: Sequence[Posting],
        now: int,
        settlement: Settlement | None = None,
        proven: int | None = None,
        change: RecordChange | None = None,
    ) -> list[Bucket]:
        """Book all of it at once, with the ``change`` of the lease's record, and note that in the settlement.

        ``proven``: see :func:`correct_time`.
        """
        postings, record = to_book(tables, postings, change, now)
        found = {}
        for leg, *_ in postings:
            bucket = found[leg.entity_id, leg.resource] = tables.bucket(leg.entity_id, leg.resource)
            if bucket is not None:
                correct_time(tables, bucket, now, proven)
        changes = Changes()
        buckets = []
        for posting in postings:
            leg, deltas = posting.leg, posting.deltas_milli
            bucket = found[leg.entity_id, leg.resource] or rebuilt_bucket(tables, leg, now)
            if leg.limits != bucket.limits:
                bucket.retire_again(leg.limits, posting.named)  # before its hour begins: it goes on where it ended
            begin_hour_if_new(tables, bucket, counters_if_new_hour(bucket, now), now)
            bucket.written(now)
            if not leg.is_plain or bucket.retired:
                bucket.begin_periods(now)
            for balance, tk, tc in bucket.settled(deltas, now, posting.usage_milli):
                changes.set(balance, tk=tk, tc=tc)
            if not leg.is_plain:
                change_holds(bucket, posting, now, changes)
            if leg.cascaded:
                changes.set(bucket, cascaded=with_cascaded(bucket, leg.cascaded, counted_by(posting)))
            buckets.append(bucket)
        if settlement is not None:
            changes.set(settlement, postings=())
        change_at_once(tables, buckets, changes.changed, changes.names, changes.values, record)
        return buckets

    def renew(self, holds: Sequence[Hold], now: int) -> Plan[Sequence[Hold]]:
        def work(now: int, proven: int | None) -> Plan[Sequence[Hold]]:
            return self._write(lambda tables: self._renew(tables, holds, now, proven)[0])

        return retried_by_the_clock(work, now)

    def _renew(
        self, tables: Tables, holds: Sequence[Hold], now: int, proven: int | None
    ) -> tuple[Sequence[Hold], Changes]:
        """Renew the holds of every bucket, in one step. A bucket that is gone is made again, if it has limits.

        Those that were lost, and what is to be changed in the holds: once it is committed, where that is later.
        """
        by_bucket: dict[tuple[str, str], list[Hold]] = {}
        for hold in holds:
            if hold.amount:  # else its lease has ended meanwhile
                by_bucket.setdefault((hold.entity_id, hold.resource), []).append(hold)
        changes = Changes()
        hold_changes = changes if tables.in_place else Changes()
        lost: list[Hold] = []
        buckets = []
        for key, held in by_bucket.items():
            bucket = self._bucket_to_renew(tables, key, now, proven)
            if bucket is None:
                lost += held
                for hold in held:
                    hold_changes.set(hold, amount=0)
                continue
            begin_hour_if_new(tables, bucket, counters_if_new_hour(bucket, now), now)
            bucket.written(now)
            lost += renew_in(bucket, held, now, changes, hold_changes)
            buckets.append(bucket)
        change_at_once(tables, buckets, changes.changed, changes.names, changes.values)
        return lost, hold_changes

    def _bucket_to_renew(self, tables: Tables, key: tuple[str, str], now: int, proven: int | None) -> Bucket | None:
        bucket = tables.bucket(*key)
        if bucket is not None:
            correct_time(tables, bucket, now, proven)
            return bucket
        leg = tables.routes.leg(tables, *key)
        if leg is None:
            return None
        bucket = new_bucket(tables, leg, now)
        bucket.adopt(leg.limits, now)
        return bucket

    def count_denial(self, denial: Denial, now: int) -> Plan[None]:
        return self._write(lambda tables: self._count_denial(tables, denial, now))

    def write_denials(self) -> Plan[None]:
        yield from ()  # each was written when it was counted

    def _count_denial(self, tables: Tables, denial: Denial, now: int) -> None:
        binding = denial.binding
        if binding is not None:
            bucket = tables.bucket(binding.entity_id, binding.resource)
            if bucket is not None:  # else it is full again, and gone
                count_denial(tables, (bucket,), denial, (counters_if_new_hour(bucket, now),), now)

    @reads
    def look(
        self,
        tables: Tables,
        entity_id: str,
        resource: str,
        wanted: Mapping[str, int],
        limits: tuple[Limit, ...] | None,
        now: int,
    ) -> Look:
        legs = tables.routes.legs(tables, entity_id, resource, limits)
        check_names(legs, wanted)
        held = [as_if_adopted(tables.bucket(leg.entity_id, leg.resource), leg, now).balances for leg in legs]
        access = tables.routes.access(tables, entity_id, resource, now)
        return Look(legs, statuses_of(legs, held, wanted, {}, now), access)

    @reads
    def status(self, tables: Tables, entity_id: str, resource: str | None, now: int) -> EntityStatus:
        buckets = tables.buckets_of(entity_id)
        return EntityStatus(
            entity_id,
            tuple(
                bucket_status(as_configured(tables, bucket, now), now)
                for bucket in buckets
                if resource is None or bucket.resource == resource
            ),
            live_switches(tables, entity_id, resource, now),
        )

    def lower(
        self, entity_id: str, resource: str, levels: Mapping[str, int], principal: str | None, now: int
    ) -> Plan[None]:
        def work(now: int, proven: int | None) -> Plan[None]:
            return self._write(lambda tables: self._lower(tables, entity_id, resource, levels, principal, now, proven))

        return retried_by_the_clock(work, now)

    def _lower(
        self,
        tables: Tables,
        entity_id: str,
        resource: str,
        levels: Mapping[str, int],
        principal: str | None,
        now: int,
        proven: int | None,
    ) -> None:
        leg = tables.routes.leg(tables, entity_id, resource)
        if leg is None:
            raise no_limits(entity_id, resource)
        check_own_names(leg, levels, "levels")
        check_not_held(leg, levels, "levels")
        bucket = tables.bucket(entity_id, resource) or new_bucket(tables, leg, now)
        correct_time(tables, bucket, now, proven)
        bucket.begin_periods(now)
        bucket.adopt(leg.limits, now)
        if tables.in_place:
            bucket.advance(now)
        begin_hour_if_new(tables, bucket, counters_if_new_hour(bucket, now), now)
        bucket.written(now)
        named = [balance for balance in bucket.balances if balance.name in levels]
        values: list[object] = [lower(balance, levels[balance.name] * MILLI, now) for balance in named]
        change_at_once(tables, [bucket], list(named), ["tk"] * len(named), values)
        if principal is not None:
            tables.add_audit(entity_id, "bucket_lowered", resource, principal, {"levels": dict(levels)}, now)


def change_at_once(
    tables: Tables,
    buckets: Sequence[Bucket],
    changed: list[object],
    names: list[str],
    values: list[object],
    record: LeaseRecord | None = None,
) -> None:
    """Set these attributes, or none if an interrupt comes; the buckets they are about are in the tables then.

    The ``record`` of the lease goes with them.
    """
    slot: LeaseSlot | None = None
    if record is not None:
        slot = tables.lease_slot(record.id)
        changed.append(slot)
        names.append("record")
        values.append(record)
    if tables.in_place:  # a new bucket is full, and the same as none; so is a slot without a record
        put_at_once(tables, buckets, slot, record)
    assign(changed, names, values)
    if not tables.in_place:
        put_at_once(tables, buckets, slot, record)


def put_at_once(tables: Tables, buckets: Sequence[Bucket], slot: LeaseSlot | None, record: LeaseRecord | None) -> None:
    for bucket in buckets:
        tables.put_bucket(bucket)
    if slot is not None and record is not None:
        tables.put_lease(slot, record)


def legs_of(tables: Tables, draw: Draw) -> tuple[Leg, ...]:
    if draw.legs is None:
        return tables.routes.legs(tables, draw.entity_id, draw.resource, draw.limits)
    # A lease takes more where it took first, but by the limits that hold now; what refused then may take now.
    return in_order(
        (leg if leg.source == "call" else tables.routes.leg(tables, leg.entity_id, leg.resource) or leg).unrefused()
        for leg in draw.legs
    )


def may_repeat(tables: Tables, draw: Draw, now: int) -> bool:
    """Whether the route of a draw may become a fast path, which asks for no switch and resolves nothing."""
    if draw.limits is not None or draw.legs is not None or draw.record is not None:
        return False
    return tables.routes.access(tables, draw.entity_id, draw.resource, now) is None


def with_cascaded(bucket: Bucket, names: Iterable[str], amounts: Mapping[str, int], times: int = 1) -> dict[str, int]:
    """What of a bucket's counters other legs have counted too, with so much more of these limits."""
    cascaded = dict(bucket.cascaded)
    for name in names:
        if amount := amounts.get(name, 0):
            cascaded[name] = cascaded.get(name, 0) + amount * times
    return cascaded


def count_denial(
    tables: Tables, buckets: Sequence[Bucket], denial: Denial | None, before: Sequence[Counters | None], now: int
) -> None:
    """Count a denial, if there is one, by one limit of these buckets. ``before``: see :func:`counters_if_new_hour`."""
    binding = None if denial is None else denial.binding
    for bucket, counters in zip(buckets, before, strict=True):
        if binding is not None and (binding.entity_id, binding.resource) == (bucket.entity_id, bucket.resource):
            begin_hour_if_new(tables, bucket, counters, now)
            name = binding.limit_name
            bucket.denials = {**bucket.denials, name: bucket.denials.get(name, 0) + 1}
            tables.put_bucket(bucket)


def bucket_to_draw_from(tables: Tables, leg: Leg, now: int, proven: int | None) -> Bucket:
    """The bucket of a leg, as it is now, under the limits that hold."""
    bucket = tables.bucket(leg.entity_id, leg.resource) or new_bucket(tables, leg, now)
    # New terms and another time are kept even if the draw is denied: a raised limit must not stay refused.
    corrected = correct_time(tables, bucket, now, proven)
    if not leg.is_plain:
        bucket.begin_periods(now)
    if (bucket.adopt(leg.limits, now) or corrected) and bucket.hour:
        tables.put_bucket(bucket)
    return bucket


def new_bucket(tables: Tables, leg: Leg, now: int) -> Bucket:
    bucket = Bucket(leg.entity_id, leg.resource, now)
    bucket.born = tables.epoch()  # which grows when a bucket is removed with its entity
    earlier = tables.last_usage(leg.entity_id, leg.resource)
    if earlier is not None and earlier.end is not None:
        end = earlier.end
        bucket.events, bucket.carried = end.events, dict(end.milli)
        bucket.cascaded_events, bucket.cascaded = end.cascaded_events, dict(end.cascaded)
        bucket.denials = dict(end.denials)
    return bucket


def rebuilt_bucket(tables: Tables, leg: Leg, now: int) -> Bucket:
    """A bucket that is gone, by the limits that hold now."""
    current = tables.routes.leg(tables, leg.entity_id, leg.resource) or leg
    bucket = new_bucket(tables, current, now)
    bucket.adopt(current.limits, now)
    return bucket


def as_configured(tables: Tables, bucket: Bucket, now: int) -> Bucket:
    leg = tables.routes.leg(tables, bucket.entity_id, bucket.resource)
    return with_corrected_time(bucket, now) if leg is None else as_if_adopted(bucket, leg, now)


def counters_if_new_hour(bucket: Bucket, now: int) -> Counters | None:
    """What a bucket has counted, if the next write is the first of an hour."""
    return counted(bucket) if now - bucket.hour >= HOUR_MS else None


def begin_hour_if_new(tables: Tables, bucket: Bucket, before: Counters | None, now: int) -> None:
    """Begin a usage window when the first write of an hour came. The counters are those before it."""
    if before is not None:
        if bucket.hour:
            tables.close_usage(bucket, before)
        bucket.hour = tables.open_usage(bucket, hour_of(now), before)


def as_if_adopted(bucket: Bucket | None, leg: Leg, now: int) -> Bucket:
    """The bucket as the next draw will see it; the bucket itself stays as it is."""
    if bucket is None:
        seen = Bucket(leg.entity_id, leg.resource, now)
        seen.adopt(leg.limits, now)
        return seen
    bucket = with_corrected_time(bucket, now)
    if bucket.limits == leg.limits:
        return bucket
    seen = copy_of(bucket)
    seen.adopt(leg.limits, now, bounded=False)
    return seen


def leaves_reserve(legs: Iterable[Leg], buckets: Iterable[Bucket], draw: Draw, now: int) -> bool:
    """Whether the draw leaves to the waiters what they wait for."""
    for leg, bucket in zip(legs, buckets, strict=True):
        reserved = draw.reserved.get(leg.place, {})
        for balance in bucket.balances:
            amount = draw.wanted.get(balance.name, 0)
            needed = (amount + reserved.get(balance.name, 0)) * MILLI
            if amount and balance.limit.enforce and lacks(balance, needed, now):
                return False
    return True


def bucket_status(bucket: Bucket, now: int) -> BucketStatus:
    """A bucket as operators see it."""
    return BucketStatus(
        entity_id=bucket.entity_id,
        resource=bucket.resource,
        limits=tuple(limit_level(balance, now, bucket.denials) for balance in bucket.balances),
        total_events=bucket.events,
    )
