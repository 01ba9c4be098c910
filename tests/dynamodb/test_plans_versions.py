"""Which config is obeyed: the newest, by every client's next acquire, whatever its cache says."""

from __future__ import annotations

import pytest
from scripted_plans import Script
from scripted_tables import LIMITS, RESOURCE, Client, Table
from test_plans_every_fault import HIGHER, hierarchy, warm

from zae_limiter import Limit, ValidationError
from zae_limiter.bucket import MILLI
from zae_limiter.stores.dynamodb.images import LONGEST_DENIAL_MS
from zae_limiter.stores.dynamodb.versions import FENCED, Versions, may_follow, of_call
from zae_limiter.stores.protocol import Scope

LOW = (Limit.per_day("rpd", 5), Limit.per_day("tpd", 1_000))
GIVEN = (Limit.per_day("rpd", 50), Limit.per_day("tpd", 500))


def one(table: Table | None = None) -> tuple[Table, Client]:
    """One entity with system defaults, and a client that knows its bucket."""
    table = table or hierarchy(1)
    return table, warm(table)


def burst(table: Table, entity_id: str = "key") -> int:
    image = table.image(entity_id)
    assert image is not None
    return image.balances["rpd"].limit.burst


# The rule


@pytest.mark.parametrize(
    ("ours", "theirs", "follows"),
    [
        ("1.0.0.0.0", "0.0.0.0.0", True),
        ("1.0.0.0.0", "0.1.0.0.0", False),
        ("1.1.0.0.0", "0.1.0.0.0", True),
        ("10.0.0.0.0", "9.0.0.0.0", True),
        ("0.0.0.0.1", "5.5.5.5.2", False),
        (of_call(GIVEN, 1), "9.9.9.9.1", True),
        (of_call(GIVEN, 1), "0.0.0.0.2", False),
        (of_call(GIVEN, 2), of_call(LOW, 1), True),
        (of_call(GIVEN, 1), of_call(LOW, 2), False),
    ],
)
def test_newer_counters_follow_older_ones(ours: str, theirs: str, follows: bool) -> None:
    assert may_follow(ours, theirs, seen_before=False) is follows


@pytest.mark.parametrize("theirs", [FENCED, of_call(GIVEN, 0)])
def test_what_has_no_order_is_followed_by_what_was_resolved_after_it_was_seen(theirs: str) -> None:
    ours = str(Versions(1, 0, 0, 0, 0))
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
    change = {3: lambda: table.operator.limiter.set_system_defaults(LOW)}
    ended = Script(table, meanwhile=change).run(client.lease("key", {"rpd": 1})._begin())
    assert ended.operations[3] == "PutItem"
    assert burst(table) == LOW[0].burst


@pytest.mark.xfail(strict=True, reason="a settlement that rebuilds a bucket does not look at the config again")
def test_a_change_between_resolving_and_rebuilding_is_seen() -> None:
    table = hierarchy(1)
    client = table.client()
    lease = client.take("key", {"rpd": 1})
    client.run(lease._adjust(rpd=1))
    table.remove_bucket("key")
    change = {3: lambda: table.operator.limiter.set_system_defaults(LOW)}
    ended = Script(table, meanwhile=change).run(lease._end(False), to_the_end=True)
    assert ended.operations[3] == "PutItem"
    assert burst(table) == LOW[0].burst


@pytest.mark.xfail(strict=True, reason="what was seen before is remembered for all legs together, not for each bucket")
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

waits_for_the_cache = pytest.mark.xfail(
    strict=True, reason="no bucket carries the version of an ancestor without limits, so a warm client does not notice"
)


@waits_for_the_cache
def test_an_ancestor_that_gets_limits_is_asked_by_the_next_acquire_of_a_warm_client() -> None:
    table = Table()
    operator = table.operator.limiter
    operator.create_entity("org")
    operator.create_entity("key", parent_id="org", cascade=True)
    operator.set_limits("key", LIMITS, resource=RESOURCE)
    client = warm(table)
    operator.set_limits("org", [Limit.per_day("rpd", 1)], resource=RESOURCE)
    assert sum(client.takes("key", {"rpd": 1}) for _ in range(5)) == 1


@waits_for_the_cache
def test_an_ancestor_without_limits_that_is_moved_leads_warm_clients_to_its_new_parent() -> None:
    table = Table()
    operator = table.operator.limiter
    for entity in ("org", "other"):
        operator.create_entity(entity)
        operator.set_limits(entity, LIMITS, resource=RESOURCE)
    operator.create_entity("team", parent_id="org", cascade=True)
    operator.create_entity("key", parent_id="team", cascade=True)
    operator.set_limits("key", LIMITS, resource=RESOURCE)
    client = warm(table)
    operator.update_entity("team", parent_id="other")
    before = table.counters("org")["rpd"]
    client.take("key", {"rpd": 1})
    assert table.counters("org")["rpd"] == before


# Fences


def test_a_fenced_bucket_is_not_written_by_what_was_resolved_before() -> None:
    table, client = one()
    table.spoil("key", "cv", {"S": FENCED})
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
    table.spoil("team", "cv", {"S": FENCED})
    assert not client.takes()
    image = table.image("team")
    assert image is not None
    assert image.cv == FENCED
