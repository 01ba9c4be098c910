"""The options of ``zae-limiter deploy``, and the parameters of the template they stand for.

What is not given is not mentioned, so that a deployment keeps it as it is. Every other parameter of the template can
be given by its own name, with ``--parameter``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class TemplateOption(NamedTuple):
    """An option that stands for a parameter."""

    words: str
    parameter: str
    help: str
    kind: Any = str
    metavar: str | None = None

    @property
    def destination(self) -> str:
        """How click hands it over."""
        return f"given_{self.parameter}"


ARN: Final = "ARN"
ARNS: Final = "ARN,ARN"
DAYS: Final = "DAYS"

TEMPLATE_OPTIONS: Final = (
    TemplateOption("--pitr/--no-pitr", "PointInTimeRecovery", "Keep continuous backups of the table.", bool),
    TemplateOption(
        "--deletion-protection/--no-deletion-protection",
        "DeletionProtection",
        "Refuse to delete the table, even with the stack; on for a new deployment.",
        bool,
    ),
    TemplateOption("--max-read", "MaxReadUnits", "Most read units per second; 0 for none.", click.IntRange(0), "N"),
    TemplateOption("--max-write", "MaxWriteUnits", "Most write units per second; 0 for none.", click.IntRange(0), "N"),
    TemplateOption("--kms-key", "KmsKeyArn", "Encrypt table, bucket, log and topic with a key of yours.", str, ARN),
    TemplateOption("--aggregator/--no-aggregator", "EnableAggregator", "Count usage with a Lambda function.", bool),
    TemplateOption(
        "--lambda-memory", "AggregatorMemory", "Memory of the function.", click.IntRange(128, 10_240), "MB"
    ),
    TemplateOption(
        "--lambda-timeout", "AggregatorTimeout", "How long a batch may take.", click.IntRange(15, 900), "SECONDS"
    ),
    TemplateOption(
        "--lambda-concurrency",
        "AggregatorConcurrency",
        "Reserved concurrency of the function; -1 for none.",
        click.IntRange(-1, 10_000),
        "N",
    ),
    TemplateOption("--log-retention", "LogRetentionDays", "How long logs are kept.", click.IntRange(1), DAYS),
    TemplateOption("--alarms/--no-alarms", "EnableAlarms", "Make alarms for the table and the function.", bool),
    TemplateOption("--alarm-topic", "AlarmTopicArn", "An SNS topic of yours for alarms to notify.", str, ARN),
    TemplateOption("--alarm-email", "AlarmEmail", "An address for alarms to notify.", str, "ADDRESS"),
    TemplateOption(
        "--alarm-lag", "AlarmLagSeconds", "How late usage may be without an alarm.", click.IntRange(10), "SECONDS"
    ),
    TemplateOption("--iam/--no-iam", "CreateIam", "Make policies and roles.", bool),
    TemplateOption("--aggregator-role", "AggregatorRoleArn", "A role of yours for the function.", str, ARN),
    TemplateOption(
        "--trust-acquire", "AcquireRolePrincipals", "Who may assume a role that takes from limits.", str, ARNS
    ),
    TemplateOption("--trust-full", "FullRolePrincipals", "Who may assume a role that operates the table.", str, ARNS),
    TemplateOption("--trust-read", "ReadRolePrincipals", "Who may assume a role that looks at all of it.", str, ARNS),
    TemplateOption(
        "--permission-boundary", "PermissionsBoundaryArn", "A policy that bounds every role made here.", str, ARN
    ),
)
"""In the order in which help lists them."""


def template_options(command: Command) -> Command:
    """All of them, and the two formats of names that become several parameters."""
    for name, what in (("policy", "policies"), ("role", "roles")):
        command = click.option(
            f"--{name}-name-format",
            metavar="FORMAT",
            help=f"How {what} are named, like team-{{}}; {{}} is the stack's name and the part.",
        )(command)
    for option in reversed(TEMPLATE_OPTIONS):
        command = click.option(
            option.words,
            option.destination,
            type=None if option.kind is bool else option.kind,
            default=None,
            metavar=option.metavar,
            help=option.help,
        )(command)
    return command


def template_parameters(
    name: str,
    given: Mapping[str, Any],
    role_name_format: str | None,
    policy_name_format: str | None,
    more: Mapping[str, str],
) -> dict[str, str]:
    """What the options say, by parameter. A parameter that is given by its own name wins."""
    from zae_limiter.infra.template import policy_name_parameters, role_name_parameters

    parameters: dict[str, str] = {}
    for option in TEMPLATE_OPTIONS:
        value = given[option.destination]
        if value is not None:
            parameters[option.parameter] = str(value).lower() if isinstance(value, bool) else str(value)
    if role_name_format is not None:
        parameters |= role_name_parameters(role_name_format, name)
    if policy_name_format is not None:
        parameters |= policy_name_parameters(policy_name_format, name)
    return parameters | dict(more)
