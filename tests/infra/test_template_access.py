"""Who may do what in a deployment: the template has the policies of ``policies.py``, and a role that counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from iam_evaluator import is_allowed, like, listed
from public_operations import World
from recorded_calls import Question, Recording
from resolved_template import Resolved, loaded
from stream_records import stream_records

from engines.servers import Engine
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.infra.policies import LEVELS, TAGGED, Level, policy_document
from zae_limiter.infra.template import ROLE_PRINCIPALS
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport
from zae_limiter_aggregator import handler

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/my-app"
KEY_ARN = "arn:aws:kms:eu-west-1:123456789012:key/1234"
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
ROLE = "arn:aws:iam::123456789012:role/counting"
WITH_CODE = {"CodeKey": "code/aggregator-1.zip"}


# Policies and roles


@pytest.mark.parametrize("key", [None, KEY_ARN])
@pytest.mark.parametrize("scoped", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_a_policy_is_the_one_that_was_derived(level: Level, scoped: bool, key: str | None) -> None:
    made = Resolved({"Table.Arn": ARN}, KmsKeyArn=key or "")
    name = f"{'Namespace' if scoped else ''}{level.capitalize()}Policy"
    wanted = policy_document(level, ARN, namespace_id=TAGGED if scoped else None, kms_key_arn=key)
    assert made.properties(name)["PolicyDocument"] == wanted


PRINCIPALS = {level: f"arn:aws:iam::123456789012:role/{level}-users" for level in LEVELS}
TRUSTING = {ROLE_PRINCIPALS[level]: principal for level, principal in PRINCIPALS.items()}


def may_assume(made: Resolved, principal: str) -> set[str]:
    """The roles that trust a principal with ``sts:AssumeRole``."""
    return {
        name
        for name, role in made.of_type("AWS::IAM::Role").items()
        if any(
            is_allowed({"Statement": [{**statement, "Resource": "*"}]}, "sts:AssumeRole", name, {})
            for statement in role["AssumeRolePolicyDocument"]["Statement"]
            if principal in listed(statement["Principal"].get("AWS", ()))
        )
    }


def test_each_role_is_assumed_by_those_it_trusts_and_by_no_others() -> None:
    made = Resolved(**TRUSTING)
    for level, principal in PRINCIPALS.items():
        assert may_assume(made, principal) == {f"{level.capitalize()}Role"}
        assert made.properties(f"{level.capitalize()}Role")["ManagedPolicyArns"] == [f"<{level.capitalize()}Policy>"]
    assert may_assume(made, "arn:aws:iam::123456789012:role/stranger") == set()


@pytest.mark.parametrize("level", LEVELS)
def test_a_role_is_made_only_if_it_trusts_a_principal(level: Level) -> None:
    assert set(Resolved().of_type("AWS::IAM::Role")) == {"AggregatorRole"}
    trusted = ["arn:aws:iam::123456789012:root", "arn:aws:iam::123456789012:role/app"]
    made = Resolved(**{ROLE_PRINCIPALS[level]: ",".join(trusted)})
    assert set(made.of_type("AWS::IAM::Role")) == {"AggregatorRole", f"{level.capitalize()}Role"}
    assert {name for name in made.outputs if name.endswith("RoleArn")} == {
        "AggregatorRoleArn",
        f"{level.capitalize()}RoleArn",
    }
    for principal in trusted:
        assert may_assume(made, principal) == {f"{level.capitalize()}Role"}


@pytest.mark.parametrize("level", LEVELS)
def test_a_role_does_not_trust_the_world(level: Level) -> None:
    pattern = loaded()["Parameters"][ROLE_PRINCIPALS[level]]["AllowedPattern"]
    for fine in ("", "123456789012", PRINCIPALS[level], "arn:aws-cn:sts::123456789012:assumed-role/app/one"):
        assert re.fullmatch(pattern, fine), fine
    for wrong in ("*", "arn:aws:iam::*:root", "arn:aws:iam::123456789012:*", "somebody", "arn:aws:iam::12:root"):
        assert not re.fullmatch(pattern, wrong), wrong


def test_a_boundary_bounds_every_role() -> None:
    made = Resolved(PermissionsBoundaryArn=BOUNDARY, **TRUSTING)
    roles = made.of_type("AWS::IAM::Role")
    assert len(roles) == 4
    assert {role["PermissionsBoundary"] for role in roles.values()} == {BOUNDARY}


def test_without_iam_nothing_of_it_is_made() -> None:
    made = Resolved(CreateIam="false", AggregatorRoleArn=ROLE, **TRUSTING, **WITH_CODE)
    assert [name for name, made in made.resources.items() if made["Type"].startswith("AWS::IAM")] == []
    assert made.properties("Aggregator")["Role"] == ROLE
    assert made.broken_rules() == []


def test_a_function_without_any_role_is_refused_with_a_reason() -> None:
    (reason,) = Resolved(CreateIam="false").broken_rules()
    assert "AggregatorRoleArn" in reason
    assert Resolved(CreateIam="false", EnableAggregator="false").broken_rules() == []
    assert Resolved().broken_rules() == []


def test_a_role_from_elsewhere_is_used_beside_policies_from_here() -> None:
    made = Resolved(AggregatorRoleArn=ROLE, **WITH_CODE)
    assert made.properties("Aggregator")["Role"] == ROLE
    assert "AggregatorRole" not in made.resources
    assert "FullPolicy" in made.resources


# The role of the function


@pytest.fixture
def asked_by_the_function(
    dynoxide: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[set[Question]]:
    """What IAM is asked when the function counts a real stream and archives from it."""
    table = "counted"
    target = Target(dynoxide.region, dynoxide.endpoint_url)
    recording = Recording(SocketTransport(target))
    url = f"dynamodb://{table}?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    with SyncRepository.open(url, create=True) as repository:
        world = World(dynoxide.endpoint_url, table)
        world.prepare()
        limiter = SyncRateLimiter(world.ground.repository)
        for _ in range(3):
            with limiter.acquire("key", "gpt", {"rpm": 1}):
                pass
        limits = [Limit.per_minute("rpm", 100)]
        with SyncRateLimiter.open(url, wcu=1) as hurried, hurried.acquire("hot", "gpt", {"rpm": 1}, limits=limits):
            pass  # one write is all that such a bucket bears: the function splits it
        records = stream_records(world.transport, table)
        monkeypatch.setenv("ZAEL_TABLE", table)
        monkeypatch.setenv("ZAEL_ARCHIVE", str(tmp_path))
        monkeypatch.setattr(handler, "_kept", {})
        monkeypatch.setattr(handler, "open_table", lambda name: DynamoStore(name, target, transport=recording))
        with recording.during("counting"):
            assert handler.handler({"Records": records}, None) == {"batchItemFailures": []}
            # Where there are shards already, it looks for those that are missing.
            store = handler.open_table(table)
            (shard,) = [record["dynamodb"]["Keys"] for record in records if "BUCKET#hot#" in str(record["dynamodb"])]
            sibling = Key(shard["PK"]["S"].removesuffix("0") + "1", shard["SK"]["S"])
            driver = SyncDriver(machine_clock, store.perform)
            until = driver.run(store.client.new_deadline())
            assert driver.run(make_shard(store.client, sibling, machine_clock(), until)) is not None, "it was split"
        assert limiter.get_usage_summary("key").total_events == 3
        yield recording.asked["counting"]
        repository.delete_table()
    world.close()
    recording.close()


def statements() -> dict[str, Any]:
    made = Resolved({"Table.Arn": ARN, "Bucket.Arn": "arn:aws:s3:::kept"}, **WITH_CODE)
    (policy,) = made.properties("AggregatorRole")["Policies"]
    return {statement["Sid"]: statement for statement in policy["PolicyDocument"]["Statement"]}


def test_the_function_may_do_to_the_table_what_it_does_and_no_more(asked_by_the_function: set[Question]) -> None:
    counting = [each for each in statements().values() if ARN in each["Resource"]]
    document = {"Statement": counting}
    for question in asked_by_the_function:
        context = {"dynamodb:LeadingKeys": question.keys}
        assert is_allowed(document, question.action, question.arn(ARN), context), "AggregatorRole must allow this"
    for statement in counting:
        used = [question for question in asked_by_the_function if question.action in statement["Action"]]
        assert {question.action for question in used} == set(statement["Action"])
        for pattern in statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]:
            assert any(like(pattern, key) for question in used for key in question.keys), pattern


def test_the_function_writes_into_the_bucket_only_where_it_should() -> None:
    document = {"Statement": list(statements().values())}
    for key, allowed in (
        ("audit/year=2026/month=01/day=31/1.jsonl.gz", True),
        ("aws/lambda/0f8fad5b/shardId-1/2026/01/31/x", True),
        ("code/aggregator-1.zip", False),
    ):
        assert is_allowed(document, "s3:PutObject", f"arn:aws:s3:::kept/{key}", {}) is allowed, key
    assert not is_allowed(document, "s3:GetObject", "arn:aws:s3:::kept/audit/x", {})
    assert not is_allowed(document, "s3:DeleteObject", "arn:aws:s3:::kept/audit/x", {})


def test_the_function_reads_this_stream_only() -> None:
    found = statements()
    assert found["FollowTheStream"]["Resource"] == ["<Table.StreamArn>"]
    anywhere = {sid for sid, statement in found.items() if "*" in statement["Resource"]}
    assert anywhere == {"FindTheStream"}
    assert found["FindTheStream"]["Action"] == ["dynamodb:ListStreams"]
