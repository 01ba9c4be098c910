"""How each part of a deployment is judged, from what AWS says about it. By script: most of it is bad news."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from scripted_cloud import NAME, NO_STACK, ScriptedCloud, stack

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.cloud import CloudRefused
from zae_limiter.infra.deployments import deployment_of
from zae_limiter.infra.health import (
    Grade,
    check_health,
    grade_alarms,
    grade_function,
    grade_mapping,
    grade_table,
    stack_part,
)

FINE, WATCH, BROKEN = Grade.FINE, Grade.WATCH, Grade.BROKEN

TABLE = {"TableStatus": "ACTIVE", "StreamSpecification": {"StreamEnabled": True}}
FUNCTION = {"State": "Active", "LastUpdateStatus": "Successful", "CodeSha256": "abc"}
RESOURCES = {
    "StackResourceSummaries": [
        {"LogicalResourceId": kind, "ResourceType": kind, "PhysicalResourceId": name, "ResourceStatus": "X"}
        for kind, name in [
            ("AWS::DynamoDB::Table", NAME),
            ("AWS::Lambda::Function", "counting"),
            ("AWS::Lambda::EventSourceMapping", "uuid-1"),
            ("AWS::CloudWatch::Alarm", "errors"),
        ]
    ]
}
WELL: dict[str, Any] = {
    "DescribeStacks": stack("UPDATE_COMPLETE"),
    "ListStackResources": RESOURCES,
    "DescribeTable": {"Table": TABLE},
    "GetFunctionConfiguration": FUNCTION,
    "GetEventSourceMapping": {"State": "Enabled", "LastProcessingResult": "OK"},
    "DescribeAlarms": {"MetricAlarms": [{"AlarmName": "errors", "StateValue": "OK"}]},
    "GetMetricStatistics": {"Datapoints": [{"Maximum": 900.0}, {"Maximum": 1_500.0}]},
}


def test_everything_is_fine() -> None:
    health = ScriptedCloud(**WELL).play(check_health(NAME))
    assert (health.grade, health.lag_seconds) == (FINE, 1.5)
    assert [part.what for part in health.parts] == ["stack", "table", "function", "stream", "alarm"]


def test_there_is_no_such_deployment() -> None:
    with pytest.raises(StackOperationError, match="no deployment 'my-app'"):
        ScriptedCloud(DescribeStacks=NO_STACK).play(check_health(NAME))


@pytest.mark.parametrize(
    ("operation", "reply", "what", "grade"),
    [
        ("DescribeTable", CloudRefused("", "AccessDeniedException", "no"), "table", WATCH),
        ("DescribeTable", CloudRefused("", "ResourceNotFoundException", "gone"), "table", BROKEN),
        ("GetFunctionConfiguration", CloudRefused("", "AccessDenied", "no"), "function", WATCH),
        ("GetEventSourceMapping", CloudRefused("", "ResourceNotFoundException", "gone"), "stream", BROKEN),
        ("DescribeAlarms", CloudRefused("", "AccessDenied", "no"), "alarms", WATCH),
        ("GetMetricStatistics", {"Datapoints": [{"Maximum": 400_000.0}]}, "lag", WATCH),
    ],
)
def test_what_cannot_be_seen_is_unknown_and_what_is_gone_is_broken(
    operation: str, reply: Any, what: str, grade: Grade
) -> None:
    health = ScriptedCloud(**{**WELL, operation: reply}).play(check_health(NAME))
    assert health.grade is grade
    (part,) = [part for part in health.parts if part.grade is not FINE]
    assert part.what == what


def test_what_is_refused_for_another_reason_is_an_error() -> None:
    cloud = ScriptedCloud(**{**WELL, "DescribeTable": CloudRefused("DescribeTable", "Throttling", "slow down")})
    with pytest.raises(CloudRefused):
        cloud.play(check_health(NAME))


def test_a_lag_that_the_operator_may_not_see_is_not_known() -> None:
    cloud = ScriptedCloud(**{**WELL, "GetMetricStatistics": CloudRefused("", "AccessDenied", "no")})
    health = cloud.play(check_health(NAME))
    assert (health.grade, health.lag_seconds) == (FINE, None)


def test_moments_are_told_in_utc() -> None:
    """botocore tells them in the time of the machine."""
    far_east = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    told = stack("UPDATE_COMPLETE", CreationTime=far_east, LastUpdatedTime=far_east)["Stacks"][0]
    found = deployment_of(told)
    assert (found.created_at.isoformat(), found.updated_at) == ("2026-01-01T00:00:00+00:00", found.created_at)


@pytest.mark.parametrize(
    ("state", "grade"),
    [
        ("CREATE_COMPLETE", FINE),
        ("UPDATE_COMPLETE", FINE),
        ("UPDATE_IN_PROGRESS", WATCH),
        ("UPDATE_ROLLBACK_COMPLETE", WATCH),
        ("ROLLBACK_COMPLETE", BROKEN),
        ("DELETE_FAILED", BROKEN),
        ("UPDATE_ROLLBACK_FAILED", BROKEN),
    ],
)
def test_the_state_of_a_stack(state: str, grade: Grade) -> None:
    assert stack_part(deployment_of(stack(state)["Stacks"][0])).grade is grade


@pytest.mark.parametrize(
    ("told", "grade"),
    [
        ({}, FINE),
        ({"TableStatus": "UPDATING"}, FINE),
        ({"TableStatus": "DELETING"}, BROKEN),
        ({"TableStatus": "INACCESSIBLE_ENCRYPTION_CREDENTIALS"}, BROKEN),
        ({"Replicas": [{"RegionName": "eu-west-1"}]}, BROKEN),
        ({"GlobalSecondaryIndexes": [{"IndexName": "GSI1", "IndexStatus": "CREATING"}]}, WATCH),
        ({"StreamSpecification": {"StreamEnabled": False}}, WATCH),
    ],
)
def test_a_table(told: dict[str, Any], grade: Grade) -> None:
    assert grade_table(NAME, {**TABLE, **told}).grade is grade


@pytest.mark.parametrize(
    ("told", "grade"),
    [
        ({}, FINE),
        ({"State": "Inactive"}, FINE),
        ({"State": "Pending"}, WATCH),
        ({"LastUpdateStatus": "InProgress"}, WATCH),
        ({"LastUpdateStatus": "Failed"}, BROKEN),
        ({"State": "Failed", "StateReason": "no role"}, BROKEN),
    ],
)
def test_a_function(told: dict[str, Any], grade: Grade) -> None:
    assert grade_function("counting", {**FUNCTION, **told}).grade is grade


@pytest.mark.parametrize(
    ("told", "grade"),
    [
        ({"State": "Enabled"}, FINE),
        ({"State": "Enabled", "LastProcessingResult": "No records processed"}, FINE),
        ({"State": "Enabled", "LastProcessingResult": "PROBLEM: Function call failed"}, WATCH),
        ({"State": "Creating"}, WATCH),
        ({"State": "Disabled"}, BROKEN),
    ],
)
def test_a_stream_mapping(told: dict[str, Any], grade: Grade) -> None:
    assert grade_mapping("uuid-1", told).grade is grade


def test_alarms() -> None:
    told = [
        {"AlarmName": "a", "StateValue": "OK"},
        {"AlarmName": "b", "StateValue": "INSUFFICIENT_DATA"},
        {"AlarmName": "c", "StateValue": "ALARM", "StateReason": "Threshold Crossed"},
    ]
    parts = grade_alarms(["a", "b", "c", "d"], told)
    assert [part.grade for part in parts] == [FINE, FINE, BROKEN, WATCH]
    assert parts[2].detail == "Threshold Crossed"
