"""A bucket is created in a transaction whose answer is lost: the doubt stays until the client has made sure."""

from __future__ import annotations

import pytest

from simulation.mutations import a_refused_creation_forgets_its_doubt
from support.dynamodb.draw_scenarios import hierarchy
from support.dynamodb.scripted_plans import Script, arrives, run_hearing
from support.dynamodb.scripted_tables import Table
from zae_limiter import RateLimitExceeded
from zae_limiter.bucket import MILLI
from zae_limiter.stores.dynamodb.requests import Call, NoAnswer


def without_the_bucket_of_the_child() -> Table:
    table = hierarchy(2)
    table.remove_bucket("key")
    return table


def taken(table: Table) -> dict[str, dict[str, int]]:
    return {entity: table.counters(entity) for entity in ("key", "team")}


def test_a_creation_that_was_refused_after_a_lost_answer_is_not_done_unnoticed() -> None:
    """Its first try is under way while the second is refused, and arrives when everything is as it was."""
    table = without_the_bucket_of_the_child()
    client, other = table.client(), table.client()
    held = table.levels("team")["rpd"] // MILLI
    kept: list[Call] = []

    def hear(call: Call) -> NoAnswer | None:
        if call.operation != "TransactWriteItems" or kept:
            return None
        kept.append(call)
        everything = other.take("team", {"rpd": held})
        leases.append(everything)
        return NoAnswer("lost")

    leases: list = []
    ended = run_hearing(client.lease("key", {"rpd": 3})._begin(), table, hear)
    assert isinstance(ended.error, RateLimitExceeded)
    assert kept
    Script(table).run(leases[0]._end(True), to_the_end=True)
    before = taken(table)
    arrives(table, kept[0])
    assert taken(table) == before or client.unresolved, "it was refused, and is charged all the same"


def test_a_forgotten_doubt_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    a_refused_creation_forgets_its_doubt(monkeypatch)
    with pytest.raises(AssertionError, match="charged all the same"):
        test_a_creation_that_was_refused_after_a_lost_answer_is_not_done_unnoticed()
