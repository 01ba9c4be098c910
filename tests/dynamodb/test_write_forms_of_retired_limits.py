"""A retired limit has terms of its own: they may change while version and baseline are the same.

Within one millisecond a limit may come back by ``limits=``, under other terms, and be retired again. The bucket
then has the version and the baseline it had, and a client that reads only the numbers would count on with the old
rate.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulation.model import Model
from zae_limiter import Limit
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_in, snapshot_of
from zae_limiter.stores.dynamodb.intents import Intent, Terms
from zae_limiter.stores.dynamodb.operations.namespaces import table_params
from zae_limiter.stores.dynamodb.requests import UnreadReply
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.dynamodb.write_forms import new_item, update
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.protocol import Leg

NOW = 1_767_225_600_000
RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


def terms(*limits: Limit) -> Terms:
    return Terms(Leg("key", "gpt", limits, "system_default"), "v1", None, False)


def item(*, retired: bool, **other: str) -> dict[str, Any]:
    """A bucket whose ``tpm`` is in force or retired."""
    made: dict[str, Any] = new_item(
        bucket_key("ns", "key", "gpt"),
        terms(RPM, TPM),
        {},
        now=NOW,
        write_id="1",
        inc="1",
        grants=0,
        epoch_s=NOW // 1000,
        ttl_margin_s=60,
    )
    if retired:
        del made["b_tpm_cp"]
    return made | {name: {"N": number} for name, number in other.items()}


def seen(found: dict[str, Any], before: BucketSnapshot, way: str) -> BucketSnapshot:
    if way == "an item":
        return snapshot_of(found, before)
    return snapshot_in(UnreadReply(json.dumps({"Attributes": found}, separators=(",", ":"))), before)


@pytest.mark.parametrize("way", ["an item", "a reply"])
def test_other_terms_of_a_retired_limit_are_seen(way: str) -> None:
    before = snapshot_of(item(retired=True))
    after = seen(item(retired=True, b_tpm_ra="12000000"), before, way)
    assert before.balances["tpm"].limit.refill_amount == 6_000
    assert after.balances["tpm"].limit.refill_amount == 12_000


@pytest.mark.parametrize("way", ["an item", "a reply"])
def test_a_limit_that_was_retired_is_seen(way: str) -> None:
    whole = item(retired=True)
    before = snapshot_of({name: value for name, value in whole.items() if not name.startswith("b_tpm")})
    assert seen(whole, before, way).balances.keys() == {"rpm", "tpm"}


@pytest.mark.parametrize("rv", ["", "19b.them7"])
def test_a_write_to_a_bucket_under_new_terms_demands_the_same_retired_limits(rv: str) -> None:
    snapshot = snapshot_of(item(retired=True) | ({"rv": {"S": rv}} if rv else {}))
    write = update(
        snapshot,
        Intent(deltas={"rpm": 1_000}, needed={"rpm": 1_000}, terms=terms(RPM)._replace(cv="v2"), grants=1),
        now=NOW + 5_000,
        write_id="2",
        epoch_s=NOW // 1000,
        ttl_margin_s=60,
    )
    params = write.params("table", bucket_key("ns", "key", "gpt"))
    place = next(place for place, name in params["ExpressionAttributeNames"].items() if name == "rv")
    conditions = params["ConditionExpression"].split(" AND ")
    if rv:
        (demanded,) = [condition for condition in conditions if condition.startswith(f"{place} = ")]
        assert params["ExpressionAttributeValues"][demanded.split()[-1]] == {"S": rv}
    else:
        assert f"attribute_not_exists({place})" in conditions


@pytest.mark.parametrize(
    "intent", [Intent({}, rebase=True), Intent({}, fill=True, rebase=True)], ids=["rebase", "fill"]
)
def test_a_write_that_moves_the_baseline_knows_of_every_retired_limit(intent: Intent) -> None:
    """One may have been retired since, within the millisecond: it would lose what accrued."""
    snapshot = snapshot_of(item(retired=False))
    write = update(snapshot, intent, now=NOW + 1, write_id="2", epoch_s=NOW // 1000, ttl_margin_s=60)
    params = write.params("table", bucket_key("ns", "key", "gpt"))
    place = next(place for place, name in params["ExpressionAttributeNames"].items() if name == "rv")
    assert f"attribute_not_exists({place})" in params["ConditionExpression"].split(" AND ")


@pytest.mark.parametrize("way", ["an item", "a reply"])
def test_another_version_of_the_retired_limits_is_seen(way: str) -> None:
    """Otherwise a write would be refused for ever by a version of the retired limits that is never read again."""
    before = snapshot_of(item(retired=False))
    assert seen(item(retired=False) | {"rv": {"S": "2"}}, before, way).rv == "2"


@pytest.mark.parametrize("watches", [True, False])
def test_a_limit_that_ends_takes_the_count_of_what_it_would_have_refused_with_it(watches: bool) -> None:
    """A refusal that was undone leaves a 0, also of a limit that refuses since: no reader could decode what stayed."""
    found = item(retired=True, b_tpm_sn="0", **({"b_tpm_sh": "1"} if watches else {}))
    model = Model()
    model.call("CreateTable", table_params("table"))
    model.call("PutItem", {"TableName": "table", "Item": found})
    write = update(
        snapshot_of(found),
        Intent(deltas={"rpm": 1_000}, needed={"rpm": 1_000}, terms=terms(RPM)._replace(cv="v2"), grants=1),
        now=NOW + 5_000,
        write_id=WriteIds("c1").write_id(NOW + 5_000),
        epoch_s=NOW // 1000,
        ttl_margin_s=60,
    )
    model.call("UpdateItem", write.params("table", bucket_key("ns", "key", "gpt")))
    (after,) = model.snapshot("table").values()
    assert snapshot_of(after).balances.keys() == {"rpm"}
