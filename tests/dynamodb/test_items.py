"""Whatever stands in an item: it is read, within bounds, or refused by the one error that is documented."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zae_limiter import VersionError
from zae_limiter.bucket import MOST_STORED
from zae_limiter.migrations.migration_checkpoint import checkpoint_in
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.config_versions import may_follow
from zae_limiter.stores.dynamodb.items import BrokenItem, config_of, ns_in, route_of
from zae_limiter.stores.dynamodb.namespace import check_layout, lags_behind
from zae_limiter.stores.dynamodb.operations.audit import event_of
from zae_limiter.stores.dynamodb.operations.config import entity_if_limited, resource_if_limited
from zae_limiter.stores.dynamodb.operations.entities import children_of, config_version_of, entity_of
from zae_limiter.stores.dynamodb.operations.namespaces import info_of
from zae_limiter.stores.dynamodb.operations.shard_life import full_by
from zae_limiter.stores.dynamodb.operations.usage import live_bucket
from zae_limiter.stores.dynamodb.schema import INDEXES, MOST_SHARDS, Key, encode_item, is_filed_rightly
from zae_limiter.stores.dynamodb.shards import split_in_two
from zae_limiter.stores.dynamodb.usage_items import span_of
from zae_limiter_aggregator.archiver import line_of
from zae_limiter_aggregator.membership import seen_in
from zae_limiter_aggregator.stream_checkpoints import position_in
from zae_limiter_aggregator.stream_records import PoisonousRecord, parse_record

NOW = 1_800_000_000_000
ULID = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

BUCKET = {
    "PK": "ns1/BUCKET#key#gpt#0",
    "SK": "#STATE",
    "entity_id": "key",
    "resource": "gpt",
    "rf": NOW,
    "cv": "1.2.3.4.5",
    "inc": "abc",
    "ev": 3,
    "shard_count": 1,
    "full_by": NOW // 1000,
    "rv": f"{NOW:x}.abc",
    "eh": NOW,
    "e_gone": 7_000,
    "ttl": NOW // 1000,
    **{f"w{place}": f"{NOW:x}.abc{place}" for place in range(4)},
    **{f"b_rpd_{field}": 5_000 for field in ("tk", "tc", "cp", "bx", "ra", "rp")},
    **{f"b_wcu_{field}": 1_000_000 for field in ("tk", "tc", "cp", "bx", "ra", "rp")},
}
CONFIG = {
    "PK": "ns1/ENTITY#key",
    "SK": "#CONFIG#gpt",
    "entity_id": "key",
    "resource": "gpt",
    "config_version": 3,
    "order": "rpd",
    "on_unavailable": "allow",
    **{f"l_rpd_{field}": 5_000 for field in ("cp", "bx", "ra", "rp")},
}
ENTITY = {
    "PK": "ns1/ENTITY#key",
    "SK": "#META",
    "entity_id": "key",
    "name": "a key",
    "parent_id": "org",
    "cascade": True,
    "metadata": {"team": "a"},
    "version": 2,
    "config_version": 3,
    "children": 0,
    "created_at": NOW,
}
EVENT = {
    "PK": "ns1/AUDIT#key",
    "SK": f"#AUDIT#{ULID}",
    "entity_id": "key",
    "action": "limits_set",
    "resource": "gpt",
    "principal": "ops",
    "details": "{}",
    "timestamp": NOW,
}
SNAPSHOT = {
    "PK": "ns1/ENTITY#key",
    "SK": "#USAGE#gpt#hourly#2026-01-01T00#0#abc",
    "entity_id": "key",
    "resource": "gpt",
    "fs": "1".zfill(40),
    "ls": "2".zfill(40),
    "lw": f"{NOW:x}.abc",
    "ev_st": 0,
    "ev": 1,
    "st_rpd": 0,
    "tc_rpd": 1_000,
}
NAMESPACE = {"PK": "_/SYSTEM#", "SK": "#NAMESPACE#a", "name": "a", "ns": "ns1", "created_at": NOW, "deleted_at": NOW}
CHECKPOINT = {"PK": "_/SYSTEM#", "SK": "#CHECKPOINT#a#b", "after": "123", "finished": False, "seen": 5}
VERSION = {"PK": "_/SYSTEM#", "SK": "#VERSION", "layout_version": 3, "layout_minor": 0, "library_version": "1"}
CENSUS: dict[str, Any] = {}
POSITION = {
    "PK": "_/SYSTEM#",
    "SK": "#MIGRATION",
    "before_layout": 1,
    "at": NOW,
    "phase": "convert",
    "after": ["a", "b"],
    "before": CENSUS,
    "verified": CENSUS,
    "seen": 1,
    "converted": 1,
}

DECODERS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "bucket": (snapshot_of, BUCKET),
    "bucket for the proof": (live_bucket, BUCKET),
    "bucket to be swept": (full_by, BUCKET),
    "config": (config_of, CONFIG),
    "limited resource": (resource_if_limited, CONFIG),
    "limited entity": (entity_if_limited, CONFIG),
    "entity": (entity_of, ENTITY),
    "route": (route_of, ENTITY),
    "counter of an entity": (config_version_of, ENTITY),
    "children": (children_of, ENTITY),
    "audit event": (event_of, EVENT),
    "usage snapshot": (span_of, SNAPSHOT),
    "namespace": (info_of, NAMESPACE),
    "id of a namespace": (ns_in, NAMESPACE),
    "checkpoint": (position_in, CHECKPOINT),
    "member": (seen_in, CHECKPOINT),
    "position of a migration": (checkpoint_in, POSITION),
}

numbers = st.one_of(
    st.sampled_from(
        ["0", "-1", "1.5", "1E+30", "-0", "64", "65", "100000000", "9" * 38, "1" + "0" * 125, "-" + "9" * 38]
    ),
    st.integers(-(10**40), 10**40).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
)
texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", "#", "/", "~", "!", "²", "٣", "9" * 5_000, "[" * 20_000, "{}", "null", '{"a":1e999}', "\x00\n"]
    ),
)
values: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        numbers.map(lambda number: {"N": number}),
        texts.map(lambda text: {"S": text}),
        st.booleans().map(lambda flag: {"BOOL": flag}),
        st.just({"NULL": True}),
        st.just({"B": "AAAA"}),
        st.just({"SS": ["a"]}),
        st.just({"NS": ["1"]}),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda found: {"L": found}),
        st.dictionaries(st.text(max_size=5), inner, max_size=3).map(lambda found: {"M": found}),
    ),
    max_leaves=5,
)


@st.composite
def spoiled(draw: st.DrawFn, sound: dict[str, Any]) -> dict[str, Any]:
    """A sound item, of which some attributes are changed, removed, or others added."""
    item: dict[str, Any] = encode_item(sound)
    for name in draw(st.lists(st.sampled_from(sorted(sound)), max_size=4)):
        if name not in ("PK", "SK") and draw(st.booleans()):
            item.pop(name, None)
        elif name in ("PK", "SK"):
            item[name] = {"S": draw(texts)}
        else:
            item[name] = draw(values)
    others = st.one_of(st.sampled_from(["b_x_tk", "b_", "b_rpd_zz", "l_", "tc_!", "st_"]), st.text(max_size=8))
    for name in draw(st.lists(others, max_size=2)):
        if name not in ("PK", "SK"):
            item[name] = draw(values)
    return item


@pytest.mark.parametrize("what", DECODERS)
def test_a_sound_item_is_read(what: str) -> None:
    decode, sound = DECODERS[what]
    decode(encode_item(sound))


@pytest.mark.parametrize("what", DECODERS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_an_item_is_read_or_refused_by_name(what: str, data: st.DataObject) -> None:
    decode, sound = DECODERS[what]
    with suppress(BrokenItem):
        decode(data.draw(spoiled(sound)))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(item=spoiled(BUCKET), known=st.booleans())
def test_a_bucket_that_is_read_is_within_bounds(item: dict[str, Any], known: bool) -> None:
    before = snapshot_of(encode_item(BUCKET)) if known else None
    try:
        snapshot = snapshot_of(item, before)
    except BrokenItem:
        return
    check_bounds(snapshot)
    if not known and snapshot.shards < MOST_SHARDS:
        split_in_two(item, now=NOW, write_id="a.b", inc="c")
    may_follow("1.1.1.1.1", snapshot.cv, seen_before=False)


def check_bounds(snapshot: BucketSnapshot) -> None:
    assert 0 <= snapshot.shard < snapshot.shards <= MOST_SHARDS
    assert 0 <= snapshot.rf <= LAST_MOMENT_MS
    assert all(len(write_id) <= 64 for write_id in snapshot.recent_writers)
    for balance in snapshot.balances.values():
        assert abs(balance.tk) <= MOST_STORED
        assert abs(balance.tc) <= MOST_STORED
        assert balance.level(NOW) <= balance.bx <= 10**18


@settings(max_examples=200, deadline=None)
@given(item=spoiled(VERSION))
def test_a_version_record_is_read_or_refused_by_name(item: dict[str, Any]) -> None:
    try:
        check_layout("limits", item)
        lags_behind(item)
    except VersionError:
        pass


@settings(max_examples=300, deadline=None)
@given(
    index=st.sampled_from(INDEXES),
    parts=st.lists(
        st.one_of(st.text(max_size=6), st.sampled_from(["BUCKET", "ENTITY", "USAGE", "#", "/", "0", "ns1"]))
    ),
    filed=st.text(max_size=20),
)
def test_any_index_row_is_judged(index: str, parts: list[str], filed: str) -> None:
    key = Key("#".join(parts), "#STATE")
    assert is_filed_rightly(index, Key("ns1/RESOURCE#gpt", filed), key) in (True, False)
    assert not is_filed_rightly(index, Key("ns1/RESOURCE#gpt", "#".join(parts)), Key(f"ns2/{key.pk}", "#STATE"))


# Records of the stream

records = st.fixed_dictionaries(
    {},
    optional={
        "eventName": st.one_of(st.sampled_from(["INSERT", "MODIFY", "REMOVE"]), st.text(max_size=5), st.none()),
        "userIdentity": st.one_of(st.none(), st.just({"principalId": "dynamodb.amazonaws.com"}), st.just("x")),
        "dynamodb": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "Keys": st.one_of(
                        st.sampled_from(
                            [encode_item({"PK": item["PK"], "SK": item["SK"]}) for item in (BUCKET, EVENT)]
                        ),
                        st.dictionaries(st.sampled_from(["PK", "SK"]), values),
                    ),
                    "SequenceNumber": st.one_of(st.just("123"), texts, st.integers()),
                    "NewImage": st.one_of(spoiled(BUCKET), st.none()),
                    "OldImage": st.one_of(spoiled(BUCKET), spoiled(EVENT), st.none()),
                },
            ),
        ),
    },
)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(record=records)
def test_a_record_counts_or_is_passed_over_or_is_poisonous(record: dict[str, Any]) -> None:
    for read in (parse_record, line_of):
        try:
            read(record)
        except PoisonousRecord:
            continue
