"""The typed options of a deployment are the template's parameters, with their types."""

from __future__ import annotations

import typing
from dataclasses import fields
from typing import Any

import pytest
from resolved_template import loaded

from zae_limiter.exceptions import ValidationError
from zae_limiter.infra import StackManager, StackOptions
from zae_limiter.infra.stack_options import parameter_of

SET_BY_DEPLOY = {"CodeBucket", "CodeKey", "CodeVersion"}


def test_every_parameter_of_an_operator_is_a_field_of_its_type() -> None:
    parameters = {name: how for name, how in loaded()["Parameters"].items() if name not in SET_BY_DEPLOY}
    hints = typing.get_type_hints(StackOptions)
    assert [parameter_of(field.name) for field in fields(StackOptions)] == list(parameters)
    for field in fields(StackOptions):
        assert hints[field.name] == type_of(parameters[parameter_of(field.name)]) | None, field.name


def type_of(parameter: Any) -> Any:
    if parameter["Type"] == "CommaDelimitedList":
        return typing.get_type_hints(StackOptions)["acquire_role_principals"]
    if parameter["Type"] == "Number":
        return int
    return bool if parameter.get("AllowedValues") == ["true", "false"] else str


def test_what_is_not_given_is_not_mentioned() -> None:
    assert StackOptions().parameters() == {}
    given = StackOptions(
        enable_alarms=False,
        point_in_time_recovery=True,
        max_write_units=0,
        table_name="limits",
        acquire_role_principals=["arn:aws:iam::123456789012:role/a", "123456789012"],
    )
    assert given.parameters() == {
        "EnableAlarms": "false",
        "PointInTimeRecovery": "true",
        "MaxWriteUnits": "0",
        "TableName": "limits",
        "AcquireRolePrincipals": "arn:aws:iam::123456789012:role/a,123456789012",
    }


def test_a_manager_takes_them_as_it_takes_parameters() -> None:
    with StackManager("us-east-1", "http://127.0.0.1:9") as stacks:
        order = stacks._order("limits", StackOptions(max_write_units=5), None, wait=True)
        assert order.parameters == {"MaxWriteUnits": "5"}
        with pytest.raises(ValidationError, match="three characters"):
            stacks._order("ab", StackOptions(max_write_units=5), None, wait=True)
        assert stacks._order("ab", StackOptions(table_name="limits"), None, wait=True).name == "ab"
