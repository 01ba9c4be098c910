"""Deleting a deployment: what speaks against it, what may be kept, and what is tried again. By script."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_cloud import (
    MADE,
    NAME,
    NO_STACK,
    NO_TABLE,
    ScriptedCloud,
    event,
    events,
    pages_of_events,
    stack,
    stack_event,
)

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.cloud import CloudRefused
from zae_limiter.infra.removals import Removal, delete, empty_bucket, has_archive
from zae_limiter.infra.retention import with_retained
from zae_limiter.infra.stack_events import RolloutFailed

BUCKET_KIND = "AWS::S3::Bucket"
RESOURCES = {
    "StackResourceSummaries": [
        {
            "LogicalResourceId": name,
            "ResourceType": kind,
            "PhysicalResourceId": physical,
            "ResourceStatus": "CREATE_COMPLETE",
        }
        for name, kind, physical in [("Table", "AWS::DynamoDB::Table", NAME), ("Bucket", BUCKET_KIND, "bucket-1")]
    ]
}
TEMPLATE = """\
Parameters:
  Table:
    Type: String
Resources:
  # What everything is about.
  Table:
    Type: AWS::DynamoDB::Table
    DeletionPolicy: Delete
    Properties:
      TableName: !Ref AWS::StackName
  Bucket:
    Type: AWS::S3::Bucket
Outputs:
  Table:
    Value: !Ref Table
"""

UNPROTECTED = {"TableStatus": "ACTIVE", "DeletionProtectionEnabled": False}
PROTECTED = {**UNPROTECTED, "DeletionProtectionEnabled": True}

BEFORE = stack_event("CREATE_COMPLETE")
QUIET: dict[str, Any] = {
    "ListStackResources": RESOURCES,
    "DescribeTable": {"Table": {"TableStatus": "ACTIVE"}},
    "ListObjectVersions": {},
    "DeleteStack": {},
}


def removal(**how: Any) -> Removal:
    return Removal(NAME, "run", **how)


def version(key: str) -> dict[str, str]:
    return {"Key": key, "VersionId": "1"}


# What is there


def test_deleting_what_is_not_there_is_fine() -> None:
    cloud = ScriptedCloud(DescribeStacks=NO_STACK)
    assert cloud.play(delete(removal())) == (False, ())
    assert cloud.operations == ["DescribeStacks"]


def test_everything_goes() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("DELETE_COMPLETE")],
        DescribeStackEvents=pages_of_events([BEFORE], [stack_event("DELETE_COMPLETE")]),
    )
    assert cloud.play(delete(removal())) == (True, ())


def test_a_stack_that_was_never_carried_out_goes_with_its_change_set() -> None:
    cloud = ScriptedCloud(DescribeStacks=stack("REVIEW_IN_PROGRESS", Tags=[]), DeleteStack={})
    assert cloud.play(delete(removal())).existed
    assert cloud.operations == ["DescribeStacks", "DeleteStack"]


def test_what_is_under_way_is_waited_for() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack("DELETE_IN_PROGRESS"), stack("DELETE_IN_PROGRESS"), stack("DELETE_COMPLETE"), NO_STACK],
        DescribeStackEvents=events(BEFORE),
    )
    assert not cloud.play(delete(removal())).existed
    assert "DeleteStack" not in cloud.operations


def test_a_stack_that_is_not_ours_is_not_touched() -> None:
    cloud = ScriptedCloud(DescribeStacks=stack("CREATE_COMPLETE", Tags=[]))
    with pytest.raises(StackOperationError, match="was not made by zae-limiter"):
        cloud.play(delete(removal()))


# What speaks against it


def test_a_protected_table_is_not_deleted_and_it_is_said_how() -> None:
    table = {"Table": {"TableStatus": "ACTIVE", "DeletionProtectionEnabled": True}}
    cloud = ScriptedCloud(**{**QUIET, "DescribeTable": table}, DescribeStacks=stack("CREATE_COMPLETE"))
    with pytest.raises(StackOperationError, match=r"--keep-table.*delete --name my-app --lift-protection"):
        cloud.play(delete(removal()))
    assert not {"DeleteStack", "UpdateTable"} & set(cloud.operations)


@pytest.mark.parametrize("state", ["CREATE_COMPLETE", "DELETE_FAILED", "ROLLBACK_FAILED"])
def test_a_protection_is_lifted_at_the_table_in_every_state_of_its_stack(state: str) -> None:
    changing = {"TableStatus": "UPDATING", "DeletionProtectionEnabled": False}
    cloud = ScriptedCloud(
        **{**QUIET, "DescribeTable": [{"Table": PROTECTED}, {"Table": changing}, *[{"Table": UNPROTECTED}] * 2]},
        UpdateTable={},
        DescribeStacks=[stack(state), stack("DELETE_COMPLETE")],
        DescribeStackEvents=pages_of_events([BEFORE], [stack_event("DELETE_COMPLETE")]),
    )
    assert cloud.play(delete(removal(lift_protection=True))) == (True, ())
    assert cloud.params_of("UpdateTable") == [{"TableName": NAME, "DeletionProtectionEnabled": False}]
    assert cloud.operations.index("UpdateTable") < cloud.operations.index("DeleteStack")
    assert cloud.waited_ms > 0, "until the table can be deleted"


def test_a_protection_stays_if_something_else_speaks_against_the_deletion() -> None:
    archive = {"Versions": [version("audit/year=2026/a.jsonl.gz")]}
    cloud = ScriptedCloud(
        **{**QUIET, "ListObjectVersions": archive, "DescribeTable": {"Table": PROTECTED}},
        DescribeStacks=stack("CREATE_COMPLETE"),
    )
    with pytest.raises(StackOperationError, match="--keep-archive or --delete-archive"):
        cloud.play(delete(removal(lift_protection=True)))
    assert "UpdateTable" not in cloud.operations


def test_what_is_not_protected_is_not_changed_before_it_goes() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("DELETE_COMPLETE")],
        DescribeStackEvents=pages_of_events([BEFORE], [stack_event("DELETE_COMPLETE")]),
    )
    assert cloud.play(delete(removal(lift_protection=True))).existed
    assert "UpdateTable" not in cloud.operations


def test_a_protected_stack_is_not_deleted() -> None:
    cloud = ScriptedCloud(**QUIET, DescribeStacks=stack("CREATE_COMPLETE", EnableTerminationProtection=True))
    with pytest.raises(StackOperationError, match="termination protection"):
        cloud.play(delete(removal()))


def test_an_archive_is_not_lost_by_accident() -> None:
    archive = {"Versions": [version("code/a.zip"), version("audit/year=2026/a.jsonl.gz")]}
    cloud = ScriptedCloud(**{**QUIET, "ListObjectVersions": archive}, DescribeStacks=stack("CREATE_COMPLETE"))
    with pytest.raises(StackOperationError, match="--keep-archive or --delete-archive"):
        cloud.play(delete(removal()))
    assert not {"DeleteStack", "DeleteObjects"} & set(cloud.operations)


def test_a_table_that_was_deleted_already_is_no_obstacle() -> None:
    cloud = ScriptedCloud(
        **{**QUIET, "DescribeTable": NO_TABLE},
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("DELETE_COMPLETE")],
        DescribeStackEvents=pages_of_events([BEFORE], [stack_event("DELETE_COMPLETE")]),
    )
    assert cloud.play(delete(removal())).existed


def test_only_code_is_no_archive_on_however_many_pages() -> None:
    pages = [
        {"Versions": [version("code/a.zip")], "IsTruncated": True, "NextKeyMarker": "code/a.zip"},
        {"DeleteMarkers": [version("code/b.zip")]},
    ]
    cloud = ScriptedCloud(ListObjectVersions=list(pages))
    assert cloud.play(has_archive("bucket-1")) is False
    assert cloud.params_of("ListObjectVersions")[1]["KeyMarker"] == "code/a.zip"
    pages[1] = {"Versions": [version("audit/a")]}
    assert ScriptedCloud(ListObjectVersions=pages).play(has_archive("bucket-1")) is True


def test_a_bucket_is_emptied_with_all_versions_and_marks() -> None:
    cloud = ScriptedCloud(
        ListObjectVersions=[{"Versions": [version("a")], "DeleteMarkers": [version("b")]}, {}], DeleteObjects={}
    )
    cloud.play(empty_bucket("bucket-1"))
    (call,) = cloud.params_of("DeleteObjects")
    assert call["Delete"]["Objects"] == [version("a"), version("b")]


def test_a_bucket_that_is_gone_is_empty() -> None:
    gone = CloudRefused("ListObjectVersions", "NoSuchBucket", "gone")
    ScriptedCloud(ListObjectVersions=gone).play(empty_bucket("bucket-1"))


def test_an_object_that_cannot_be_removed_is_named() -> None:
    refusal = {"Errors": [{"Key": "a", "Message": "Access Denied"}]}
    cloud = ScriptedCloud(ListObjectVersions={"Versions": [version("a")]}, DeleteObjects=refusal)
    with pytest.raises(StackOperationError, match="a in bucket 'bucket-1' stays: Access Denied"):
        cloud.play(empty_bucket("bucket-1"))


# What is kept


def test_a_kept_table_is_retained_before_the_stack_goes() -> None:
    protected = {"Table": {"TableStatus": "ACTIVE", "DeletionProtectionEnabled": True}}
    cloud = ScriptedCloud(
        **{**QUIET, "DescribeTable": protected},
        GetTemplate={"TemplateBody": TEMPLATE},
        CreateChangeSet={},
        DescribeChangeSet=MADE,
        ExecuteChangeSet={},
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("UPDATE_COMPLETE"), stack("DELETE_COMPLETE")],
        DescribeStackEvents=pages_of_events(
            [BEFORE],
            [stack_event("UPDATE_COMPLETE")],
            [],
            [event("Table", "DELETE_SKIPPED"), stack_event("DELETE_COMPLETE")],
        ),
    )
    done = cloud.play(delete(removal(keep_table=True)))
    assert done.kept == (("AWS::DynamoDB::Table", "Table-1"),)
    (made,) = cloud.params_of("CreateChangeSet")
    assert made["TemplateBody"] == with_retained(TEMPLATE, ["Table"])
    assert cloud.operations.index("ExecuteChangeSet") < cloud.operations.index("DeleteStack")


def test_of_a_half_deleted_stack_the_rest_is_retained_by_name() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack("DELETE_FAILED"), stack("DELETE_COMPLETE")],
        DescribeStackEvents=pages_of_events([BEFORE], [stack_event("DELETE_COMPLETE")]),
    )
    cloud.play(delete(removal(keep_table=True)))
    (call,) = cloud.params_of("DeleteStack")
    assert call["RetainResources"] == ["Table"]


# What is tried again


def test_a_bucket_that_filled_again_is_emptied_again() -> None:
    not_empty = event("Bucket", "DELETE_FAILED", "The bucket you tried to delete is not empty", BUCKET_KIND)
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("DELETE_FAILED"), stack("DELETE_COMPLETE")],
        DescribeStackEvents=pages_of_events(
            [BEFORE], [not_empty, stack_event("DELETE_FAILED")], [], [stack_event("DELETE_COMPLETE")]
        ),
    )
    assert cloud.play(delete(removal())).existed
    assert cloud.counts()["DeleteStack"] == 2


def test_any_other_failure_is_explained() -> None:
    in_use = event("Role", "DELETE_FAILED", "Cannot delete entity, must detach all policies first.", "AWS::IAM::Role")
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("DELETE_FAILED")],
        DescribeStackEvents=pages_of_events([BEFORE], [in_use, stack_event("DELETE_FAILED")]),
    )
    with pytest.raises(RolloutFailed, match=r"Role.*must detach.*zae-limiter delete --name my-app"):
        cloud.play(delete(removal()))
    assert cloud.counts()["DeleteStack"] == 1


# Templates that retain


def test_a_template_says_to_retain_and_is_otherwise_the_same() -> None:
    kept = with_retained(TEMPLATE, ["Table", "Bucket"])
    added = [line for line in kept.splitlines() if line not in TEMPLATE.splitlines()]
    removed = [line for line in TEMPLATE.splitlines() if line not in kept.splitlines()]
    assert (added, removed) == (["    DeletionPolicy: Retain"] * 2, ["    DeletionPolicy: Delete"])
    assert with_retained(kept, ["Table", "Bucket"]) == kept


def test_a_template_in_json_too() -> None:
    template = {"Resources": {"Table": {"Type": "T", "DeletionPolicy": "Delete"}, "Bucket": {"Type": "B"}}}
    assert '"Table": {"Type": "T", "DeletionPolicy": "Retain"}' in with_retained(template, ["Table"])


def test_a_resource_that_is_not_in_the_template_cannot_be_kept() -> None:
    for template in (TEMPLATE, {"Resources": {}}):
        with pytest.raises(StackOperationError, match="how to keep Nothing"):
            with_retained(template, ["Nothing"])
