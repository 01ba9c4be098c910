"""Stacks on a cloud that really makes them: crashes in the middle, failures, what is kept, and what is not ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from local_deployment import CloudRunner, fresh_name

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.exceptions import StackOperationError, ValidationError
from zae_limiter.infra.health import Grade
from zae_limiter.infra.rollouts import ProgressNote
from zae_limiter.infra.stack_events import RolloutFailed, StackEvent
from zae_limiter.infra.stacks import StackManager
from zae_limiter.infra.template import template_text

SMALL = {"EnableAggregator": "false", "EnableAlarms": "false", "CreateIam": "false", "DeletionProtection": "false"}
"""A table that may be deleted, and nothing else."""

BROKEN = """Resources:
  Broken:
    Type: AWS::CloudWatch::Alarm
    DependsOn: Table
    Properties:
      ComparisonOperator: GreaterThanThreshold
      EvaluationPeriods: 1
      Metrics: [{Id: m, Expression: "1"}]

"""


def failing_template() -> str:
    """The template with a resource that this cloud does not make."""
    return template_text().replace("Resources:\n", BROKEN, 1)


@pytest.fixture
def stacks(cloud: CloudRunner) -> StackManager:
    return cloud.stacks()


class Crash(Exception):
    """The client dies here."""


def crash_at(words: str) -> Any:
    """Listens until something is told."""

    def listen(news: Any) -> None:
        if isinstance(news, ProgressNote) and words in news.words:
            raise Crash

    return listen


# Crashes


def test_a_change_set_that_was_left_lying_is_no_obstacle(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    cloud.ask(
        "cloudformation",
        "CreateChangeSet",
        StackName=name,
        ChangeSetName="left",
        ChangeSetType="CREATE",
        TemplateBody=template_text(),
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    assert cloud.ask("cloudformation", "DescribeStacks", StackName=name)["Stacks"][0]["StackStatus"].startswith(
        "REVIEW"
    )
    assert stacks.deploy(name, SMALL).deployment.state == "CREATE_COMPLETE"
    stacks.delete(name)


def test_a_process_that_died_between_two_rollouts_is_continued(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    with pytest.raises(Crash):
        stacks.deploy(
            name, {"EnableAlarms": "false", "DeletionProtection": "false"}, on_event=crash_at("bytes of code")
        )
    half = stacks.describe(name)
    assert half is not None
    assert "AggregatorName" not in half.outputs
    (missing,) = [part for part in stacks.health(name).parts if part.state == "missing"]
    assert (missing.what, missing.grade) == ("function", Grade.WATCH)
    assert cloud.run("check", "--name", name).code == 1
    done = cloud.stacks().deploy(name)
    assert done.changed
    assert "AggregatorName" in done.deployment.outputs
    assert done.deployment.parameters["EnableAlarms"] == "false"
    stacks.delete(name)
    assert cloud.left_of(name) == []


def test_three_who_deploy_at_the_same_time_all_succeed(cloud: CloudRunner) -> None:
    name = fresh_name()
    managers = [cloud.stacks() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda manager: manager.deploy(name, SMALL), managers))
    assert {each.deployment.stack_id for each in done} == {done[0].deployment.stack_id}
    assert managers[0].compatibility(name).advice == ()
    managers[0].delete(name)
    assert cloud.left_of(name) == []


def test_a_creation_that_failed_is_explained_and_can_be_repeated(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    told: list[Any] = []
    with pytest.raises(RolloutFailed) as caught:
        cloud.stacks(template=failing_template).deploy(name, SMALL, on_event=told.append)
    assert [cause.resource for cause in caught.value.causes] == ["Broken"]
    assert "metric math" in str(caught.value)
    assert [event.resource for event in told if isinstance(event, StackEvent) and event.failed] == ["Broken"]
    found = stacks.describe(name)
    assert found is not None
    assert found.state == "ROLLBACK_COMPLETE"
    assert stacks.deploy(name, SMALL).deployment.state == "CREATE_COMPLETE"
    stacks.delete(name)


def test_an_update_that_failed_is_undone_and_explained(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    before = stacks.deploy(name, SMALL).deployment
    with pytest.raises(RolloutFailed, match=r"Broken.*metric math.*the update was undone"):
        cloud.stacks(template=failing_template).deploy(name, {"MaxWriteUnits": "9"})
    after = stacks.describe(name)
    assert after is not None
    assert (after.state, after.parameters) == ("UPDATE_ROLLBACK_COMPLETE", before.parameters)
    assert stacks.deploy(name, {"MaxWriteUnits": "9"}).changed
    stacks.delete(name)


# What is kept, and what speaks against it


def test_a_kept_table_keeps_everything_and_can_be_adopted_again(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    url = stacks.deploy(name, {**SMALL, "DeletionProtection": "true"}).url
    with SyncRateLimiter.open(url, deadline=20) as limiter:
        limiter.set_system_defaults([Limit.per_minute("rpm", 7)])
    with pytest.raises(StackOperationError, match=r"protected from deletion.*--lift-protection"):
        stacks.delete(name)
    assert stacks.delete(name, keep_table=True).kept == (("AWS::DynamoDB::Table", name),)
    assert cloud.left_of(name) == [name]
    with pytest.raises(StackOperationError, match="exists already, outside of a stack"):
        stacks.deploy(name, SMALL)
    adopted = stacks.deploy(name, {"EnableAggregator": "true"}, adopt_table=True)
    assert "AggregatorName" in adopted.deployment.outputs
    with SyncRateLimiter.open(url, deadline=20) as limiter:
        assert limiter.get_system_defaults()[0] == [Limit.per_minute("rpm", 7)]
    with pytest.raises(StackOperationError, match="protected from deletion"):
        stacks.delete(name)
    assert stacks.delete(name, lift_protection=True).kept == ()
    assert cloud.left_of(name) == []


def test_a_new_deployment_is_protected_until_that_is_lifted(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    stacks.deploy(name, {key: value for key, value in SMALL.items() if key != "DeletionProtection"})
    ran = cloud.run("delete", "--name", name, "--yes")
    assert (ran.code, "--lift-protection" in ran.err) == (1, True)
    assert cloud.run("delete", "--name", name, "--lift-protection").code == 2, "it asks"
    assert cloud.ask("dynamodb", "DescribeTable", TableName=name)["Table"]["DeletionProtectionEnabled"] is True
    assert cloud.do("delete", "--name", name, "--lift-protection", "--yes")
    assert cloud.left_of(name) == []


def test_a_deployment_that_is_not_to_be_protected_goes_without_more_words(stacks: StackManager) -> None:
    name = fresh_name()
    stacks.deploy(name, SMALL)
    assert stacks.delete(name).existed


@pytest.mark.parametrize("how", ["keep_archive", "delete_archive"])
def test_an_archive_goes_only_if_the_operator_says_so(cloud: CloudRunner, stacks: StackManager, how: str) -> None:
    name = fresh_name()
    bucket = stacks.deploy(name, {"DeletionProtection": "false"}).deployment.outputs["BucketName"]
    for body in (b"x", b"y"):
        cloud.ask("s3", "PutObject", Bucket=bucket, Key="audit/year=2026/month=01/day=01/x.jsonl.gz", Body=body)
    assert cloud.ask("s3", "GetBucketVersioning", Bucket=bucket)["Status"] == "Enabled"
    kept = cloud.ask("s3", "ListObjectVersions", Bucket=bucket, Prefix="audit/")["Versions"]
    assert len(kept) == 2, "what was replaced is still there"
    with pytest.raises(StackOperationError, match="--keep-archive or --delete-archive"):
        stacks.delete(name)
    assert stacks.describe(name) is not None
    removed = stacks.delete(name, **{how: True})
    if how == "delete_archive":
        assert (removed.kept, cloud.left_of(name)) == ((), [])
        return
    assert ("AWS::S3::Bucket", bucket) in removed.kept
    assert [each["Key"][:6] for each in cloud.ask("s3", "ListObjectsV2", Bucket=bucket)["Contents"]] == [
        "audit/",
        "code/a",
    ]
    for each in cloud.ask("s3", "ListObjectVersions", Bucket=bucket)["Versions"]:
        cloud.ask("s3", "DeleteObject", Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
    cloud.ask("s3", "DeleteBucket", Bucket=bucket)


# What is not ours


def test_only_our_own_are_listed_and_touched(cloud: CloudRunner, stacks: StackManager) -> None:
    ours, theirs = fresh_name(), fresh_name()
    stacks.deploy(ours, SMALL, {"team": "search"})
    cloud.ask(
        "cloudformation",
        "CreateStack",
        StackName=theirs,
        TemplateBody="Resources: {Topic: {Type: 'AWS::SNS::Topic'}}",
    )
    listed = {each.name: each for each in stacks.list()}
    assert ours in listed
    assert theirs not in listed
    assert listed[ours].tags["team"] == "search"
    for touch in (stacks.deploy, stacks.delete, stacks.health, stacks.describe):
        with pytest.raises(StackOperationError, match="was not made by zae-limiter"):
            touch(theirs)
    stacks.delete(ours)
    cloud.ask("cloudformation", "DeleteStack", StackName=theirs)


def test_a_table_that_the_stack_did_not_make_is_not_taken(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    with SyncRepository.open(stacks.url(name), create=True, deadline=20) as repository:
        with pytest.raises(StackOperationError, match="exists already, outside of a stack"):
            stacks.deploy(name, SMALL)
        assert stacks.describe(name) is None
        repository.delete_table()
    with pytest.raises(StackOperationError, match="there is no table"):
        stacks.deploy(name, SMALL, adopt_table=True)


# The rest


def test_a_preview_says_what_would_change_and_leaves_no_trace(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    assert "Table" in [change.resource for change in stacks.preview(name, SMALL)]
    assert cloud.left_of(name) == []
    stacks.deploy(name, SMALL)
    assert stacks.preview(name, {"MaxWriteUnits": "100"})
    assert stacks.preview(name) == ()
    assert stacks.deploy(name).changed is False
    stacks.delete(name)


def test_a_table_may_have_another_name_than_its_stack(stacks: StackManager) -> None:
    name, table = fresh_name(), fresh_name()
    done = stacks.deploy(name, {**SMALL, "TableName": table})
    assert done.url.startswith(f"dynamodb://{table}?")
    with SyncRateLimiter.open(done.url, deadline=20) as limiter:
        assert limiter.is_available()
    stacks.delete(name)


def test_an_operator_who_does_not_wait_comes_back_for_the_rest(stacks: StackManager) -> None:
    name = fresh_name()
    begun = stacks.deploy(name, SMALL, wait=False)
    assert (begun.changed, begun.complete) == (True, False)
    assert stacks.deploy(name).complete
    with SyncRateLimiter.open(begun.url, deadline=20) as limiter:
        assert limiter.is_available()
    stacks.delete(name)


@pytest.mark.parametrize("name", ["", "1st", "with space", "under_score", "a" * 56, "ab"])
def test_a_name_that_cannot_be_is_refused_before_anything_is_asked(name: str) -> None:
    with pytest.raises(ValidationError), StackManager("us-east-1", "http://127.0.0.1:9") as stacks:
        stacks.deploy(name)


def test_a_parameter_that_is_none_is_refused_before_anything_is_made(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    with pytest.raises(ValidationError, match=r"must be one of .*MaxWriteUnits"):
        stacks.deploy(name, {"MaxWrite": "1"})
    assert cloud.left_of(name) == []


def test_a_table_of_an_older_layout_is_upgraded_after_a_question(cloud: CloudRunner, stacks: StackManager) -> None:
    name = fresh_name()
    stacks.deploy(name, SMALL)
    cloud.ask(
        "dynamodb",
        "UpdateItem",
        TableName=name,
        Key={"PK": {"S": "_/SYSTEM#"}, "SK": {"S": "#VERSION"}},
        UpdateExpression="SET layout_version = :old",
        ExpressionAttributeValues={":old": {"N": "2"}},
    )
    compatibility = stacks.compatibility(name)
    assert (compatibility.layout, compatibility.usable, len(compatibility.advice)) == (2, False, 1)
    assert cloud.run("check", "--name", name).code == 1
    assert cloud.run("upgrade", "--name", name).code == 2
    assert cloud.run("upgrade", "--name", name, "--yes").code == 0
    assert stacks.compatibility(name).advice == ()
    stacks.delete(name)
