"""Items that are not as we wrote them: a clear error, nothing taken or given twice, and no other caller held up."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from support.dynamodb.draw_scenarios import HIGHER, hierarchy, warm
from support.dynamodb.scripted_plans import Script
from support.dynamodb.scripted_tables import LIMITS, RESOURCE, Table
from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.stores.dynamodb.schema import config_key

SPOILED: dict[str, tuple[str, Any]] = {
    "no life of its own": ("inc", None),
    "no version": ("cv", None),
    "a baseline in words": ("rf", {"S": "yesterday"}),
    "tokens in words": ("b_rpd_tk", {"S": "5"}),
    "no tokens": ("b_rpd_tk", None),
    "no burst": ("b_rpd_bx", {"N": "0"}),
    "no refill": ("b_rpd_ra", {"N": "0"}),
    "no shards": ("shard_count", {"N": "0"}),
    "a hundred million shards": ("shard_count", {"N": "100000000"}),
    "a part of a shard": ("shard_count", {"N": "1.5"}),
    "a baseline after all time": ("rf", {"N": "1" + "0" * 30}),
    "tokens out of bounds": ("b_rpd_tk", {"N": "1" + "0" * 40}),
    "a counter out of bounds": ("b_rpd_tc", {"N": "-1" + "0" * 40}),
    "a strange attribute": ("b_x", {"N": "1"}),
    "a fraction": ("b_rpd_zz", {"N": "1.5"}),
}

READ_ONCE = {"no burst", "no refill", "a strange attribute", "a fraction"}
"""Terms are read when a bucket is first seen, and again when its version changes."""

KINDS_AND_CLIENTS = [(what, known) for what in SPOILED for known in (True, False) if not (known and what in READ_ONCE)]

HARMLESS: dict[str, tuple[str, Any]] = {
    "an expiry in words": ("ttl", {"S": "tomorrow"}),
    "another attribute": ("note", {"S": "hello"}),
}

MOST_CALLS = 40
"""So many calls a draw may make before it gives up on a bucket, or it would do nothing else until its deadline."""


def acquire(known: bool, what: str, kinds: dict[str, tuple[str, Any]] = SPOILED) -> tuple[BaseException | None, int]:
    """An acquire whose parent's bucket is spoiled: its error, and what of the child stays taken."""
    table = hierarchy(2)
    client = warm(table) if known else table.client()
    attribute, value = kinds[what]
    table.spoil("team", attribute, value)
    before = table.counters("key")["rpd"]
    ended = Script(table).run(client.lease()._begin())
    return ended.error, table.counters("key")["rpd"] - before


@pytest.mark.parametrize(("what", "known"), KINDS_AND_CLIENTS)
def test_the_error_is_one_of_ours_and_names_the_bucket(what: str, known: bool) -> None:
    error, _ = acquire(known, what)
    assert isinstance(error, ZAELimiterError)
    assert "team" in str(error)


@pytest.mark.parametrize(("what", "known"), KINDS_AND_CLIENTS)
def test_nothing_stays_taken(what: str, known: bool) -> None:
    error, taken = acquire(known, what)
    assert error is not None
    assert taken == 0


@pytest.mark.parametrize("what", sorted(READ_ONCE))
def test_a_client_that_knows_the_terms_goes_on_by_them(what: str) -> None:
    error, taken = acquire(True, what)
    assert (error, taken) == (None, 3 * MILLI)


@pytest.mark.parametrize("what", HARMLESS)
def test_what_we_do_not_read_may_be_anything(what: str) -> None:
    error, taken = acquire(False, what, HARMLESS)
    assert (error, taken) == (None, 3 * MILLI)


@pytest.mark.parametrize("missing", ["w0", "w2"])
def test_a_bucket_that_lacks_a_recent_writer_is_refused_by_dynamodb(missing: str) -> None:
    table = hierarchy(1)
    table.spoil("key", missing)
    ended = Script(table).run(table.client().lease()._begin())
    assert isinstance(ended.error, ZAELimiterError)
    assert "another layout" in str(ended.error)


def test_a_broken_parent_does_not_give_the_child_its_tokens_back_again_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    table = hierarchy(2)
    client = table.client()
    before = table.counters("key")["rpd"]
    lease = client.take()
    table.spoil("team", "inc")
    Script(table).run(lease._end(True), to_the_end=True)
    assert table.counters("key")["rpd"] >= before


def test_a_broken_bucket_does_not_keep_the_others_from_following() -> None:
    table = hierarchy(2)
    table.spoil("key", "inc")
    operator = table.operator
    Script(table).run(operator.limiter._set_system_defaults(HIGHER))
    snapshot = table.snapshot("team")
    assert snapshot is not None
    assert snapshot.balances["rpd"].limit == HIGHER[0]


# Versions that no client can have


def counters_begin_anew(table: Table) -> None:
    """An operator deleted a config by hand, or restored an older one: its counter is behind the buckets'."""
    key = config_key(table.ns, None, None)
    table.call("DeleteItem", {"TableName": table.NAME, "Key": {"PK": {"S": key.pk}, "SK": {"S": key.sk}}})
    table.operator.limiter.set_resource_defaults(RESOURCE, LIMITS, propagate=False)


def weird_version(table: Table) -> None:
    table.spoil("key", "cv", {"S": "weird"})


@pytest.mark.parametrize("happens", [counters_begin_anew, weird_version])
def test_a_version_ahead_of_all_configs_is_followed_once_it_was_seen_before_them(happens: Any) -> None:
    """Counters only grow. What was resolved after a snapshot was seen is newer than it, whatever the numbers say."""
    table = hierarchy(1)
    happens(table)
    ended = Script(table).run(table.client().lease()._begin())
    assert len(ended.calls) < MOST_CALLS
    assert ended.error is None
