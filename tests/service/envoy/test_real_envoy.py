"""Envoy itself, unchanged and with the configuration of the guide, limits real traffic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from billing_application import Application, serving
from click.testing import CliRunner
from served_process import served

from engines.envoy_proxy import Envoy, on_free_ports
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.cli.group import cli
from zae_limiter.service.envoy.grpc_server import EnvoyServer
from zae_limiter.service.envoy.rate_limit_service import RateLimitService

ROOT = Path(__file__).parents[3]
CONFIG = yaml.safe_load((ROOT / "examples" / "envoy.yaml").read_text())
PATIENCE_S = 10.0


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def get(envoy: Envoy, path: str, headers: Mapping[str, str]) -> Reply:
    """One request through Envoy."""
    link = HTTPConnection("127.0.0.1", envoy.ports["front"], timeout=PATIENCE_S)
    try:
        link.request("GET", path, headers=dict(headers))
        answer = link.getresponse()
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        link.close()


def status_of(envoy: Envoy, key: str) -> int:
    return get(envoy, "/", {"x-api-key": key}).status


class Front:
    """Everything of one set-up: the limiter, its service, Envoy, and the application behind it."""

    def __init__(self, limiter: SyncRateLimiter, server: EnvoyServer, envoy: Envoy, application: Application) -> None:
        self.limiter = limiter
        self.server = server
        self.envoy = envoy
        self.application = application

    def get(self, path: str, key: str | None = None, **headers: str) -> Reply:
        """One request of a client."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return get(self.envoy, path, sent if key is None else {**sent, "x-api-key": key})

    def counted(self, what: str) -> int:
        return self.server.service.counts.as_dict().get(what, 0)


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    missing = Envoy.why_not_here()
    if missing:
        pytest.skip(missing)  # a failure where CI is set: support/no_skips_in_ci.py
    with SyncRateLimiter.open("memory://") as limiter, serving() as application:
        limiter.set_resource_defaults("api", [Limit.per_hour("requests", 5)])
        limiter.set_resource_defaults("chat", [Limit.per_hour("requests", 100), Limit.per_hour("tokens", 1_000)])
        limiter.set_limits("ip:127.0.0.1", [Limit.per_hour("requests", 1_000)])
        server = EnvoyServer(RateLimitService(limiter.repository), "127.0.0.1:0")
        server.start()
        config = on_free_ports(CONFIG, {"application": application.port, "zae-limiter": server.port})
        with Envoy(config) as envoy:
            yield Front(limiter, server, envoy, application)
        server.stop(0)


def eventually(condition: Callable[[], object]) -> None:
    """What Envoy sends when a stream is done comes a moment later."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert condition()


def test_five_an_hour_are_five_and_then_429_with_our_answer(front: Front) -> None:
    replies = [front.get("/", "five") for _ in range(6)]
    assert [reply.status for reply in replies] == [200] * 5 + [429]
    first, last = replies[0], replies[-1]
    assert first.headers["x-ratelimit-limit"].startswith("5, 5;w=3600")
    assert first.headers["x-ratelimit-remaining"] == "4"
    assert first.headers["ratelimit"] == '"requests";r=4;t=720'
    assert first.headers["ratelimit-policy"] == '"requests";q=5;w=3600'
    assert last.headers["content-type"] == "application/problem+json"
    assert last.headers["x-ratelimit-remaining"] == "0"
    assert 0 < int(last.headers["retry-after"]) <= 720
    problem = json.loads(last.body)
    assert problem["status"] == 429
    assert problem["violated-policies"] == ["requests"]
    assert problem["type"].endswith("#quota-exceeded")


def test_an_estimate_is_taken_and_what_it_cost_is_settled(front: Front) -> None:
    assert front.get("/v1/chat", "model", x_cost="123").status == 200
    eventually(lambda: front.limiter.available("model", "chat")["tokens"] == 877)
    assert front.limiter.available("model", "chat")["requests"] == 99


def test_an_answer_that_says_no_cost_keeps_the_estimate(front: Front) -> None:
    settled = front.counted("leases_settled")
    assert front.get("/v1/chat", "silent").status == 200
    assert front.get("/v1/chat", "talkative", x_cost="1").status == 200
    eventually(lambda: front.counted("leases_settled") == settled + 1)
    assert front.limiter.available("silent", "chat")["tokens"] == 600


def test_a_lease_that_a_client_names_is_not_settled(front: Front) -> None:
    with front.limiter.acquire("victim", "chat", {"tokens": 700}) as lease:
        token = lease.detach()
    assert front.get("/v1/chat", "thief", x_zael_lease=token, x_cost="0").status == 200
    eventually(lambda: front.limiter.available("thief", "chat")["tokens"] == 1_000)
    assert token not in front.application.seen[-1]["x-zael-lease"]
    assert front.limiter.available("victim", "chat")["tokens"] == 300


def test_what_the_key_took_comes_back_if_its_address_is_refused(front: Front) -> None:
    before = front.limiter.available("ip:127.0.0.1", "api")["requests"]
    front.limiter.lower("ip:127.0.0.1", "api", {"requests": 2})
    try:
        statuses = [front.get("/", "roaming").status for _ in range(4)]
    finally:
        front.limiter.grant("ip:127.0.0.1", "api", {"requests": before}, key="the test before")
    assert statuses == [200, 200, 429, 429]
    assert front.limiter.available("roaming", "api")["requests"] == 3


def test_without_a_key_only_the_address_counts(front: Front) -> None:
    before = front.limiter.available("ip:127.0.0.1", "api")["requests"]
    assert front.get("/").status == 200
    assert front.limiter.available("ip:127.0.0.1", "api")["requests"] == before - 1


def test_limits_that_only_watch_let_through(front: Front) -> None:
    front.limiter.set_limits("watched", [Limit.per_hour("requests", 1, enforce=False)])
    before = front.counted("let_through_by_watching_limits")
    assert [front.get("/", "watched").status for _ in range(3)] == [200] * 3
    assert front.counted("let_through_by_watching_limits") == before + 2


def test_an_id_that_is_none_is_refused_and_not_let_through_as_an_error(front: Front) -> None:
    reply = front.get("/", "a#b")
    assert reply.status == 429
    assert json.loads(reply.body)["title"].startswith("The request names no caller")


def test_the_command_of_the_guide_limits_with_a_token_that_envoy_sends(tmp_path: Path) -> None:
    missing = Envoy.why_not_here()
    if missing:
        pytest.skip(missing)  # a failure where CI is set: support/no_skips_in_ci.py
    url, tokens = f"sqlite:///{tmp_path / 'limits.db'}", tmp_path / "tokens.json"
    run = CliRunner().invoke
    assert run(cli, ["resource", "set-defaults", "api", "-l", "requests:2/hour", "--url", url]).exit_code == 0
    made = run(cli, ["token", "create", "envoy", "--role", "take", "--token-file", str(tokens), "--json"])
    text = json.loads(made.output)["token"]
    with serving() as application, served(url, "--token-file", str(tokens)) as service:
        clusters = {"application": application.port, "zae-limiter": service.envoy_port}
        for token, statuses in ((text, [200, 200, 429]), ("wrong", [500])):
            config = on_free_ports(CONFIG, clusters)
            manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
            asking = manager["http_filters"][0]["typed_config"]
            asking["failure_mode_deny"] = True
            metadata = [{"key": "authorization", "value": f"Bearer {token}"}]
            asking["rate_limit_service"]["grpc_service"]["initial_metadata"] = metadata
            asking["timeout"] = "5s"
            with Envoy(config) as envoy:
                assert [status_of(envoy, "guided") for _ in statuses] == statuses
        assert service.end() == 0


def test_without_the_service_envoy_lets_through(front: Front) -> None:
    """The last one of this module: it ends the service."""
    front.limiter.set_limits("shut", [Limit.per_hour("requests", 1)])
    assert [front.get("/", "shut").status for _ in range(2)] == [200, 429]
    front.server.stop(0)
    assert front.get("/", "shut").status == 200
    assert front.envoy.counters("cluster.application.ratelimit.failure_mode_allowed")
