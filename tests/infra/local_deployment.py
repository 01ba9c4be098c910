"""A local cloud to deploy into, as a shell and as Python see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from engines.servers import Engine
from zae_limiter.cli.entry import main
from zae_limiter.infra.cloud import Account, AwsCall, Cloud
from zae_limiter.infra.stacks import StackManager

NUMBERS = count(1)


class Ran(NamedTuple):
    """How a command went."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What ``--json`` brought."""
        return json.loads(self.out)


class CloudRunner:
    """MiniStack, and everything typed at it. Only the environment says where it is."""

    def __init__(self, engine: Engine, home: Path) -> None:
        self.engine = engine
        self.environment = {
            "AWS_REGION": engine.region,
            "AWS_ENDPOINT_URL": engine.endpoint_url,
            "AWS_CONFIG_FILE": str(home / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(home / "none"),
            "COLUMNS": "100",
        }
        self._cloud = Cloud(Account(engine.region, engine.endpoint_url))
        self._managers: list[StackManager] = []

    def run(self, *words: str) -> Ran:
        """Type a command."""
        out, err = StringIO(), StringIO()
        no_terminal = patch.object(sys, "stdin", StringIO())
        with plain_environment(self.environment), no_terminal, redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        return Ran(code, out.getvalue(), err.getvalue())

    def do(self, *words: str) -> Ran:
        """Type a command that has to succeed."""
        ran = self.run(*words)
        assert ran.code == 0, ran
        return ran

    def start(self, program: str) -> subprocess.Popen[str]:
        """A Python program in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program],
            env={**plain(os.environ), **self.environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:
        """Ask the cloud itself."""
        return self._cloud.answer(AwsCall(service, operation, **params))

    def stacks(self, **how: Any) -> StackManager:
        """A manager of its stacks."""
        manager = StackManager(self.engine.region, self.engine.endpoint_url, **how)
        self._managers.append(manager)
        return manager

    def left_of(self, name: str) -> list[str]:
        """Everything in this cloud that has a name in its own, but for what is gone."""
        found = [
            *self.ask("dynamodb", "ListTables")["TableNames"],
            *(each["FunctionName"] for each in self.ask("lambda", "ListFunctions")["Functions"]),
            *(each["FunctionArn"] for each in self.ask("lambda", "ListEventSourceMappings")["EventSourceMappings"]),
            *(each["Name"] for each in self.ask("s3", "ListBuckets")["Buckets"]),
            *(each["RoleName"] for each in self.ask("iam", "ListRoles")["Roles"]),
            *(each["PolicyName"] for each in self.ask("iam", "ListPolicies", Scope="Local")["Policies"]),
            *(each["logGroupName"] for each in self.ask("logs", "DescribeLogGroups")["logGroups"]),
            *(each["TopicArn"] for each in self.ask("sns", "ListTopics")["Topics"]),
            *(each["AlarmName"] for each in self.ask("cloudwatch", "DescribeAlarms")["MetricAlarms"]),
            *(
                each["StackName"]
                for each in self.ask("cloudformation", "ListStacks")["StackSummaries"]
                if each["StackStatus"] != "DELETE_COMPLETE"
            ),
        ]
        return sorted(each for each in found if name in each)

    def close(self) -> None:
        """Let go of everything."""
        for manager in self._managers:
            manager.close()
        self._cloud.close()


def fresh_name() -> str:
    """A name that no other test has."""
    return f"limits-{os.getpid()}-{next(NUMBERS)}"


@contextmanager
def plain_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """An environment in which AWS and this library are set up like this, and not otherwise."""
    with patch.dict(os.environ, {**plain(os.environ), **environment}, clear=True):
        yield


def plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the settings of this machine."""
    return {name: value for name, value in environment.items() if not name.startswith(("AWS_", "ZAEL_"))}
