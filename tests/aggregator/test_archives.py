"""A folder and a bucket keep the same, and say why not; requests to S3 are signed as botocore signs them."""

from __future__ import annotations

import datetime
import gzip
import http.client
import json
import os
import string
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.servers import HOST, Engine
from zae_limiter.exceptions import ValidationError, ZAELimiterError
from zae_limiter.models.reports import AuditEvent
from zae_limiter.stores.dynamodb.transport.protocol import Credentials
from zae_limiter.stores.dynamodb.transport.signing import BadCredentials, SignableRequest, signed_headers
from zae_limiter_aggregator import archives, s3_archive
from zae_limiter_aggregator.archived_events import EventFilter, read_events
from zae_limiter_aggregator.archives import MOST_BYTES, Archive, ArchiveUnavailable, FolderArchive, open_archive
from zae_limiter_aggregator.s3_archive import S3Archive, escaped_query

BUCKETS = count()
DAY = "audit/year=2026/month=01/day=31/"


def bucket_on(engine: Engine) -> str:
    """A new bucket, as an archive is named."""
    name = f"archive-{os.getpid()}-{next(BUCKETS)}"
    connection = http.client.HTTPConnection(HOST, engine.port, timeout=20)
    signed = "AWS4-HMAC-SHA256 Credential=local/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00"
    connection.request("PUT", f"/{name}", headers={"Authorization": signed})
    assert connection.getresponse().status == 200
    connection.close()
    return f"s3://{name}?region={engine.region}&endpoint_url={engine.endpoint_url}"


@pytest.fixture(params=["folder", "bucket", "a part of a bucket"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    if request.param == "folder":
        return open_archive(str(tmp_path / "not there yet"))
    url = bucket_on(request.getfixturevalue("ministack"))
    return open_archive(url if request.param == "bucket" else url.replace("?", "/a part/of it?"))


def test_what_is_kept_can_be_listed_and_read(archive: Archive) -> None:
    assert archive.inside("audit/") == []
    for day in ("01", "31"):
        archive.keep(f"audit/year=2026/month=01/day={day}/7-x.jsonl.gz", day.encode())
    archive.keep(f"{DAY}10-y.jsonl.gz", b"\x00\xff" * 100_000)
    assert archive.inside("audit/") == ["audit/year=2026/"]
    assert archive.inside("audit/year=2026/month=01/") == [
        f"audit/year=2026/month=01/day={day}/" for day in ("01", "31")
    ]
    assert archive.inside(DAY) == [f"{DAY}10-y.jsonl.gz", f"{DAY}7-x.jsonl.gz"]
    assert archive.read(f"{DAY}7-x.jsonl.gz") == b"31"
    assert archive.read(f"{DAY}10-y.jsonl.gz") == b"\x00\xff" * 100_000


def test_keeping_the_same_again_changes_nothing(archive: Archive) -> None:
    for _ in range(3):
        archive.keep(f"{DAY}7.jsonl.gz", b"same")
    assert archive.inside(DAY) == [f"{DAY}7.jsonl.gz"]
    assert archive.read(f"{DAY}7.jsonl.gz") == b"same"


def test_what_is_not_there_cannot_be_read(archive: Archive) -> None:
    with pytest.raises(ArchiveUnavailable, match=r"No such file|NoSuchKey"):
        archive.read(f"{DAY}nothing")


def test_a_long_list_comes_in_pages(ministack: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_archive, "NAMES_AT_ONCE", 10)
    archive = open_archive(bucket_on(ministack))
    names = [f"{DAY}{number:04}" for number in range(55)]
    for name in names:
        archive.keep(name, b"x")
    pages, ask = [], archive._ask  # type: ignore[attr-defined]

    def counted(*words: Any, **named: Any) -> bytes:
        pages.append(words)
        return ask(*words, **named)  # type: ignore[no-any-return]

    monkeypatch.setattr(archive, "_ask", counted)
    assert archive.inside(DAY) == names
    assert len(pages) == 6


def test_a_bucket_that_is_not_there_says_so(ministack: Engine) -> None:
    archive = open_archive(f"s3://nobody-has-this?endpoint_url={ministack.endpoint_url}")
    with pytest.raises(ArchiveUnavailable, match="s3://nobody-has-this refused: NoSuchBucket"):
        archive.keep("audit/x", b"x")


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file")
    with pytest.raises(ArchiveUnavailable, match="audit"):
        FolderArchive(tmp_path).keep("audit/x", b"x")


@pytest.mark.parametrize(
    "url",
    ["", "s3://", "s3://UPPER", "s3://ab", "s3://bucket?colour=red", "s3://bucket?region", "http://host/x", "s3://[x"],
)
def test_what_names_no_archive_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="must be a folder, or s3://BUCKET"):
        open_archive(url)


def test_a_folder_may_be_named_as_a_file(tmp_path: Path) -> None:
    open_archive((tmp_path / "a b").as_uri()).keep("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"


# Where S3 is


def place_of(monkeypatch: pytest.MonkeyPatch, archive: S3Archive, **environment: str) -> tuple[str, str]:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    given = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "HOME": "/nonexistent", **environment}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return archive._where.place.url, archive._where.path


def test_a_bucket_has_a_host_of_its_own_unless_its_name_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"AWS_REGION": "eu-west-1"}
    assert place_of(monkeypatch, S3Archive("mine"), **named) == ("https://mine.s3.eu-west-1.amazonaws.com/", "")
    assert place_of(monkeypatch, S3Archive("my.own"), **named) == ("https://s3.eu-west-1.amazonaws.com/", "/my.own")
    elsewhere = {**named, "AWS_ENDPOINT_URL_S3": "https://minio.example:9000/base/"}
    assert place_of(monkeypatch, S3Archive("mine"), **elsewhere) == ("https://minio.example:9000/base/", "/base/mine")


def test_an_endpoint_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="endpoint_url"):
        place_of(monkeypatch, S3Archive("mine"), AWS_REGION="eu-west-1", AWS_ENDPOINT_URL_S3="ftp://x")


# Bad days


class Server(HTTPServer):
    """Answers with what it is told to, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), Answering)
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[tuple[str, str, Any, bytes]] = []


class Answering(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, self.headers, body))
        status, headers, said = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_PUT = answer  # noqa: N815

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(s3_archive, "PAUSE_S", 0.0)
    with Server() as running:
        thread = Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def archive_at(server: Server) -> Archive:
    return open_archive(f"s3://bucket?region=us-east-1&endpoint_url=http://{HOST}:{server.server_port}")


BUSY = (503, {}, b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>")
DONE = (200, {}, b"")


def test_a_bad_moment_is_waited_for_but_not_for_ever(server: Server) -> None:
    server.answers = [BUSY, (500, {}, b"not XML"), DONE]
    archive_at(server).keep("audit/x", b"x")
    assert len(server.asked) == 3
    server.answers = [BUSY] * 3
    with pytest.raises(ArchiveUnavailable, match="refused: SlowDown: Reduce your rate"):
        archive_at(server).keep("audit/x", b"x")


def test_what_is_refused_is_not_repeated_and_secrets_are_not_told(server: Server) -> None:
    said = b"<Error><Code>AccessDenied</Code><Message>no</Message><AWSAccessKeyId>AKID</AWSAccessKeyId></Error>"
    server.answers = [(403, {}, said)]
    with pytest.raises(ArchiveUnavailable) as caught:
        archive_at(server).keep("audit/x", b"x")
    assert str(caught.value) == "the archive s3://bucket refused: AccessDenied: no"
    assert server.answers == []


def test_what_was_signed_for_one_place_does_not_go_to_another(server: Server) -> None:
    server.answers = [(307, {"Location": f"http://{HOST}:{server.server_port}/elsewhere"}, b"")]
    with pytest.raises(ArchiveUnavailable, match="status 307"):
        archive_at(server).read("audit/x")
    assert len(server.asked) == 1


def test_a_server_that_is_not_there_is_an_archive_that_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_archive, "TRIES", 1)
    with pytest.raises(ArchiveUnavailable, match="did not answer"):
        open_archive(f"s3://bucket?endpoint_url=http://{HOST}:1").read("x")


def test_what_is_sent_is_what_botocore_would_send(server: Server) -> None:
    server.answers = [DONE]
    archive_at(server).keep(f"{DAY}7 ü.jsonl.gz", b"body")
    ((method, path, headers, body),) = server.asked
    assert (method, body) == ("PUT", b"body")
    assert path == f"/bucket/{quote(DAY)}7%20%C3%BC.jsonl.gz"
    moment = datetime.datetime.strptime(headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    url = f"http://{HOST}:{server.server_port}{path}"
    wanted = signed_by_botocore("PUT", url, body, "us-east-1", Credentials("local", "local"), int(moment.timestamp()))
    assert headers["Authorization"] == wanted["Authorization"]


# Signatures

WORD = st.text(string.ascii_letters + string.digits + "-._~=+ /ü", min_size=1, max_size=20)
CREDENTIALS = st.builds(
    Credentials,
    st.text(string.ascii_letters, min_size=1, max_size=20),
    st.text(string.ascii_letters + "/+=", min_size=1, max_size=40),
    st.one_of(st.none(), st.text(string.ascii_letters + "/+=", min_size=1, max_size=40)),
)


def signed_by_botocore(
    method: str, url: str, body: bytes, region: str, credentials: Credentials, epoch_s: int
) -> dict[str, str]:
    request = AWSRequest(method, url, data=body)
    known: Any = BotocoreCredentials(*credentials)
    request.context["payload_signing_enabled"] = True
    now = auth.get_current_datetime
    auth.get_current_datetime = lambda *_, **__: datetime.datetime.fromtimestamp(epoch_s, datetime.UTC)
    try:
        auth.S3SigV4Auth(known, "s3", region).add_auth(request)
    finally:
        auth.get_current_datetime = now
    return dict(request.headers)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["GET", "PUT"]),
    st.lists(WORD.map(lambda word: word.strip("./ ") or "x"), min_size=1, max_size=4),
    st.dictionaries(WORD, WORD, max_size=3),
    st.binary(max_size=100),
    CREDENTIALS,
    st.integers(0, 4_102_444_800),
)
def test_a_signature_equals_botocores(
    method: str, steps: list[str], query: dict[str, str], body: bytes, credentials: Credentials, epoch_s: int
) -> None:
    path = "/" + "/".join(quote(step) for step in steps)
    escaped = escaped_query(query)
    url = f"https://bucket.s3.eu-west-1.amazonaws.com{path}{'?' if escaped else ''}{escaped}"
    expected = signed_by_botocore(method, url, body, "eu-west-1", credentials, epoch_s)
    asked = SignableRequest(method, urlsplit(url).netloc, path, escaped, body)
    ours = signed_headers(asked, "s3", "eu-west-1", credentials, epoch_s)
    assert ours["Authorization"] == expected["Authorization"]
    assert ours["x-amz-content-sha256"] == expected["X-Amz-Content-SHA256"]


def test_credentials_that_no_header_can_carry_are_refused() -> None:
    with pytest.raises(BadCredentials):
        signed_headers(SignableRequest("GET", "host", "/", "", b""), "s3", "us-east-1", Credentials("A\n", "s"), 0)


# What an archive may hold


def events_of(archive: Archive) -> list[AuditEvent]:
    return list(read_events(archive, EventFilter("n")))


def packed(lines: bytes) -> bytes:
    return gzip.compress(lines, 9)


EVENT: dict[str, Any] = {
    "event_id": "01JZZZZZZZZZZZZZZZZZZZZZZZ",
    "namespace_id": "n",
    "timestamp": "2026-01-31T00:00:00+00:00",
    "action": "limits_set",
    "entity_id": "key",
    "resource": None,
    "principal": None,
    "details": {},
}


def test_an_event_is_read_from_its_line(tmp_path: Path) -> None:
    archive = FolderArchive(tmp_path)
    archive.keep(f"{DAY}1-x.jsonl.gz", packed(json.dumps(EVENT).encode() + b"\n"))
    assert [event.event_id for event in events_of(archive)] == [EVENT["event_id"]]


BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: packed(bytes(2 * MOST_BYTES)),
    "empty lines": lambda: packed(b"\n" * (2 * MOST_BYTES)),
    "many packed one after the other": lambda: packed(bytes(MOST_BYTES // 4)) * 8,
    "events without end": lambda: packed((json.dumps(EVENT).encode() + b"\n") * 500_000),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_object_that_unpacks_to_more_than_any_of_ours_is_refused(tmp_path: Path, bomb: str) -> None:
    archive = FolderArchive(tmp_path)
    archive.keep(f"{DAY}1-x.jsonl.gz", BOMBS[bomb]())
    tracemalloc.start()
    try:
        with pytest.raises(ZAELimiterError, match="cannot be read"):
            events_of(archive)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * MOST_BYTES


def test_an_object_that_is_larger_than_any_of_ours_is_not_read(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1_000)
    monkeypatch.setattr(s3_archive, "MOST_BYTES", 1_000)
    archive.keep("audit/x", bytes(1_000))
    assert archive.read("audit/x") == bytes(1_000)
    archive.keep("audit/x", bytes(1_001))
    with pytest.raises(ArchiveUnavailable, match="more than 1,000 bytes"):
        archive.read("audit/x")


@settings(max_examples=200, deadline=None)
@given(
    change=st.dictionaries(
        st.sampled_from(sorted(EVENT)),
        st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=10), st.lists(st.integers(), max_size=2)),
        max_size=3,
    ),
    raw=st.one_of(st.none(), st.binary(max_size=50), st.just(b"[" * 100_000), st.just(b"9" * 5_000)),
)
def test_whatever_an_object_says_it_is_read_or_refused_by_name(change: dict[str, Any], raw: bytes | None) -> None:
    class OneObject(FolderArchive):
        def __init__(self) -> None:
            pass

        def inside(self, folder: str) -> list[str]:
            parts = ["year=2026/", "month=01/", "day=31/", "1-x.jsonl.gz"]
            return [folder + parts[folder.count("/") - 1]]

        def read(self, name: str) -> bytes:
            return packed(json.dumps({**EVENT, **change}).encode() if raw is None else raw)

    with suppress(ZAELimiterError):
        for event in events_of(OneObject()):
            assert isinstance(event.event_id, str)
            assert isinstance(event.details, dict)
