"""Deploying from every state a stack can be in, played by script: what no local cloud gets into, or not in time."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.loaders import Loader
from scripted_cloud import (
    BEFORE,
    MADE,
    NAME,
    NO_STACK,
    QUIET,
    STACK_ID,
    SUMMARY,
    UNCHANGED,
    UPDATED,
    ScriptedCloud,
    event,
    events,
    order,
    pages_of_events,
    parameters,
    stack,
    stack_event,
    updating,
)

from zae_limiter.exceptions import StackOperationError, ValidationError
from zae_limiter.infra.change_sets import ROLLOUT_TIMEOUT_MS, Change, follow, parameters_in, planned_parameters
from zae_limiter.infra.cloud import CloudRefused
from zae_limiter.infra.rollouts import ProgressNote, deploy, preview
from zae_limiter.infra.stack_events import RolloutFailed, StackEvent, causes_among, event_of
from zae_limiter.infra.stack_states import STEPS, Step, step_from

ALL_STATES = Loader().load_service_model("cloudformation", "service-2")["shapes"]["StackStatus"]["enum"]
"""As CloudFormation's own model lists them."""


# States


@pytest.mark.parametrize("state", ALL_STATES)
def test_every_state_has_a_next_step(state: str) -> None:
    under_way = state.endswith("_IN_PROGRESS") and state != "REVIEW_IN_PROGRESS"
    assert (step_from(state) is Step.WAIT) == under_way
    assert under_way or state in STEPS


def test_a_state_that_is_not_known_is_left_to_a_person() -> None:
    assert step_from("SOMETHING_NEW") is Step.REFUSE


def test_there_is_no_stack_so_it_is_created() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[NO_STACK, stack("CREATE_IN_PROGRESS"), stack("CREATE_COMPLETE")],
        DescribeStackEvents=pages_of_events(
            [stack_event("REVIEW_IN_PROGRESS")], [stack_event("CREATE_IN_PROGRESS"), stack_event("CREATE_COMPLETE")]
        ),
    )
    done = cloud.play(deploy(order(parameters={"MaxWriteUnits": "7"}, tags={"team": "search"})))
    assert (done.changed, done.complete, done.stack.state) == (True, True, "CREATE_COMPLETE")
    (made,) = cloud.params_of("CreateChangeSet")
    assert made["ChangeSetType"] == "CREATE"
    assert made["Parameters"] == [{"ParameterKey": "MaxWriteUnits", "ParameterValue": "7"}]
    assert {"Key": "zae-limiter:stack", "Value": NAME} in made["Tags"]
    assert {"Key": "team", "Value": "search"} in made["Tags"]


@pytest.mark.parametrize("state", [state for state, step in STEPS.items() if step is Step.UPDATE])
def test_a_stack_that_is_there_is_updated_with_what_it_had(state: str) -> None:
    had = {"Parameters": parameters(MaxWriteUnits="9", Forgotten="1")}
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack(state, **had), stack("UPDATE_IN_PROGRESS"), stack("UPDATE_COMPLETE")],
        DescribeStackEvents=UPDATED,
    )
    assert cloud.play(deploy(order())).changed
    (made,) = cloud.params_of("CreateChangeSet")
    assert made["ChangeSetType"] == "UPDATE"
    assert made["Parameters"] == [{"ParameterKey": "MaxWriteUnits", "UsePreviousValue": True}]


def test_what_is_under_way_is_waited_for() -> None:
    cloud = ScriptedCloud(
        **{**QUIET, "DescribeChangeSet": UNCHANGED},
        DescribeStacks=[stack("UPDATE_IN_PROGRESS")] * 3 + [stack("UPDATE_COMPLETE")],
        DescribeStackEvents=UPDATED,
    )
    done = cloud.play(deploy(order()))
    assert (done.changed, done.complete) == (False, True)
    assert cloud.waited_ms > 0
    assert [event for event in cloud.told if isinstance(event, ProgressNote)]


def test_the_remains_of_a_failed_creation_are_removed_first() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[
            stack("ROLLBACK_COMPLETE"),
            stack("DELETE_COMPLETE"),
            NO_STACK,
            stack("CREATE_IN_PROGRESS"),
            stack("CREATE_COMPLETE"),
        ],
        DescribeStackEvents=pages_of_events(
            [stack_event("ROLLBACK_COMPLETE")],
            [stack_event("DELETE_COMPLETE")],
            [stack_event("REVIEW_IN_PROGRESS")],
            [stack_event("CREATE_COMPLETE")],
        ),
    )
    assert cloud.play(deploy(order())).stack.state == "CREATE_COMPLETE"
    assert cloud.operations.index("DeleteStack") < cloud.operations.index("CreateChangeSet")
    assert cloud.params_of("CreateChangeSet")[0]["ChangeSetType"] == "CREATE"


def test_an_update_that_could_not_be_undone_is_undone_first() -> None:
    cloud = ScriptedCloud(
        **{**QUIET, "DescribeChangeSet": UNCHANGED},
        ContinueUpdateRollback={},
        DescribeStacks=[stack("UPDATE_ROLLBACK_FAILED"), stack("UPDATE_ROLLBACK_COMPLETE")],
        DescribeStackEvents=updating(stack_event("UPDATE_ROLLBACK_COMPLETE")),
    )
    assert cloud.play(deploy(order())).complete
    assert cloud.counts()["ContinueUpdateRollback"] == 1


def test_one_that_cannot_be_undone_at_all_is_explained() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        ContinueUpdateRollback={},
        DescribeStacks=[stack("UPDATE_ROLLBACK_FAILED")],
        DescribeStackEvents=updating(
            event("Bucket", "UPDATE_FAILED", "it is gone", "AWS::S3::Bucket"), stack_event("UPDATE_ROLLBACK_FAILED")
        ),
    )
    with pytest.raises(
        RolloutFailed, match=r"my-app is UPDATE_ROLLBACK_FAILED; Bucket \(AWS::S3::Bucket\): it is gone"
    ):
        cloud.play(deploy(order()))


@pytest.mark.parametrize("state", [state for state, step in STEPS.items() if step is Step.REFUSE])
def test_what_needs_a_person_is_refused_with_advice(state: str) -> None:
    cloud = ScriptedCloud(**QUIET, DescribeStacks=stack(state))
    with pytest.raises(RolloutFailed) as caught:
        cloud.play(deploy(order()))
    assert caught.value.advice
    assert cloud.counts() == {"DescribeStacks": 1}


def test_a_creation_that_cannot_be_undone_because_the_table_is_protected_is_explained() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[NO_STACK, stack("CREATE_IN_PROGRESS"), stack("ROLLBACK_FAILED")],
        DescribeStackEvents=pages_of_events(
            [stack_event("REVIEW_IN_PROGRESS")],
            [
                event("LogGroup", "CREATE_FAILED", "the key's policy says no", "AWS::Logs::LogGroup"),
                event("Table", "DELETE_FAILED", "Resource cannot be deleted as it is currently protected"),
                stack_event("ROLLBACK_FAILED"),
            ],
        ),
    )
    with pytest.raises(RolloutFailed, match=r"policy says no.*delete --name my-app --lift-protection, then deploy"):
        cloud.play(deploy(order()))


# Whom roles trust

ONE_LIST = {"Parameters": parameters(MaxWriteUnits="9", RoleTrustedPrincipals="arn:aws:iam::123456789012:root")}


@pytest.mark.parametrize("step", [deploy, preview])
def test_a_stack_with_one_list_for_all_roles_is_not_changed_before_each_role_has_its_own(step: Any) -> None:
    cloud = ScriptedCloud(**QUIET, DescribeStacks=stack("CREATE_COMPLETE", **ONE_LIST))
    with pytest.raises(
        StackOperationError, match=r"123456789012:root.*--trust-acquire, --trust-full and --trust-read"
    ):
        cloud.play(step(order(parameters={"MaxWriteUnits": "7"})))
    assert "CreateChangeSet" not in cloud.operations


@pytest.mark.parametrize("given", ["", "arn:aws:iam::123456789012:role/app"])
def test_one_list_for_all_roles_is_replaced_by_those_that_are_named(given: str) -> None:
    known = {"Parameters": [{"ParameterKey": "AcquireRolePrincipals", "DefaultValue": ""}, *SUMMARY["Parameters"]]}
    cloud = ScriptedCloud(
        **{**QUIET, "GetTemplateSummary": known},
        DescribeStacks=[stack("CREATE_COMPLETE", **ONE_LIST), stack("UPDATE_IN_PROGRESS"), stack("UPDATE_COMPLETE")],
        DescribeStackEvents=UPDATED,
    )
    assert cloud.play(deploy(order(parameters={"AcquireRolePrincipals": given}))).changed
    (made,) = cloud.params_of("CreateChangeSet")
    assert made["Parameters"] == [
        {"ParameterKey": "AcquireRolePrincipals", "ParameterValue": given},
        {"ParameterKey": "MaxWriteUnits", "UsePreviousValue": True},
    ]


def test_a_stack_that_is_not_ours_is_not_touched() -> None:
    cloud = ScriptedCloud(**QUIET, DescribeStacks=stack("CREATE_COMPLETE", Tags=[]))
    with pytest.raises(StackOperationError, match="was not made by zae-limiter"):
        cloud.play(deploy(order()))
    assert cloud.counts() == {"DescribeStacks": 1}


# Tables


def test_a_table_that_another_client_is_just_deploying_is_not_a_foreign_one() -> None:
    cloud = ScriptedCloud(
        **{**QUIET, "DescribeTable": {"Table": {"TableStatus": "ACTIVE"}}, "DescribeChangeSet": UNCHANGED},
        DescribeStacks=[NO_STACK, stack("CREATE_IN_PROGRESS"), stack("CREATE_IN_PROGRESS"), stack("CREATE_COMPLETE")],
        DescribeStackEvents=events(stack_event("CREATE_COMPLETE")),
    )
    assert cloud.play(deploy(order())).complete
    (made,) = cloud.params_of("CreateChangeSet")
    assert made["ChangeSetType"] == "UPDATE"


def test_a_table_without_a_stack_is_a_foreign_one() -> None:
    for nothing in (NO_STACK, stack("REVIEW_IN_PROGRESS")):
        cloud = ScriptedCloud(
            **{**QUIET, "DescribeTable": {"Table": {"TableStatus": "ACTIVE"}}}, DescribeStacks=nothing
        )
        with pytest.raises(StackOperationError, match="exists already, outside of a stack"):
            cloud.play(deploy(order()))
        assert "CreateChangeSet" not in cloud.operations


def test_replicas_of_a_global_table_are_refused() -> None:
    table = {"Table": {"TableStatus": "ACTIVE", "Replicas": [{"RegionName": "eu-west-1"}]}}
    cloud = ScriptedCloud(**{**QUIET, "DescribeTable": table}, DescribeStacks=stack("CREATE_COMPLETE"))
    with pytest.raises(StackOperationError, match=r"replicas \(eu-west-1\).*no limit would hold"):
        cloud.play(deploy(order()))
    assert "CreateChangeSet" not in cloud.operations


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ({"Replacement": "True"}, True),
        ({"Replacement": "Conditional", "Details": [{"Target": {"RequiresRecreation": "Always"}}]}, True),
        ({"Replacement": "Conditional", "Details": [{"Target": {"RequiresRecreation": "Conditionally"}}]}, False),
        ({"Replacement": "False"}, False),
    ],
)
def test_a_change_that_would_replace_the_table_is_not_carried_out(told: dict[str, Any], refused: bool) -> None:
    change = {"Action": "Modify", "LogicalResourceId": "Table", "ResourceType": "AWS::DynamoDB::Table", **told}
    made = {"Status": "CREATE_COMPLETE", "Changes": [{"ResourceChange": change}]}
    cloud = ScriptedCloud(
        **{**QUIET, "DescribeChangeSet": made},
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("UPDATE_IN_PROGRESS"), stack("UPDATE_COMPLETE")],
        DescribeStackEvents=UPDATED,
    )
    if refused:
        with pytest.raises(StackOperationError, match="would replace the table"):
            cloud.play(deploy(order()))
        assert "DeleteChangeSet" in cloud.operations
    else:
        cloud.play(deploy(order()))
    assert ("ExecuteChangeSet" in cloud.operations) is not refused


# Roll-outs


def test_a_failed_rollout_names_what_failed_by_itself() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("UPDATE_IN_PROGRESS"), stack("UPDATE_ROLLBACK_COMPLETE")],
        DescribeStackEvents=updating(
            event("Role", "CREATE_FAILED", "Resource creation cancelled", "AWS::IAM::Role"),
            event("Aggregator", "CREATE_FAILED", "The runtime is not known", "AWS::Lambda::Function"),
            stack_event("UPDATE_ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [Aggregator]"),
            stack_event("UPDATE_ROLLBACK_COMPLETE"),
        ),
    )
    with pytest.raises(RolloutFailed) as caught:
        cloud.play(deploy(order()))
    assert [cause.resource for cause in caught.value.causes] == ["Aggregator"]
    assert str(caught.value) == (
        "my-app is UPDATE_ROLLBACK_COMPLETE; Aggregator (AWS::Lambda::Function): The runtime is not known; "
        "the update was undone"
    )


def test_if_only_the_stack_failed_its_own_reason_counts() -> None:
    told = [event_of(stack_event("CREATE_FAILED", "no access")), event_of(stack_event("ROLLBACK_COMPLETE"))]
    assert [cause.reason for cause in causes_among(told)] == ["no access"]


def test_a_change_set_that_cannot_be_made_is_taken_back() -> None:
    failed = {"Status": "FAILED", "StatusReason": "Transform failed"}
    cloud = ScriptedCloud(**{**QUIET, "DescribeChangeSet": failed}, DescribeStacks=NO_STACK)
    with pytest.raises(StackOperationError, match="Transform failed"):
        cloud.play(deploy(order()))
    assert cloud.operations[-2:] == ["DeleteChangeSet", "DeleteStack"]


def test_a_stale_word_about_the_stack_does_not_end_the_wait() -> None:
    """What a stack is may be told late; its last event is not."""
    cloud = ScriptedCloud(
        DescribeStacks=[stack("REVIEW_IN_PROGRESS"), stack("CREATE_IN_PROGRESS"), stack("CREATE_COMPLETE")],
        DescribeStackEvents=pages_of_events(
            [stack_event("REVIEW_IN_PROGRESS")],
            [stack_event("CREATE_IN_PROGRESS")],
            [event("Table", "CREATE_COMPLETE"), stack_event("CREATE_COMPLETE")],
        ),
    )
    found, seen = cloud.play(follow(STACK_ID, None))
    assert found is not None
    assert found.state == "CREATE_COMPLETE"
    assert [each.state for each in seen if each.of_the_stack][-1] == "CREATE_COMPLETE"


def test_every_event_is_told_once_however_the_pages_are_cut() -> None:
    ids = [stack_event("UPDATE_IN_PROGRESS"), event("Table", "UPDATE_COMPLETE"), stack_event("UPDATE_COMPLETE")]
    newest, *older = reversed(ids)
    cloud = ScriptedCloud(
        DescribeStacks=stack("UPDATE_COMPLETE"),
        DescribeStackEvents=[{"StackEvents": [newest], "NextToken": "more"}, {"StackEvents": [*older, BEFORE]}],
    )
    cloud.play(follow(STACK_ID, BEFORE["EventId"]))
    assert [event.event_id for event in cloud.told if isinstance(event, StackEvent)] == [
        each["EventId"] for each in ids
    ]


def test_a_rollout_that_never_ends_is_not_waited_for() -> None:
    cloud = ScriptedCloud(DescribeStacks=stack("UPDATE_IN_PROGRESS"), DescribeStackEvents=events(BEFORE))
    with pytest.raises(StackOperationError, match=r"still UPDATE_IN_PROGRESS.*status --name my-app"):
        cloud.play(follow(STACK_ID, None))
    assert cloud.waited_ms > ROLLOUT_TIMEOUT_MS


def test_an_operator_who_does_not_wait_is_told_that_it_is_not_done() -> None:
    cloud = ScriptedCloud(
        **QUIET,
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("UPDATE_IN_PROGRESS")],
        DescribeStackEvents=events(BEFORE),
    )
    done = cloud.play(deploy(order(wait=False)))
    assert (done.changed, done.complete, cloud.waited_ms) == (True, False, 0)


def refused(operation: str, code: str, message: str) -> CloudRefused:
    return CloudRefused(operation, code, message)


@pytest.mark.parametrize(
    "replies",
    [
        {
            "CreateChangeSet": [
                refused("CreateChangeSet", "ValidationError", "Stack is in UPDATE_IN_PROGRESS state"),
                {},
            ]
        },
        {"ExecuteChangeSet": [refused("ExecuteChangeSet", "InvalidChangeSetStatus", "cannot be executed"), {}]},
        {"DescribeChangeSet": [refused("DescribeChangeSet", "ChangeSetNotFound", "does not exist"), MADE]},
    ],
    ids=lambda replies: next(iter(replies)),
)
def test_a_rollout_that_was_overtaken_begins_again(replies: dict[str, Any]) -> None:
    before = events(BEFORE)
    cloud = ScriptedCloud(
        **{**QUIET, **replies},
        DescribeStacks=[stack("CREATE_COMPLETE"), stack("UPDATE_COMPLETE")],
        DescribeStackEvents=[before, before, *UPDATED] if "ExecuteChangeSet" in replies else UPDATED,
    )
    assert cloud.play(deploy(order())).complete
    assert [event.words for event in cloud.told if isinstance(event, ProgressNote)] == [
        "another client is changing my-app: starting over"
    ]
    names = [made["ChangeSetName"] for made in cloud.params_of("CreateChangeSet")]
    assert len(names) == len(set(names)) == 2


def test_a_rollout_that_is_always_overtaken_gives_up_in_the_end() -> None:
    busy = refused("CreateChangeSet", "ValidationError", "Stack is in UPDATE_IN_PROGRESS state")
    cloud = ScriptedCloud(**{**QUIET, "CreateChangeSet": busy}, DescribeStacks=stack("CREATE_COMPLETE"))
    with pytest.raises(CloudRefused):
        cloud.play(deploy(order()))


def test_any_other_refusal_is_not_tried_again() -> None:
    wrong = refused("CreateChangeSet", "ValidationError", "Parameter 'MaxWriteUnits' must be a number")
    cloud = ScriptedCloud(**{**QUIET, "CreateChangeSet": wrong}, DescribeStacks=stack("CREATE_COMPLETE"))
    with pytest.raises(CloudRefused):
        cloud.play(deploy(order()))
    assert cloud.counts()["CreateChangeSet"] == 1


# Previews and parameters


def test_a_preview_changes_nothing() -> None:
    change = {"Action": "Modify", "LogicalResourceId": "Table", "ResourceType": "AWS::DynamoDB::Table"}
    made = {"Status": "CREATE_COMPLETE", "Changes": [{"ResourceChange": change}]}
    cloud = ScriptedCloud(**{**QUIET, "DescribeChangeSet": made}, DescribeStacks=stack("CREATE_COMPLETE"))
    assert cloud.play(preview(order())) == (Change("Modify", "Table", "AWS::DynamoDB::Table", False),)
    assert cloud.operations[-1] == "DeleteChangeSet"
    assert not {"ExecuteChangeSet", "DeleteStack"} & set(cloud.operations)


def test_a_preview_of_a_new_stack_leaves_none() -> None:
    cloud = ScriptedCloud(**QUIET, DescribeStacks=NO_STACK)
    cloud.play(preview(order()))
    assert cloud.operations[-2:] == ["DeleteChangeSet", "DeleteStack"]


def test_what_is_given_wins_and_what_is_new_has_its_default() -> None:
    planned = planned_parameters(["Given", "Kept", "New"], {"Given": "1", "Kept": "2", "Gone": "3"}, {"Given": "4"})
    assert planned == [
        {"ParameterKey": "Given", "ParameterValue": "4"},
        {"ParameterKey": "Kept", "UsePreviousValue": True},
    ]


def test_a_parameter_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(ValidationError, match="must be one of Kept, New"):
        planned_parameters(["New", "Kept"], {}, {"Typo": "1"})


def test_a_template_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(StackOperationError, match="51,200 bytes"):
        ScriptedCloud().play(parameters_in("#" * 51_201))
