"""Credentials that expire while many calls are under way: one refresh, joined by every call that was refused."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from support.scripted_server import Heard, Server, refusal, reply, serving
from support.transports import OWN_WORLDS, get
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.transport.asyncio_transport import AsyncioTransport
from zae_limiter.stores.dynamodb.transport.credentials import CredentialCache
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport

pytestmark = pytest.mark.usefixtures("no_credentials_here")

CALLERS = 20
SECONDS = 30.0
ASKED = get("t", "a")
FINE = reply({"Item": {"PK": {"S": "a"}}})
ANSWERED = {"Item": {"PK": {"S": "a"}}}

Crowd: TypeAlias = Callable[[], list[Any]]
"""Calls from as many callers at once. What each of them got: a reply, or an error."""


@contextmanager
def threads(target: Target) -> Iterator[Crowd]:
    transport = SocketTransport(target)

    def one(_: int) -> Any:
        try:
            return dict(transport.call("UpdateItem", ASKED, SECONDS))
        except (Refused, NoAnswer) as error:
            return error

    with ThreadPoolExecutor(CALLERS) as pool:
        yield lambda: list(pool.map(one, range(CALLERS)))
    transport.close()


def looping(call: Callable[[AsyncioTransport], Any]) -> Callable[[Target], AbstractContextManager[Crowd]]:
    @contextmanager
    def tasks(target: Target) -> Iterator[Crowd]:
        transport = AsyncioTransport(target)

        async def all_at_once() -> list[Any]:
            replies = await asyncio.gather(*[call(transport) for _ in range(CALLERS)], return_exceptions=True)
            return [error if isinstance(error, BaseException) else dict(error) for error in replies]

        with asyncio.Runner() as runner:
            yield lambda: runner.run(all_at_once())
            runner.run(transport.close())

    return tasks


def begun(transport: AsyncioTransport) -> Any:
    """A call that is sent before anything waits for it, where a connection is idle."""
    in_flight = transport.begin("UpdateItem", ASKED, SECONDS, lambda failure: None)
    return transport.call("UpdateItem", ASKED, SECONDS) if in_flight is None else in_flight


CROWDS = {
    "threads": threads,
    "tasks": looping(lambda transport: transport.call("UpdateItem", ASKED, SECONDS)),
    "begun at once": looping(begun),
}
EVERY_CROWD = pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)


class Rotating:
    """A server that accepts one key. Calls with another one are refused together, when all callers have come."""

    def __init__(self, code: str = "ExpiredTokenException") -> None:
        self.accepted = "AKID1"
        self._code = code
        self._together = threading.Barrier(CALLERS)

    def __call__(self, heard: Heard, connection: Any) -> bytes:
        accepted = self.accepted
        if signer(heard) == accepted:
            return FINE
        self._together.wait(20)
        return refusal(self._code, "the token has expired")


def signer(heard: Heard) -> str:
    return heard.headers["authorization"].partition("Credential=")[2].partition("/")[0]


def signers(server: Server) -> dict[str, int]:
    """How many calls were signed with each key."""
    keys = [signer(heard) for heard in server.heard]
    return {key: keys.count(key) for key in sorted(set(keys))}


PROCESS = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
give_up_at = time.monotonic() + 30
while (folder / "shut").exists() and time.monotonic() < give_up_at:
    time.sleep(0.05)
with (folder / "runs").open("a") as runs:
    runs.write("x")
key = (folder / "key").read_text()
if not key:
    sys.exit("the vault is sealed")
expiry = (folder / "expiry").read_text()
secrets = {"SecretAccessKey": "s", "SessionToken": "t"}
print(json.dumps({"Version": 1, "AccessKeyId": key, "Expiration": expiry, **secrets}))
"""


class Vault:
    """A process that hands out credentials, and how often it was run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "expiry").write_text((datetime.now(UTC) + timedelta(hours=6)).isoformat())
        (folder / "process.py").write_text(PROCESS)
        command = f"{sys.executable} {folder / 'process.py'} {folder}"
        (folder / "config").write_text(f"[profile work]\nregion = eu-west-1\ncredential_process = {command}\n")
        self.hold("AKID1")

    def hold(self, key: str) -> None:
        (self._folder / "key").write_text(key)

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Clients that run the process have to wait."""
        (self._folder / "shut").touch()
        yield
        (self._folder / "shut").unlink()

    @property
    def runs(self) -> int:
        return len((self._folder / "runs").read_text())


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vault:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    return Vault(tmp_path)


@EVERY_CROWD
@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
def test_every_call_that_was_refused_joins_the_refresh_and_is_sent_again(crowd: Any, code: str, vault: Vault) -> None:
    rotating = Rotating(code)
    with serving(rotating) as server, crowd(Target(None, server.url)) as all_at_once:
        assert all_at_once() == [ANSWERED] * CALLERS
        vault.hold("AKID2")
        rotating.accepted = "AKID2"
        assert all_at_once() == [ANSWERED] * CALLERS
        assert signers(server) == {"AKID1": 2 * CALLERS, "AKID2": CALLERS}
        assert vault.runs == 2


@EVERY_CROWD
def test_a_refresh_that_fails_is_one_for_all_and_its_reason_is_told(crowd: Any, vault: Vault) -> None:
    rotating = Rotating()
    with serving(rotating) as server, crowd(Target(None, server.url)) as all_at_once:
        assert all_at_once() == [ANSWERED] * CALLERS
        vault.hold("")
        rotating.accepted = "AKID2"
        for _ in range(2):
            for error in all_at_once():
                assert isinstance(error, Refused)
                assert error.code == "ExpiredTokenException"
                assert "the token has expired" in str(error)
                assert "the vault is sealed" in str(error)
        assert signers(server) == {"AKID1": 3 * CALLERS}
        assert vault.runs == 2


@EVERY_CROWD
def test_a_refresh_that_brings_the_same_keys_is_one_for_all(crowd: Any, vault: Vault) -> None:
    rotating = Rotating()
    with serving(rotating) as server, crowd(Target(None, server.url)) as all_at_once:
        assert all_at_once() == [ANSWERED] * CALLERS
        rotating.accepted = "AKID2"
        for error in all_at_once():
            assert isinstance(error, Refused)
            assert error.code == "ExpiredTokenException"
        assert signers(server) == {"AKID1": 2 * CALLERS}
        assert vault.runs == 2


@EVERY_CROWD
def test_keys_that_the_environment_has_by_now_are_used_by_all(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    rotating = Rotating()
    with serving(rotating) as server, crowd(Target("eu-west-1", server.url)) as all_at_once:
        for key in ("AKID1", "AKID2"):
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
            rotating.accepted = key
            assert all_at_once() == [ANSWERED] * CALLERS
        assert signers(server) == {"AKID1": 2 * CALLERS, "AKID2": CALLERS}


@OWN_WORLDS
def test_a_call_waits_for_a_refresh_until_its_deadline_and_the_next_has_the_keys(asking: Any, vault: Vault) -> None:
    def script(heard: Heard, connection: Any) -> bytes:
        return FINE if signer(heard) == accepted else refusal("ExpiredTokenException", "the token has expired")

    accepted = "AKID1"
    with serving(script) as server, asking(Target(None, server.url)) as ask:
        assert ask("UpdateItem", ASKED, SECONDS) == ANSWERED
        accepted = "AKID2"
        vault.hold("AKID2")
        with vault.shut(), pytest.raises(Refused, match="not found in time"):
            ask("UpdateItem", ASKED, 0.5)
        assert ask("UpdateItem", ASKED, SECONDS) == ANSWERED
        assert vault.runs == 2


# The keeper by itself


FIRST, SECOND, THIRD = (Credentials(f"AKID{number}", "s") for number in (1, 2, 3))


class Slow:
    """A source whose refreshes wait until they are let go; what it gives is told by the test."""

    def __init__(self) -> None:
        self.regular, self.anew = FIRST, SECOND
        self.let_regular, self.let_anew = threading.Event(), threading.Event()
        self.began = threading.Event()

    def fetch(self) -> Credentials:
        given = self.regular
        self.began.set()
        assert self.let_regular.wait(20)
        return given

    def fetch_anew(self) -> Credentials:
        assert self.let_anew.wait(20)
        return self.anew

    def needs_refresh(self) -> bool:
        return False

    has_expired = needs_refresh


def test_a_call_that_comes_while_a_refresh_is_under_way_joins_it() -> None:
    source = Slow()
    source.let_regular.set()
    cache = CredentialCache(source)
    cache.fetching().result(20)
    joined = [cache.refreshing() for _ in range(CALLERS)]
    source.let_anew.set()
    assert [future.result(20) for future in joined if future is not None] == [SECOND] * CALLERS
    assert cache.differs_from(FIRST)
    late = cache.refreshing()
    assert late is not None
    assert late.result(20) == SECOND


def test_an_ordinary_refresh_that_began_earlier_does_not_bring_old_keys_back() -> None:
    source = Slow()
    cache = CredentialCache(source)
    ordinary = cache.fetching()
    assert source.began.wait(20)
    anew = cache.refreshing()
    assert anew is not None
    source.let_anew.set()
    assert anew.result(20) == SECOND
    source.let_regular.set()
    assert ordinary.result(20) == FIRST
    assert cache.current() == SECOND
