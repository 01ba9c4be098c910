"""The answer to a batch is lost, and others have written since: no reader can tell whether it was done."""

from __future__ import annotations

import pytest

from support.dynamodb.draw_scenarios import hierarchy, others_write, warm
from support.dynamodb.scripted_plans import arrives, run_hearing
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, Table
from zae_limiter.bucket import MILLI
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite
from zae_limiter.stores.dynamodb.requests import Call, NoAnswer
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.protocol import Leg

BACK, TAKEN = 30 * MILLI, 5 * MILLI


def written_together(table: Table, others: int, *, done: bool) -> tuple[int, int, int]:
    """Give back and take in one write whose answer is lost. What came back, what was taken, and what is unresolved."""
    client = warm(table)
    key, leg = bucket_key(table.ns, "key", RESOURCE), Leg("key", RESOURCE, LIMITS, "system")
    writes = [BucketWrite(key, leg, {"tpd": -BACK}), BucketWrite(key, leg, {"rpd": TAKEN})]
    snapshot = table.snapshot("key")
    assert snapshot is not None
    for write in writes:
        write.snapshot, write.now, write.write_id = (
            snapshot,
            table.now,
            client.space.namespace.write_ids.write_id(table.now),
        )
    lost: list[Call] = []

    def hear(call: Call) -> NoAnswer | None:
        if call.operation != "UpdateItem" or lost:
            return None
        lost.append(call)
        if done:
            arrives(table, call)
        others_write(table, others)
        return NoAnswer("lost")

    before = table.counters("key")
    until = client.run(client.store.client.new_deadline())
    ended = run_hearing(client.space.batching._write_for_all(writes, snapshot, until), table, hear)
    assert ended.error is None
    assert lost
    after = table.counters("key")
    return before["tpd"] - after["tpd"], after["rpd"] - before["rpd"] - others * MILLI, client.unresolved


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("others", range(6))
def test_what_comes_back_comes_back_once_at_most(others: int, done: bool) -> None:
    back, taken, unresolved = written_together(hierarchy(1), others, done=done)
    assert back in (0, BACK)
    assert taken in (TAKEN, 2 * TAKEN)
    if (back, taken) != (BACK, TAKEN):
        assert unresolved, "more is charged than was asked for, and no caller is told"
