"""Deploying the aggregator's code: it is put where the stack can find it, and the function follows."""

from __future__ import annotations

from scripted_cloud import (
    NO_OBJECT,
    NO_STACK,
    QUIET,
    UNCHANGED,
    ScriptedCloud,
    order,
    pages_of_events,
    parameters,
    stack,
    stack_event,
)

from zae_limiter.infra.rollouts import deploy

WITH_FUNCTION = {
    "Parameters": [
        {"ParameterKey": "EnableAggregator", "DefaultValue": "true"},
        {"ParameterKey": "CodeKey", "DefaultValue": ""},
        {"ParameterKey": "CodeBucket", "DefaultValue": ""},
    ]
}
WITH_BUCKET = {"Outputs": [{"OutputKey": "BucketName", "OutputValue": "bucket-1"}]}


def code_keys(cloud: ScriptedCloud) -> list[str | None]:
    """Which code each roll-out asked for."""
    return [
        next((each.get("ParameterValue") for each in made["Parameters"] if each["ParameterKey"] == "CodeKey"), None)
        for made in cloud.params_of("CreateChangeSet")
    ]


def test_the_first_time_the_function_follows_when_its_code_is_there() -> None:
    cloud = ScriptedCloud(
        **{**QUIET, "GetTemplateSummary": WITH_FUNCTION},
        HeadObject=NO_OBJECT,
        PutObject={},
        DescribeStacks=[
            NO_STACK,
            stack("CREATE_IN_PROGRESS"),
            stack("CREATE_COMPLETE", **WITH_BUCKET),
            stack("UPDATE_IN_PROGRESS"),
            stack("UPDATE_COMPLETE", **WITH_BUCKET),
        ],
        DescribeStackEvents=pages_of_events(
            [stack_event("REVIEW_IN_PROGRESS")],
            [stack_event("CREATE_COMPLETE")],
            [],
            [stack_event("UPDATE_IN_PROGRESS"), stack_event("UPDATE_COMPLETE")],
        ),
    )
    assert cloud.play(deploy(order())).stack.state == "UPDATE_COMPLETE"
    first, second = code_keys(cloud)
    assert first == ""
    assert second is not None
    assert second.startswith("code/aggregator-")
    (put,) = cloud.params_of("PutObject")
    assert (put["Bucket"], put["Key"], put["Body"]) == ("bucket-1", second, b"package")


def test_later_code_that_is_there_is_not_put_again() -> None:
    cloud = ScriptedCloud(
        **{**QUIET, "GetTemplateSummary": WITH_FUNCTION, "DescribeChangeSet": UNCHANGED},
        HeadObject={},
        DescribeStacks=stack("UPDATE_COMPLETE", **WITH_BUCKET),
    )
    assert not cloud.play(deploy(order())).changed
    assert len(code_keys(cloud)) == 1
    assert "PutObject" not in cloud.operations


def test_without_a_function_nothing_is_built() -> None:
    cloud = ScriptedCloud(
        **{**QUIET, "GetTemplateSummary": WITH_FUNCTION, "DescribeChangeSet": UNCHANGED},
        DescribeStacks=stack("UPDATE_COMPLETE", Parameters=parameters(EnableAggregator="false")),
    )

    def build() -> bytes:
        raise AssertionError

    cloud.play(deploy(order(build=build)))
    assert code_keys(cloud) == [None]


def test_code_from_a_bucket_of_ones_own_takes_one_rollout() -> None:
    cloud = ScriptedCloud(
        **{**QUIET, "GetTemplateSummary": WITH_FUNCTION},
        HeadObject=NO_OBJECT,
        PutObject={},
        DescribeStacks=[NO_STACK, stack("CREATE_IN_PROGRESS"), stack("CREATE_COMPLETE")],
        DescribeStackEvents=pages_of_events([stack_event("REVIEW_IN_PROGRESS")], [stack_event("CREATE_COMPLETE")]),
    )
    cloud.play(deploy(order(parameters={"CodeBucket": "mine"})))
    assert len(code_keys(cloud)) == 1
    assert cloud.params_of("PutObject")[0]["Bucket"] == "mine"
