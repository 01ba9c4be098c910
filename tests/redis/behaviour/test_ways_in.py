"""TLS, sockets, logins: every way to a server carries the same calls, sync and async."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engines.redis_servers import RedisServer, flush
from engines.servers import HOST
from support.certificates import certificate, needs_openssl
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, SyncRateLimiter
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.redis.store import RedisStore
from zae_limiter.stores.redis.urls import Credentials, servers_of

LIMITS = [Limit.per_day("rpd", 100)]


def acquire_both_ways(url: str, credentials: Credentials | None = None) -> None:
    """Two acquires by a thread and two by tasks of one loop."""

    def store() -> RedisStore:
        return RedisStore(servers_of(urlsplit(url), credentials), deadline=5.0)

    with SyncRepository(store()) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults(LIMITS)
        for _ in range(2):
            with limiter.acquire("key", "gpt", {"rpd": 1}):
                pass

    async def in_a_loop() -> dict[str, int]:
        async with Repository(store()) as repository:
            limiter = RateLimiter(repository)

            async def once() -> None:
                async with limiter.acquire("key", "gpt", {"rpd": 1}):
                    pass

            await asyncio.gather(once(), once())
            return await limiter.available("key", "gpt")

    assert asyncio.run(in_a_loop()) == {"rpd": 96}


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for link in (source, target):
        with suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)


@contextmanager
def with_tls(port: int, context: ssl.SSLContext) -> Iterator[int]:
    """A port that speaks TLS for a server: those from PyPI are built without."""
    with socket.create_server((HOST, 0)) as listener:

        def serve(plain: socket.socket) -> None:
            with (
                suppress(OSError, ssl.SSLError),
                context.wrap_socket(plain, server_side=True) as client,
                socket.create_connection((HOST, port)) as server,
            ):
                threading.Thread(target=pump, args=(server, client), daemon=True).start()
                pump(client, server)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@needs_openssl
def test_tls_is_spoken_and_the_certificate_is_checked(redis_6_2: RedisServer, tmp_path: Path) -> None:
    flush([redis_6_2])
    made = certificate(tmp_path)
    with with_tls(redis_6_2.port, made.serving()) as port:
        acquire_both_ways(f"rediss://{HOST}:{port}?ssl_ca_certs={made.path}")
        unknown = SyncRateLimiter(
            SyncRepository(RedisStore(servers_of(urlsplit(f"rediss://{HOST}:{port}")), deadline=1))
        )
        with pytest.raises(RateLimiterUnavailable, match="certificate"):
            unknown.check()


def test_a_socket_in_the_file_system_is_a_way_in(valkey_9_1: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with RedisServer(valkey_9_1.kind, "--unixsocket", str(path)):
        acquire_both_ways(f"redis+unix://{path}")


def test_credentials_are_asked_for_at_every_login(redis_6_2: RedisServer) -> None:
    with RedisServer(redis_6_2.kind) as server:
        server.ask("CONFIG", "SET", "requirepass", "first")
        asked = []

        def credentials() -> tuple[str, str]:
            asked.append(1)
            return "default", "first"

        acquire_both_ways(server.url, credentials)
        assert len(asked) >= 2


def test_databases_are_apart(redis_6_2: RedisServer) -> None:
    flush([redis_6_2])
    acquire_both_ways(f"{redis_6_2.url}/3")
    other = SyncRateLimiter(SyncRepository(RedisStore(servers_of(urlsplit(redis_6_2.url)))))
    assert other.get_system_defaults() == ([], None)
