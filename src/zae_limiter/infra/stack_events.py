"""What CloudFormation tells while it works: events, and which of them explain a failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.cloud import AwsCall
from zae_limiter.running.plan import Plan

STACK_KIND: Final = "AWS::CloudFormation::Stack"

CONSEQUENCES: Final = ("cancelled", "canceled", "The following resource(s) failed")
"""Reasons of resources that failed only because another one did."""


class StackEvent(NamedTuple):
    """One step of one resource, or of the stack as a whole."""

    event_id: str
    time: datetime
    resource: str
    kind: str
    state: str
    reason: str | None
    physical_id: str | None

    @property
    def failed(self) -> bool:
        """Whether something went wrong here."""
        return self.state.endswith("_FAILED")

    @property
    def of_the_stack(self) -> bool:
        """Whether it is about the stack as a whole."""
        return self.kind == STACK_KIND


class RolloutFailed(StackOperationError):
    """A roll-out did not succeed. ``causes`` are the resources to look at, the first one first.

    ``state`` is the state in which CloudFormation left the stack.
    """

    def __init__(self, name: str, state: str, causes: Iterable[StackEvent], advice: str = "") -> None:
        self.name = name
        self.state = state
        self.causes = tuple(causes)
        self.advice = advice
        super().__init__(name, state, self.causes, advice)

    def __str__(self) -> str:
        words = [f"{self.name} is {self.state}"]
        words += [f"{cause.resource} ({cause.kind}): {cause.reason or cause.state}" for cause in self.causes]
        return "; ".join([*words, self.advice] if self.advice else words)


def event_of(description: Mapping[str, Any]) -> StackEvent:
    """An event as CloudFormation tells it."""
    return StackEvent(
        event_id=description["EventId"],
        time=description["Timestamp"].astimezone(UTC),
        resource=description.get("LogicalResourceId", ""),
        kind=description.get("ResourceType", ""),
        state=description.get("ResourceStatus", ""),
        reason=description.get("ResourceStatusReason") or None,
        physical_id=description.get("PhysicalResourceId") or None,
    )


def events_since(stack_id: str, last: str | None) -> Plan[list[StackEvent]]:
    """The events after that of the id ``last``, oldest first; all there are, if there is no last one."""
    found: list[StackEvent] = []
    token: str | None = None
    while True:
        more = {} if token is None else {"NextToken": token}
        page = yield from AwsCall("cloudformation", "DescribeStackEvents", StackName=stack_id, **more)
        for event in map(event_of, page["StackEvents"]):
            if event.event_id == last:
                return found[::-1]
            found.append(event)
        token = page.get("NextToken")
        if not token:
            return found[::-1]


def causes_among(events: Iterable[StackEvent]) -> tuple[StackEvent, ...]:
    """Which events explain a failure: what failed by itself. If only the stack failed, its own reason."""
    failed = [event for event in events if event.failed]
    by_itself = [event for event in failed if not event.of_the_stack and not _is_consequence(event)]
    return tuple(by_itself or [event for event in failed if event.reason])


def _is_consequence(event: StackEvent) -> bool:
    return event.reason is not None and any(words in event.reason for words in CONSEQUENCES)
