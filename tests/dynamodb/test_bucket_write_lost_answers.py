"""Answers that are lost on a busy bucket: what can never be known over-charges, is counted, and never mints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.dynamodb.draw_scenarios import HIGHER, RECENT_WRITERS, hierarchy, others_write, warm
from support.dynamodb.scripted_plans import Ended, Fate, Script, finish, steps
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, WANTED, Client, Table
from zae_limiter import Entity, RateLimiterUnavailable
from zae_limiter.bucket import MILLI
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import Call, NoAnswer
from zae_limiter.stores.protocol import Leg, Posting

UNHEARD = NoAnswer("the answer was lost")


def settling(client: Client, **deltas: int) -> Plan[None]:
    milli = {name: delta * MILLI for name, delta in deltas.items()}
    return client.space.settle([Posting(Leg("key", RESOURCE, LIMITS, "system"), milli)], client.table.now)


def done(table: Table, request: object) -> None:
    """The call is done, and its answer is lost."""
    assert isinstance(request, Call)
    table.call(request.operation, request.params)


# A draw


@pytest.mark.parametrize("others", range(RECENT_WRITERS + 2))
def test_a_draw_that_was_done_is_not_done_again_while_it_is_among_the_recent_writers(others: int) -> None:
    table = hierarchy(1)
    client = warm(table)
    script = Script(table, {0: Fate.UNHEARD}, meanwhile={1: lambda: others_write(table, others)})
    assert script.run(client.lease()._begin()).error is None
    once = {("key", name): amount * MILLI for name, amount in WANTED.items()}
    if others < RECENT_WRITERS:
        assert script.effects == once
        assert client.unresolved == 0
    assert all(script.effects[place] >= once[place] for place in once)


def test_a_draw_that_may_have_been_done_twice_is_counted() -> None:
    table = hierarchy(1)
    client = warm(table)
    script = Script(table, {0: Fate.UNHEARD}, meanwhile={1: lambda: others_write(table)})
    assert script.run(client.lease()._begin()).error is None
    assert script.effects["key", "rpd"] == 2 * WANTED["rpd"] * MILLI
    assert client.unresolved == 1


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNHEARD, Fate.LATE, Fate.LATEST])
def test_a_given_up_draw_is_voided_or_given_back(fate: Fate) -> None:
    table = hierarchy(1)
    client = warm(table)
    script = Script(table, {0: fate, 1: Fate.INTERRUPTED_UNDONE})
    script.run(client.lease()._begin())
    assert set(script.effects.values()) <= {0}
    assert client.unresolved == 0


def at_the_baseline() -> tuple[Table, Client]:
    """A bucket that was rebased in this very millisecond, so that no write can move its baseline."""
    table = hierarchy(1)
    client = warm(table)
    table.operator.limiter.set_system_defaults(HIGHER)
    client.take()
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.rf == table.now
    return table, client


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNHEARD])
def test_a_write_in_the_millisecond_of_the_baseline_whose_answer_was_lost_is_found_among_the_recent_writers(
    fate: Fate,
) -> None:
    table, client = at_the_baseline()
    script = Script(table, {0: fate})
    assert script.run(client.lease()._begin()).error is None
    assert script.effects["key", "rpd"] == WANTED["rpd"] * MILLI


def test_an_interrupted_draw_in_the_millisecond_of_the_baseline_does_not_happen_later_unsaid() -> None:
    table, client = at_the_baseline()
    script = Script(table, {0: Fate.INTERRUPTED_LATEST})
    script.run(client.lease()._begin())
    assert client.unresolved or set(script.effects.values()) <= {0}


# Beginning a bucket


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNHEARD, Fate.LATE, Fate.LATEST])
def test_a_lost_answer_to_the_first_draw_of_a_bucket_loses_nothing(fate: Fate) -> None:
    """The same PutItem again is exact: whichever comes first makes the bucket, and ``inc`` tells whose it is."""
    table = hierarchy(1)
    table.remove_bucket("key")
    client = table.client()
    script = Script(table, {2: fate})
    ended = script.run(client.lease()._begin())
    assert ended.operations[2] == "PutItem"
    assert ended.error is None
    assert script.effects == {("key", name): amount * MILLI for name, amount in WANTED.items()}
    assert client.unresolved == 0


def test_a_first_draw_that_lost_its_answer_and_the_race_is_not_in_doubt() -> None:
    table = hierarchy(1)
    table.remove_bucket("key")
    client = table.client()
    other = table.client()
    script = Script(table, {2: Fate.LOST}, meanwhile={3: lambda: other.take("key", {"rpd": 1})})
    ended = script.run(client.lease()._begin())
    assert ended.operations[2:4] == ["PutItem"] * 2
    assert ended.error is None
    assert script.effects["key", "rpd"] == WANTED["rpd"] * MILLI
    assert client.unresolved == 0


def rebuilt(deltas: dict[str, int], fate: Fate, meanwhile: Callable[[Table], object]) -> tuple[Script, Client]:
    """A settlement on a bucket that is gone, whose PutItem meets a fate."""
    table = hierarchy(1)
    table.remove_bucket("key")
    client = table.client()
    script = Script(table, {3: fate}, meanwhile={4: lambda: meanwhile(table)})
    ended = script.run(settling(client, **deltas), to_the_end=True)
    assert ended.operations[3] == "PutItem"
    assert ended.error is None
    return script, client


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNHEARD])
def test_a_lost_answer_to_a_settlement_that_rebuilds_books_it_once(fate: Fate) -> None:
    script, client = rebuilt({"tpd": 70}, fate, lambda table: None)
    assert script.effects["key", "tpd"] == 70 * MILLI
    assert client.unresolved == 0


def test_a_settlement_recognises_the_bucket_it_has_rebuilt_after_others_wrote_to_it() -> None:
    script, _ = rebuilt({"tpd": 70}, Fate.UNHEARD, others_write)
    assert script.effects["key", "tpd"] == 70 * MILLI


def test_a_credit_that_rebuilds_is_never_given_twice() -> None:
    script, _ = rebuilt({"tpd": -30}, Fate.UNHEARD, others_write)
    assert script.effects["key", "tpd"] >= -30 * MILLI


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNHEARD])
def test_a_debit_survives_the_bucket_and_a_lost_answer(fate: Fate) -> None:
    table = hierarchy(1)
    client = warm(table)
    script = Script(table, {0: fate}, meanwhile={1: lambda: table.remove_bucket("key")})
    ended = script.run(settling(client, tpd=70), to_the_end=True)
    assert ended.error is None
    assert table.levels("key")["tpd"] == (LIMITS[1].burst - 70) * MILLI


# Credits


@pytest.mark.parametrize("others", range(RECENT_WRITERS + 2))
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNHEARD, Fate.LATE, Fate.LATEST])
def test_a_credit_is_given_once_or_not_at_all(fate: Fate, others: int) -> None:
    table = hierarchy(1)
    client = warm(table)
    script = Script(table, {0: fate}, meanwhile={1: lambda: others_write(table, others)})
    assert script.run(settling(client, tpd=-30), to_the_end=True).error is None
    given = -script.effects["key", "tpd"]
    assert given in (0, 30 * MILLI)
    assert given or client.unresolved == 1
    if others < RECENT_WRITERS - 1:
        assert given, "the recent writers prove it"


def test_a_settlement_that_may_have_been_done_says_so_when_its_time_is_over() -> None:
    """Also if it was begun anew since, because others have written since: its credit must not be given again."""
    table = hierarchy(1)
    client = warm(table)
    fates = {0: Fate.UNHEARD} | dict.fromkeys(range(2, 200), Fate.THROTTLED)
    script = Script(table, fates, meanwhile={1: lambda: others_write(table)})
    ended = script.run(settling(client, rpd=1, tpd=-30), to_the_end=True)
    assert script.effects["key", "tpd"] == -30 * MILLI
    assert isinstance(ended.error, RateLimiterUnavailable)
    assert ended.ambiguous
    assert ended.error.remaining is not None
    assert [dict(posting.deltas_milli) for posting in ended.error.remaining] == [{"rpd": MILLI}]
    assert client.unresolved == 1


def credit_beside(table: Table, drawer: Client, creditor: Client) -> Ended:
    """Two answers are lost on one bucket: of a draw, and of a credit by a client that saw the write id of the draw.

    Both repeat after others have pushed both ids out of the recent writers, first the draw, then the credit.
    """
    lease = creditor.take("key", {"tpd": 100})
    table.now += 1_000
    draw = steps(drawer.lease("key", {"rpd": 1})._begin(), table)
    done(table, next(draw))
    creditor.limiter.available("key", RESOURCE)
    credit = steps(lease._end(True), table)
    done(table, next(credit))
    others_write(table)
    assert finish(draw, table, UNHEARD).error is None
    return finish(credit, table, UNHEARD)


def test_a_write_id_that_comes_back_proves_nothing() -> None:
    table = hierarchy(1)
    before = table.counters("key")["tpd"]
    credit_beside(table, warm(table), warm(table))
    assert table.counters("key")["tpd"] >= before


# Transactions


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNHEARD, Fate.LATE, Fate.LATEST])
def test_a_lost_answer_to_a_transaction_is_asked_for_again(fate: Fate) -> None:
    table = hierarchy(2)
    table.remove_bucket("key")
    client = table.client()
    script = Script(table, {3: fate})
    ended = script.run(client.lease()._begin())
    assert ended.operations[3:5] == ["TransactWriteItems"] * 2
    assert ended.error is None
    assert {script.effects[entity, "rpd"] for entity in ("key", "team")} == {3 * MILLI}
    assert client.unresolved == 0


@pytest.mark.parametrize("fate", [Fate.UNHEARD, Fate.LATE, Fate.LATEST])
def test_a_transaction_that_may_have_been_done_is_undone_when_its_repetition_is_refused(fate: Fate) -> None:
    table = hierarchy(2)
    table.remove_bucket("key")
    client = table.client()
    script = Script(table, {3: fate, 4: Fate.FORBIDDEN})
    ended = script.run(client.lease()._begin())
    assert ended.operations[3:5] == ["TransactWriteItems"] * 2
    assert ended.ambiguous or client.unresolved or set(script.effects.values()) <= {0}


@pytest.mark.parametrize("then", [Fate.CONFLICT, Fate.THROTTLED])
def test_a_change_that_was_done_unheard_is_not_overtaken_by_its_own_repetition(then: Fate) -> None:
    """The repetition is the same transaction, whatever it met on its way: otherwise the entity would exist already."""
    table = hierarchy(1)
    client = warm(table)
    script = Script(table, {2: Fate.UNHEARD, 3: then})
    ended = script.run(client.space.create_entity(Entity("new"), None, table.now))
    assert ended.operations[2:5] == ["TransactWriteItems"] * 3
    assert ended.error is None
