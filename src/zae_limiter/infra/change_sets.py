"""One roll-out: a change set is created, checked, executed and followed to its end.

A change set that would change nothing is no error. One that would replace the table is never executed: a new table is
empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from zae_limiter.exceptions import StackOperationError, ValidationError
from zae_limiter.infra.cloud import AwsCall, CloudRefused, Notify
from zae_limiter.infra.deployments import NO_SUCH_STACK, TABLE_KIND, Deployment, find
from zae_limiter.infra.stack_events import RolloutFailed, StackEvent, causes_among, events_since
from zae_limiter.infra.stack_states import HEALTHY, REVIEW, advice_for, is_idle
from zae_limiter.infra.template import CAPABILITY
from zae_limiter.running.plan import READ_TIMER, Pause, Plan

NOTHING_TO_DO: Final = ("didn't contain changes", "No updates are to be performed")
PENDING_STATES: Final = ("CREATE_PENDING", "CREATE_IN_PROGRESS")

FIRST_PAUSE_MS: Final = 200
LONGEST_PAUSE_MS: Final = 3_000
PAUSE_GROWTH: Final = 1.4
ROLLOUT_TIMEOUT_MS: Final = 45 * 60_000
"""How long to wait for a roll-out. CloudFormation continues when nothing waits for it."""

LARGEST_BODY: Final = 51_200
"""Bytes of a template that CloudFormation takes in a call."""


class Change(NamedTuple):
    """What a roll-out does to one resource: ``Add``, ``Modify`` or ``Remove``."""

    action: str
    resource: str
    kind: str
    replaces: bool


class Changes(NamedTuple):
    """Everything a roll-out is about to do."""

    changes: tuple[Change, ...]


class StackSpec(NamedTuple):
    """How a stack should be."""

    name: str
    body: str
    parameters: Sequence[Mapping[str, Any]]
    tags: Mapping[str, str]


def planned_parameters(
    known: Sequence[str], previous: Mapping[str, str], given: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The parameters of a roll-out: what is given, else what was, else the template's own default."""
    for name, value in given.items():
        if name not in known:
            raise ValidationError("parameter", f"{name}={value}", f"must be one of {', '.join(sorted(known))}")
    return [
        {"ParameterKey": name, "ParameterValue": given[name]}
        if name in given
        else {"ParameterKey": name, "UsePreviousValue": True}
        for name in known
        if name in given or name in previous
    ]


def parameters_in(body: str) -> Plan[dict[str, str]]:
    """The names of a template's parameters with their defaults, as CloudFormation reads them."""
    if len(body.encode()) > LARGEST_BODY:
        raise StackOperationError(f"the template has more than the {LARGEST_BODY:,} bytes that CloudFormation takes")
    summary = yield from AwsCall("cloudformation", "GetTemplateSummary", TemplateBody=body)
    return {each["ParameterKey"]: each.get("DefaultValue", "") for each in summary.get("Parameters", ())}


def create_change_set(spec: StackSpec, kind: str, run_id: str, **more: Any) -> Plan[Changes | None]:
    """Make the change set of a run, ``CREATE``, ``UPDATE`` or ``IMPORT``: what it would do, or nothing."""
    tags = [{"Key": key, "Value": value} for key, value in spec.tags.items()]
    yield from AwsCall(
        "cloudformation",
        "CreateChangeSet",
        StackName=spec.name,
        ChangeSetName=run_id,
        ChangeSetType=kind,
        TemplateBody=spec.body,
        Parameters=list(spec.parameters),
        Capabilities=[CAPABILITY],
        ClientToken=run_id,
        **({"Tags": tags} if tags else {}),
        **more,
    )
    described = yield from _wait_until_created(spec.name, run_id)
    if described["Status"] == "FAILED":
        reason = described.get("StatusReason") or "it gives no reason"
        yield from delete_change_set(spec.name, kind, run_id)
        if any(words in reason for words in NOTHING_TO_DO):
            return None
        raise StackOperationError(f"CloudFormation made no change set for {spec.name!r}: {reason}")
    changes = yield from _changes(spec.name, run_id, described)
    if any(change.replaces and change.kind == TABLE_KIND for change in changes):
        yield from delete_change_set(spec.name, kind, run_id)
        raise StackOperationError(
            f"this would replace the table of {spec.name!r} by an empty one, so nothing was changed"
        )
    return Changes(changes)


def delete_change_set(name: str, kind: str, run_id: str) -> Plan[None]:
    """Delete a change set, and the empty stack that came with one that was to create a stack."""
    yield from AwsCall("cloudformation", "DeleteChangeSet", StackName=name, ChangeSetName=run_id)
    if kind != "UPDATE":
        yield from AwsCall("cloudformation", "DeleteStack", StackName=name)


def execute_change_set(name: str, run_id: str) -> Plan[str]:
    """Start to execute a change set; returns the id of the last event before."""
    last = yield from newest_event(name)
    yield from AwsCall(
        "cloudformation", "ExecuteChangeSet", StackName=name, ChangeSetName=run_id, ClientRequestToken=run_id
    )
    return last or ""


def newest_event(name: str) -> Plan[str | None]:
    """The id of the last event of a stack so far."""
    page = yield from AwsCall("cloudformation", "DescribeStackEvents", StackName=name)
    events = page["StackEvents"]
    return str(events[0]["EventId"]) if events else None


def follow(stack_id: str, last: str | None, *, own: bool = True) -> Plan[tuple[Deployment | None, list[StackEvent]]]:
    """Report every event after ``last`` until the stack is idle: the stack then (``None``: it is gone), and the
    events.

    An operation of our own (``own``) is over when its last event was reported: what CloudFormation says of the stack
    as a whole may be a moment old.
    """
    begun = yield from READ_TIMER
    seen: list[StackEvent] = []
    pause = float(FIRST_PAUSE_MS)
    while True:
        try:
            fresh = yield from events_since(stack_id, seen[-1].event_id if seen else last)
        except CloudRefused as refusal:
            if not refusal.says(NO_SUCH_STACK):
                raise
            return None, seen
        for event in fresh:
            yield from Notify(event)
        seen += fresh
        found = yield from find(stack_id)
        if found is None or (is_idle(found.state) and (not own or any(map(_is_final, seen)))):
            return found, seen
        if (yield from READ_TIMER) - begun > ROLLOUT_TIMEOUT_MS:
            raise StackOperationError(
                f"{found.name} is still {found.state}; CloudFormation continues; look later with: "
                f"zae-limiter status --name {found.name}"
            )
        yield from Pause(round(pause))
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE_MS)


def _is_final(event: StackEvent) -> bool:
    return event.of_the_stack and event.state != REVIEW and is_idle(event.state)


def check_success(name: str, found: Deployment | None, events: Sequence[StackEvent]) -> Deployment:
    """The stack after a roll-out that succeeded. Raises :class:`RolloutFailed` with the resources that failed."""
    if found is not None and found.state in HEALTHY:
        return found
    state = found.state if found else "gone"
    advice = "the update was undone" if state == "UPDATE_ROLLBACK_COMPLETE" else ""
    if state == "ROLLBACK_FAILED":
        advice = advice_for(name, state)
    raise RolloutFailed(name, state, causes_among(events), advice)


def _wait_until_created(name: str, run_id: str) -> Plan[Mapping[str, Any]]:
    pause = float(FIRST_PAUSE_MS)
    begun = yield from READ_TIMER
    while True:
        described = yield from AwsCall("cloudformation", "DescribeChangeSet", StackName=name, ChangeSetName=run_id)
        if described["Status"] not in PENDING_STATES:
            return described
        if (yield from READ_TIMER) - begun > ROLLOUT_TIMEOUT_MS:
            raise StackOperationError(f"CloudFormation takes too long to look at the changes of {name!r}")
        yield from Pause(round(pause))
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE_MS)


def _changes(name: str, run_id: str, page: Mapping[str, Any]) -> Plan[tuple[Change, ...]]:
    found: list[Change] = []
    while True:
        told = [each["ResourceChange"] for each in page.get("Changes", ()) if "ResourceChange" in each]
        found += [
            Change(each["Action"], each["LogicalResourceId"], each["ResourceType"], _replaces(each)) for each in told
        ]
        if not page.get("NextToken"):
            return tuple(found)
        page = yield from AwsCall(
            "cloudformation", "DescribeChangeSet", StackName=name, ChangeSetName=run_id, NextToken=page["NextToken"]
        )


def _replaces(change: Mapping[str, Any]) -> bool:
    """Whether a new resource takes the place of the old one, surely or as far as can be told beforehand."""
    targets = [detail.get("Target", {}) for detail in change.get("Details", ())]
    certain = any(target.get("RequiresRecreation") == "Always" for target in targets)
    replacement = change.get("Replacement")
    return replacement == "True" or (replacement == "Conditional" and certain)
