"""Certificates, proxies, and secrets that stay secret."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Certificate, certificate, needs_openssl
from support.scripted_server import KEYS, Server, always, http, refusal, reply, serving
from support.transports import EVERY, OWN_WORLDS, WORLDS, get
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.transport import settings
from zae_limiter.stores.dynamodb.transport.asyncio_transport import _result
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target, transports_for
from zae_limiter.stores.dynamodb.transport.service import Services
from zae_limiter.stores.dynamodb.transport.settings import discovered_settings

pytestmark = pytest.mark.usefixtures("no_credentials_here")

FINE = reply({"Item": {"PK": {"S": "a"}}})
ASKED = get("t", "a")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("theirs"))


# Certificates


@needs_openssl
@WORLDS
@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_certificates_named_by_the_environment_are_trusted(
    asking: Any, variable: str, ours: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(ours.path))
    with serving(always(FINE), ours.serving()) as server, asking(server.target) as ask:
        for _ in range(3):
            assert ask("GetItem", ASKED)["Item"] == {"PK": {"S": "a"}}
        assert len(server.connections) == 1


@needs_openssl
@WORLDS
def test_other_certificates_are_not_trusted_and_nothing_is_sent(
    asking: Any, ours: Certificate, theirs: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(theirs.path))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ours.path))
    with serving(always(FINE), ours.serving()) as server:
        with asking(server.target) as ask, pytest.raises(NoAnswer, match=r"(?i)certificate") as caught:
            ask("GetItem", ASKED)
        assert server.heard == []
    assert caught.value.sent is False


@needs_openssl
@OWN_WORLDS
def test_a_certificate_of_another_host_is_not_trusted(
    asking: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = certificate(tmp_path, "DNS:elsewhere.example")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(elsewhere.path))
    with serving(always(FINE), elsewhere.serving()) as server:
        with asking(server.target) as ask, pytest.raises(NoAnswer, match=r"(?i)certificate") as caught:
            ask("GetItem", ASKED)
        assert server.heard == []
    assert caught.value.sent is False


@OWN_WORLDS
def test_certificates_that_are_not_there_are_told(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere/at/all.pem")
    target = Target("us-east-1", "https://127.0.0.1:1", KEYS)
    with asking(target) as ask, pytest.raises(NoAnswer, match=r"/nowhere/at/all\.pem") as caught:
        ask("GetItem", ASKED)
    assert caught.value.sent is False


def test_the_usual_certificates_are_botocores() -> None:
    from botocore.httpsession import get_cert_path

    assert settings._usual_bundle() == get_cert_path(True)
    assert settings.tls_context(None).get_ca_certs() != []


@needs_openssl
@OWN_WORLDS
def test_a_secure_connection_that_is_closed_while_it_is_idle_is_replaced(
    asking: Any, ours: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(ours.path))
    with serving(always(FINE), ours.serving()) as server, asking(server.target) as ask:
        for _ in range(2):
            ask("GetItem", ASKED)
            server.close_connections()
        assert [heard.connection for heard in server.heard] == [0, 1]


# Proxies


class Proxy:
    """Tunnels to this machine, whatever host is asked for, and forwards plain calls."""

    def __init__(self, port: int) -> None:
        self.lines: list[str] = []
        self.logins: list[str] = []
        self._to = port
        self._sockets: list[socket.socket] = []
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    def close(self) -> None:
        self._over.set()
        self._threads[0].join(5)
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(5)
        for each in self._sockets:
            each.close()

    def _listen(self) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                client.settimeout(30)
                self._sockets.append(client)
                self._run(self._serve, client)

    def _run(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data:
                piece = client.recv(65536)
                if not piece:
                    return
                data += piece
            first, *headers = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            self.lines.append(first)
            self.logins += [line.partition(": ")[2] for line in headers if line.lower().startswith("proxy-auth")]
            there = socket.create_connection(("127.0.0.1", self._to))
            self._sockets.append(there)
            if first.startswith("CONNECT"):
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                there.sendall(data)
            self._run(_pour, there, client)
            _pour(client, there)


def _pour(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def proxied_server(certified: Certificate | None) -> Iterator[tuple[Server, Proxy]]:
    with serving(always(FINE), None if certified is None else certified.serving()) as server:
        proxy = Proxy(server.port)
        try:
            yield server, proxy
        finally:
            proxy.close()


@needs_openssl
@OWN_WORLDS
def test_calls_go_through_the_proxy_of_the_environment(
    asking: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified = certificate(tmp_path, "DNS:dynamodb.far.example")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certified.path))
    with proxied_server(certified) as (server, proxy):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        with asking(Target("eu-west-1", "https://dynamodb.far.example", KEYS)) as ask:
            for _ in range(3):
                assert ask("GetItem", ASKED)["Item"] == {"PK": {"S": "a"}}
        assert [line.rpartition(" ")[0] for line in proxy.lines] == ["CONNECT dynamodb.far.example:443"]
        assert proxy.logins == [f"Basic {base64.b64encode(b'me:p@ss').decode()}"]
        assert server.heard[0].headers["host"] == "dynamodb.far.example"
        assert "proxy-authorization" not in server.heard[0].headers


@OWN_WORLDS
def test_plain_calls_are_forwarded_by_the_proxy(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxied_server(None) as (server, proxy):
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
        with asking(Target("eu-west-1", "http://dynamodb.far.example:8000", KEYS)) as ask:
            assert ask("GetItem", ASKED)["Item"] == {"PK": {"S": "a"}}
        assert server.heard[0].first_line == "POST http://dynamodb.far.example:8000/ HTTP/1.1"
        assert server.heard[0].headers["host"] == "dynamodb.far.example:8000"


@WORLDS
def test_answers_through_a_proxy_mean_the_same(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Target("eu-west-1", "http://dynamodb.far.example", KEYS)
    with proxied_server(None) as (server, proxy):
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        with asking(far) as ask:
            server.script = always(refusal("ConditionalCheckFailedException"))
            with pytest.raises(Refused) as refused:
                ask("GetItem", ASKED)
            server.script = lambda heard, connection: time.sleep(1)
            with pytest.raises(NoAnswer) as silence:
                ask("GetItem", ASKED, 0.3)
            server.script = lambda heard, connection: connection.shutdown(socket.SHUT_RDWR)
            with pytest.raises(NoAnswer) as closed:
                ask("GetItem", ASKED)
    with asking(far) as ask, pytest.raises(NoAnswer) as gone:
        ask("GetItem", ASKED)
    assert refused.value.by_condition
    assert silence.value.sent is True
    assert closed.value.sent is True
    assert gone.value.sent is False


def test_a_thread_that_gives_up_together_with_its_caller_says_whether_the_request_was_sent() -> None:
    async def waited_for() -> None:
        loop, future = asyncio.get_running_loop(), Future[None]()
        future.set_running_or_notify_cancel()
        give_up_at = loop.time() + 0.01
        loop.call_at(give_up_at, future.set_exception, NoAnswer("read timed out"))
        await _result(future, give_up_at, "too late")

    with pytest.raises(NoAnswer) as silence:
        asyncio.run(waited_for())
    assert str(silence.value) == "read timed out"
    assert silence.value.sent is True


@OWN_WORLDS
def test_no_proxy_is_obeyed(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "far.example")
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, port, *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
    )
    with serving(always(FINE)) as server:
        target = Target("eu-west-1", f"http://dynamodb.far.example:{server.port}", KEYS)
        with asking(target) as ask:
            assert ask("GetItem", ASKED)["Item"] == {"PK": {"S": "a"}}


def test_there_is_no_proxy_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    for url, proxy in [("http://localhost:8000", None), ("http://far.example", "http://127.0.0.1:1")]:
        found = discovered_settings(Target("eu-west-1", url, KEYS), "dynamodb")
        assert found is not None
        assert found.proxy == proxy


@OWN_WORLDS
def test_a_proxy_that_cannot_be_understood_shows_no_password(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "gopher://me:hush-hush@host")
    with asking(Target("eu-west-1", "http://far.example", KEYS)) as ask, pytest.raises(NoAnswer) as caught:
        ask("GetItem", ASKED)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


# Secrets


ANSWERS = {
    "fine": FINE,
    "refused": refusal("ExpiredTokenException", f"token {KEYS.session_token} is old"),
    "badly signed": refusal("InvalidSignatureException", f"was x-amz-security-token:{KEYS.session_token}"),
    "broken": http("200 OK", b"<html>"),
    "failed": http("500 Internal Server Error", b"{}"),
    "no http": b"SSH-2.0\r\n\r\n",
}


@pytest.mark.parametrize("asking", [EVERY["own"], EVERY["own-async"]], ids=["own", "own-async"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_nothing_secret_is_logged_or_told(
    asking: Any, answer: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    described = ""
    with serving(always(answer)) as server:
        with asking(server.target) as ask:
            try:
                ask("GetItem", ASKED)
            except (Refused, NoAnswer) as error:
                described = "".join(traceback.format_exception(error)) + repr(error) + str(error.__dict__)
        signatures = re.findall(r"[0-9a-f]{64}", " ".join(heard.headers["authorization"] for heard in server.heard))
    assert signatures != []
    out, err = capfd.readouterr()
    for secret in (KEYS.secret_key, KEYS.session_token, *signatures):
        assert secret is not None
        assert secret not in caplog.text + described + out + err


def test_no_representation_shows_a_secret() -> None:
    secret = Credentials("AKIDEXAMPLE", "hush-hush", "hush-token")
    target = Target("us-east-1", "http://127.0.0.1:1", secret)
    found = discovered_settings(target, "dynamodb")
    shown = [repr(target), repr(found)]
    for make in transports_for(target):
        transport: Any = make()
        services = Services(target)
        service = services.ready("dynamodb")
        assert service is not None
        request = service.sign("GetItem", {}, secret)
        shown += map(
            repr, [transport, transport._process, services, service, service.credentials, service._signer, request]
        )
    assert "hush" not in " ".join(shown)
