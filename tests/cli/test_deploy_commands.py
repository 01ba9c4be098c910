"""The commands on deployments, as far as they go without a cloud: what is typed wrong, and what is only computed.

What they do is in ``tests/infra``.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_runner import CommandRunner

from zae_limiter.cli.template_options import TEMPLATE_OPTIONS, template_parameters
from zae_limiter.exceptions import ValidationError
from zae_limiter.infra.template import ROLE_PRINCIPALS, template_text
from zae_limiter.version import __version__

SCHEMA = json.loads(files("zae_limiter.cli").joinpath("schemas/deployments.json").read_text(encoding="utf-8"))
LOCAL = "http://127.0.0.1:9"
NOWHERE = ("--region", "us-east-1", "--endpoint-url", LOCAL)
GIVEN = {option.destination: None for option in TEMPLATE_OPTIONS}


def check_document(name: str, out: str) -> None:
    jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"}).validate(json.loads(out))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("deploy", "Missing option '--name'"),
        ("deploy --name 1st", "name: must be letters, digits and -"),
        ("deploy --name my-app --tag team", "'team' must be KEY=VALUE"),
        ("deploy --name my-app --parameter A=1 --parameter A=2", "'A=2' names 'A' twice"),
        ("deploy --name my-app --lambda-memory 1", "128<=x<=10240"),
        ("deploy --name my-app --max-write many", "not a valid integer"),
        ("delete --name my-app", "add --yes"),
        ("delete --name my-app --keep-archive --delete-archive --yes", "not both"),
        ("delete --name my-app --keep-table --lift-protection --yes", "a table that is kept stays protected"),
        ("check", "Missing option '--name'"),
        ("upgrade", "Missing option '--name'"),
        ("list my-app", "unexpected extra argument"),
        ("status", "name an ENTITY, or a deployment"),
        ("status key-1 --name my-app", "name an ENTITY, or a deployment"),
        ("cost", "Missing option '--rate'"),
        ("cost --rate 1 --denied 2", "0<=x<=1"),
        ("cost --rate 1 --price gold=1", "--price takes NAME=USD with one of million_writes"),
        ("cost --rate 1 --price million_writes=cheap", "--price takes NAME=USD"),
    ],
)
def test_what_is_typed_wrong_is_wrong_usage(runner: CommandRunner, line: str, said: str) -> None:
    ran = runner.run(*line.split())
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())


@pytest.mark.parametrize(
    "line",
    [
        "deploy --name my-app",
        "delete --name my-app --yes",
        "list",
        "check --name my-app",
        "upgrade --name my-app",
        "status --name my-app",
        "version --name my-app",
    ],
)
def test_a_cloud_that_does_not_answer_is_unavailable(
    runner: CommandRunner, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zae_limiter.infra.cloud.TRIES", 1)
    ran = runner.run(*line.split(), *NOWHERE)
    assert (ran.code, ran.out) == (69, "")
    (complaint,) = ran.err.splitlines()
    assert "AWS did not answer" in complaint


def test_without_a_region_it_is_said_how_to_name_one(runner: CommandRunner, tmp_path: Path) -> None:
    nothing = str(tmp_path / "none")
    empty = {"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": nothing, "AWS_ENDPOINT_URL": ""}
    ran = runner.run("list", environment=empty)
    assert ran.code == 69
    assert "name one with --region or AWS_REGION" in ran.err


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("nonsense", "us-east-1"),
        ("http://[", "us-east-1"),
        ("ftp://127.0.0.1", "us-east-1"),
        ("http://127.0.0.1:99999", "us-east-1"),
        ("http://", "us-east-1"),
        ("http://127.0.0.1:9", "no such region"),
    ],
)
def test_a_place_that_is_none_is_an_error_in_one_line(
    runner: CommandRunner, endpoint: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zae_limiter.infra.cloud.TRIES", 1)
    credentials = {"AWS_ACCESS_KEY_ID": "some", "AWS_SECRET_ACCESS_KEY": "body"}
    ran = runner.run("list", f"--endpoint-url={endpoint}", f"--region={region}", environment=credentials)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (69, "", 1)


def test_a_profile_that_is_none_is_named(runner: CommandRunner, tmp_path: Path) -> None:
    environment = {"AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    ran = runner.run("list", "--profile", "nobody", *NOWHERE, environment=environment)
    assert ran.code == 69
    assert "nobody" in ran.err


# Options and parameters


def test_every_option_stands_for_a_parameter_of_the_template() -> None:
    template = template_text()
    for option in TEMPLATE_OPTIONS:
        assert f"\n  {option.parameter}:\n    Type:" in template, option.words


def test_options_become_parameters() -> None:
    given = {**GIVEN, "given_DeletionProtection": True, "given_EnableAlarms": False, "given_MaxWriteUnits": 7}
    assert template_parameters("my-app", given, "team-{}", None, {"BatchSize": "9", "MaxWriteUnits": "8"}) == {
        "DeletionProtection": "true",
        "EnableAlarms": "false",
        "MaxWriteUnits": "8",
        "RoleNamePrefix": "team-",
        "RoleNameSuffix": "",
        "BatchSize": "9",
    }
    assert template_parameters("my-app", GIVEN, None, None, {}) == {}


def test_a_format_of_names_that_gives_none_is_refused(runner: CommandRunner) -> None:
    with pytest.raises(ValidationError):
        template_parameters("my-app", GIVEN, "team", None, {})
    assert runner.run("deploy", "--name", "my-app", "--role-name-format", "team", *NOWHERE).code == 1


def test_each_role_has_an_option_that_says_whom_it_trusts() -> None:
    words = {option.parameter: option.words for option in TEMPLATE_OPTIONS}
    assert {level: words[parameter] for level, parameter in ROLE_PRINCIPALS.items()} == {
        level: f"--trust-{level}" for level in ROLE_PRINCIPALS
    }


# Bills and versions


def test_a_bill_for_people_and_for_programs(runner: CommandRunner) -> None:
    words = ("cost", "--rate", "20", "--legs", "2", "--denied", "0.05")
    shown = runner.run(*words)
    assert (shown.code, shown.err) == (0, "")
    assert "for a million acquires" in shown.out
    ran = runner.run(*words, "--json")
    check_document("bill", ran.out)
    found = json.loads(ran.out)
    assert found["dollars"] == pytest.approx(sum(item["dollars"] for item in found["items"]))
    assert f"{found['dollars']:,.2f}" in shown.out


def test_no_load_costs_what_stands_around(runner: CommandRunner) -> None:
    ran = runner.run("cost", "--rate", "0", "--no-aggregator")
    assert (ran.code, "million" in ran.out) == (0, False)


def test_the_version_for_programs(runner: CommandRunner) -> None:
    ran = runner.run("version", "--json")
    check_document("versions", ran.out)
    assert json.loads(ran.out) == {"version": __version__}


@pytest.mark.parametrize(
    ("environment", "typed", "asked"),
    [
        ({"ZAEL_URL": "dynamodb://limits?region=eu-central-1"}, (), ("eu-central-1", None)),
        (
            {
                "ZAEL_URL": f"dynamodb://limits?region=eu-west-1&endpoint_url={LOCAL}",
                "AWS_REGION": "us-east-1",
            },
            (),
            ("eu-west-1", LOCAL),
        ),
        (
            {"ZAEL_URL": f"dynamodb://limits?region=eu-west-1&endpoint_url={LOCAL}"},
            ("--region", "us-east-2"),
            ("us-east-2", LOCAL),
        ),
        ({"ZAEL_URL": "dynamodb://limits", "AWS_REGION": "us-east-1"}, (), ("us-east-1", None)),
        ({"ZAEL_URL": "sqlite:///limits.db", "AWS_REGION": "us-east-1"}, (), ("us-east-1", None)),
    ],
)
@pytest.mark.parametrize("line", ["list", "check --name my-app", "status --name my-app"])
def test_a_deployment_is_where_the_url_of_the_environment_says(
    line: str,
    environment: dict[str, str],
    typed: tuple[str, ...],
    asked: tuple[str | None, str | None],
    runner: CommandRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = list[tuple[Any, ...]]()

    def manager(region: str | None, endpoint_url: str | None, **options: Any) -> None:
        places.append((region, endpoint_url))
        raise ValidationError("region", region, "is only looked at here")

    monkeypatch.setattr("zae_limiter.infra.stacks.StackManager", manager)
    for name in ("AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    assert runner.run(*line.split(), *typed, environment=environment).code == 1
    assert places == [asked]


def test_a_url_that_is_none_is_said(runner: CommandRunner) -> None:
    ran = runner.run("list", environment={"ZAEL_URL": "dynamodb://limits?reg=eu"})
    assert ran.code == 1
    assert "must be dynamodb://STACK" in ran.err
