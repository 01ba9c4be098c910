"""Which config is obeyed: the newest, by every client's next acquire, whatever its cache says."""

from __future__ import annotations

import pytest

from support.dynamodb.draw_scenarios import HIGHER, hierarchy, warm
from support.dynamodb.scripted_plans import Script
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, Client, Table
from zae_limiter import Limit, RateLimitExceeded, ValidationError
from zae_limiter.bucket import MILLI
from zae_limiter.stores.dynamodb.bucket_cache import LONGEST_DENIAL_MS
from zae_limiter.stores.dynamodb.config_versions import FENCE, Versions, fence_of, may_follow, of_call
from zae_limiter.stores.protocol import Scope

LOW = (Limit.per_day("rpd", 5), Limit.per_day("tpd", 1_000))
GIVEN = (Limit.per_day("rpd", 50), Limit.per_day("tpd", 500))


def one(table: Table | None = None) -> tuple[Table, Client]:
    """One entity with system defaults, and a client that knows its bucket."""
    table = table or hierarchy(1)
    return table, warm(table)


def burst(table: Table, entity_id: str = "key") -> int:
    snapshot = table.snapshot(entity_id)
    assert snapshot is not None
    return snapshot.balances["rpd"].limit.burst


# The rule


@pytest.mark.parametrize(
    ("ours", "theirs", "follows"),
    [
        ("1.0.0.0.0.0", "0.0.0.0.0.0", True),
        ("1.0.0.0.0.0", "0.1.0.0.0.0", False),
        ("1.1.0.0.0.0", "0.1.0.0.0.0", True),
        ("10.0.0.0.0.0", "9.0.0.0.0.0", True),
        ("0.0.0.0.0.1", "5.5.5.5.0.2", False),
        (of_call(GIVEN, 0, 1), "9.9.9.9.0.1", True),
        (of_call(GIVEN, 0, 1), "0.0.0.0.1.1", False),
        (of_call(GIVEN, 0, 1), of_call(LOW, 1, 1), False),
        ("0.0.0.0.1.0", "0.0.0.0.2.0", False),
        ("0.0.0.0.2.0", "0.0.0.0.1.0", True),
        (of_call(GIVEN, 0, 1), "0.0.0.0.0.2", False),
        (of_call(GIVEN, 0, 2), of_call(LOW, 0, 1), True),
        (of_call(GIVEN, 0, 1), of_call(LOW, 0, 2), False),
        ("1.0.0.0.0.1/0.1.0.1", "1.0.0.0.0.1/0.0.0.1", True),
        ("1.0.0.0.0.1/0.0.0.1", "1.0.0.0.0.1/0.1.0.1", False),
        ("1.0.0.0.0.1/0.0.0.2/0.0.0.1", "1.0.0.0.0.1/0.0.0.1/0.9.0.9", True),
        ("1.0.0.0.0.1/0.0.0.1", "1.0.0.0.0.1", False),
        ("1.0.0.0.0.1", "1.0.0.0.0.1/0.0.0.1", False),
        ("1.0.0.0.0.2", "1.0.0.0.0.1/0.0.0.1", True),
        (of_call(GIVEN, 0, 1) + "/0.0.0.1", of_call(LOW, 0, 1) + "/0.0.0.1", True),
        (of_call(GIVEN, 0, 1) + "/0.0.0.1", "1.0.0.0.0.1", False),
    ],
)
def test_newer_counters_follow_older_ones(ours: str, theirs: str, follows: bool) -> None:
    assert may_follow(ours, theirs, seen_before=False) is follows


@pytest.mark.parametrize("theirs", [FENCE, fence_of(1), of_call(GIVEN, 0, 0)])
def test_what_has_no_order_is_followed_by_what_was_resolved_after_it_was_seen(theirs: str) -> None:
    ours = str(Versions(1, 0, 0, 0, 0, 0))
    assert may_follow(ours, theirs, seen_before=True)
    assert not may_follow(ours, theirs, seen_before=False)


# Warm clients


@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize("others_act", [True, False])
def test_a_warm_cache_is_not_obeyed_once_the_bucket_has_newer_terms(propagate: bool, others_act: bool) -> None:
    table, client = one()
    table.operator.limiter.set_system_defaults(LOW, propagate=propagate)
    if others_act:
        table.client().takes("key", {"rpd": 1})
    granted = sum(client.takes("key", {"rpd": 1}) for _ in range(10))
    assert granted < 10 or not (propagate or others_act)


def test_a_client_with_an_old_cache_does_not_bring_old_terms_back() -> None:
    table, client = one()
    table.operator.limiter.set_system_defaults(HIGHER)
    client.take("key", {"rpd": 1})
    assert burst(table) == HIGHER[0].burst
    table.client().take("key", {"rpd": 1}, limits=GIVEN)
    assert burst(table) == GIVEN[0].burst
    table.operator.run(table.operator.space.set_config(Scope(), LOW, None, None, False, table.now))
    client.takes("key", {"rpd": 1})
    assert burst(table) == LOW[0].burst, "a digest says nothing of what holds now: it is resolved again"


def test_deleting_limits_lets_the_next_level_hold_for_warm_clients() -> None:
    table = hierarchy(1)
    operator = table.operator.limiter
    operator.set_limits("key", HIGHER, resource=RESOURCE)
    client = warm(table)
    operator.delete_limits("key", resource=RESOURCE)
    client.take("key", {"rpd": 1})
    assert burst(table) == LIMITS[0].burst
    operator.set_limits("key", LOW, resource=RESOURCE)
    client.takes("key", {"rpd": 1})
    assert burst(table) == LOW[0].burst, "its counter goes on where it was deleted"


def test_limits_that_are_all_deleted_are_missed_by_warm_clients() -> None:
    table, client = one()
    table.operator.limiter.delete_system_defaults()
    with pytest.raises(ValidationError, match="no limits are configured"):
        client.take("key", {"rpd": 1})
    client.take("key", {"rpd": 1}, limits=GIVEN)


def test_an_unknown_limit_is_looked_up_before_it_is_an_error() -> None:
    table, client = one()
    table.operator.limiter.set_system_defaults((*LIMITS, Limit.per_day("wpd", 10)), propagate=False)
    client.take("key", {"wpd": 1})
    with pytest.raises(ValidationError):
        client.take("key", {"xpd": 1})


@pytest.mark.parametrize("limits", [None, GIVEN], ids=["stored limits", "limits of the call"])
def test_a_moved_entity_no_longer_charges_its_old_parent(limits: tuple[Limit, ...] | None) -> None:
    table = hierarchy(2)
    client = table.client()
    client.take("key", {"rpd": 1}, limits=limits)
    table.operator.limiter.create_entity("other")
    table.operator.limiter.update_entity("key", parent_id="other")
    before = table.counters("team")["rpd"]
    client.take("key", {"rpd": 1}, limits=limits)
    assert table.counters("team")["rpd"] == before
    assert table.counters("other")["rpd"] == 1 * MILLI


def test_a_deleted_entity_begins_anew() -> None:
    table = hierarchy(2)
    client = warm(table)
    table.operator.limiter.delete_entity("key")
    before = table.counters("team")["rpd"]
    client.take("key", {"rpd": 1})
    assert table.counters("key") == {"rpd": 1 * MILLI, "tpd": 0}
    assert table.counters("team")["rpd"] == before


def test_a_change_between_resolving_and_creating_is_seen() -> None:
    table = hierarchy(1)
    table.remove_bucket("key")
    client = table.client()
    change = {2: lambda: table.operator.limiter.set_system_defaults(LOW)}
    ended = Script(table, meanwhile=change).run(client.lease("key", {"rpd": 1})._begin())
    assert ended.operations[2] == "PutItem"
    assert burst(table) == LOW[0].burst


def test_a_change_between_resolving_and_rebuilding_is_seen() -> None:
    table = hierarchy(1)
    client = table.client()
    lease = client.take("key", {"rpd": 1})
    client.adjust(lease, rpd=1)
    table.remove_bucket("key")
    change = {3: lambda: table.operator.limiter.set_system_defaults(LOW)}
    ended = Script(table, meanwhile=change).run(lease._end(False), to_the_end=True)
    assert ended.operations[3] == "PutItem"
    assert burst(table) == LOW[0].burst


def test_a_draw_that_gives_back_in_order_to_create_a_bucket_does_not_bring_old_terms_back() -> None:
    """The child's leg was written, the parent's bucket is gone, and the child's limits change before it is undone."""
    table = hierarchy(2)
    obeyed: list[int] = []
    meanwhile = {
        4: lambda: table.remove_bucket("team"),
        5: lambda: table.operator.limiter.set_limits("key", LOW, resource=RESOURCE),
        **dict.fromkeys(range(6, 20), lambda: obeyed.append(burst(table))),
    }
    ended = Script(table, meanwhile=meanwhile).run(table.client().lease("key", {"rpd": 1})._begin())
    assert ended.operations[3:7] == ["UpdateItem"] * 4
    assert "TransactWriteItems" in ended.operations[7:-1]
    assert set(obeyed) == {LOW[0].burst}


def test_the_version_of_one_bucket_says_nothing_about_another() -> None:
    """The parent gets the very version that the child had, after the terms of both were resolved."""
    table = hierarchy(2)
    client = warm(table)
    operator = table.operator.limiter
    operator.set_limits("key", HIGHER, resource=RESOURCE)
    change = {5: lambda: operator.set_limits("team", LOW, resource=RESOURCE)}
    ended = Script(table, meanwhile=change).run(client.lease("key", {"rpd": 1})._begin())
    assert ended.operations[3:6] == ["BatchGetItem", "BatchGetItem", "UpdateItem"]
    assert burst(table, "team") == LOW[0].burst


# Ancestors without limits


def below(*ancestors: str, limits: tuple[Limit, ...] | None = LIMITS) -> tuple[Table, Client]:
    """A key below ancestors without limits, the highest first, and a client that knows its bucket."""
    table = Table()
    operator = table.operator.limiter
    parent = None
    for entity in (*ancestors, "key"):
        operator.create_entity(entity, parent_id=parent, cascade=parent is not None)
        parent = entity
    if limits is not None:
        operator.set_limits("key", limits, resource=RESOURCE)
        return table, warm(table)
    client = table.client()
    client.take("key", {"rpd": 1}, limits=GIVEN)
    return table, client


@pytest.mark.parametrize("resource", [RESOURCE, "_default_"])
@pytest.mark.parametrize("between", [(), ("team",), ("dept", "team")])
@pytest.mark.parametrize("limits", [LIMITS, None], ids=["stored limits", "limits of the call"])
def test_an_ancestor_that_gets_limits_is_asked_by_the_next_acquire_of_a_warm_client(
    limits: tuple[Limit, ...] | None, between: tuple[str, ...], resource: str
) -> None:
    table, client = below("org", *between, limits=limits)
    given = None if limits else GIVEN
    table.operator.limiter.set_limits("org", [Limit.per_day("rpd", 1)], resource=resource)
    assert sum(client.takes("key", {"rpd": 1}, limits=given) for _ in range(5)) == 1


def test_an_ancestor_above_one_that_has_limits_is_asked_too() -> None:
    table, client = below("org", "team")
    operator = table.operator.limiter
    operator.set_limits("team", LIMITS, resource=RESOURCE)
    client.take("key", {"rpd": 1})
    key = table.snapshot("key")
    operator.set_limits("org", [Limit.per_day("rpd", 1)], resource=RESOURCE)
    assert sum(client.takes("key", {"rpd": 1}) for _ in range(5)) == 1
    assert key is not None
    assert table.snapshot("key").cv == key.cv, "only the bucket next to it carries its version"  # type: ignore[union-attr]


def test_an_ancestor_that_loses_its_limits_and_gets_others_is_obeyed_all_the_time() -> None:
    table, client = below("org")
    operator = table.operator.limiter
    operator.set_limits("org", [Limit.per_day("rpd", 1)], resource=RESOURCE)
    assert sum(client.takes("key", {"rpd": 1}) for _ in range(3)) == 1
    operator.delete_limits("org", resource=RESOURCE)
    table.now += LONGEST_DENIAL_MS
    assert sum(client.takes("key", {"rpd": 1}) for _ in range(3)) == 3
    operator.set_limits("org", [Limit.per_day("rpd", 2), Limit.per_day("tpd", 1)], resource=RESOURCE)
    assert not client.takes("key", {"rpd": 1, "tpd": 2})


@pytest.mark.parametrize("moved", [("other", True), ("org", False)], ids=["another parent", "no cascade"])
def test_an_ancestor_without_limits_that_is_moved_leads_warm_clients_to_its_new_parent(
    moved: tuple[str, bool],
) -> None:
    table, client = below("org", "team")
    operator = table.operator.limiter
    operator.create_entity("other")
    for entity in ("org", "other"):
        operator.set_limits(entity, LIMITS, resource=RESOURCE)
    client.take("key", {"rpd": 1})
    parent, cascade = moved
    operator.update_entity("team", parent_id=parent, cascade=cascade)
    before = table.counters("org")["rpd"]
    client.take("key", {"rpd": 1})
    assert table.counters("org")["rpd"] == before
    assert table.counters("other").get("rpd", 0) == (MILLI if cascade else 0)


def test_a_bucket_that_is_created_while_an_ancestor_gets_limits_notices() -> None:
    table, client = below("org")
    table.remove_bucket("key")
    change = {3: lambda: table.operator.limiter.set_limits("org", LOW, resource=RESOURCE)}
    ended = Script(table, meanwhile=change).run(table.client().lease("key", {"rpd": 1})._begin())
    assert "PutItem" in ended.operations[3:]
    assert sum(client.takes("key", {"rpd": 1}) for _ in range(10)) == 5


def test_all_clients_that_pass_by_an_ancestor_without_limits_agree_on_the_version() -> None:
    """Otherwise they would rewrite the bucket in turns."""
    table, client = below("org")
    lease = client.take("key", {"rpd": 1})
    for plan in (lambda: client.lease("key", {"rpd": 1})._begin(), lambda: lease._consume_more(rpd=1)):
        assert Script(table).run(plan()).operations == ["UpdateItem"]
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.cv.endswith("/0.0.0.1")
    table.remove_bucket("key")
    client.adjust(lease, rpd=1)
    client.run(lease._end(False), to_the_end=True)
    rebuilt = table.snapshot("key")
    assert rebuilt is not None
    assert rebuilt.cv == snapshot.cv
    table.operator.limiter.set_limits("key", LOW, resource=RESOURCE)
    snapshot = table.snapshot("key")
    assert snapshot is not None
    assert snapshot.cv == "0.0.0.2.0.1/0.0.0.1"


def test_a_change_of_an_ancestor_that_has_limits_does_not_touch_the_buckets_below() -> None:
    table = hierarchy(2)
    warm(table)
    operator = table.operator
    for limits in (LOW, HIGHER):
        ended = Script(table).run(
            operator.space.set_config(Scope("team", RESOURCE), limits, None, None, True, table.now)
        )
        assert ended.error is None
        assert "Query" not in ended.operations


def test_a_denial_is_told_by_the_limits_that_hold_now_of_a_parent_too() -> None:
    """The child lacks, and its parent was raised meanwhile, unseen by who remembers the old limits."""
    table = hierarchy(2)
    client = warm(table)
    for entity in ("key", "team"):
        table.spoil(entity, "b_rpd_tk", {"N": "0"})
    assert not client.takes()
    table.now += LONGEST_DENIAL_MS
    raised = Limit.per_day("rpd", 86_400)
    operator = table.operator
    Script(table).run(operator.space.set_config(Scope("team", RESOURCE), (raised,), None, None, True, table.now))
    with pytest.raises(RateLimitExceeded) as denied:
        client.take()
    assert [status.limit for status in denied.value.violations if status.entity_id == "team"] == [raised]


# Fences


def test_a_fenced_bucket_is_not_written_by_what_was_resolved_before() -> None:
    table, client = one()
    table.spoil("key", "cv", {"S": fence_of(1)})
    ended = Script(table).run(client.lease("key", {"rpd": 1})._begin())
    assert ended.operations == ["UpdateItem", "BatchGetItem", "UpdateItem"]
    assert ended.error is None


def test_a_denial_does_not_take_the_fence_off_a_parent() -> None:
    """A namespace is deleted bucket by bucket: the parent is fenced already, the child is not yet."""
    table = hierarchy(2)
    client = warm(table)
    for entity in ("key", "team"):
        table.spoil(entity, "b_rpd_tk", {"N": "0"})
    assert not client.takes()
    table.now += LONGEST_DENIAL_MS
    table.spoil("team", "cv", {"S": fence_of(1)})
    assert not client.takes()
    snapshot = table.snapshot("team")
    assert snapshot is not None
    assert snapshot.cv == fence_of(1)
