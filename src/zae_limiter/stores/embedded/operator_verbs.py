"""What operators do to buckets: give tokens, fill them again. Under a key, once."""

from __future__ import annotations

from zae_limiter.bucket import MILLI, Bucket
from zae_limiter.running.plan import Plan
from zae_limiter.stores.embedded.bucket_verbs import begin_hour_if_new, counters_if_new_hour, new_bucket
from zae_limiter.stores.embedded.clock_correction import correct_time, retried_by_the_clock
from zae_limiter.stores.embedded.lease_verbs import live_record
from zae_limiter.stores.embedded.tables import SharedTables, Tables, Transacting
from zae_limiter.stores.limit_statuses import check_extra, check_liftable, check_not_held, check_own_names, no_limits
from zae_limiter.stores.operator_changes import Credit, Reset, earlier_result, key_record, record_id_of_key


class OperatorVerbs(Transacting):
    """The verbs of operators on buckets."""

    def reset(self, reset: Reset, now: int) -> Plan[int]:
        def work(now: int, proven: int | None) -> Plan[int]:
            return self._write(lambda tables: _reset(tables, reset, now, proven))

        return retried_by_the_clock(work, now)

    def credit(self, credit: Credit, now: int) -> Plan[bool]:
        def work(now: int, proven: int | None) -> Plan[bool]:
            return self._write(lambda tables: _credit(tables, credit, now, proven))

        return retried_by_the_clock(work, now)


def _reset(tables: Tables, reset: Reset, now: int, proven: int | None) -> int:
    if (earlier := result_under_key(tables, reset, now)) is not None:
        return earlier
    buckets = [b for b in tables.buckets_of(reset.entity_id) if reset.resource in (None, b.resource)]
    for bucket in buckets:
        correct_time(tables, bucket, now, proven)
    for bucket in buckets:
        bucket.refill(now, reset.concerns)
        _put(tables, bucket, now)
    note_under_key(tables, reset, len(buckets), now)
    details = reset.audited(len(buckets))
    tables.add_audit(reset.entity_id, "buckets_reset", reset.resource, reset.principal, details, now)
    return len(buckets)


def _credit(tables: Tables, credit: Credit, now: int, proven: int | None) -> bool:
    if result_under_key(tables, credit, now) is not None:
        return False
    leg = tables.routes.leg(tables, credit.entity_id, credit.resource)
    if leg is None:
        raise no_limits(credit.entity_id, credit.resource)
    check_own_names(leg, credit.amounts)
    check_not_held(leg, credit.amounts, "consume")
    bucket = tables.bucket(credit.entity_id, credit.resource)
    if credit.above:
        check_liftable(leg, credit.amounts)
        bucket = bucket or new_bucket(tables, leg, now)  # one that is not there is full, and has nothing extra
    if bucket is not None:  # else it is full
        correct_time(tables, bucket, now, proven)
        bucket.adopt(leg.limits, now)
        given = {name: amount * MILLI for name, amount in credit.amounts.items()}
        if credit.above:
            check_extra(credit.amounts, bucket.balances, now)
            begin_hour_if_new(tables, bucket, counters_if_new_hour(bucket, now), now)
            bucket.lift(given, now)
        else:
            bucket.credit(given, now)
        _put(tables, bucket, now)
    note_under_key(tables, credit, 1, now)
    tables.add_audit(credit.entity_id, "granted", credit.resource, credit.principal, credit.audited, now)
    return True


def _put(tables: Tables, bucket: Bucket, now: int) -> None:
    bucket.written(now)
    tables.put_bucket(bucket)


def result_under_key(tables: SharedTables, change: Credit | Reset, now: int) -> int | None:
    """What came of the same change when it was done under its key, if it was."""
    if change.key is None:
        return None
    return earlier_result(change, live_record(tables, record_id_of_key(change.key), now))


def note_under_key(tables: SharedTables, change: Credit | Reset, result: int, now: int) -> None:
    """Record that it was done under its key, if it has one."""
    if change.key is not None:
        record = key_record(change, change.key, result, now)
        slot = tables.lease_slot(record.id)
        slot.record = record
        tables.put_lease(slot, record)
