"""Deployments: the stacks of a region that are ours, found by the tag they carry."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.cloud import AwsCall, CloudRefused
from zae_limiter.infra.stack_states import GONE, REVIEW
from zae_limiter.infra.template import STACK_TAG, VERSION_TAG
from zae_limiter.running.plan import Plan

ADOPTED: Final = "zae-limiter: a table that was there before its stack"
"""The description of a stack that was just made around a table, and has no tags yet."""

TABLE_PARAMETER: Final = "TableName"
AGGREGATOR: Final = "EnableAggregator"
NO_SUCH_STACK: Final = "does not exist"

TABLE_KIND: Final = "AWS::DynamoDB::Table"
FUNCTION_KIND: Final = "AWS::Lambda::Function"
MAPPING_KIND: Final = "AWS::Lambda::EventSourceMapping"
BUCKET_KIND: Final = "AWS::S3::Bucket"
ALARM_KIND: Final = "AWS::CloudWatch::Alarm"


class Deployment(NamedTuple):
    """One deployment, as CloudFormation describes it."""

    name: str
    stack_id: str
    state: str
    reason: str | None
    created_at: datetime
    updated_at: datetime | None
    parameters: Mapping[str, str]
    outputs: Mapping[str, str]
    tags: Mapping[str, str]
    protected: bool
    """Whether the stack as a whole is protected from deletion."""
    description: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether zae-limiter made it."""
        return self.tags.get(STACK_TAG) == self.name or self.description == ADOPTED

    @property
    def table(self) -> str:
        """The name of its table."""
        return self.parameters.get(TABLE_PARAMETER) or self.name

    @property
    def wants_function(self) -> bool:
        """Whether a function is to count its usage."""
        return self.parameters.get(AGGREGATOR) == "true"

    @property
    def version(self) -> str | None:
        """The version of zae-limiter that deployed it last."""
        return self.tags.get(VERSION_TAG)


class Resource(NamedTuple):
    """One resource of a stack."""

    name: str
    kind: str
    physical_id: str | None
    state: str


def deployment_of(description: Mapping[str, Any]) -> Deployment:
    """A deployment from CloudFormation's description of its stack."""
    updated: datetime | None = description.get("LastUpdatedTime")
    return Deployment(
        name=description["StackName"],
        stack_id=description["StackId"],
        state=description["StackStatus"],
        reason=description.get("StackStatusReason") or None,
        created_at=description["CreationTime"].astimezone(UTC),
        updated_at=updated.astimezone(UTC) if updated else None,
        parameters={
            each["ParameterKey"]: each.get("ParameterValue", "") for each in description.get("Parameters", ())
        },
        outputs={each["OutputKey"]: each.get("OutputValue", "") for each in description.get("Outputs", ())},
        tags={each["Key"]: each["Value"] for each in description.get("Tags", ())},
        protected=bool(description.get("EnableTerminationProtection")),
        description=description.get("Description"),
    )


def find(name_or_id: str) -> Plan[Deployment | None]:
    """The stack of a name or id, ours or not. A deleted one is found by its id only."""
    try:
        reply = yield from AwsCall("cloudformation", "DescribeStacks", StackName=name_or_id)
    except CloudRefused as refusal:
        if refusal.says(NO_SUCH_STACK):
            return None
        raise
    return deployment_of(reply["Stacks"][0])


def find_ours(name: str) -> Plan[Deployment | None]:
    """The deployment of a name. Raises :class:`StackOperationError` for a stack that is none of ours."""
    found = yield from find(name)
    if found is None or found.state == GONE:
        return None
    if not found.is_ours and found.state != REVIEW:  # nothing is there yet, not even tags
        raise StackOperationError(f"the stack {name!r} was not made by zae-limiter; choose another name")
    return found


def find_all() -> Plan[list[Deployment]]:
    """Every deployment of the region, by name."""
    found: list[Deployment] = []
    token: str | None = None
    while True:
        more = {} if token is None else {"NextToken": token}
        page = yield from AwsCall("cloudformation", "DescribeStacks", **more)
        found += [each for each in map(deployment_of, page["Stacks"]) if each.is_ours and each.state != GONE]
        token = page.get("NextToken")
        if not token:
            return sorted(found, key=lambda each: each.name)


def resources_of(stack_id: str) -> Plan[list[Resource]]:
    """What a stack is made of."""
    found: list[Resource] = []
    token: str | None = None
    while True:
        more = {} if token is None else {"NextToken": token}
        page = yield from AwsCall("cloudformation", "ListStackResources", StackName=stack_id, **more)
        found += [
            Resource(
                each["LogicalResourceId"],
                each["ResourceType"],
                each.get("PhysicalResourceId") or None,
                each["ResourceStatus"],
            )
            for each in page["StackResourceSummaries"]
        ]
        token = page.get("NextToken")
        if not token:
            return found
