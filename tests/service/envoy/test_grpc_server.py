"""The server that Envoy talks to: who may ask, what errors are, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.certificates import certificate, needs_openssl
from zae_limiter import ConfigurationError, Limit, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.service.envoy.grpc_server import EnvoyServer, TlsFiles
from zae_limiter.service.envoy.messages import METHOD, SERVICE, RateLimitRequest, RateLimitResponse
from zae_limiter.service.envoy.rate_limit_service import RateLimitService
from zae_limiter.service.envoy.responses import OK, OVER_LIMIT
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing import FailingStore

SECONDS = 10.0


def request(entity: str = "a", domain: str = "default") -> Any:
    asked = RateLimitRequest(domain=domain)
    asked.descriptors.add().entries.add(key="entity", value=entity)
    return asked


def caller(channel: grpc.Channel) -> Callable[..., Any]:
    """The method, as a client has it."""
    return channel.unary_unary(
        f"/{SERVICE}/{METHOD}",
        request_serializer=RateLimitRequest.SerializeToString,
        response_deserializer=RateLimitResponse.FromString,
    )


@pytest.fixture
def store() -> FailingStore:
    return FailingStore(MemoryStore())


@pytest.fixture
def service(store: FailingStore) -> RateLimitService:
    repository = SyncRepository(store)
    SyncRateLimiter(repository).set_system_defaults([Limit.per_hour("requests", 2)])
    return RateLimitService(repository)


@contextmanager
def running(service: RateLimitService, **options: Any) -> Iterator[EnvoyServer]:
    server = EnvoyServer(service, "127.0.0.1:0", **options)
    server.start()
    try:
        yield server
    finally:
        server.stop(0)


@contextmanager
def asking(server: EnvoyServer) -> Iterator[Callable[..., Any]]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield caller(channel)


def test_requests_are_answered(service: RateLimitService) -> None:
    with running(service) as server, asking(server) as ask:
        assert [ask(request(), timeout=SECONDS).overall_code for _ in range(3)] == [OK, OK, OVER_LIMIT]


@pytest.mark.parametrize(
    ("domain", "code"),
    [("unknown", grpc.StatusCode.NOT_FOUND), ("no name", grpc.StatusCode.INVALID_ARGUMENT)],
)
def test_what_the_operator_has_to_correct_is_an_error(
    service: RateLimitService, domain: str, code: grpc.StatusCode
) -> None:
    with running(service) as server, asking(server) as ask, pytest.raises(grpc.RpcError) as caught:
        ask(request(domain=domain), timeout=SECONDS)
    assert caught.value.code() is code
    assert domain in caught.value.details()
    assert service.counts.as_dict() == {"errors": 1}


def test_a_store_that_was_never_right_is_an_error(store: FailingStore) -> None:
    service = RateLimitService(SyncRepository(store))
    store.fail("draw", error=ConfigurationError("no such table"))
    with running(service) as server, asking(server) as ask, pytest.raises(grpc.RpcError) as caught:
        ask(request(), timeout=SECONDS)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_with_tokens_only_they_may_ask_and_only_of_their_own(service: RateLimitService) -> None:
    def authorize(token: str | None, domain: str) -> str | None:
        return {"all": "", "mine": "me:"}.get(token or "") if domain == "default" else None

    def outcome(token: str | None, entity: str = "me:1", scheme: str = "Bearer") -> object:
        metadata = () if token is None else (("authorization", f"{scheme} {token}"),)
        try:
            return ask(request(entity), metadata=metadata, timeout=SECONDS).overall_code
        except grpc.RpcError as error:
            return error.code()

    with running(service, authorize=authorize) as server, asking(server) as ask:
        assert outcome("all") == OK
        assert outcome("mine") == OK
        assert outcome("mine", "you:1") is grpc.StatusCode.PERMISSION_DENIED
        for token, scheme in ((None, ""), ("other", "Bearer"), ("all", "Basic")):
            assert outcome(token, scheme=scheme) is grpc.StatusCode.UNAUTHENTICATED
    assert service.counts.as_dict()["not_authorized"] == 3


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8081", "example.com:8081"])
def test_without_tokens_other_machines_may_not_reach_it(service: RateLimitService, bind: str) -> None:
    with pytest.raises(ConfigurationError, match="without a token"):
        EnvoyServer(service, bind)


def test_a_socket_in_the_file_system_is_local(service: RateLimitService, tmp_path: Path) -> None:
    bind = f"unix:{tmp_path / 'rls'}"
    server = EnvoyServer(service, bind)
    server.start()
    try:
        with grpc.insecure_channel(bind) as channel:
            assert caller(channel)(request(), timeout=SECONDS).overall_code == OK
    finally:
        server.stop(0)


def test_a_port_that_is_taken_is_told(service: RateLimitService) -> None:
    with running(service) as server, pytest.raises(ConfigurationError, match="cannot listen"):
        EnvoyServer(service, f"127.0.0.1:{server.port}")


@needs_openssl
def test_certificates_of_clients_let_them_in(service: RateLimitService, tmp_path: Path) -> None:
    made = certificate(tmp_path)
    key, shown = made.key.read_bytes(), made.path.read_bytes()
    with running(service, tls=TlsFiles(made.path, made.key, client_ca=made.path)) as server:
        at = f"127.0.0.1:{server.port}"
        with grpc.secure_channel(at, grpc.ssl_channel_credentials(shown, key, shown)) as channel:
            assert caller(channel)(request(), timeout=SECONDS).overall_code == OK
        with (
            grpc.secure_channel(at, grpc.ssl_channel_credentials(shown)) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            caller(channel)(request(), timeout=SECONDS)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_that_is_not_there_is_told(service: RateLimitService, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="cannot be read"):
        EnvoyServer(service, "127.0.0.1:0", tls=TlsFiles(tmp_path / "none", tmp_path / "none"))


def test_a_request_that_envoy_gave_up_takes_nothing(service: RateLimitService, store: FailingStore) -> None:
    """The first request has the only thread; the second one's client does not wait for it."""
    store.delay(0.5, "draw", times=1)
    with running(service, threads=1) as server, asking(server) as ask:
        first = ask.future(request("slow"), timeout=SECONDS)  # type: ignore[attr-defined]
        wait_until(lambda: "draw" in store.calls)
        with pytest.raises(grpc.RpcError) as caught:
            ask(request("gone"), timeout=0.1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert first.result().overall_code == OK
        assert [ask(request("gone"), timeout=SECONDS).overall_code for _ in range(3)] == [OK, OK, OVER_LIMIT]


def test_the_end_waits_for_requests_in_work(service: RateLimitService, store: FailingStore) -> None:
    store.delay(0.3, "draw", times=1)
    with running(service) as server, asking(server) as ask:
        slow = ask.future(request("slow"), timeout=SECONDS)  # type: ignore[attr-defined]
        wait_until(lambda: "draw" in store.calls)
        ending = threading.Thread(target=server.stop)
        ending.start()
        assert slow.result().overall_code == OK
        ending.join(SECONDS)
        with pytest.raises(grpc.RpcError):
            ask(request(), timeout=SECONDS)


def wait_until(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < give_up_at:
        time.sleep(0.005)
    assert condition()


def test_the_standard_health_check_is_answered_without_a_token(service: RateLimitService) -> None:
    def asked_for(name: bytes) -> bytes:
        return b"\x0a" + bytes([len(name)]) + name

    with (
        running(service, authorize=lambda token, domain: None) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for question in (b"", asked_for(SERVICE.encode())):
            assert check(question, timeout=SECONDS) == b"\x08\x01"  # SERVING
        with pytest.raises(grpc.RpcError) as caught:
            check(asked_for(b"another"), timeout=SECONDS)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
