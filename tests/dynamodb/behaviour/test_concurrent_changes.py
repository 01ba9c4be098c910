"""Something happens just before any call of any scenario: limits and hierarchies change, others take and give, buckets
and namespaces go. What the plan took is what its caller was told, and no write of it mints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from support.dynamodb.draw_scenarios import ENTITIES, HIGHER, SCENARIOS, Case
from support.dynamodb.scripted_plans import Ended, Script
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, Table
from zae_limiter import Limit, NamespaceNotFoundError, RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.bucket import MILLI
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of

LOWER = (Limit.per_day("rpd", 30), Limit.per_day("tpd", 300))
MORE = (*LIMITS, Limit.per_day("wpd", 50))
FEWER = LIMITS[:1]


def system_becomes(limits: tuple[Limit, ...], *, propagate: bool = True) -> Callable[[Table], object]:
    def change(table: Table) -> None:
        table.operator.limiter.set_system_defaults(limits, propagate=propagate)

    return change


def own_limits(table: Table) -> None:
    table.operator.limiter.set_limits("key", HIGHER, resource=RESOURCE)


def no_limits(table: Table) -> None:
    table.operator.limiter.delete_system_defaults()


def others_take(table: Table) -> None:
    other = table.client()
    for _ in range(5):
        other.takes("key", {"rpd": 1})


def others_take_nearly_all(table: Table) -> None:
    other = table.client()
    level = table.levels("key").get("rpd", LIMITS[0].burst * MILLI) // MILLI
    if level > 1:
        other.takes("key", {"rpd": level - 1})


def others_give_back(table: Table) -> None:
    other = table.client()
    if other.takes("key", {"rpd": 1}):
        lease = other.take("key", {})
        other.run(lease._end(True), to_the_end=True)


def others_bring_limits(table: Table) -> None:
    table.client().takes("key", {"rpd": 1}, limits=[Limit.per_day("rpd", 80), Limit.per_day("tpd", 800)])


def filled(table: Table) -> None:
    for entity in ENTITIES:
        table.operator.limiter.reset(entity)


def expired(table: Table) -> None:
    for entity in ENTITIES:
        if table.item(entity) is not None:
            table.remove_bucket(entity)


def own_bucket_gone(table: Table) -> None:
    if table.item("key") is not None:
        table.remove_bucket("key")


def moved_away(table: Table) -> None:
    table.operator.limiter.update_entity("key", parent_id=None, cascade=False)


def another_parent(table: Table) -> None:
    table.operator.limiter.create_entity("other")
    table.operator.limiter.update_entity("key", parent_id="other", cascade=True)


def entity_deleted(table: Table) -> None:
    table.operator.limiter.delete_entity("key")


def namespace_deleted(table: Table) -> None:
    repository = table.operator.limiter.repository
    repository._driver.run(repository._core.store.delete_namespace("default", None, table.now))


def namespace_recovered(table: Table) -> None:
    namespace_deleted(table)
    repository = table.operator.limiter.repository
    repository._driver.run(repository._core.store.recover_namespace("default", None, table.now))


EVENTS: dict[str, Callable[[Table], object]] = {
    "limits are raised": system_becomes(HIGHER),
    "limits are raised, buckets are not told": system_becomes(HIGHER, propagate=False),
    "limits are lowered": system_becomes(LOWER),
    "a limit is added": system_becomes(MORE),
    "a limit is taken away": system_becomes(FEWER),
    "the entity gets its own": own_limits,
    "limits are deleted": no_limits,
    "others take": others_take,
    "others take nearly all": others_take_nearly_all,
    "others give back": others_give_back,
    "others bring limits": others_bring_limits,
    "buckets are filled": filled,
    "buckets expire": expired,
    "its bucket is removed": own_bucket_gone,
    "it gets no parent": moved_away,
    "it gets another parent": another_parent,
    "it is deleted": entity_deleted,
    "the namespace is deleted": namespace_deleted,
    "the namespace is deleted and recovered": namespace_recovered,
}

CHOSEN = (
    "warm grant over 1",
    "warm grant over 2",
    "warm grant over 3",
    "cold grant over 2",
    "first grant over 1",
    "first grant over 2",
    "warm grant over 2, number 1 is missing",
    "warm denial over 2 by number 1",
    "cold denial over 2 by number 1",
    "denial over 2 after a change",
    "grant over 2 with limits of the call",
    "more over 2",
    "warm settlement of {'tpd': 70} over 2",
    "warm settlement of {'rpd': -1, 'tpd': 70} over 2",
    "cold settlement of {'tpd': -30} over 2",
    "failed end over 2",
)

ANSWERS = (RateLimitExceeded, NamespaceNotFoundError, ValidationError)


def promised_by(case: Case, ended: Ended) -> dict[tuple[str, str], int]:
    """What the caller was told to have been taken, by entity and limit."""
    if ended.error is not None:
        return {}
    if case.is_settlement:
        return {(entity, name): delta for entity in case.legs for name, delta in case.effect.items()}
    grant = case.grant()
    return {
        (leg.entity_id, name): amount * MILLI
        for leg in grant[0]
        for name, amount in grant[1].items()
        if name in leg.names and amount
    }


def play(case: Case, event: Callable[[Table], object], place: int) -> tuple[Script, Ended]:
    script = Script(case.table, meanwhile={place: lambda: event(case.table)})
    return script, script.run(case.plan(), to_the_end=case.to_the_end)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("scenario", CHOSEN)
def test_a_change_before_any_call_leaves_what_the_caller_was_told(scenario: str, event: str) -> None:
    wrong = []
    for place in range(9):
        case = SCENARIOS[scenario]()
        script, ended = play(case, EVENTS[event], place)
        if len(ended.calls) <= place:
            break
        try:
            check(case, script, ended)
        except AssertionError as error:
            wrong.append(f"before call {place}, {ended.operations}: {str(error).splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


def check(case: Case, script: Script, ended: Ended) -> None:
    gone = isinstance(ended.error, RateLimiterUnavailable) and "is deleted" in str(ended.error)
    assert ended.error is None or gone or isinstance(ended.error, ANSWERS), repr(ended.error)
    assert not script.minted
    promised = Counter(promised_by(case, ended))
    for place in promised.keys() | script.effects.keys():
        assert script.effects[place] == promised[place], f"{place}: {promised[place]} promised, {script.effects}"
    for item in case.table.buckets():
        snapshot = snapshot_of(item)
        assert snapshot.balances.keys() > snapshot.retired
        assert {"GSI2PK", "GSI3PK", "GSI4PK", "ttl"} <= item.keys()
        assert all(item[f"{index}PK"]["S"].startswith(f"{case.table.ns}/") for index in ("GSI2", "GSI3", "GSI4"))
    assert case.client.unresolved == 0
