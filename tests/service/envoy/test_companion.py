"""``zae-limiter serve --envoy-bind``: HTTP and Envoy in one process, with one store, the same tokens and one end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from served_process import SECONDS, served

from engines.redis_servers import RedisServer
from engines.servers import Engine
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.cli.group import cli
from zae_limiter.service.envoy.responses import OK, OVER_LIMIT


@pytest.fixture(params=["sqlite", "redis", "dynamodb"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with fifty a day for each entity."""
    name = f"envoy-{uuid.uuid4().hex[:8]}"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("valkey_9_1")
        server.ask("FLUSHALL")
        found = server.url
    elif request.param == "dynamodb":
        engine: Engine = request.getfixturevalue("dynoxide")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        found = f"dynamodb://{name}?region=us-east-1&endpoint_url={engine.endpoint_url}"
    else:
        found = f"sqlite:///{tmp_path / 'limits.db'}"
    with SyncRateLimiter.open(found, create=True) as limiter:
        limiter.set_system_defaults([Limit.per_day("requests", 50), Limit.per_day("tpm", 1_000)])
    return found


def test_both_protocols_take_from_one_bucket_and_nothing_is_taken_twice_or_lost(url: str) -> None:
    with served(url) as service, ThreadPoolExecutor(8) as threads:
        by_http = [threads.submit(service.take, "shared") for _ in range(40)]
        by_envoy = [threads.submit(service.ask, "shared") for _ in range(40)]
        granted = sum(found.result() for found in by_http)
        granted += sum(found.result().overall_code == OK for found in by_envoy)
        assert granted == 50
        by_event = dict(re.findall(r'events_total{event="(\w+)",protocol="envoy"} (\d+)', service.metrics()))
        assert sum(map(int, by_event.values())) == 40
        assert set(by_event) <= {"let_through", "refused"}
        assert service.end() == 0


def test_a_replica_settles_what_a_replica_took_that_is_gone(url: str) -> None:
    estimate = {"entity": "travels", "limit": "tpm"}
    with served(url) as first:
        taken = first.send(estimate, 400)
        assert (taken.overall_code, taken.statuses[0].limit_remaining) == (OK, 600)
        (header,) = taken.request_headers_to_add
        assert header.key == "x-zael-lease"
        first.process.kill()
    with served(url) as second:
        done = {"lease": header.value, "limit": "tpm"}
        assert second.send(estimate, 0).statuses[0].limit_remaining == 600
        for used in (123, 0):  # settled once
            assert second.send(done, used).overall_code == OK
        assert second.send(estimate, 0).statuses[0].limit_remaining == 877
        assert second.send(estimate, 878).overall_code == OVER_LIMIT
        (header,) = second.send(estimate, 800).request_headers_to_add
        second.settle(header.value, tpm=77)  # as the application behind Envoy may, which sees the header
        assert second.send(estimate, 0).statuses[0].limit_remaining == 800
        assert second.end() == 0


def test_the_tokens_are_those_of_the_service(tmp_path: Path) -> None:
    url, tokens = f"sqlite:///{tmp_path / 'limits.db'}", tmp_path / "tokens.json"
    with SyncRateLimiter.open(url, create=True) as limiter:
        limiter.set_system_defaults([Limit.per_day("requests", 1)])
    texts = {}
    for name, options in {
        "envoy": ["--role", "take"],
        "reader": ["--role", "read"],
        "elsewhere": ["--role", "take", "--for-namespace", "other"],
        "prefixed": ["--role", "take", "--entity-prefix", "a:"],
    }.items():
        made = CliRunner().invoke(cli, ["token", "create", name, *options, "--token-file", str(tokens), "--json"])
        assert made.exit_code == 0, made.output
        texts[name] = json.loads(made.output)["token"]

    def outcome(entity: str, token: str | None) -> object:
        try:
            return service.ask(entity, token).overall_code
        except grpc.RpcError as error:
            return error.code()

    with served(url, "--token-file", str(tokens)) as service:
        assert [outcome("a", texts["envoy"]) for _ in range(2)] == [OK, OVER_LIMIT]
        for token in (None, "wrong", texts["reader"], texts["elsewhere"]):
            assert outcome("b", token) is grpc.StatusCode.UNAUTHENTICATED
        assert outcome("b", texts["prefixed"]) is grpc.StatusCode.PERMISSION_DENIED
        assert outcome("a:1", texts["prefixed"]) == OK
        assert service.end() == 0


@pytest.mark.parametrize(
    ("options", "exit_code", "words"),
    [
        (["--rls-map", "user=entity"], 2, "say --envoy-bind"),
        (["--envoy-bind", "8081"], 2, "HOST:PORT"),
        (["--envoy-bind", "127.0.0.1:0", "--rls-map", "user"], 2, "KEY=ROLE"),
        (["--envoy-bind", "127.0.0.1:0", "--envoy-cert", "c.pem"], 2, "belong together"),
        (["--envoy-bind", "0.0.0.0:0"], 78, "without a token"),
    ],
)
def test_what_is_said_wrongly_is_told(options: list[str], exit_code: int, words: str, tmp_path: Path) -> None:
    told = ["serve", "--url", f"sqlite:///{tmp_path / 'limits.db'}", "--bind", "127.0.0.1:0", *options]
    ended = subprocess.run(
        [sys.executable, "-m", "zae_limiter", *told], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == exit_code
    assert words in ended.stderr.replace("\n", " ")
