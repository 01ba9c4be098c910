"""The service as a process: where it listens, how it ends, and clients and stores that do not behave."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from engines.redis_servers import RedisServer
from support.service_processes import PATIENCE_S, ServiceProcess, service_process
from support.service_world import token_entry
from zae_limiter import ConfigurationError, Limit, SyncRateLimiter, ValidationError
from zae_limiter.service.server import Bind, check_bind, parse_bind

ASKED = {"entity": "key", "resource": "gpt", "consume": {"rpm": 1}}


@pytest.fixture
def url(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(address) as limiter:
        limiter.set_system_defaults([Limit.custom("rpm", 1, 1, 2)])  # one every two seconds
    return address


def until(condition: Callable[[], Any]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def in_background(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


def test_after_sigterm_it_is_not_ready_serves_what_waits_and_ends(url: str) -> None:
    with service_process("--url", url, "--drain", "1") as service:
        assert service.client.get("/readyz").status_code == 200
        assert service.post("/v1/take", ASKED).status_code == 200
        with httpx.Client(base_url=service.address, timeout=PATIENCE_S) as waiting:
            thread, results = in_background(lambda: waiting.post("/v1/take", json={**ASKED, "timeout": 30}))
            time.sleep(0.3)  # it stands in the queue, which no route shows
            service.terminate()
            until(lambda: service.client.get("/readyz").status_code == 503)
            assert service.post("/v1/check", ASKED).status_code == 200  # clients that have not looked away are served
            thread.join(PATIENCE_S)
        assert [answer.status_code for answer in results] == [200]
        code, errors = service.ended()
        assert (code, "Traceback" in errors) == (0, False)


def test_a_stream_of_events_does_not_keep_it_from_ending(url: str) -> None:
    with service_process("--url", url) as service:
        with service.client.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": listening"
            service.post("/v1/take", ASKED)
            while not next(lines).startswith("event: decided"):
                pass
            service.terminate()
            for _ in lines:
                pass
        assert service.ended()[0] == 0


def test_a_second_signal_ends_it_at_once(url: str) -> None:
    with service_process("--url", url) as service:
        service.post("/v1/take", ASKED)
        with socket.create_connection(_place(service)) as hanging:
            hanging.sendall(_half_a_request())
            assert service.client.get("/livez").status_code == 200
            service.terminate()
            time.sleep(0.3)
            started = time.monotonic()
            service.terminate()
            service.process.wait(PATIENCE_S)
            assert time.monotonic() - started < 8  # the body would be waited for ten seconds


def test_a_client_that_leaves_the_queue_takes_nothing(url: str) -> None:
    with service_process("--url", url) as service:
        assert service.post("/v1/take", ASKED).status_code == 200
        with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=service.address, timeout=0.3) as leaving:
            leaving.post("/v1/leases", json={**ASKED, "timeout": 30})
        until(lambda: service.post("/v1/check", ASKED).json()["fits"])
        time.sleep(0.3)
        assert service.post("/v1/check", ASKED).json()["fits"]
        assert service.client.get("/v1/leases").json()["leases"] == []


def test_a_client_that_hangs_keeps_no_other_from_being_answered(url: str) -> None:
    with service_process("--url", url) as service:
        hanging = [socket.create_connection(_place(service)) for _ in range(3)]
        try:
            hanging[0].sendall(b"POST /v1/take HT")
            hanging[1].sendall(_half_a_request())
            assert service.post("/v1/take", ASKED).status_code == 200
            hanging[1].settimeout(PATIENCE_S)
            assert hanging[1].recv(4096).startswith(b"HTTP/1.1 408 ")
            service.terminate()
            assert service.ended()[0] == 0
        finally:
            for connection in hanging:
                connection.close()


def test_a_store_that_is_away_is_a_503_until_it_comes() -> None:
    server = RedisServer("valkey-9.1")
    missing = server.why_not_here()
    if missing:
        pytest.skip(missing)  # a failure where CI is set: support/no_skips_in_ci.py
    with server, service_process("--url", server.url) as service:
        assert service.client.get("/readyz").status_code == 200
        server.kill()
        answer = service.post("/v1/take", ASKED)
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert service.client.get("/readyz").status_code == 503
        assert service.client.get("/livez").status_code == 200
        server.restart()
        until(lambda: service.client.get("/readyz").status_code == 200)
        server.kill()
        service.terminate()
        assert service.ended()[0] == 0


def test_it_listens_for_other_machines_only_with_tokens(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "zae_limiter", "serve", "--url", "memory://", "--bind", "0.0.0.0:0"]
    refused = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (refused.returncode, "--token-file" in refused.stderr) == (78, True)
    for content in (None, "nonsense"):
        path = tmp_path / f"{content}.json"
        if content is not None:
            path.write_text(content)
        unread = subprocess.run(
            [*words, "--token-file", str(path)], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert (unread.returncode, str(path) in unread.stderr) == (78, True)


def test_tokens_of_a_file_are_needed(url: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"tokens": [token_entry("a", "text", "take")]}))
    with service_process("--url", url, "--token-file", str(path)) as service:
        assert service.post("/v1/take", ASKED).status_code == 401
        assert service.post("/v1/take", ASKED, authorization="Bearer text").status_code == 200


def test_a_store_that_cannot_be_used_ends_it_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "limits.db").write_text("this is no database, and never was one" * 100)
    words = [sys.executable, "-m", "zae_limiter", "serve", "--url", f"sqlite:///{tmp_path}/limits.db", "--bind"]
    ended = subprocess.run([*words, "127.0.0.1:0"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, "Traceback" in ended.stderr) == (78, False)
    missing = [*words[:4], "--url", "memory://", "--namespace", "nope", "--bind", "127.0.0.1:0"]
    ended = subprocess.run(missing, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, "namespace register nope" in ended.stderr) == (1, True)


def test_a_port_that_is_taken_is_told(url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        words = [sys.executable, "-m", "zae_limiter", "serve", "--url", url, "--bind", bind]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, bind in ended.stderr) == (78, True)


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("127.0.0.1:8080", Bind("127.0.0.1", 8080)),
        ("[::1]:0", Bind("::1", 0)),
        ("limits.internal:80", Bind("limits.internal", 80)),
    ],
)
def test_an_address_is_read(text: str, bind: Bind) -> None:
    assert parse_bind(text) == bind
    assert str(bind) == text


@pytest.mark.parametrize("text", ["", "8080", ":8080", "localhost", "localhost:", "::1:80", "a:65536", "a:-1", "a:x"])
def test_an_address_that_is_none_is_told(text: str) -> None:
    with pytest.raises(ValidationError, match="HOST:PORT"):
        parse_bind(text)


def test_an_address_of_other_machines_needs_tokens() -> None:
    check_bind(Bind("127.0.0.1", 1), has_tokens=False)
    check_bind(Bind("0.0.0.0", 1), has_tokens=True)
    with pytest.raises(ConfigurationError, match=r"0\.0\.0\.0:1"):
        check_bind(Bind("0.0.0.0", 1), has_tokens=False)


def _place(service: ServiceProcess) -> tuple[str, int]:
    place = httpx.URL(service.address)
    assert place.port is not None
    return place.host, place.port


def _half_a_request() -> bytes:
    head = b"POST /v1/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n"
    return head + b'{"entity": '
