"""``check --url``: Redis servers are asked whether they are fit, and the exit code says so."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from click.testing import CliRunner, Result

from engines.redis_servers import RedisCluster, RedisServer
from engines.servers import HOST
from zae_limiter.cli.group import cli

SCHEMA = json.loads(files("zae_limiter.cli").joinpath("schemas/deployments.json").read_text(encoding="utf-8"))


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["check", *words])


def test_a_server_that_would_forget_is_found(redis_6_2: RedisServer) -> None:
    result = run("--url", redis_6_2.url)
    assert result.exit_code == 1
    assert "Redis 6.2" in result.output
    assert "appendonly yes" in result.output


def test_a_server_that_is_fit_is_said_to_be(valkey_9_1: RedisServer) -> None:
    with RedisServer(valkey_9_1.kind, "--appendonly", "yes") as server:
        result = run("--url", server.url)
    assert result.exit_code == 0
    assert "fit to keep limits" in result.output


def test_programs_get_a_document_about_every_node(valkey_cluster: RedisCluster) -> None:
    document = json.loads(run("--url", valkey_cluster.url, "--json").output)
    jsonschema.validate(document, {"$ref": "#/$defs/servers", "$defs": SCHEMA["$defs"]})
    assert [server["server"] for server in document["servers"]] == [
        f"{HOST}:{node.port}" for node in valkey_cluster.nodes
    ]


def test_a_user_that_may_not_ask_is_told_what_to_allow(redis_6_2: RedisServer) -> None:
    redis_6_2.ask("ACL", "SETUSER", "blind", "on", ">pw", "~*", "-@all", "+ping")
    try:
        result = run("--url", f"redis://blind:pw@{HOST}:{redis_6_2.port}")
    finally:
        redis_6_2.ask("ACL", "DELUSER", "blind")
    assert result.exit_code == 1
    assert "INFO" in result.output
    assert "+evalsha" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing option '--name'"),
        (("--name", "a", "--url", "redis://h"), "Missing option"),
        (("--url", "sqlite:///x.db"), "must name Redis"),
    ],
)
def test_what_to_check_must_be_said(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code != 0
    assert said in result.output or said in str(result.exception)
