"""What configs, entities and resets write to live buckets: to the end, or not at all if it is forbidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.dynamodb.draw_scenarios import HIGHER, hierarchy, warm
from support.dynamodb.scripted_plans import Fate, Script
from support.dynamodb.scripted_tables import LIMITS, Client, Table
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import TRANSACTION_CANCELED, Call, Reason, Refused
from zae_limiter.stores.protocol import Scope

REWRITES: dict[str, Callable[[Client, Table], Plan[Any]]] = {
    "to other limits": lambda client, table: client.space.set_config(Scope(), HIGHER, None, None, True, table.now),
    "to none at all": lambda client, table: client.space.delete_config(Scope(), None, True, table.now),
    "full again": lambda client, table: client.space.reset("key", None, None, table.now),
}


@pytest.fixture
def table() -> Table:
    return hierarchy(1)


def write_of(operations: list[str]) -> int:
    """The number of the call that writes to the bucket."""
    assert operations.count("UpdateItem") == 1
    return operations.index("UpdateItem")


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_what_is_forbidden_is_not_tried_again(rewrite: Callable[[Client, Table], Plan[Any]], table: Table) -> None:
    client = warm(table)
    place = write_of(Script(twin := table.copy()).run(rewrite(warm(twin), twin)).operations)
    ended = Script(table, {place: Fate.FORBIDDEN}).run(rewrite(client, table))
    assert isinstance(ended.error, RateLimiterUnavailable)
    assert ended.operations[place:] == ["UpdateItem"]


@pytest.mark.parametrize("fate", [Fate.THROTTLED, Fate.CONFLICT, Fate.LOST, Fate.UNHEARD, Fate.UNSENT])
@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_what_fails_is_tried_until_it_is_done(
    rewrite: Callable[[Client, Table], Plan[Any]], fate: Fate, table: Table
) -> None:
    client = warm(table)
    undisturbed = table.copy()
    place = write_of(Script(undisturbed).run(rewrite(warm(undisturbed), undisturbed)).operations)
    ended = Script(table, dict.fromkeys(range(place, place + 3), fate)).run(rewrite(client, table))
    assert ended.error is None
    now, then = table.snapshot("key"), undisturbed.snapshot("key")
    assert now is not None
    assert then is not None
    assert (now.cv, now.balances["rpd"].limit.burst) == (then.cv, then.balances["rpd"].limit.burst)
    assert table.levels("key") == undisturbed.levels("key")


def test_a_reset_whose_event_is_not_written_says_so(table: Table) -> None:
    plan = warm(table).space.reset("key", None, None, table.now)
    with pytest.raises(RateLimiterUnavailable, match="ItemCollectionSizeLimitExceeded"):
        run_where_transactions_are_cancelled(plan, table)
    assert table.levels("key") == {limit.name: limit.burst * 1_000 for limit in LIMITS}


def run_where_transactions_are_cancelled(plan: Plan[Any], table: Table) -> None:
    refused = Refused(TRANSACTION_CANCELED, reasons=[Reason("ItemCollectionSizeLimitExceeded")])
    script, request = Script(table), next(plan)
    for _ in range(50):
        if isinstance(request, Call) and request.operation == "TransactWriteItems":
            request = plan.throw(refused)
        else:
            request = plan.send(script._answer(request))
