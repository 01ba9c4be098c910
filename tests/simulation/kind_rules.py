"""Small schedules, one for each rule of the limit kinds that random ones meet too seldom, or cannot meet.

Each is a few calls of a few processes over the model of DynamoDB, with a fate for the one call that matters, and says
by an ``AssertionError`` what went wrong. ``test_kind_rules`` has the rules, and undoes each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.dynamodb.draw_scenarios import RECENT_WRITERS
from support.dynamodb.scripted_plans import Fate, Script, answer, run_hearing
from support.dynamodb.scripted_tables import Client, Table
from zae_limiter import Limit
from zae_limiter.bucket import MILLI, balance_of
from zae_limiter.calendars import Calendar
from zae_limiter.lease import hold_keeper
from zae_limiter.lease.hold_renewal import renew_holds
from zae_limiter.stores.dynamodb.requests import Call
from zae_limiter.stores.protocol import HoldChange, Posting

DAY_MS = 86_400_000
TTL = 600
CALLS = Limit.concurrent("calls", 1, ttl=TTL)
TWO_CALLS = Limit.concurrent("calls", 2, ttl=TTL)
RPD = Limit.per_day("rpd", 100)
WATCHING = Limit.per_day("rpd", 5, enforce=False)
FRESH = Limit.per_day("usd", 100, tz="UTC", carry_debt=False)
BUDGET = Limit.per_day("usd", 100, tz="UTC")
ROLLING = Limit.per_day("usd", 100, tz="UTC", burst=101)
TEN_DAYS = Limit.per_day("usd", 10, tz="UTC", burst=100)
ONE_A_DAY = Limit.per_day("usd", 1, tz="UTC")


def table_with(*limits: Limit) -> Table:
    """A table with an entity whose limits these are."""
    table = Table()
    table.operator.limiter.set_system_defaults(limits)
    table.operator.limiter.create_entity("key")
    return table


def slots_of(table: Table) -> tuple[int, int, int]:
    """How many calls of the entity are free, lent, and allowed."""
    snapshot = table.snapshot("key")
    assert snapshot is not None
    balance = snapshot.holds["calls"]
    return balance.tk // MILLI, sum(balance.counts.values()) // MILLI, balance.bx // MILLI


def counted_refusals(table: Table) -> int:
    snapshot = table.snapshot("key")
    assert snapshot is not None
    return snapshot.balances["rpd"].sn


# Time zone databases that disagree


@contextmanager
def databases_that_disagree() -> Iterator[Callable[[int], None]]:
    """Periods begin so many milliseconds earlier for the host that runs next, as the caller says."""
    ahead = [0]
    start = Calendar.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Calendar, "start", lambda self, number: start(self, number) - ahead[0])
        patch.setattr(Calendar, "ordinal", lambda self, t: self._find(t)[0])  # not what another host remembers
        yield lambda milliseconds: ahead.__setitem__(0, milliseconds)


def a_period_is_credited_once_whichever_client_begins_it() -> None:
    """A host for which the day has begun writes new terms; one for which it begins later draws in that day."""
    table = table_with(BUDGET)
    midnight = -(-table.now // DAY_MS) * DAY_MS
    early, late = table.client(), table.client()
    with databases_that_disagree() as ahead:
        table.now = midnight - 3_600_000
        assert late.takes(wanted={"usd": 1})
        table.now = midnight - 500
        ahead(900)
        assert early.takes(wanted={"usd": 100}, limits=[ROLLING])
        ahead(0)
        table.now = midnight + 1_000
        assert not late.takes(wanted={"usd": 100}, limits=[ROLLING]), "the amount of one day was granted twice"


def a_period_does_not_begin_twice_in_a_millisecond() -> None:
    """It begins by one host, in the millisecond of the baseline, while another still has the bucket from before."""
    table = table_with(FRESH)
    midnight = -(-table.now // DAY_MS) * DAY_MS
    early, late, first = table.client(), table.client(), table.client()
    with databases_that_disagree() as ahead:
        table.now = midnight - 500
        assert first.takes(wanted={"usd": 100})
        assert not late.takes(wanted={"usd": 1})
        ahead(900)
        assert early.takes(wanted={"usd": 100}), "its day has begun"
        ahead(0)
        table.now = midnight + 1_000
        table.timer += 60_000
        assert not late.takes(wanted={"usd": 100}), "the amount of one day was granted twice"


def a_period_begins_with_the_whole_amount() -> None:
    """On so many shards that they do not share it evenly."""
    shards = 16
    for day in range(2 * shards):
        now = day * DAY_MS
        parts = [balance_of(ONE_A_DAY, now, tk=0, shard=shard, shards=shards) for shard in range(shards)]
        assert sum(part.level(now + DAY_MS) for part in parts) == MILLI, f"day {day} begins short"


def a_budget_that_expires_is_full() -> None:
    """A lease that used more is settled by a process that has not seen what others took meanwhile."""
    table = table_with(TEN_DAYS)
    client, other = table.client(), table.client()
    lease = client.take(wanted={"usd": 1})
    other.take(wanted={"usd": 99})
    client.adjust(lease, usd=1)
    client.run(lease._end(False), to_the_end=True)
    table.now = int(table.item("key")["ttl"]["N"]) * 1000
    assert table.levels("key")["usd"] == 100 * MILLI, "what was spent is forgotten"


# Lost answers


def _watched() -> tuple[Table, Client, Client]:
    table = table_with(WATCHING)
    client, other = table.client(), table.client()
    for one in (client, other):
        one.take(wanted={})
    return table, client, other


def what_a_lost_draw_was_told_stays_so() -> None:
    """Its first try comes late, when there is enough again; in between a repetition found too little."""
    table, client, other = _watched()
    taken = other.lease(wanted={"rpd": 5})

    def drain() -> None:
        other.run(taken._begin())

    def refill() -> None:
        other.run(taken._end(True), to_the_end=True)

    lease = client.lease(wanted={"rpd": 3})
    script = Script(table, {0: Fate.LATE}, meanwhile={1: drain, 2: refill})
    ended = script.run(lease._begin())
    assert ended.error is None, ended.error
    assert len(ended.calls) > 2, "nothing came in between"
    assert counted_refusals(table) == len(lease.refused_by), "it was told something else than what was counted"


def a_lost_draw_that_cannot_be_repeated_is_voided() -> None:
    """It never arrived, and a limit that only watches says something else by now."""
    table, client, other = _watched()
    lease = client.lease(wanted={"rpd": 3})
    ended = Script(table, {0: Fate.LOST}, meanwhile={1: lambda: other.take(wanted={"rpd": 5})}).run(lease._begin())
    assert ended.error is None, f"a limit that only watches refused: {ended.error}"
    assert counted_refusals(table) == len(lease.refused_by) == 1


def a_draw_that_arrives_twice_is_charged_once() -> None:
    """The network delivers a draw twice, and its caller hears the refusal of the second."""
    table = table_with(RPD, CALLS)
    client = table.client()
    client.take(wanted={})
    sent: list[Call] = []

    def hear_the_second(call: Call) -> Any:
        if sent or call.operation != "UpdateItem":
            return None
        sent.append(call)
        answer(table, call)
        return answer(table, call)[0]

    lease = client.lease(wanted={"rpd": 3, "calls": 1})
    ended = run_hearing(lease._begin(), table, hear_the_second)
    assert sent
    assert ended.error is None, f"it was charged, and told: {ended.error}"
    assert table.counters("key")["rpd"] == 3 * MILLI
    client.run(lease._end(False), to_the_end=True)
    assert slots_of(table) == (1, 0, 1), "its slot did not come back"


def nothing_comes_back_twice() -> None:
    """The answer to a settlement is lost, and so many write then that no client can tell whether it was done."""
    table = table_with(RPD)
    client, other = table.client(), table.client()
    lease = client.take(wanted={"rpd": 40})
    client.adjust(lease, rpd=-30)

    def others_write() -> None:
        for _ in range(RECENT_WRITERS):
            other.take(wanted={"rpd": 1})

    script = Script(table, {0: Fate.UNHEARD}, meanwhile={1: others_write})
    script.run(lease._end(False), to_the_end=True)
    assert len(script.calls) > 1, "the answer was not lost"
    assert table.levels("key")["rpd"] <= (100 - 10 - RECENT_WRITERS) * MILLI, "it came back twice"


def no_slot_of_another_call_comes_back() -> None:
    """The same with slots: what is given back twice is another call's, which runs on."""
    table = table_with(RPD, TWO_CALLS)
    client, other = table.client(), table.client()
    lease = client.take(wanted={"calls": 1})
    running = other.take(wanted={"calls": 1})
    assert lease.holds[0].due == running.holds[0].due

    def others_write() -> None:
        for _ in range(RECENT_WRITERS):
            other.take(wanted={"rpd": 1})

    script = Script(table, {0: Fate.UNHEARD}, meanwhile={1: others_write})
    script.run(lease._end(False), to_the_end=True)
    assert len(script.calls) > 1, "the answer was not lost"
    assert slots_of(table) == (1, 1, 2), "the slot of a call that runs came back"


# Old snapshots


def what_was_given_back_is_not_returned_again() -> None:
    """A call ends after its time, and another process, which has not seen that, returns what is overdue."""
    table = table_with(CALLS)
    client, other = table.client(), table.client()
    lease = client.take(wanted={"calls": 1})
    assert not other.takes(wanted={"calls": 1})
    table.now += 2 * TTL * 1000
    table.timer += 2 * TTL * 1000
    client.run(lease._end(False), to_the_end=True)
    assert slots_of(table) == (1, 0, 1)
    assert other.takes(wanted={"calls": 1})
    assert slots_of(table) == (0, 1, 1), "one slot came back twice"


def a_call_that_ends_elsewhere_gives_back() -> None:
    """The process that ends it saw the bucket last before it began."""
    table = table_with(RPD, CALLS)
    client, other = table.client(), table.client()
    other.take(wanted={"rpd": 1})
    lease = client.take(wanted={"rpd": 1, "calls": 1})
    grant, (hold,) = lease._granted, lease.holds
    assert grant is not None
    other.run(other.space.settle([Posting(grant.legs[0], {}, [HoldChange(hold, -1)])], table.now), to_the_end=True)
    assert slots_of(table) == (1, 0, 1), "the slot is gone until it is due"


# Changes of limits


def a_renewal_lasts_as_long_as_is_in_force() -> None:
    table = table_with(CALLS)
    client = table.client()
    lease = client.take(wanted={"calls": 1})
    table.operator.limiter.set_system_defaults([Limit.concurrent("calls", 1, ttl=TTL // 10)])
    table.now += TTL * 900
    client.run(lease._renew())
    (hold,) = lease.holds
    assert hold.amount == 1
    assert hold.due * 1000 - table.now <= TTL // 10 * 1250, "a call that dies keeps its slot for longer than that"


def the_keeper_goes_by_the_due_time() -> None:
    """The time is raised while a call runs: until it is renewed, its slot is due when it was."""
    table = table_with(Limit.concurrent("calls", 1, ttl=60))
    client = table.client()
    lease = client.take(wanted={"calls": 1})
    (hold,) = lease.holds
    table.operator.limiter.set_system_defaults([CALLS])
    for _ in range(3):
        table.now = hold_keeper.renewal_at(hold)
        assert table.now < hold.due * 1000, "it is due before it is renewed"
        client.run(renew_holds(client.core, [hold]))
        assert hold.due * 1000 - table.now >= TTL * 1000


def a_raised_limit_does_not_stay_refused() -> None:
    """A draw finds too little under terms that the bucket does not obey yet, and later enough."""
    table = table_with(Limit.per_minute("rpm", 10))
    client = table.client()
    assert client.takes(wanted={"rpm": 10})
    raised = [Limit.per_minute("rpm", 100)]
    assert not client.takes(wanted={"rpm": 50}, limits=raised)
    table.now += 60_000
    table.timer += 60_000
    assert client.takes(wanted={"rpm": 50}, limits=raised), "a raised limit stays refused"
