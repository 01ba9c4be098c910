"""Whatever an old bucket holds, its counters and what it lacks are the same in every form, and nothing is minted."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from old_tables import NOW, Was, composite, old_item, separate_items

from zae_limiter import Limit
from zae_limiter.bucket import refill_bucket
from zae_limiter.migrations.census import Census, census_of, compare
from zae_limiter.migrations.item_kinds import Kind, kind_of, place_of
from zae_limiter.migrations.old_buckets import composite_bucket, composite_item, joined_item, present_item
from zae_limiter.stores.audit_events import ulid
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of

busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Machines that run this are busy with other things."""

limits = st.builds(
    lambda capacity, amount, period, burst: (capacity, amount, period, burst),
    st.integers(1, 10**9),
    st.integers(1, 10**9),
    st.integers(1, 86_400),
    st.integers(1, 10**9),
)


@st.composite
def was(draw: st.DrawFn, name: str, rf: int | None = None) -> Was:
    capacity, amount, period, burst = draw(limits)
    limit = Limit(name, capacity, amount, period, burst)
    tk = draw(st.integers(-(10**12), limit.burst * 1000))
    refilled = NOW + draw(st.integers(-(10**9), 10_000)) if rf is None else rf
    return Was(limit, tk, draw(st.integers(0, 10**15)), refilled)


@st.composite
def buckets(draw: st.DrawFn, shared: bool) -> dict[str, Was]:
    names = draw(st.lists(st.sampled_from(["rpm", "tpm", "a.b", "x-y"]), min_size=1, max_size=4, unique=True))
    rf = NOW + draw(st.integers(-(10**9), 10_000)) if shared else None
    return {name: draw(was(name, rf)) for name in names}


@busy
@given(buckets(shared=False))
def test_limits_that_are_combined_hold_what_they_held(apart: dict[str, Was]) -> None:
    items = [old_item(item) for item in separate_items("key", "gpt-4", apart)]
    whole = composite_item(items, None, NOW)
    assert census_of([whole], NOW)[2:] == census_of(items, NOW)[2:]
    for name, balance in composite_bucket(whole, NOW).balances.items():
        assert 0 <= apart[name].level(NOW) - balance.tk < 1


@busy
@given(buckets(shared=True), st.integers(0, 10**8))
def test_a_bucket_that_is_moved_grows_as_the_old_one_would_have(held: dict[str, Was], later: int) -> None:
    old = old_item(composite("key", "gpt-4", held))
    item = present_item(composite_bucket(old, NOW), "ns", NOW, write_id="1.a", inc="i", epoch_s=0, ttl_margin_s=0)
    assert census_of([item], NOW)[2:] == census_of([old], NOW)[2:]
    for name, balance in snapshot_of(item).balances.items():
        level = refill_bucket(balance, NOW + later)
        assert -1 < held[name].level(NOW + later) - level < 2
        assert level <= balance.bx


@busy
@given(buckets(shared=True), buckets(shared=True), st.integers(0, 10**7))
def test_buckets_that_are_joined_lack_what_both_lacked(one: dict[str, Was], other: dict[str, Was], late: int) -> None:
    first = present_item(
        composite_bucket(old_item(composite("key", "gpt-4", one)), NOW),
        "ns",
        NOW + late,
        write_id="1.a",
        inc="i",
        epoch_s=0,
        ttl_margin_s=0,
    )
    old = old_item(composite("key", "gpt-4", other))
    joint = joined_item(composite_bucket(old, NOW), first, NOW, write_id="2.b")
    before, after = census_of([first, old], NOW), census_of([joint], NOW)
    assert (before.consumed, before.missing) == (after.consumed, after.missing)
    assert before.there["limits"] - after.there["limits"] == len(one.keys() & other.keys())
    assert snapshot_of(joint).recent_writers[:2] == ("2.b", "1.a")


@busy
@given(buckets(shared=True), buckets(shared=False))
def test_limits_that_join_a_bucket_lack_what_both_lacked(there: dict[str, Was], apart: dict[str, Was]) -> None:
    existing = old_item(composite("key", "gpt-4", there))
    items = [old_item(item) for item in separate_items("key", "gpt-4", apart)]
    before, after = census_of([existing, *items], NOW), census_of([composite_item(items, existing, NOW)], NOW)
    assert (before.consumed, before.missing) == (after.consumed, after.missing)


# Judging


BEFORE = Census(9, {Kind.OLD_BUCKET: 3}, {"limits": 3, "entities": 2}, 100, 10)


def test_the_same_sums_are_fine_and_so_is_what_expired_or_was_joined() -> None:
    same = Census(9, {}, {"limits": 3, "entities": 2}, 100, 10)
    assert compare(BEFORE, same, {}, [Kind.OLD_BUCKET]) == ((), 0)
    assert compare(BEFORE, same._replace(there={"limits": 2, "entities": 2}, consumed=90), {}, []) == ((), 1)
    joined = {"limits": 1, "entities": 1}
    assert compare(BEFORE, same._replace(there={"limits": 2, "entities": 1}), joined, []) == ((), 0)


def test_whatever_does_not_add_up_is_told() -> None:
    same = Census(9, {}, {"limits": 3, "entities": 2}, 100, 10)
    for wrong, words in (
        (same._replace(consumed=99), "do not add up"),
        (same._replace(missing=9), "do not add up"),
        (same._replace(there={"limits": 4, "entities": 2}), "do not add up"),
        (same._replace(there={"limits": 2, "entities": 2}, missing=11), "do not add up"),
        (same._replace(there={"limits": 3, "entities": 1}), "1 entities are gone"),
        (same._replace(old={Kind.OLD_BUCKET: 1}), "stop the clients"),
    ):
        assert words in " ".join(compare(BEFORE, wrong, {}, [Kind.OLD_BUCKET]).mismatches)


# Recognising


def kind(pk: str, sk: str, **more: str) -> Kind:
    return kind_of(old_item({"PK": pk, "SK": sk, **more}))


EVENT = f"#AUDIT#{ulid(NOW, 1)}"


def test_every_item_is_told_from_every_other_by_its_key() -> None:
    assert kind("ENTITY#a", "#BUCKET#r#rpm") is Kind.OLD_LIMIT
    assert kind("x/ENTITY#a", "#BUCKET#r/s") is Kind.OLD_BUCKET
    assert kind("x/BUCKET#a#r/s#0", "#STATE") is Kind.BUCKET
    assert kind("ENTITY#a", "#META") is Kind.OLD_ENTITY
    assert kind("x/ENTITY#a", "#META", children="0") is Kind.ENTITY
    assert kind("x/ENTITY#a", "#META", deleted="1") is Kind.ENTITY
    assert kind("SYSTEM#", "#CONFIG") is Kind.OLD_CONFIG
    assert kind("x/RESOURCE#r/s", "#CONFIG", order="rpm") is Kind.CONFIG
    assert kind("ENTITY#a", "#CONFIG#r") is Kind.OLD_CONFIG
    assert kind("ENTITY#a", "#USAGE#r#2025-01-01T00:00:00Z") is Kind.OLD_USAGE
    assert kind("x/ENTITY#a", "#USAGE#r#hourly#2025-01-01T00#0#i") is Kind.USAGE
    assert kind("AUDIT#a", "#AUDIT#2025-01-01T00:00:00Z") is Kind.OLD_AUDIT
    assert kind("x/AUDIT#a", "#AUDIT#2025-01-01T00:00:00Z") is Kind.OLD_AUDIT
    for pk, sk in (("SYSTEM#", "#VERSION"), ("_/SYSTEM#", "#CONFIG"), ("x/AUDIT#a", EVENT), ("foo", "bar")):
        assert kind(pk, sk) is Kind.OTHER
    assert place_of(old_item({"PK": "x/ENTITY#a", "SK": "#BUCKET#r/s#rpm"})) == ("x", "a", "r/s", "rpm")
    assert place_of(old_item({"PK": "SYSTEM#", "SK": "#CONFIG"})) == (None, None, None, None)
