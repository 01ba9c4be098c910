"""The template: what CloudFormation is given makes the table the library would make, and everything around it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
from resolved_template import STACK, Resolved, loaded

from zae_limiter.exceptions import ValidationError
from zae_limiter.infra.lambda_builder import HANDLER
from zae_limiter.infra.template import (
    AUDIT_PREFIX,
    FAILURE_PREFIX,
    POLICIES,
    ROLE_NAME_LENGTH,
    ROLE_PRINCIPALS,
    ROLES,
    STACK_TAG,
    VERSION_TAG,
    code_key,
    policy_name_parameters,
    role_name_parameters,
    stack_tags,
    template_text,
)
from zae_limiter.stores.dynamodb.operations.namespaces import expiry_params, table_params
from zae_limiter.version import __version__
from zae_limiter_aggregator.archives import ARCHIVE_VARIABLE
from zae_limiter_aggregator.handler import TABLE_VARIABLE

LARGEST_BODY = 51_200
"""Bytes of a template that CloudFormation takes without S3."""

LINT = "from cfnlint.runner import main; main()"
LONGEST_STACK = "s" * 55
WITH_CODE: Mapping[str, str | int] = {"CodeKey": "code/aggregator-1.zip"}
KEY_ARN = "arn:aws:kms:eu-west-1:123456789012:key/1234"
TRUSTING = dict.fromkeys(ROLE_PRINCIPALS.values(), "arn:aws:iam::123456789012:root")


# Its form


def test_cfn_lint_has_nothing_to_say() -> None:
    with as_file(files("zae_limiter.infra") / "cfn_template.yaml") as path:
        said = subprocess.run(
            [sys.executable, "-c", LINT, str(path), "--include-checks", "I"],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert (said.stdout, said.stderr, said.returncode) == ("", "", 0)


def test_cloudformation_takes_it_as_it_is() -> None:
    text = template_text()
    assert len(text.encode()) <= LARGEST_BODY
    assert re.findall(r"[:\-] [&*]\w+", text) == [], "CloudFormation knows no aliases"


def test_every_parameter_is_described_optional_and_in_a_group() -> None:
    template = loaded()
    grouped = [
        name
        for group in template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
        for name in group["Parameters"]
    ]
    assert sorted(grouped) == sorted(template["Parameters"])
    for name, parameter in template["Parameters"].items():
        assert parameter["Description"].endswith("."), name
        assert "Default" in parameter, name


def test_everything_that_can_be_tagged_says_which_deployment_it_is_of() -> None:
    without_tags = {
        "AWS::S3::BucketPolicy",
        "AWS::SNS::Subscription",
        "AWS::IAM::ManagedPolicy",
    }
    everything = Resolved(**WITH_CODE, **TRUSTING, AlarmEmail="a@example.com")
    assert everything.resources.keys() == loaded()["Resources"].keys()
    for name, resource in everything.resources.items():
        if resource["Type"] not in without_tags:
            assert {"Key": STACK_TAG, "Value": STACK} in resource["Properties"]["Tags"], name


def test_every_output_is_described_and_exported_under_the_name_of_the_stack() -> None:
    for name, output in Resolved(**WITH_CODE, **TRUSTING).outputs.items():
        assert output["Description"], name
        assert output["Export"]["Name"] == f"{STACK}-{name}"


def test_a_deployment_is_found_by_its_tags() -> None:
    assert stack_tags("my-app") == {STACK_TAG: "my-app", VERSION_TAG: __version__}


# The table


def test_the_table_is_the_one_that_the_library_makes() -> None:
    made = Resolved().properties("Table")
    wanted = table_params(STACK)
    assert wanted.pop("StreamSpecification") == {"StreamEnabled": True, **made["StreamSpecification"]}
    assert {name: made[name] for name in wanted} == wanted
    assert made["TimeToLiveSpecification"] == expiry_params(STACK)["TimeToLiveSpecification"]


def test_the_table_is_as_plain_as_it_can_be_unless_more_is_asked_for() -> None:
    made = Resolved().properties("Table")
    assert made["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": "true"}
    assert made["DeletionProtectionEnabled"] is True
    assert "SSESpecification" not in made
    assert "OnDemandThroughput" not in repr(made)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"MaxReadUnits": 100}, {"MaxReadRequestUnits": "100"}),
        ({"MaxWriteUnits": 200}, {"MaxWriteRequestUnits": "200"}),
        (
            {"MaxReadUnits": 100, "MaxWriteUnits": 200},
            {"MaxReadRequestUnits": "100", "MaxWriteRequestUnits": "200"},
        ),
    ],
)
def test_a_maximum_holds_for_the_table_and_each_index(given: dict[str, int], wanted: dict[str, str]) -> None:
    made = Resolved(**given).properties("Table")
    found = [part.get("OnDemandThroughput") for part in (made, *made["GlobalSecondaryIndexes"])]
    assert found == [wanted] * 5


def test_a_table_is_protected_from_deletion_unless_that_is_turned_off() -> None:
    assert Resolved().properties("Table")["DeletionProtectionEnabled"] is True
    assert Resolved(DeletionProtection="false").properties("Table")["DeletionProtectionEnabled"] is False


def test_a_key_encrypts_table_bucket_log_and_topic() -> None:
    made = Resolved(KmsKeyArn=KEY_ARN)
    assert made.properties("LogGroup")["KmsKeyId"] == KEY_ARN
    assert made.properties("AlarmTopic")["KmsMasterKeyId"] == KEY_ARN
    plain = Resolved()
    assert "KmsKeyId" not in plain.properties("LogGroup")
    assert "KmsMasterKeyId" not in plain.properties("AlarmTopic")
    assert made.properties("Table")["SSESpecification"]["KMSMasterKeyId"] == KEY_ARN
    (rule,) = made.properties("Bucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY_ARN}


# The bucket


def test_the_bucket_is_encrypted_private_and_reached_by_tls_only() -> None:
    made = Resolved()
    bucket = made.properties("Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    (statement,) = made.properties("BucketPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:*")
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert statement["Resource"] == ["<Bucket.Arn>", "<Bucket.Arn>/*"]


def test_what_is_in_the_bucket_expires_but_the_code() -> None:
    rules = Resolved(ArchiveRetentionDays=400, FailureRetentionDays=9).properties("Bucket")["LifecycleConfiguration"]
    expiring = {rule.get("Prefix"): rule["ExpirationInDays"] for rule in rules["Rules"] if "ExpirationInDays" in rule}
    assert expiring == {AUDIT_PREFIX: "400", FAILURE_PREFIX: "9"}


def test_the_bucket_keeps_versions_but_not_for_ever() -> None:
    bucket = Resolved(NoncurrentRetentionDays=5).properties("Bucket")
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    (rule,) = [rule for rule in bucket["LifecycleConfiguration"]["Rules"] if "NoncurrentVersionExpiration" in rule]
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": "5"}
    assert (rule["Status"], "Prefix" in rule) == ("Enabled", False), "of every object"
    assert rule["ExpiredObjectDeleteMarker"] is True
    assert "ExpirationInDays" not in rule, "S3 takes no rule with both"


# The function


def test_there_is_no_function_before_there_is_code() -> None:
    kinds = {resource["Type"] for resource in Resolved().resources.values()}
    assert "AWS::S3::Bucket" in kinds
    assert {"AWS::Lambda::Function", "AWS::Lambda::EventSourceMapping"}.isdisjoint(kinds)
    alarms = Resolved().of_type("AWS::CloudWatch::Alarm").values()
    assert {alarm["Namespace"] for alarm in alarms} == {"AWS/DynamoDB"}


@pytest.mark.parametrize(
    ("given", "bucket"), [({}, "<Bucket>"), ({"CodeBucket": "team-packages", "CodeVersion": "7"}, "team-packages")]
)
def test_the_code_comes_from_a_bucket(given: dict[str, str], bucket: str) -> None:
    code = Resolved(**WITH_CODE, **given).properties("Aggregator")["Code"]
    wanted = {"S3Bucket": bucket, "S3Key": WITH_CODE["CodeKey"]}
    assert code == wanted | ({"S3ObjectVersion": "7"} if given else {})


def test_the_function_is_told_what_its_handler_asks_for() -> None:
    function = Resolved(**WITH_CODE).properties("Aggregator")
    module, _, name = HANDLER.rpartition(".")
    assert function["Handler"] == HANDLER
    assert callable(getattr(importlib.import_module(module), name))
    assert function["Environment"]["Variables"] == {TABLE_VARIABLE: "<Table>", ARCHIVE_VARIABLE: "s3://<Bucket>"}
    assert function["LoggingConfig"]["LogGroup"] == "<LogGroup>"
    assert "ReservedConcurrentExecutions" not in function


def test_concurrency_is_reserved_when_it_is_named() -> None:
    assert (
        Resolved(**WITH_CODE, AggregatorConcurrency=0).properties("Aggregator")["ReservedConcurrentExecutions"] == "0"
    )


def test_without_the_function_there_is_only_the_table_and_who_may_use_it() -> None:
    made = Resolved(EnableAggregator="false", EnableAlarms="false", **WITH_CODE)
    assert {resource["Type"] for resource in made.resources.values()} == {
        "AWS::DynamoDB::Table",
        "AWS::IAM::ManagedPolicy",
    }


def test_what_cannot_be_counted_is_tried_again_and_then_kept_whole() -> None:
    mapping = Resolved(**WITH_CODE, RetryAttempts=3, BatchSize=50).properties("StreamMapping")
    assert mapping["DestinationConfig"] == {"OnFailure": {"Destination": "<Bucket.Arn>"}}
    assert (mapping["MaximumRetryAttempts"], mapping["BatchSize"]) == ("3", "50")
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["EventSourceArn"] == "<Table.StreamArn>"


def test_a_package_has_its_content_for_a_name() -> None:
    assert code_key(b"one") == code_key(b"one")
    assert code_key(b"one") != code_key(b"two")
    assert re.fullmatch(r"code/aggregator-[0-9a-f]{32}\.zip", code_key(b"one"))


# Alarms

WATCHED = {
    "Errors",
    "OnFailureDestinationDeliveredEventCount",
    "PoisonousRecords",
    "DroppedEventCount",
    "DestinationDeliveryFailures",
    "IteratorAge",
    "Throttles",
    "Duration",
    "ReadThrottleEvents",
    "WriteThrottleEvents",
    "SystemErrors",
}


@pytest.mark.parametrize(
    ("given", "topic"),
    [({}, "<AlarmTopic>"), ({"AlarmTopicArn": "arn:aws:sns:eu-west-1:123456789012:ops"},) * 2],
    ids=["own", "given"],
)
def test_every_alarm_has_a_topic(given: dict[str, str], topic: Any) -> None:
    made = Resolved(**WITH_CODE, **given)
    told = topic if isinstance(topic, str) else topic["AlarmTopicArn"]
    alarms = made.of_type("AWS::CloudWatch::Alarm")
    assert {alarm["MetricName"] for alarm in alarms.values()} == WATCHED
    for alarm in alarms.values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [told]
        assert alarm["TreatMissingData"] == "notBreaching"
    assert len(made.of_type("AWS::SNS::Topic")) == (not given)


def test_the_table_is_watched_for_throttles_and_errors_of_dynamodb_with_or_without_the_function() -> None:
    """In the dimensions in which DynamoDB has these metrics: throttles by table, its own errors by operation too."""
    for given in (WITH_CODE, {"EnableAggregator": "false"}):
        alarms = Resolved(**given).of_type("AWS::CloudWatch::Alarm").values()
        watched = [
            (alarm["MetricName"], {each["Name"]: each["Value"] for each in alarm["Dimensions"]})
            for alarm in alarms
            if alarm["Namespace"] == "AWS/DynamoDB"
        ]
        assert sorted(watched, key=repr) == [
            ("ReadThrottleEvents", {"TableName": "<Table>"}),
            ("SystemErrors", {"TableName": "<Table>", "Operation": "BatchGetItem"}),
            ("SystemErrors", {"TableName": "<Table>", "Operation": "UpdateItem"}),
            ("WriteThrottleEvents", {"TableName": "<Table>"}),
        ]
        for alarm in alarms:
            assert alarm["Statistic"] == ("Maximum" if alarm["MetricName"] in ("IteratorAge", "Duration") else "Sum")
            assert "Unit" not in alarm, "a wrong one would never match"


def test_thresholds_are_given_in_seconds_and_measured_in_milliseconds() -> None:
    made = Resolved(**WITH_CODE, AlarmLagSeconds=90, AlarmDurationSeconds=12)
    assert (made.properties("LagAlarm")["Threshold"], made.properties("DurationAlarm")["Threshold"]) == (
        "90000",
        "12000",
    )


def test_the_duration_alarm_comes_before_the_timeout() -> None:
    parameters = loaded()["Parameters"]
    assert parameters["AlarmDurationSeconds"]["Default"] == parameters["AggregatorTimeout"]["Default"] * 0.8


def test_an_address_is_told_through_the_topic_made_here() -> None:
    made = Resolved(**WITH_CODE, AlarmEmail="ops@example.com")
    subscription = made.properties("AlarmSubscription")
    assert (subscription["Endpoint"], subscription["TopicArn"]) == ("ops@example.com", "<AlarmTopic>")


def test_alarms_can_be_left_out() -> None:
    kinds = {resource["Type"] for resource in Resolved(**WITH_CODE, EnableAlarms="false").resources.values()}
    assert {"AWS::CloudWatch::Alarm", "AWS::SNS::Topic"}.isdisjoint(kinds)


# Names


def test_names_can_follow_a_format() -> None:
    given = {**role_name_parameters("team-{}-x", STACK), **policy_name_parameters("{}-y", STACK)}
    made = Resolved(**given, **TRUSTING)
    roles = {role["RoleName"] for role in made.of_type("AWS::IAM::Role").values()}
    policies = {policy["ManagedPolicyName"] for policy in made.of_type("AWS::IAM::ManagedPolicy").values()}
    assert roles == {f"team-{STACK}-{part}-x" for part in ROLES}
    assert policies == {f"{STACK}-{part}-y" for part in POLICIES}


def test_the_longest_stack_name_leaves_room_for_the_names_of_roles() -> None:
    assert max(len(f"{LONGEST_STACK}-{part}") for part in ROLES) <= ROLE_NAME_LENGTH
    role_name_parameters("{}", LONGEST_STACK)
    with pytest.raises(ValidationError, match="longer than the 64"):
        role_name_parameters("team-{}", LONGEST_STACK)


@pytest.mark.parametrize("wrong", ["", "team", "{}{}", "{name}-{}", "{}-}"])
def test_a_format_names_its_place_once(wrong: str) -> None:
    with pytest.raises(ValidationError, match="must contain"):
        policy_name_parameters(wrong, STACK)


# The page about it


def test_the_page_lists_every_parameter_and_output_as_the_template_has_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploying" / "template.md").read_text(encoding="utf-8")
    for name, parameter in loaded()["Parameters"].items():
        default = parameter["Default"]
        shown = "" if default == "" else f"`{default}`"
        assert f"| `{name}` | {shown} | {parameter['Description']} |" in page, name
    for name in loaded()["Outputs"]:
        assert name in page or (name.startswith("Namespace") and name.removeprefix("Namespace") in page), name
