"""``zae-limiter local up``, ``local status``, ``local logs`` and ``local down``, as they are typed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_runner import CommandRunner, Ran
from pseudo_terminal import COMMAND

from infra.guarded_ministack import guarded_ministack

Type = Callable[..., Ran]
PATIENCE_S = 30.0
SCHEMA = json.loads(files("zae_limiter.cli").joinpath("schemas/local.json").read_text(encoding="utf-8"))


def document(ran: Ran, kind: str) -> Any:
    found = json.loads(ran.out)
    jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{kind}"}).validate(found)
    return found


@pytest.fixture
def local_environment(tmp_path: Path) -> dict[str, str]:
    return {"ZAEL_LOCAL_HOME": str(tmp_path / "home"), "ZAEL_MINISTACK": guarded_ministack(tmp_path / "bin")}


@pytest.fixture
def local(runner: CommandRunner, local_environment: dict[str, str]) -> Iterator[Type]:
    """Types ``zae-limiter local …``; whatever runs is ended."""

    def typed(*words: str) -> Ran:
        return runner.run("local", *words, environment=local_environment)

    yield typed
    assert typed("down", "--discard").code == 0


@pytest.mark.usefixtures("ministack")
def test_a_day_with_a_local_cloud(local: Type, local_environment: dict[str, str], runner: CommandRunner) -> None:
    ran = local("status")
    assert (ran.code, ran.out) == (1, "no local cloud is running; start one: zae-limiter local up\n")
    assert "there is no local cloud yet" in local("logs").err

    found = document(local("up", "--name", "my-app", "--port", "0", "--json"), "local_up")
    assert found["url"] == f"dynamodb://my-app?region=us-east-1&endpoint_url=http://127.0.0.1:{found['port']}"
    assert (found["started"], found["region"], found["endpoint_url"]) == (
        True,
        "us-east-1",
        f"http://127.0.0.1:{found['port']}",
    )
    words = [COMMAND, "system", "set-defaults", "-l", "rpm:100", "--url", found["url"]]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)

    ran = local("up")
    assert ran.out.splitlines() == [
        f"my-app is up. The local cloud was already running at {found['endpoint_url']}, region us-east-1",
        "",
        f"  export ZAEL_URL='{found['url']}'",
        "",
        "stop it with: zae-limiter local down",
    ]
    ran = local("status")
    assert (ran.code, found["url"] in ran.out, str(found["pid"]) in ran.out) == (0, True, True)
    status = document(local("status", "--json"), "local_status")
    assert status["deployments"] == [{"name": "my-app", "state": "UPDATE_COMPLETE", "url": found["url"]}]

    assert "local cloud" not in local("logs", "--lines", "0").out
    assert "Ready" in local("logs", "--lines", "10000").out
    following = subprocess.Popen(
        [COMMAND, "local", "logs", "-f", "--lines", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **local_environment},
    )
    assert local("down").out == "the local cloud is stopped\n"
    following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 0
    assert local("down").out == "no local cloud was running\n"


def test_a_port_that_is_taken(local: Type) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        ran = local("up", "--port", str(holder.getsockname()[1]))
    assert ran.code == 1
    assert "is taken by another program" in ran.err


def test_a_program_that_is_none(local: Type, tmp_path: Path) -> None:
    ran = local("up", "--port", "0", "--ministack", str(tmp_path))
    assert ran.code == 1
    assert "not a program that can be run" in ran.err


def test_a_name_that_is_none(local: Type) -> None:
    assert local("up", "--name", "my app").code == 2


def test_nothing_to_discard_is_fine(local: Type) -> None:
    assert local("down", "--discard").out == "no local cloud was running; its data is gone\n"
    assert document(local("down", "--json"), "local_down") == {"ended": False, "pid": None, "discarded": False}
    assert document(local("status", "--json"), "local_status")["running"] is False


def test_without_the_extra_it_says_what_to_install(local: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "botocore", None)
        ran = local("up", "--port", "0")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "Error: the DynamoDB store needs botocore: pip install '.[dynamodb]' in a clone of zae-limiter\n"
    assert "no local cloud is running" in local("status").out
