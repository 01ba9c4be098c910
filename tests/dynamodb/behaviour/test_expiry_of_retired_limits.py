"""A bucket does not expire while a limit that was taken away still fills: it may come back, and would be full."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.mutations import the_expiry_ignores_limits_that_rest
from support.dynamodb.scripted_tables import RESOURCE, Client, Table
from zae_limiter import Limit
from zae_limiter.stores.dynamodb.table_client import TTL_MARGIN_S
from zae_limiter.stores.protocol import Scope

FAST, SLOW = Limit.per_second("rps", 10), Limit.per_day("rpd", 10)
LATER_MS = (TTL_MARGIN_S + 600) * 1000
"""The fast limit is full by then, and an unsplit bucket of it alone would have expired."""


def configure(table: Table, *limits: Limit, propagate: bool = True) -> None:
    table.operator.run(table.operator.space.set_config(Scope(), limits, None, None, propagate, table.now))


def pass_time(table: Table, milliseconds: int) -> None:
    table.now += milliseconds
    table.timer += milliseconds
    table.model.expire(table.now / 1000)


def draw(client: Client) -> None:
    assert client.takes("key", {"rps": 1})


def settle(client: Client) -> None:
    lease = client.take("key", {"rps": 1})
    client.adjust(lease, rps=3)
    client.run(lease._end(False), to_the_end=True)


def nothing(client: Client) -> None:
    """Only the change itself."""


WRITES: dict[str, Callable[[Client], None]] = {"the change": nothing, "a draw": draw, "a debit": settle}


def used_up(*, propagate: bool = True) -> Table:
    """A bucket whose slow limit is empty and retired."""
    table = Table()
    configure(table, FAST, SLOW)
    assert table.client().takes("key", {"rps": 1, "rpd": 10})
    table.now += 1_000
    table.timer += 1_000
    configure(table, FAST, propagate=propagate)
    return table


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_bucket_outlives_its_retired_limit(write: Callable[[Client], None]) -> None:
    table = used_up()
    write(table.client())
    pass_time(table, LATER_MS)
    assert table.item("key", RESOURCE) is not None, "it has expired, and with it what was taken"
    configure(table, FAST, SLOW)
    assert not table.client().takes("key", {"rps": 1, "rpd": 1})


def test_a_draw_that_brings_the_change_outlives_it_too() -> None:
    table = used_up(propagate=False)
    draw(table.client())
    pass_time(table, LATER_MS)
    assert table.item("key", RESOURCE) is not None, "it has expired, and with it what was taken"


def test_a_bucket_whose_limits_are_all_full_expires() -> None:
    table = used_up()
    pass_time(table, 86_400_000)
    draw(table.client())
    assert table.item("key", RESOURCE) is not None
    pass_time(table, 86_400_000 + LATER_MS)
    assert table.item("key", RESOURCE) is None


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_expiry_that_ignores_retired_limits_is_noticed(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[Client], None]
) -> None:
    the_expiry_ignores_limits_that_rest(monkeypatch)
    with pytest.raises(AssertionError, match="it has expired"):
        test_a_bucket_outlives_its_retired_limit(write)
