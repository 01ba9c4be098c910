"""The health of a deployment: its stack, table, function, stream and alarms, each in a word and with a grade.

A part that may not be read is unknown, not broken: the operator who looks may have fewer rights than the one who
deployed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.cloud import NO_ACCESS, AwsCall, CloudRefused
from zae_limiter.infra.deployments import (
    ALARM_KIND,
    FUNCTION_KIND,
    MAPPING_KIND,
    TABLE_KIND,
    Deployment,
    Resource,
    find_ours,
    resources_of,
)
from zae_limiter.infra.stack_states import HEALTHY, IN_PROGRESS
from zae_limiter.models.moments import at
from zae_limiter.running.plan import READ_CLOCK, Plan

LAG_WINDOW_MINUTES: Final = 15
LONG_LAG_S: Final = 300
"""Usage that is later than this is worth a look."""

ACTIVE: Final = "ACTIVE"
ALARMS_AT_ONCE: Final = 100
NOT_FOUND: Final = ("NotFound", "ResourceNotFoundException")


class Grade(StrEnum):
    """How well a part is."""

    FINE = "fine"
    WATCH = "watch"
    BROKEN = "broken"


class Part(NamedTuple):
    """One part of a deployment: its state in AWS's own word, and what there is to say about it."""

    what: str
    name: str
    state: str
    grade: Grade
    detail: str | None = None


class Health(NamedTuple):
    """A deployment and how its parts do."""

    deployment: Deployment
    parts: tuple[Part, ...]
    lag_seconds: float | None
    """How old the oldest record was that the function read in the last minutes; ``None``: nothing is known."""

    @property
    def grade(self) -> Grade:
        """As well as its worst part."""
        grades = {part.grade for part in self.parts}
        return next((grade for grade in (Grade.BROKEN, Grade.WATCH) if grade in grades), Grade.FINE)


def check_health(name: str) -> Plan[Health]:
    """The health of a deployment, now."""
    found = yield from find_ours(name)
    if found is None:
        raise StackOperationError(f"there is no deployment {name!r} in this region")
    resources = yield from resources_of(found.stack_id)
    parts = [stack_part(found)]
    for kind, look in ((TABLE_KIND, table_part), (FUNCTION_KIND, function_part), (MAPPING_KIND, mapping_part)):
        for each in resources:
            if each.kind == kind and each.physical_id is not None:
                parts.append((yield from _or_unknown(each, look(each.physical_id))))
    if found.wants_function and not any(each.kind == FUNCTION_KIND for each in resources):
        advice = f"finish with: zae-limiter deploy --name {name}"
        parts.append(Part("function", name, "missing", Grade.WATCH, advice))
    parts += yield from alarm_parts([each for each in resources if each.kind == ALARM_KIND])
    lag: float | None = None
    for each in resources:
        if each.kind == FUNCTION_KIND and each.physical_id is not None:
            lag = yield from lag_of(each.physical_id)
    if lag is not None and lag > LONG_LAG_S:
        parts.append(Part("lag", "usage", f"{lag:,.0f} s", Grade.WATCH, "usage is counted late"))
    return Health(found, tuple(parts), lag)


def stack_part(found: Deployment) -> Part:
    """The stack as a whole. One whose last update was rolled back works, but is not as requested."""
    if found.state in HEALTHY:
        grade = Grade.FINE
    elif found.state.endswith(("ROLLBACK_COMPLETE", IN_PROGRESS)) and found.state != "ROLLBACK_COMPLETE":
        grade = Grade.WATCH
    else:
        grade = Grade.BROKEN
    return Part("stack", found.name, found.state, grade, None if grade is Grade.FINE else found.reason)


def table_part(name: str) -> Plan[Part]:
    """The table, with all its indexes and its stream."""
    reply = yield from AwsCall("dynamodb", "DescribeTable", TableName=name)
    return grade_table(name, reply["Table"])


def grade_table(name: str, table: Mapping[str, Any]) -> Part:
    """The health of the table, from its description."""
    if table.get("Replicas"):
        return Part("table", name, table["TableStatus"], Grade.BROKEN, "has replicas, where no limit holds")
    indexes = [each for each in table.get("GlobalSecondaryIndexes", ()) if each.get("IndexStatus", ACTIVE) != ACTIVE]
    if table["TableStatus"] not in (ACTIVE, "UPDATING"):
        return Part("table", name, table["TableStatus"], Grade.BROKEN)
    if indexes:
        return Part("table", name, table["TableStatus"], Grade.WATCH, f"index {indexes[0]['IndexName']} is being made")
    if not table.get("StreamSpecification", {}).get("StreamEnabled"):
        return Part("table", name, table["TableStatus"], Grade.WATCH, "has no stream, so usage is not counted")
    size = f"about {table.get('ItemCount', 0):,} items, {table.get('TableSizeBytes', 0):,} bytes"
    return Part("table", name, table["TableStatus"], Grade.FINE, size)


def function_part(name: str) -> Plan[Part]:
    """The function that counts usage."""
    told = yield from AwsCall("lambda", "GetFunctionConfiguration", FunctionName=name)
    return grade_function(name, told)


def grade_function(name: str, told: Mapping[str, Any]) -> Part:
    """The health of the function, from its configuration."""
    state = told.get("State", "Active")
    update = told.get("LastUpdateStatus", "Successful")
    if update == "Failed":
        return Part("function", name, state, Grade.BROKEN, told.get("LastUpdateStatusReason") or "an update failed")
    if state in ("Active", "Inactive") and update == "Successful":
        return Part("function", name, state, Grade.FINE, f"code {told.get('CodeSha256', '')[:12]}")
    grade = Grade.WATCH if state in ("Pending", "Active") else Grade.BROKEN
    return Part("function", name, state, grade, told.get("StateReason"))


def mapping_part(uuid: str) -> Plan[Part]:
    """What brings the table's stream to the function."""
    told = yield from AwsCall("lambda", "GetEventSourceMapping", UUID=uuid)
    return grade_mapping(uuid, told)


def grade_mapping(uuid: str, told: Mapping[str, Any]) -> Part:
    """The health of the mapping, from its description."""
    state, result = told.get("State", ""), told.get("LastProcessingResult")
    if state != "Enabled":
        busy = state in ("Creating", "Enabling", "Updating")
        grade = Grade.WATCH if busy else Grade.BROKEN
        return Part("stream", uuid, state, grade, told.get("StateTransitionReason") or "usage is not counted")
    troubled = result is not None and result.startswith("PROBLEM")
    return Part("stream", uuid, state, Grade.WATCH if troubled else Grade.FINE, result)


def alarm_parts(resources: Sequence[Resource]) -> Plan[list[Part]]:
    """The alarms, each in its last state."""
    names = [each.physical_id for each in resources if each.physical_id is not None]
    parts: list[Part] = []
    for start in range(0, len(names), ALARMS_AT_ONCE):
        some = names[start : start + ALARMS_AT_ONCE]
        try:
            reply = yield from AwsCall("cloudwatch", "DescribeAlarms", AlarmNames=some)
        except CloudRefused as refusal:
            return [*parts, Part("alarms", f"{len(names)} alarms", "unknown", Grade.WATCH, refusal.message)]
        parts += grade_alarms(some, reply.get("MetricAlarms", ()))
    return parts


def grade_alarms(names: Sequence[str], told: Iterable[Mapping[str, Any]]) -> list[Part]:
    """The health of each alarm; one that CloudWatch does not describe was deleted outside of the stack."""
    grades = {"OK": Grade.FINE, "INSUFFICIENT_DATA": Grade.FINE}
    described = {each["AlarmName"]: each for each in told}
    parts = []
    for name in names:
        if name not in described:
            parts.append(Part("alarm", name, "gone", Grade.WATCH, "was deleted outside of the stack"))
            continue
        state = described[name]["StateValue"]
        grade = grades.get(state, Grade.BROKEN)
        reason = described[name].get("StateReason") if grade is Grade.BROKEN else None
        parts.append(Part("alarm", name, state, grade, reason))
    return parts


def lag_of(function: str) -> Plan[float | None]:
    """How far the function was behind the stream, in seconds, at worst in the last minutes."""
    now = at((yield from READ_CLOCK))
    try:
        reply = yield from AwsCall(
            "cloudwatch",
            "GetMetricStatistics",
            Namespace="AWS/Lambda",
            MetricName="IteratorAge",
            Dimensions=[{"Name": "FunctionName", "Value": function}],
            StartTime=now - timedelta(minutes=LAG_WINDOW_MINUTES),
            EndTime=now,
            Period=60,
            Statistics=["Maximum"],
        )
    except CloudRefused:
        return None
    ages = [float(point["Maximum"]) for point in reply.get("Datapoints", ())]
    return max(ages) / 1_000 if ages else None


def _or_unknown(resource: Resource, look: Plan[Part]) -> Plan[Part]:
    """A part, or an unknown one if reading it is refused."""
    what = {TABLE_KIND: "table", FUNCTION_KIND: "function", MAPPING_KIND: "stream"}[resource.kind]
    name = resource.physical_id or resource.name
    try:
        return (yield from look)
    except CloudRefused as refusal:
        if refusal.code in NO_ACCESS:
            return Part(what, name, "unknown", Grade.WATCH, refusal.message)
        if any(words in refusal.code for words in NOT_FOUND):
            return Part(what, name, "gone", Grade.BROKEN, "was deleted outside of the stack")
        raise
