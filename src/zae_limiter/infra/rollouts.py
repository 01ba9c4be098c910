"""Deploying: from any state of a stack to the requested one. It may be repeated at any time.

The first time takes two roll-outs. The function's code comes out of a bucket, and the bucket is the stack's own: so
the stack is made without the function, the code is put into the bucket, and the function follows. Each of these steps
may be the last one of a client that dies; the next run finds what is there and continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Final, NamedTuple

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.adoption import TABLE_NOT_FOUND, adopt
from zae_limiter.infra.change_sets import (
    Change,
    StackSpec,
    check_success,
    create_change_set,
    delete_change_set,
    execute_change_set,
    follow,
    newest_event,
    parameters_in,
    planned_parameters,
)
from zae_limiter.infra.cloud import AwsCall, CloudRefused, Notify
from zae_limiter.infra.deployments import AGGREGATOR, TABLE_PARAMETER, Deployment, find, find_ours
from zae_limiter.infra.stack_events import RolloutFailed
from zae_limiter.infra.stack_states import GONE, Step, advice_for, step_from
from zae_limiter.infra.template import ONE_TRUST_LIST, ROLE_PRINCIPALS, code_key, stack_tags
from zae_limiter.running.plan import Plan

CODE_KEY: Final = "CodeKey"
CODE_BUCKET: Final = "CodeBucket"
BUCKET_OUTPUT: Final = "BucketName"

TRIES: Final = 5
CHANGED_MEANWHILE: Final = frozenset(
    {"AlreadyExistsException", "ChangeSetNotFound", "ChangeSetNotFoundException", "InvalidChangeSetStatus"}
)

NOT_THERE: Final = frozenset({"403", "404", "NoSuchKey", "NotFound"})
"""What S3 answers for an object that is not there; 403 to a principal that may not list the bucket."""


class DeployRequest(NamedTuple):
    """What is to be deployed."""

    name: str
    body: str
    build: Callable[[], bytes]
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    run_id: str
    """A name that is unique to this run."""
    wait: bool = True
    adopt: bool = False
    """Whether to make the stack around a table that is there already."""

    def runs(self) -> Iterator[str]:
        """A name for each roll-out of this run."""
        return (f"zae-limiter-{self.run_id}-{number}" for number in count(1))


class Rollout(NamedTuple):
    """How deploying ended."""

    stack: Deployment
    changed: bool
    complete: bool
    """Whether everything is there; ``False`` if CloudFormation was not waited for."""


class ProgressNote(NamedTuple):
    """A step that deploying took on its own, in words."""

    words: str


def deploy(request: DeployRequest) -> Plan[Rollout]:
    """Create the stack or update it, until it is as requested. Another client that does the same is waited for."""
    runs = request.runs()
    for attempt in range(TRIES):
        try:
            return (yield from _deploy_once(request, runs))
        except CloudRefused as refusal:
            if attempt == TRIES - 1 or not changed_concurrently(refusal):
                raise
        yield from Notify(ProgressNote(f"another client is changing {request.name}: starting over"))
    raise AssertionError


def changed_concurrently(refusal: CloudRefused) -> bool:
    """Whether a change set was refused because another one was executed meanwhile."""
    return refusal.operation.endswith("ChangeSet") and (
        refusal.code in CHANGED_MEANWHILE or refusal.says("_IN_PROGRESS")
    )


def _deploy_once(request: DeployRequest, runs: Iterator[str]) -> Plan[Rollout]:
    found = yield from wait_until_updatable(request.name)
    table = found.table if found else request.parameters.get(TABLE_PARAMETER) or request.name
    try:
        yield from refuse_foreign_tables(table, made=found is not None or request.adopt)
    except StackOperationError:
        if found is None:  # another client may have made the stack, and the table in it, after the first look
            found = yield from wait_until_updatable(request.name)
        if found is None or found.table != table:
            raise
        yield from refuse_foreign_tables(table, made=True)
    refuse_one_trust_list(request, found)
    if found is None and request.adopt:
        found = yield from adopt(request.name, table, next(runs))
    known = yield from parameters_in(request.body)
    changed = False
    while True:
        bucket = code_bucket(request, found)
        given = dict(request.parameters)
        if wants_function(request, found, known) and CODE_KEY not in given:
            given[CODE_KEY] = "" if bucket is None else (yield from put_code(bucket, request.build()))
        updated = yield from roll_out(request, found, known, given, next(runs))
        if updated is not None:
            changed = True
            found = updated
            if not request.wait:
                return Rollout(found, changed=True, complete=False)
        assert found is not None
        if given.get(CODE_KEY) != "" or code_bucket(request, found) is None:
            return Rollout(found, changed, complete=True)


def preview(request: DeployRequest) -> Plan[tuple[Change, ...]]:
    """What deploying would do to the stack, first of all. Nothing is changed."""
    run = next(request.runs())
    found = yield from find_ours(request.name)
    step = step_from(found.state if found else None)
    if step in (Step.WAIT, Step.REFUSE, Step.MEND, Step.CLEAR):
        assert found is not None
        raise StackOperationError(f"{request.name} is {found.state}, so its changes cannot be previewed")
    refuse_one_trust_list(request, found)
    kind = "CREATE" if step is Step.CREATE else "UPDATE"
    known = yield from parameters_in(request.body)
    given = dict(request.parameters)
    if code_bucket(request, found) is not None and wants_function(request, found, known):
        given.setdefault(CODE_KEY, code_key(request.build()))
    planned = yield from create_change_set(stack_spec(request, found, known, given), kind, run)
    if planned is None:
        return ()
    yield from delete_change_set(request.name, kind, run)
    return planned.changes


def wait_until_updatable(name: str) -> Plan[Deployment | None]:
    """The stack when it can be updated, or nothing when it is to be created. Raises if a person has to repair it."""
    while True:
        found = yield from find_ours(name)
        step = step_from(found.state if found else None)
        if found is None or step is Step.CREATE:
            return None
        if step is Step.UPDATE:
            return found
        if step is Step.REFUSE:
            raise RolloutFailed(name, found.state, (), advice_for(name, found.state))
        yield from Notify(ProgressNote(f"{name} is {found.state}: {step.value}"))
        last = yield from newest_event(found.stack_id)
        if step is Step.CLEAR:
            yield from AwsCall("cloudformation", "DeleteStack", StackName=found.stack_id)
        elif step is Step.MEND:
            yield from AwsCall("cloudformation", "ContinueUpdateRollback", StackName=found.stack_id)
        rested, events = yield from follow(found.stack_id, last, own=step is not Step.WAIT)
        if step is not Step.WAIT and rested is not None and rested.state not in (GONE, "UPDATE_ROLLBACK_COMPLETE"):
            check_success(name, rested, events)


def refuse_foreign_tables(name: str, *, made: bool) -> Plan[None]:
    """Raise for a table with replicas, and for one that is there although its stack is not."""
    try:
        reply = yield from AwsCall("dynamodb", "DescribeTable", TableName=name)
    except CloudRefused as refusal:
        if refusal.code == TABLE_NOT_FOUND:
            return
        raise
    if reply["Table"].get("Replicas"):
        regions = ", ".join(sorted(each["RegionName"] for each in reply["Table"]["Replicas"]))
        raise StackOperationError(
            f"table {name!r} has replicas ({regions}), where the last writer wins and no limit would hold; "
            "remove them, or choose another name"
        )
    if not made:
        raise StackOperationError(
            f"table {name!r} exists already, outside of a stack; choose another name, or adopt it with --adopt-table"
        )


def refuse_one_trust_list(request: DeployRequest, found: Deployment | None) -> None:
    """Raise for a stack whose roles all trust the same principals, until each role is told whom to trust.

    To take that list over would let those who may only acquire go on operating the table; to drop it would remove the
    roles from under the programs that use them.
    """
    trusted = found.parameters.get(ONE_TRUST_LIST) if found else None
    if trusted and not request.parameters.keys() & set(ROLE_PRINCIPALS.values()):
        raise StackOperationError(
            f"every role of {request.name!r} can be assumed by {trusted} ({ONE_TRUST_LIST}). Each role has a list of "
            f"its own now: run zae-limiter deploy --name {request.name} with --trust-acquire, --trust-full and "
            "--trust-read for the roles that you want; those you do not name are removed"
        )


def wants_function(request: DeployRequest, found: Deployment | None, defaults: Mapping[str, str]) -> bool:
    """Whether there is to be a function: as ordered, else as it was, else as the template says."""
    before = found.parameters.get(AGGREGATOR) if found else None
    return request.parameters.get(AGGREGATOR, before or defaults.get(AGGREGATOR)) == "true"


def code_bucket(request: DeployRequest, found: Deployment | None) -> str | None:
    """Where code comes from, if that is there by now."""
    before = found.parameters.get(CODE_BUCKET) if found else None
    own = found.outputs.get(BUCKET_OUTPUT) if found else None
    return request.parameters.get(CODE_BUCKET, before) or own or None


def put_code(bucket: str, package: bytes) -> Plan[str]:
    """Put a package where it belongs, unless it is there; its key."""
    key = code_key(package)
    try:
        yield from AwsCall("s3", "HeadObject", Bucket=bucket, Key=key)
    except CloudRefused as refusal:
        if refusal.code not in NOT_THERE:
            raise
        yield from AwsCall("s3", "PutObject", Bucket=bucket, Key=key, Body=package, ContentType="application/zip")
        yield from Notify(ProgressNote(f"put {len(package):,} bytes of code into {bucket}"))
    return key


def stack_spec(
    request: DeployRequest, found: Deployment | None, known: Mapping[str, str], given: Mapping[str, str]
) -> StackSpec:
    """How the stack should be. Tags that it has and the request does not name stay."""
    before = found.parameters if found else {}
    tags = {**(found.tags if found else {}), **request.tags, **stack_tags(request.name)}
    return StackSpec(request.name, request.body, planned_parameters(list(known), before, given), tags)


def roll_out(
    request: DeployRequest, found: Deployment | None, known: Mapping[str, str], given: Mapping[str, str], run: str
) -> Plan[Deployment | None]:
    """One change set, from its making to its end: the stack then, or nothing if there was nothing to change."""
    kind = "CREATE" if found is None else "UPDATE"
    planned = yield from create_change_set(stack_spec(request, found, known, given), kind, run)
    if planned is None:
        return None
    yield from Notify(planned)
    last = yield from execute_change_set(request.name, run)
    begun = yield from find(request.name)
    assert begun is not None
    if not request.wait:
        return begun
    rested, events = yield from follow(begun.stack_id, last)
    return check_success(request.name, rested, events)
