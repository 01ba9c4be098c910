"""AWS by script: plans are played without a network, a clock or a wait, and what they asked is kept."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar

from zae_limiter.infra.cloud import AwsCall, CloudRefused, Notify
from zae_limiter.infra.rollouts import DeployRequest
from zae_limiter.infra.template import stack_tags
from zae_limiter.running.plan import Pause, Plan, ReadClock, ReadTimer

Result = TypeVar("Result")

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "my-app"
STACK_ID = "arn:aws:cloudformation:us-east-1:123456789012:stack/my-app/1"
EVENT_IDS = count()

NO_STACK = CloudRefused("DescribeStacks", "ValidationError", "Stack with id my-app does not exist")
NO_TABLE = CloudRefused("DescribeTable", "ResourceNotFoundException", "Table: my-app not found")
NO_OBJECT = CloudRefused("HeadObject", "404", "Not Found")


class ScriptedCloud:
    """Answers each operation with the next of its replies; the last one for ever."""

    def __init__(self, **replies: Any) -> None:
        self._replies = {name: deque(given if isinstance(given, list) else [given]) for name, given in replies.items()}
        self.asked: list[AwsCall] = []
        self.told: list[Any] = []
        self.waited_ms = 0

    def play(self, plan: Plan[Result]) -> Result:
        """The plan's result, or what it raises."""
        answer: Any = None
        error: Exception | None = None
        for _ in range(10_000):
            try:
                request = plan.send(answer) if error is None else plan.throw(error)
            except StopIteration as finished:
                result: Result = finished.value
                return result
            answer, error = None, None
            if isinstance(request, Pause):
                self.waited_ms += request.milliseconds
            elif isinstance(request, ReadTimer):
                answer = self.waited_ms
            elif isinstance(request, ReadClock):
                answer = round(WHEN.timestamp() * 1_000)
            elif isinstance(request, Notify):
                self.told.append(request.event)
            else:
                assert isinstance(request, AwsCall)
                self.asked.append(request)
                answer = self._reply(request)
                if isinstance(answer, Exception):
                    answer, error = None, answer
        raise AssertionError("the plan does not end")

    def _reply(self, request: AwsCall) -> Any:
        replies = self._replies.get(request.operation)
        assert replies, f"not expected: {request}"
        return replies.popleft() if len(replies) > 1 else replies[0]

    @property
    def operations(self) -> list[str]:
        """What was asked, in order."""
        return [each.operation for each in self.asked]

    def params_of(self, operation: str) -> list[Mapping[str, Any]]:
        """With what each call of an operation was made."""
        return [each.params for each in self.asked if each.operation == operation]

    def counts(self) -> dict[str, int]:
        """How often each operation was asked for."""
        found: dict[str, int] = defaultdict(int)
        for operation in self.operations:
            found[operation] += 1
        return dict(found)


def stack(state: str, **more: Any) -> dict[str, Any]:
    """DescribeStacks' reply about one of our stacks."""
    told = {
        "StackName": NAME,
        "StackId": STACK_ID,
        "StackStatus": state,
        "CreationTime": WHEN,
        "Tags": [{"Key": key, "Value": value} for key, value in stack_tags(NAME).items()],
        **more,
    }
    return {"Stacks": [told]}


def parameters(**values: str) -> list[dict[str, str]]:
    """As DescribeStacks tells them."""
    return [{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()]


def event(resource: str, state: str, reason: str = "", kind: str = "AWS::DynamoDB::Table") -> dict[str, Any]:
    """An event of a resource."""
    return {
        "EventId": str(next(EVENT_IDS)),
        "Timestamp": WHEN,
        "LogicalResourceId": resource,
        "ResourceType": kind,
        "ResourceStatus": state,
        "ResourceStatusReason": reason,
        "PhysicalResourceId": f"{resource}-1",
    }


def stack_event(state: str, reason: str = "") -> dict[str, Any]:
    """An event of the stack as a whole."""
    return event(NAME, state, reason, "AWS::CloudFormation::Stack")


def events(*oldest_first: dict[str, Any]) -> dict[str, Any]:
    """DescribeStackEvents' reply: the newest first."""
    return {"StackEvents": list(reversed(oldest_first))}


def pages_of_events(*steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replies in which the events of each step have come to those before."""
    seen: list[dict[str, Any]] = []
    replies = []
    for step in steps:
        seen += step
        replies.append(events(*seen))
    return replies


def order(**how: Any) -> DeployRequest:
    """What to deploy: a template without a function, unless it says otherwise."""
    usual: dict[str, Any] = {
        "name": NAME,
        "body": "Resources: {}",
        "build": lambda: b"package",
        "parameters": {},
        "tags": {},
        "run_id": "run",
    }
    return DeployRequest(**{**usual, **how})


SUMMARY = {"Parameters": [{"ParameterKey": "MaxWriteUnits", "DefaultValue": "0"}]}
MADE = {"Status": "CREATE_COMPLETE", "Changes": []}
UNCHANGED = {"Status": "FAILED", "StatusReason": "The submitted information didn't contain changes."}


QUIET: dict[str, Any] = {
    "DescribeTable": NO_TABLE,
    "GetTemplateSummary": SUMMARY,
    "CreateChangeSet": {},
    "DescribeChangeSet": MADE,
    "DeleteChangeSet": {},
    "DeleteStack": {},
    "ExecuteChangeSet": {},
}

BEFORE = stack_event("CREATE_COMPLETE")


def updating(*then: dict[str, Any]) -> list[dict[str, Any]]:
    """Events of an update of a stack that was there before."""
    return pages_of_events([BEFORE], [stack_event("UPDATE_IN_PROGRESS")], then)


UPDATED = updating(stack_event("UPDATE_COMPLETE"))
