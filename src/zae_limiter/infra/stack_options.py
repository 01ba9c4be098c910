"""What a deployment may be told, with types: one field for each parameter of the template that is an operator's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """The options of a deployment, for ``StackManager.deploy`` and ``StackManager.preview``.

    What is ``None`` stays as it is; the first time, it is what the template says. A field is called as the parameter
    of the template that it stands for.

    >>> StackOptions(max_write_units=500, alarm_email="ops@example.com").parameters()
    {'MaxWriteUnits': '500', 'AlarmEmail': 'ops@example.com'}
    """

    table_name: str | None = None
    """The name of the table; that of the stack, if none is given."""
    max_read_units: int | None = None
    """Most read units per second, a ceiling for the bill; 0 for none."""
    max_write_units: int | None = None
    """Most write units per second; beyond it clients are denied. 0 for none."""
    point_in_time_recovery: bool | None = None
    deletion_protection: bool | None = None
    kms_key_arn: str | None = None
    enable_aggregator: bool | None = None
    """Whether a Lambda function counts usage."""
    aggregator_memory: int | None = None
    """In MB."""
    aggregator_timeout: int | None = None
    """In seconds."""
    aggregator_concurrency: int | None = None
    """Reserved concurrency of the function; -1 for none."""
    batch_size: int | None = None
    batch_window_seconds: int | None = None
    """How long a batch of the stream waits for more records: how late usage may be."""
    retry_attempts: int | None = None
    log_retention_days: int | None = None
    archive_cold_after_days: int | None = None
    archive_retention_days: int | None = None
    failure_retention_days: int | None = None
    noncurrent_retention_days: int | None = None
    enable_alarms: bool | None = None
    alarm_topic_arn: str | None = None
    alarm_email: str | None = None
    alarm_lag_seconds: int | None = None
    alarm_duration_seconds: int | None = None
    create_iam: bool | None = None
    """Whether policies and roles are made."""
    aggregator_role_arn: str | None = None
    permissions_boundary_arn: str | None = None
    acquire_role_principals: Sequence[str] | None = None
    """ARNs that may assume a role which takes from limits."""
    full_role_principals: Sequence[str] | None = None
    """ARNs that may assume a role which operates the table."""
    read_role_principals: Sequence[str] | None = None
    """ARNs that may assume a role which looks at all of it."""
    role_name_prefix: str | None = None
    role_name_suffix: str | None = None
    policy_name_prefix: str | None = None
    policy_name_suffix: str | None = None

    def parameters(self) -> dict[str, str]:
        """What was given, as the template's parameters."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {parameter_of(name): _text(value) for name, value in given.items() if value is not None}


def parameter_of(field: str) -> str:
    """The parameter of the template that a field stands for."""
    return "".join(word.capitalize() for word in field.split("_"))


def _text(value: bool | int | str | Sequence[str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, str)) else ",".join(value)
