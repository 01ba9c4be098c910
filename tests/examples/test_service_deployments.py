"""The unit for systemd and the manifests for Kubernetes start a service that exists, with options that it has."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from zae_limiter.cli.group import cli
from zae_limiter.service.routes import OPERATIONS
from zae_limiter.service.server import GRACE_SECONDS, check_bind, parse_bind

FOLDER = Path(__file__).parents[2] / "examples" / "service"
PUBLIC_PATHS = {operation.path for operation in OPERATIONS if not operation.roles}


def parsed(words: list[str]) -> dict[str, Any]:
    """What the command line makes of them."""
    assert words[:2] == ["zae-limiter", "serve"]
    command = cli.get_command(click.Context(cli), "serve")
    assert command is not None
    with command.make_context("serve", words[2:]) as context:
        return dict(context.params)


def check_options(options: dict[str, Any]) -> None:
    """It listens for other machines, so it has tokens; and what waits is served before it is killed."""
    assert options["token_file"] is not None
    check_bind(parse_bind(options["bind"]), has_tokens=True)
    assert options["drain"] > 0


def test_the_unit_of_systemd_starts_the_service() -> None:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "zae-limiter.service")
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    program, *words = shlex.split(service["ExecStart"])
    options = parsed([Path(program).name, *words])
    check_options(options)
    credential, _, _ = service["LoadCredential"].partition(":")
    assert options["token_file"].name == credential
    assert f"/var/lib/{service['StateDirectory']}/" in options["url"]
    assert int(service["TimeoutStopSec"]) >= GRACE_SECONDS + options["drain"]


def test_the_manifests_of_kubernetes_start_two_replicas() -> None:
    documents = {found["kind"]: found for found in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())}
    assert set(documents) == {"Service", "Deployment", "PodDisruptionBudget"}
    deployment, service = documents["Deployment"]["spec"], documents["Service"]["spec"]
    pod = deployment["template"]
    labels = pod["metadata"]["labels"]
    selectors = (
        deployment["selector"]["matchLabels"],
        service["selector"],
        documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    )
    assert all(selector == labels for selector in selectors)
    assert deployment["replicas"] == 2
    (container,) = pod["spec"]["containers"]
    options = parsed(container["args"])
    check_options(options)
    assert pod["spec"]["terminationGracePeriodSeconds"] >= GRACE_SECONDS + options["drain"]
    (port,) = container["ports"]
    assert port["containerPort"] == parse_bind(options["bind"]).port
    assert [entry["targetPort"] for entry in service["ports"]] == [port["name"]]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in PUBLIC_PATHS
        assert container[probe]["httpGet"]["port"] == port["name"]
    (mount,) = container["volumeMounts"]
    assert str(options["token_file"]).startswith(f"{mount['mountPath']}/")
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == [mount["name"]]
    assert {variable["name"] for variable in container["env"]} == {"ZAEL_URL"}
