"""A caller who writes for others, in an event loop that was stopped: the others write for themselves."""

from __future__ import annotations

from typing import Any

import pytest

from support.dynamodb.draw_scenarios import hierarchy
from support.dynamodb.scripted_plans import Script
from support.dynamodb.scripted_tables import RESOURCE, Client, Table
from zae_limiter.running.plan import WakeUp
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.dynamodb.write_queue import GRACE_MS, WriteQueues
from zae_limiter.stores.protocol import Leg

LEG = Leg("key", RESOURCE, (), "system")


def stuck_writer(table: Table, client: Client) -> Any:
    """An acquire that is left where it has asked for its write."""
    plan = client.lease("key", {"rpd": 1})._begin()
    request: Any = next(plan)
    while "UpdateItem" not in repr(request):
        request = plan.send(Script(table)._answer(request))
    return plan


@pytest.mark.parametrize("how_many", [1, 3])
def test_a_leader_that_never_comes_back_makes_the_store_unavailable_to_no_caller(how_many: int) -> None:
    table = hierarchy(1)
    client = table.client()
    assert client.takes("key", {"rpd": 1})
    stuck = stuck_writer(table, client)
    for _ in range(how_many):
        started = table.timer
        ended = Script(table).run(client.lease("key", {"rpd": 1})._begin())
        assert ended.error is None
        assert table.timer - started < 2_000
    stuck.close()


def write_until(give_up_at: int) -> BucketWrite:
    made = BucketWrite(bucket_key("ns", "key", RESOURCE), LEG, {})
    made.give_up_at = give_up_at
    return made


def test_a_caller_in_a_stopped_loop_is_passed_over_when_the_next_one_leads() -> None:
    queues = WriteQueues()
    leader, gone, alive = write_until(0), write_until(0), write_until(0)
    assert queues.enter(leader, 0, 2_000)
    assert not queues.enter(gone, 0, 2_000)
    later = 2_000 + GRACE_MS + 1
    taking_over = write_until(0)
    assert queues.enter(taking_over, later, later + 2_000)  # the leader is given up, and the queue is kept
    assert not queues.enter(alive, later + 1, later + 2_001)
    queues.leave(taking_over)
    assert alive.queue is not None
    assert gone.queue is None
    assert isinstance(alive.wake_up, WakeUp)
    assert alive.wake_up.is_set
