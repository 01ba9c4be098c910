"""Credentials: from wherever botocore finds them, renewed in time, and kept while they are good."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.scripted_server import Heard, always, http, refusal, reply, serving
from support.transports import EVERY, OWN_WORLDS, get
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.transport import credentials
from zae_limiter.stores.dynamodb.transport.credentials import CredentialCache
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport

pytestmark = pytest.mark.usefixtures("no_credentials_here")

FINE = reply({"Item": {"PK": {"S": "a"}}})
ASKED = get("t", "a")
FIRST, SECOND = Credentials("AKID1", "one"), Credentials("AKID2", "two", "token")


class Cupboard:
    """A source that gives what it is told to."""

    def __init__(self, *given: Credentials | Exception) -> None:
        self.given = list(given)
        self.fetched = 0
        self.aging = self.over = False
        self.open = threading.Event()
        self.open.set()

    def fetch(self) -> Credentials:
        self.open.wait(5)
        self.fetched += 1
        next_one = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        if isinstance(next_one, Exception):
            raise next_one
        self.aging = self.over = False
        return next_one

    fetch_anew = fetch

    def needs_refresh(self) -> bool:
        return self.aging

    def has_expired(self) -> bool:
        return self.over


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that check every time whether credentials expire."""
    monkeypatch.setattr(credentials, "EXPIRY_CHECK_S", 0.0)
    monkeypatch.setattr(credentials, "FORCED_REFRESH_S", 0.0)


@pytest.mark.usefixtures("watchful")
def test_old_credentials_are_renewed_while_calls_go_on_with_them() -> None:
    source = Cupboard(FIRST, SECOND)
    cache = CredentialCache(source)
    assert cache.current() is None
    cache.fetching().result(5)
    assert cache.current() == FIRST
    source.aging = True
    source.open.clear()
    assert [cache.current() for _ in range(5)] == [FIRST] * 5
    source.open.set()
    cache.fetching().result(5)
    assert cache.current() == SECOND
    assert source.fetched == 2


@pytest.mark.usefixtures("watchful")
def test_a_renewal_that_fails_leaves_good_credentials_in_use() -> None:
    source = Cupboard(FIRST, OSError("no metadata"), OSError("no metadata"), SECOND)
    cache = CredentialCache(source)
    cache.fetching().result(5)
    source.aging = True
    for _ in range(2):
        source.open.clear()
        assert cache.current() == FIRST
        failing = cache.fetching()
        source.open.set()
        with pytest.raises(OSError, match="no metadata"):
            failing.result(5)
    source.over = True
    assert cache.current() is None
    assert cache.fetching().result(5) == SECOND


def test_many_calls_that_wait_for_credentials_cause_one_look() -> None:
    source = Cupboard(FIRST)
    source.open.clear()
    cache = CredentialCache(source)
    waiting = {id(cache.fetching()) for _ in range(20)}
    source.open.set()
    assert cache.fetching().result(5) == FIRST
    assert len(waiting) == 1


def test_credentials_are_not_looked_up_anew_all_the_time() -> None:
    source = Cupboard(FIRST)
    cache = CredentialCache(source)
    cache.fetching().result(5)
    first = cache.refreshing()
    assert first is not None
    first.result(5)
    assert cache.refreshing() is first
    assert source.fetched == 2


# Through botocore


def expiring(keys: Credentials, seconds: float) -> dict[str, Any]:
    expiry = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    return {"AccessKeyId": keys[0], "SecretAccessKey": keys[1], "SessionToken": keys[2] or "t", "Expiration": expiry}


def profile(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (folder / "config").write_text(text)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_PROFILE", "work")


def signer(heard: Heard) -> str:
    return heard.headers["authorization"].partition("Credential=")[2].partition("/")[0]


PROCESS = """
import json, pathlib, sys
pages = pathlib.Path(sys.argv[1])
given = json.loads(pages.read_text())
page = given.pop(0)
pages.write_text(json.dumps(given))
print(json.dumps({"Version": 1, **page}) if page else "broken")
"""


@OWN_WORLDS
@pytest.mark.usefixtures("watchful")
def test_a_process_that_gives_credentials_is_asked_again_before_they_expire(
    asking: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = tmp_path / "pages"
    pages.write_text(json.dumps([expiring(FIRST, 720), {}, {}, {}, {}, expiring(SECOND, 3600)]))
    (tmp_path / "process.py").write_text(PROCESS)
    command = f"{sys.executable} {tmp_path / 'process.py'} {pages}"
    profile(tmp_path, monkeypatch, f"[profile work]\nregion = eu-west-1\ncredential_process = {command}\n")
    with serving(always(FINE)) as server, asking(Target(None, server.url)) as ask:
        give_up_at = time.monotonic() + 20
        while not server.heard or signer(server.heard[-1]) != "AKID2":
            assert time.monotonic() < give_up_at
            ask("GetItem", ASKED)
            time.sleep(0.1)
        assert {signer(heard) for heard in server.heard} == {"AKID1", "AKID2"}
        assert "/eu-west-1/dynamodb/" in server.heard[0].headers["authorization"]


@OWN_WORLDS
def test_a_container_gives_credentials(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    container = expiring(SECOND, 3600)
    container["Token"] = container.pop("SessionToken")
    with serving(always(http("200 OK", json.dumps(container).encode()))) as source, serving(always(FINE)) as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{source.url}/role")
        with asking(Target("eu-west-1", server.url)) as ask:
            for _ in range(3):
                ask("GetItem", ASKED)
        assert len(source.heard) == 1
    assert [signer(heard) for heard in server.heard] == ["AKID2"] * 3
    assert server.heard[0].headers["x-amz-security-token"] == "token"


@OWN_WORLDS
def test_an_instance_gives_credentials(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    role = expiring(SECOND, 3600)
    role["Token"] = role.pop("SessionToken")
    look_up = socket.getaddrinfo

    def metadata(heard: Heard, connection: Any) -> bytes:
        if heard.first_line.startswith("PUT"):
            return http("200 OK", b"a-metadata-token")
        known = heard.first_line.split()[1].endswith("/my-role")
        return http("200 OK", json.dumps({"Code": "Success", **role}).encode() if known else b"my-role")

    with serving(metadata) as source, serving(always(FINE)) as server:
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{source.url}/")
        with asking(Target("eu-west-1", server.url.replace("127.0.0.1", "far.example"))) as ask:
            monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **most: look_up("127.0.0.1", *more, **most))
            ask("GetItem", ASKED)
    assert signer(server.heard[0]) == "AKID2"


ASSUMED = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>AKID2</AccessKeyId><SecretAccessKey>two</SecretAccessKey><SessionToken>token</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials><AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn>
<AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>"""


@OWN_WORLDS
def test_a_role_is_assumed(asking: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(always(http("200 OK", ASSUMED.encode()))) as sts, serving(always(FINE)) as server:
        profile(
            tmp_path,
            monkeypatch,
            "[profile home]\naws_access_key_id = AKIDHOME\naws_secret_access_key = home\n"
            "[profile work]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = home\nregion = eu-west-1\n",
        )
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        with asking(Target(None, server.url)) as ask:
            ask("GetItem", ASKED)
        assert signer(sts.heard[0]) == "AKIDHOME"
    assert signer(server.heard[0]) == "AKID2"


@pytest.mark.parametrize("asking", EVERY.values(), ids=EVERY)
def test_a_profile_that_is_not_there_was_never_sent(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with asking(Target("us-east-1", "http://127.0.0.1:1")) as ask, pytest.raises(NoAnswer, match="nobody") as caught:
        ask("GetItem", ASKED)
    assert caught.value.sent is False


@OWN_WORLDS
def test_slow_credentials_cost_one_deadline_and_are_there_for_the_next(
    asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = expiring(SECOND, 3600)
    container["Token"] = container.pop("SessionToken")
    given_up = threading.Event()

    def slowly(heard: Heard, connection: Any) -> bytes:
        assert given_up.wait(60)
        return http("200 OK", json.dumps(container).encode())

    with serving(slowly) as source, serving(always(FINE)) as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{source.url}/role")
        with asking(Target("eu-west-1", server.url)) as ask:
            with pytest.raises(NoAnswer) as caught:
                ask("GetItem", ASKED, 0.2)
            given_up.set()
            assert caught.value.sent is False
            ask("GetItem", ASKED, 10.0)
        assert len(source.heard) == 1


# When DynamoDB says that they have expired


def accepting(key: str) -> Any:
    def script(heard: Heard, connection: Any) -> bytes:
        return FINE if signer(heard) == key else refusal("ExpiredTokenException", "expired")

    return script


@OWN_WORLDS
def test_expired_credentials_are_looked_up_anew_and_the_call_is_made_again(
    asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "one")
    with serving(accepting("AKID1")) as server, asking(Target("eu-west-1", server.url)) as ask:
        ask("GetItem", ASKED)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID2")
        ask("GetItem", ASKED)
        server.script = accepting("AKID2")
        assert ask("UpdateItem", ASKED) == {"Item": {"PK": {"S": "a"}}}
        assert [signer(heard) for heard in server.heard] == ["AKID1", "AKID1", "AKID1", "AKID2"]


@OWN_WORLDS
def test_expired_credentials_without_others_are_refused_once(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "one")
    with serving(accepting("nobody")) as server:
        for target in (Target("eu-west-1", server.url), server.target):
            with asking(target) as ask, pytest.raises(Refused) as caught:
                ask("GetItem", ASKED)
            assert caught.value.code == "ExpiredTokenException"
        assert len(server.heard) == 2


# When DynamoDB says that the clock is off


def judging_the_date(server_time: Any) -> Any:
    """As DynamoDB does: five minutes are too much."""

    def script(heard: Heard, connection: Any) -> bytes:
        now = server_time()
        signed = datetime.strptime(heard.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
        if abs(now - signed) > 300:
            return refusal("InvalidSignatureException", "Signature expired", Date=date)
        return reply({}, Date=date)

    return script


@OWN_WORLDS
@pytest.mark.parametrize("off", [3600, -3600])
def test_a_clock_that_is_off_is_corrected_and_the_call_is_made_again(asking: Any, off: int) -> None:
    with serving(judging_the_date(lambda: time.time() + off)) as server, asking(server.target) as ask:
        for _ in range(3):
            assert ask("GetItem", ASKED) == {}
        assert len(server.heard) == 4


@OWN_WORLDS
def test_a_clock_that_is_right_is_not_corrected(asking: Any) -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    with serving(always(refusal("InvalidSignatureException", Date=date))) as server:
        with asking(server.target) as ask, pytest.raises(Refused):
            ask("GetItem", ASKED)
        assert len(server.heard) == 1


@OWN_WORLDS
def test_a_server_that_is_never_content_is_asked_twice(asking: Any) -> None:
    hours = iter(range(1, 100))

    def never(heard: Heard, connection: Any) -> bytes:
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600 * next(hours)))
        return refusal("InvalidSignatureException", Date=date)

    with serving(never) as server:
        with asking(server.target) as ask, pytest.raises(Refused):
            ask("GetItem", ASKED)
        assert len(server.heard) == 2


def test_the_skew_is_told() -> None:
    with serving(judging_the_date(lambda: time.time() + 100)) as server:
        transport = SocketTransport(server.target)
        assert transport.last_date_skew_s is None
        transport.call("GetItem", ASKED, 5.0)
        assert transport.last_date_skew_s == pytest.approx(100, abs=2)
        transport.close()


def test_a_caller_that_saw_none_and_comes_late_does_not_cause_another_look() -> None:
    cupboard = Cupboard(FIRST)
    cache = CredentialCache(cupboard)
    assert cache.current() is None
    first = cache.fetching().result(20)
    assert cache.fetching().result(20) == first  # it saw none, too, and asks only now
    assert cupboard.fetched == 1
