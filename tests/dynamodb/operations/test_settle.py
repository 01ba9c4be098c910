"""A lease from its beginning to its end, with lost answers in between: what may be booked is not booked again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from support.dynamodb.draw_scenarios import hierarchy
from support.dynamodb.scripted_plans import Fate, Script
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, Client, ModelStore, Table
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, Repository, ValidationError
from zae_limiter.bucket import MILLI
from zae_limiter.lease.lease_base import LeaseBase
from zae_limiter.lease.ledger import FLUSH_AFTER_MS
from zae_limiter.stores.dynamodb.requests import Call, NoAnswer


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What cannot be settled is logged; here that is expected."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def begun(height: int = 1, **wanted: int) -> tuple[Table, Client, LeaseBase]:
    table = hierarchy(height)
    client = table.client()
    return table, client, client.take("key", wanted)


def tpd(table: Table, entity: str = "key") -> int:
    """What was ever taken of it, net."""
    return table.counters(entity)["tpd"]


# Flushing


@pytest.mark.parametrize("ends", ["well", "with an error"])
@pytest.mark.parametrize("heard", [False, True])
def test_a_credit_whose_flush_was_not_answered_is_not_given_twice(heard: bool, ends: str) -> None:
    table, client, lease = begun(tpd=500)
    before = tpd(table)
    client.adjust(lease, tpd=-300)
    ended = Script(table, silent_from=0, heard=heard).run(lease._flush(), to_the_end=True)
    assert isinstance(ended.error, RateLimiterUnavailable)
    assert ended.ambiguous
    client.run(lease._end(ends != "well"), to_the_end=True)
    assert tpd(table) >= before - (300 if ends == "well" else 500) * MILLI


def test_a_credit_that_was_flushed_by_its_age_and_not_answered_is_not_given_twice() -> None:
    table, client, lease = begun(tpd=500)
    before = tpd(table)
    client.adjust(lease, tpd=-300)
    table.timer += FLUSH_AFTER_MS
    assert lease._open_ledger().adjust({}, table.timer), "it is due"
    assert Script(table, silent_from=0, heard=True).run(lease._flush_old(), to_the_end=True).error is None
    client.run(lease._end(False), to_the_end=True)
    assert tpd(table) >= before - 300 * MILLI


def test_an_interrupted_flush_gives_nothing_back_twice() -> None:
    table, client, lease = begun(tpd=500)
    before = tpd(table)
    client.adjust(lease, tpd=-300)
    Script(table, {0: Fate.INTERRUPTED_DONE}).run(lease._flush(), to_the_end=True)
    client.run(lease._end(True), to_the_end=True)
    assert tpd(table) >= before - 500 * MILLI


def test_a_debit_whose_flush_never_arrived_is_booked_at_the_end() -> None:
    table, client, lease = begun(tpd=500)
    before = tpd(table)
    client.adjust(lease, tpd=70)
    Script(table, silent_from=0).run(lease._flush(), to_the_end=True)
    client.run(lease._end(False), to_the_end=True)
    assert tpd(table) == before + 70 * MILLI


def test_a_flush_that_was_done_in_part_does_not_charge_that_part_again() -> None:
    table, client, lease = begun(2, tpd=50)
    before = tpd(table)
    client.adjust(lease, tpd=70)
    Script(table, {1: Fate.FORBIDDEN}).run(lease._flush(), to_the_end=True)
    client.run(lease._end(False), to_the_end=True)
    assert client.unresolved or tpd(table) == before + 70 * MILLI


# Ending


@pytest.mark.parametrize("fate", [Fate.INTERRUPTED_DONE, Fate.INTERRUPTED_UNDONE])
def test_a_second_interrupt_does_not_keep_what_the_first_gives_back(fate: Fate) -> None:
    table, client, lease = begun(tpd=500)
    before = tpd(table)
    Script(table, {0: fate}).run(lease._end(True), to_the_end=True)
    assert tpd(table) == before - 500 * MILLI
    assert client.unresolved == 0


class FirstUnheard(Script):
    """The first call is done, and takes all the time there is."""

    def _fulfil(self, call: Call, number: int, fate: Fate | None) -> Any:
        if number:
            return super()._fulfil(call, number, fate)
        self._apply(call)
        self.table.timer = call.give_up_at
        return NoAnswer("silence")


def test_a_debit_that_may_be_charged_twice_is_counted() -> None:
    table, client, lease = begun(tpd=50)
    client.store.client.deadline_ms = 300
    before = tpd(table)
    client.adjust(lease, tpd=70)
    FirstUnheard(table).run(lease._end(False), to_the_end=True)
    assert client.unresolved or tpd(table) == before + 70 * MILLI


def test_what_cannot_be_given_back_is_counted() -> None:
    table, client, lease = begun(tpd=500)
    Script(table, silent_from=0).run(lease._end(True), to_the_end=True)
    assert client.unresolved > 0


def test_a_leg_that_is_always_refused_does_not_make_the_others_pay_again() -> None:
    table, client, lease = begun(2, tpd=50)
    before = tpd(table)
    client.adjust(lease, tpd=70)
    table.spoil("team", "b_wcu_tk", {"S": "no number"})
    Script(table).run(lease._end(False), to_the_end=True)
    assert tpd(table) == before + 70 * MILLI


@pytest.mark.parametrize("kept", [True, False])
def test_an_end_with_any_exception_from_the_store_is_no_exception_of_the_body(kept: bool) -> None:
    table, client, lease = begun(tpd=50)
    client.adjust(lease, tpd=70)
    table.model.tables.clear()
    Script(table).run(lease._end(not kept), to_the_end=True)
    assert client.unresolved > 0, "every try of a debit may have been done"


# Event loops that end


def test_a_loop_that_ends_while_a_lease_gives_back_mints_nothing() -> None:
    """``asyncio.run`` cancels every task that is left, those that carry a request too."""
    table = hierarchy(1)
    store = ModelStore(table)
    transport: Any = store._calls._async_transport
    repository = Repository(store, clock=lambda: table.now)
    limiter = RateLimiter(repository)
    before = tpd(table)

    async def work() -> None:
        async with limiter.acquire("key", RESOURCE, {"tpd": 100}):
            transport.seconds = 0.5
            raise ZeroDivisionError

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(work())
        while transport.seconds == 0:
            await asyncio.sleep(0.001)
        transport.seconds = 0
        return task

    task = asyncio.run(main())
    assert task.done()
    assert tpd(table) >= before


# Taking more


def parent_gets(limits: tuple[Limit, ...]) -> tuple[Table, Client]:
    table = Table()
    operator = table.operator.limiter
    operator.create_entity("team")
    operator.create_entity("key", parent_id="team", cascade=True)
    operator.set_limits("key", LIMITS, resource=RESOURCE)
    operator.set_limits("team", limits, resource=RESOURCE)
    return table, table.client()


def test_more_that_was_taken_from_a_new_limit_of_the_parent_comes_back() -> None:
    table, client = parent_gets(LIMITS[:1])
    lease = client.take("key", {"rpd": 1})
    table.operator.limiter.set_limits("team", LIMITS, resource=RESOURCE)
    client.run(lease._consume_more(tpd=50))
    taken = tpd(table, "team")
    client.run(lease._end(True), to_the_end=True)
    assert (taken, tpd(table, "team")) == (50 * MILLI, 0)
    assert tpd(table) == 0


def test_more_of_a_limit_that_is_gone_gives_nothing_back_that_was_not_taken() -> None:
    table, client = parent_gets(LIMITS[:1])
    client.take("key", {"tpd": 500})
    lease = client.take("key", {"tpd": 1})
    table.operator.limiter.set_limits("key", LIMITS[:1], resource=RESOURCE)
    with suppress(ValidationError):
        client.run(lease._consume_more(tpd=50))
    client.run(lease._end(True), to_the_end=True)
    table.operator.limiter.set_limits("key", LIMITS, resource=RESOURCE)
    assert table.levels("key")["tpd"] <= 500 * MILLI
