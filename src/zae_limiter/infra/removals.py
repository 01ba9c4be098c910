"""Deleting a deployment, with what may be kept of it: the table, and the bucket with the audit archive.

Everything that forbids it is checked before anything is deleted. A deletion may be repeated at any time, until nothing
is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.adoption import TABLE_NOT_FOUND
from zae_limiter.infra.change_sets import (
    StackSpec,
    check_success,
    create_change_set,
    execute_change_set,
    follow,
    newest_event,
)
from zae_limiter.infra.cloud import AwsCall, CloudRefused, Notify
from zae_limiter.infra.deployments import BUCKET_KIND, TABLE_KIND, Deployment, Resource, find_ours, resources_of
from zae_limiter.infra.health import ACTIVE
from zae_limiter.infra.retention import with_retained
from zae_limiter.infra.rollouts import ProgressNote
from zae_limiter.infra.stack_events import RolloutFailed, StackEvent, causes_among
from zae_limiter.infra.stack_states import GONE, REVIEW, is_idle
from zae_limiter.infra.template import CODE_PREFIX
from zae_limiter.running.plan import Pause, Plan

KEPT_TAG: Final = "zae-limiter:kept"
NO_BUCKET: Final = "NoSuchBucket"
DELETE_FAILED: Final = "DELETE_FAILED"
TRIES: Final = 3
"""A function that is still at work may write into a bucket that was just emptied."""

OBJECTS_AT_ONCE: Final = 1_000
PAUSE_MS: Final = 500
TABLE_CHECKS: Final = 240
"""How often to look whether a table whose protection was lifted is ready: for two minutes."""


class Removal(NamedTuple):
    """What is to be deleted, and what of it to be kept."""

    name: str
    run_id: str
    keep_table: bool = False
    keep_archive: bool = False
    delete_archive: bool = False
    lift_protection: bool = False
    """Whether a table goes that is protected from deletion."""


class RemovalResult(NamedTuple):
    """What was deleted and what is left."""

    existed: bool
    kept: tuple[tuple[str, str], ...] = ()
    """Kind and name of everything that is still there."""


def delete(removal: Removal) -> Plan[RemovalResult]:
    """Delete a deployment; nothing happens if there is none."""
    found = yield from wait_until_idle(removal.name)
    if found is None:
        return RemovalResult(existed=False)
    if found.state == REVIEW:
        yield from AwsCall("cloudformation", "DeleteStack", StackName=found.stack_id)
        return RemovalResult(existed=True)
    resources = yield from resources_of(found.stack_id)
    yield from check_removal_allowed(removal, found, resources)
    kept = [each.name for each in resources if is_kept(each, removal)]
    if kept and found.state != DELETE_FAILED:
        yield from retain(found, kept, removal.run_id)
    if removal.lift_protection:
        for table in _physical_ids(resources, TABLE_KIND, kept):
            yield from lift_protection(table)
    return (yield from _delete_with_buckets(found, resources, kept))


def _delete_with_buckets(found: Deployment, resources: Sequence[Resource], kept: Sequence[str]) -> Plan[RemovalResult]:
    """Empty the buckets and delete the stack; again, if a bucket was filled meanwhile. Raises ``RolloutFailed``."""
    for attempt in range(TRIES):
        for bucket in _physical_ids(resources, BUCKET_KIND, kept):
            yield from empty_bucket(bucket)
        state, events = yield from delete_stack(found, kept if found.state == DELETE_FAILED else ())
        if state == GONE:
            return RemovalResult(existed=True, kept=left_behind(events))
        if attempt == TRIES - 1 or not any(cause.kind == BUCKET_KIND for cause in causes_among(events)):
            break
        found = found._replace(state=DELETE_FAILED)
    advice = f"try again with: zae-limiter delete --name {found.name}"
    raise RolloutFailed(found.name, state, causes_among(events), advice)


def _physical_ids(resources: Sequence[Resource], kind: str, kept: Sequence[str]) -> list[str]:
    """The resources of one kind that are there and not kept, by their names in AWS."""
    return [each.physical_id for each in resources if each.kind == kind and each.physical_id and each.name not in kept]


def wait_until_idle(name: str) -> Plan[Deployment | None]:
    """The deployment, once no operation on it is under way."""
    found = yield from find_ours(name)
    if found is None or is_idle(found.state):
        return found
    yield from Notify(ProgressNote(f"{name} is {found.state}: waiting until CloudFormation is done"))
    last = yield from newest_event(found.stack_id)
    yield from follow(found.stack_id, last, own=False)
    return (yield from find_ours(name))


def check_removal_allowed(removal: Removal, found: Deployment, resources: Sequence[Resource]) -> Plan[None]:
    """Raise if something is protected, or data would be lost that the request does not mention."""
    if found.protected:
        raise StackOperationError(f"the stack {found.name!r} has termination protection; turn that off first")
    for each in resources:
        if each.physical_id is None or is_kept(each, removal):
            continue
        if each.kind == TABLE_KIND and not removal.lift_protection and (yield from is_protected(each.physical_id)):
            raise StackOperationError(
                f"table {each.physical_id!r} is protected from deletion; keep it with --keep-table, or delete it with "
                f"everything in it all the same: zae-limiter delete --name {found.name} --lift-protection"
            )
        if each.kind == BUCKET_KIND and not removal.delete_archive and (yield from has_archive(each.physical_id)):
            raise StackOperationError(
                f"bucket {each.physical_id!r} has archived audit events or records that failed; "
                "say --keep-archive or --delete-archive"
            )


def is_kept(resource: Resource, removal: Removal) -> bool:
    """Whether a resource stays."""
    return (resource.kind == TABLE_KIND and removal.keep_table) or (
        resource.kind == BUCKET_KIND and removal.keep_archive
    )


def is_protected(table: str) -> Plan[bool]:
    """Whether a table refuses to be deleted."""
    try:
        reply = yield from AwsCall("dynamodb", "DescribeTable", TableName=table)
    except CloudRefused as refusal:
        if refusal.code == TABLE_NOT_FOUND:
            return False
        raise
    return bool(reply["Table"].get("DeletionProtectionEnabled"))


def lift_protection(table: str) -> Plan[None]:
    """Let a table be deleted, if it is protected. Called only when the request says so.

    The table itself is asked, not its stack: a stack that is half deleted, or whose creation failed, takes no update.
    """
    if not (yield from is_protected(table)):
        return
    yield from AwsCall("dynamodb", "UpdateTable", TableName=table, DeletionProtectionEnabled=False)
    yield from Notify(ProgressNote(f"lifted the deletion protection of table {table}"))
    for _ in range(TABLE_CHECKS):
        reply = yield from AwsCall("dynamodb", "DescribeTable", TableName=table)
        if reply["Table"]["TableStatus"] == ACTIVE and not reply["Table"].get("DeletionProtectionEnabled"):
            return
        yield from Pause(PAUSE_MS)
    raise StackOperationError(f"table {table!r} is still being changed; run the same command again")


def retain(found: Deployment, resources: Sequence[str], run_id: str) -> Plan[None]:
    """Make the stack keep these resources when it is deleted."""
    reply = yield from AwsCall("cloudformation", "GetTemplate", StackName=found.stack_id, TemplateStage="Original")
    before = [{"ParameterKey": name, "UsePreviousValue": True} for name in found.parameters]
    tags = {**found.tags, KEPT_TAG: " ".join(resources)}  # a policy that changes alone may pass for no change
    run = f"zae-limiter-{run_id}-keep"
    spec = StackSpec(found.name, with_retained(reply["TemplateBody"], resources), before, tags)
    if (yield from create_change_set(spec, "UPDATE", run)) is None:
        return
    last = yield from execute_change_set(found.name, run)
    rested, events = yield from follow(found.stack_id, last)
    check_success(found.name, rested, events)


def delete_stack(found: Deployment, kept: Sequence[str]) -> Plan[tuple[str, list[StackEvent]]]:
    """Delete the stack and follow that: its state then, and what happened."""
    last = yield from newest_event(found.stack_id)
    more = {"RetainResources": list(kept)} if kept else {}
    yield from AwsCall("cloudformation", "DeleteStack", StackName=found.stack_id, **more)
    rested, events = yield from follow(found.stack_id, last)
    return (GONE if rested is None else rested.state), events


def left_behind(events: Sequence[StackEvent]) -> tuple[tuple[str, str], ...]:
    """The resources that a deleted stack left behind."""
    return tuple(
        (event.kind, event.physical_id or event.resource) for event in events if event.state == "DELETE_SKIPPED"
    )


def has_archive(bucket: str) -> Plan[bool]:
    """Whether a bucket has anything but code in it."""
    objects = yield from versions_in(bucket, {})
    while objects is not None:
        listed, further = objects
        if any(not each["Key"].startswith(CODE_PREFIX) for each in listed):
            return True
        objects = None if further is None else (yield from versions_in(bucket, further))
    return False


def empty_bucket(bucket: str) -> Plan[None]:
    """Remove every object of a bucket, with all its versions."""
    removed = 0
    while True:
        objects = yield from versions_in(bucket, {})
        if objects is None or not objects[0]:
            break
        to_delete = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in objects[0]]
        reply = yield from AwsCall("s3", "DeleteObjects", Bucket=bucket, Delete={"Objects": to_delete, "Quiet": True})
        for failure in reply.get("Errors", ())[:1]:
            raise StackOperationError(f"{failure['Key']} in bucket {bucket!r} stays: {failure.get('Message')}")
        removed += len(to_delete)
    if removed:
        yield from Notify(ProgressNote(f"removed {removed:,} objects from {bucket}"))


def versions_in(
    bucket: str, after: Mapping[str, Any]
) -> Plan[tuple[list[Mapping[str, Any]], Mapping[str, Any] | None] | None]:
    """A page of the versions in a bucket, and from where the next one goes on; nothing, if there is no bucket."""
    try:
        page = yield from AwsCall("s3", "ListObjectVersions", Bucket=bucket, MaxKeys=OBJECTS_AT_ONCE, **after)
    except CloudRefused as refusal:
        if refusal.code == NO_BUCKET:
            return None
        raise
    listed = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
    if not page.get("IsTruncated"):
        return listed, None
    further = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page.get("NextVersionIdMarker", "")}
    return listed, {name: value for name, value in further.items() if value}
