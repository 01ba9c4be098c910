"""Making a stack around an existing table: one kept from an earlier deployment, restored from a backup, or made with
``create=True``.

CloudFormation takes a resource over by importing it, alone, into a new stack. Everything else comes with the update
that follows, as for any other stack, even tags; until then such a stack is known by its description. Nothing in the
table changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from zae_limiter.exceptions import StackOperationError
from zae_limiter.infra.change_sets import StackSpec, check_success, create_change_set, execute_change_set, follow
from zae_limiter.infra.cloud import AwsCall, CloudRefused, Notify
from zae_limiter.infra.deployments import ADOPTED, TABLE_KIND, TABLE_PARAMETER, Deployment, find
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.operations.namespaces import check_table

TABLE_RESOURCE: Final = "Table"
"""What the template calls the table."""

TABLE_NOT_FOUND: Final = "ResourceNotFoundException"


def adopt(name: str, table: str, run_id: str) -> Plan[Deployment]:
    """Make a stack with nothing but an existing table. Raises ``VersionError`` if that is none of ours."""
    try:
        reply = yield from AwsCall("dynamodb", "DescribeTable", TableName=table)
    except CloudRefused as refusal:
        if refusal.code != TABLE_NOT_FOUND:
            raise
        raise StackOperationError(f"there is no table {table!r} to adopt") from refusal
    check_table(table, reply["Table"])
    parameter = {"ParameterKey": TABLE_PARAMETER, "ParameterValue": "" if table == name else table}
    spec = StackSpec(name, json.dumps(template_around(reply["Table"])), [parameter], {})
    resource = {
        "ResourceType": TABLE_KIND,
        "LogicalResourceId": TABLE_RESOURCE,
        "ResourceIdentifier": {"TableName": table},
    }
    planned = yield from create_change_set(spec, "IMPORT", run_id, ResourcesToImport=[resource])
    assert planned is not None
    yield from Notify(planned)
    last = yield from execute_change_set(name, run_id)
    begun = yield from find(name)
    assert begun is not None
    rested, events = yield from follow(begun.stack_id, last)
    return check_success(name, rested, events)


def template_around(table: Mapping[str, Any]) -> dict[str, Any]:
    """A template that has the table as it is.

    Its name is said in the same way as in the template that follows: otherwise that would seem to give it another.
    """
    properties: dict[str, Any] = {
        "TableName": {"Fn::If": ["HasTableName", {"Ref": TABLE_PARAMETER}, {"Ref": "AWS::StackName"}]},
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": list(table["AttributeDefinitions"]),
        "KeySchema": list(table["KeySchema"]),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index["IndexName"],
                "KeySchema": list(index["KeySchema"]),
                "Projection": {"ProjectionType": index["Projection"]["ProjectionType"]},
            }
            for index in table.get("GlobalSecondaryIndexes", ())
        ],
    }
    stream = table.get("StreamSpecification", {})
    if stream.get("StreamEnabled"):
        properties["StreamSpecification"] = {"StreamViewType": stream["StreamViewType"]}
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": ADOPTED,
        "Parameters": {TABLE_PARAMETER: {"Type": "String", "Default": ""}},
        "Conditions": {"HasTableName": {"Fn::Not": [{"Fn::Equals": [{"Ref": TABLE_PARAMETER}, ""]}]}},
        "Resources": {
            TABLE_RESOURCE: {
                "Type": TABLE_KIND,
                "DeletionPolicy": "Retain",
                "UpdateReplacePolicy": "Retain",
                "Properties": properties,
            }
        },
    }
