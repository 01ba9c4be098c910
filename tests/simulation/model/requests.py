"""Which parameters each operation may have, as far as the model knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simulation.model.refusals import NotModelled, invalid

_PLACEHOLDERS: Final = {"ExpressionAttributeNames", "ExpressionAttributeValues"}
_CONDITIONAL: Final = {"TableName", "ConditionExpression", "ReturnValuesOnConditionCheckFailure"} | _PLACEHOLDERS
_SINGLE: Final = _CONDITIONAL | {"ReturnValues", "ReturnConsumedCapacity"}
_READ: Final = {"TableName", "ConsistentRead", "ProjectionExpression", "ReturnConsumedCapacity"}
_PAGE: Final = _READ | {"IndexName", "Limit", "ExclusiveStartKey", "FilterExpression", "Select"} | _PLACEHOLDERS
_TABLE: Final = {"TableName"}

PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "CreateTable": frozenset(
        _TABLE
        | {"KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes", "BillingMode", "StreamSpecification"}
        | {"OnDemandThroughput", "DeletionProtectionEnabled", "SSESpecification", "Tags", "ProvisionedThroughput"}
    ),
    "DescribeTable": frozenset(_TABLE),
    "DeleteTable": frozenset(_TABLE),
    "UpdateTimeToLive": frozenset(_TABLE | {"TimeToLiveSpecification"}),
    "DescribeTimeToLive": frozenset(_TABLE),
    "PutItem": frozenset(_SINGLE | {"Item"}),
    "UpdateItem": frozenset(_SINGLE | {"Key", "UpdateExpression"}),
    "DeleteItem": frozenset(_SINGLE | {"Key"}),
    "GetItem": frozenset(_READ | {"Key", "ExpressionAttributeNames"}),
    "BatchGetItem": frozenset({"RequestItems", "ReturnConsumedCapacity"}),
    "BatchWriteItem": frozenset({"RequestItems", "ReturnConsumedCapacity"}),
    "Query": frozenset(_PAGE | {"KeyConditionExpression", "ScanIndexForward"}),
    "Scan": frozenset(_PAGE),
    "TransactWriteItems": frozenset({"TransactItems", "ClientRequestToken", "ReturnConsumedCapacity"}),
    # Parts of requests
    "Put": frozenset(_CONDITIONAL | {"Item"}),
    "Update": frozenset(_CONDITIONAL | {"Key", "UpdateExpression"}),
    "Delete": frozenset(_CONDITIONAL | {"Key"}),
    "ConditionCheck": frozenset(_CONDITIONAL | {"Key"}),
    "KeysAndAttributes": frozenset({"Keys", "ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"}),
}

CHOICES: Final[Mapping[str, frozenset[str]]] = {
    "ReturnConsumedCapacity": frozenset({"NONE", "TOTAL", "INDEXES"}),
    "ReturnValuesOnConditionCheckFailure": frozenset({"NONE", "ALL_OLD"}),
}

RETURN_VALUES: Final = {
    "Put": frozenset({"NONE", "ALL_OLD"}),
    "Delete": frozenset({"NONE", "ALL_OLD"}),
    "Update": frozenset({"NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"}),
}


def check_parameters(operation: str, params: Mapping[str, Any]) -> None:
    """Fail on a parameter that is not obeyed here, on one that no client could send, and on a choice there is not."""
    known = PARAMETERS[operation]
    for name, value in params.items():
        if name not in known:
            raise NotModelled(f"{name} of {operation}")
        if value is None:
            raise TypeError(f"{name} of {operation} is None: leave it out")
        if name in CHOICES and value not in CHOICES[name]:
            raise invalid(f"1 validation error detected: {name} cannot be {value}")


def check_return_values(kind: str, params: Mapping[str, Any]) -> None:
    """Fail on a choice that this kind of write does not have."""
    wanted = params.get("ReturnValues")
    if wanted is not None and wanted not in RETURN_VALUES[kind]:
        raise invalid(f"1 validation error detected: ReturnValues cannot be {wanted} here")
