"""The whole life of a deployment, typed as an operator types it, on a cloud that runs the real function."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import time
import zipfile
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from local_deployment import CloudRunner, fresh_name

from zae_limiter.infra.costs import ALARMS
from zae_limiter.infra.stacks import own_package
from zae_limiter.version import __version__

SCHEMA = json.loads(files("zae_limiter.cli").joinpath("schemas/deployments.json").read_text(encoding="utf-8"))
PATIENCE_S = 40.0

TAKING = """
from zae_limiter import RateLimitExceeded, SyncRateLimiter

taken = 0
with SyncRateLimiter.open("dynamodb://{name}", deadline=20) as limiter:
    for _ in range({times}):
        try:
            with limiter.acquire("{entity}", "gpt-4", {{"rpd": 1}}):
                taken += 1
        except RateLimitExceeded:
            pass
print(taken)
"""


def taken_by_processes(cloud: CloudRunner, name: str, entity: str, *times: int) -> list[int]:
    """How much each of some processes got, all at the same time."""
    working = [cloud.start(TAKING.format(name=name, entity=entity, times=each)) for each in times]
    said = [process.communicate(timeout=PATIENCE_S)[0] for process in working]
    assert [process.returncode for process in working] == [0] * len(times)
    return [int(words) for words in said]


def usage_of(cloud: CloudRunner, name: str, entity: str, wanted: int) -> int:
    """The grants that were counted, once they are as many as wanted or it took too long."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        words = ("usage", "summary", "--entity", entity, "--window", "hourly", "--url", f"dynamodb://{name}")
        counted: int = cloud.do(*words, "--json").document["total_events"]
        if counted >= wanted or time.monotonic() > give_up_at:
            return counted
        time.sleep(0.2)


def function_of(cloud: CloudRunner, name: str) -> dict[str, object]:
    """The function of a deployment, as Lambda describes it."""
    outputs = document_of(cloud, "deployments", "list")["deployments"]
    (function,) = [each["outputs"]["AggregatorName"] for each in outputs if each["name"] == name]
    return dict(cloud.ask("lambda", "GetFunctionConfiguration", FunctionName=function))


def sha256_of(package: bytes) -> str:
    """As Lambda tells it."""
    return base64.b64encode(hashlib.sha256(package).digest()).decode()


def document_of(cloud: CloudRunner, kind: str, *words: str) -> Any:
    """What a command answers to programs, which is as the schema says."""
    document = cloud.do(*words, "--json").document
    Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{kind}"}).validate(document)
    return document


def an_older_package() -> bytes:
    """One that does the same and has other bytes."""
    package = io.BytesIO(own_package())
    with zipfile.ZipFile(package, "a") as archive:
        archive.writestr("older.txt", "than this one")
    return package.getvalue()


def test_the_life_of_a_deployment(cloud: CloudRunner) -> None:
    name = fresh_name()
    url = f"dynamodb://{name}"

    deployed = cloud.do("deploy", "--name", name, "--alarm-email", "ops@example.com", "--tag", "team=search")
    assert f"{name} is deployed: {url}?region=us-east-1" in deployed.out
    assert "CREATE_COMPLETE" in deployed.err
    assert document_of(cloud, "standing", "check", "--name", name)["advice"] == []
    assert "everything is fine" in cloud.do("status", "--name", name).out
    health = document_of(cloud, "health", "status", "--name", name)
    assert [part["part"] for part in health["parts"]] == ["stack", "table", "function", "stream", *["alarm"] * ALARMS]

    cloud.do("system", "set-defaults", "-l", "rpd:100/day", "--url", url)
    assert sum(taken_by_processes(cloud, name, "key-1", 60, 60)) == 100
    assert usage_of(cloud, name, "key-1", 100) == 100
    cloud.do("usage", "verify", "--entity", "key-1", "--url", url)

    words = ("deploy", "--name", name, "--lambda-memory", "512")
    assert "Aggregator" in [each["resource"] for each in document_of(cloud, "changes", *words, "--dry-run")["changes"]]
    changed = document_of(cloud, "deployed", *words)
    assert (changed["changed"], changed["tags"]["team"]) == (True, "search")
    assert function_of(cloud, name)["MemorySize"] == 512
    again = cloud.do("deploy", "--name", name)
    assert "nothing changed" in again.out
    assert function_of(cloud, name)["MemorySize"] == 512

    bucket, older = changed["outputs"]["BucketName"], an_older_package()
    cloud.ask("s3", "PutObject", Bucket=bucket, Key="code/older.zip", Body=older)
    cloud.do("deploy", "--name", name, "--parameter", "CodeKey=code/older.zip")
    assert function_of(cloud, name)["CodeSha256"] == sha256_of(older)
    behind = cloud.run("check", "--name", name)
    assert (behind.code, f"zae-limiter upgrade --name {name}" in behind.out) == (1, True)
    assert f"{name} is at version {__version__}" in cloud.do("upgrade", "--name", name).out
    assert function_of(cloud, name)["CodeSha256"] == sha256_of(own_package())
    assert function_of(cloud, name)["MemorySize"] == 512
    assert "fit together" in cloud.do("check", "--name", name).out
    assert document_of(cloud, "versions", "version", "--name", name)["deployment"]["code"] == "current"
    assert taken_by_processes(cloud, name, "key-2", 7) == [7]
    assert usage_of(cloud, name, "key-2", 7) == 7

    assert cloud.left_of(name)
    refused = cloud.run("delete", "--name", name, "--yes")
    assert (refused.code, "--lift-protection" in refused.err) == (1, True)
    assert "nothing is left of it" in cloud.do("delete", "--name", name, "--lift-protection", "--yes").out
    assert cloud.left_of(name) == []
    assert "there is no deployment" in cloud.do("delete", "--name", name, "--yes").out
    assert document_of(cloud, "removed", "delete", "--name", name, "--yes")["existed"] is False
