"""Who may do what: tokens and their roles, namespaces, entities; where requests come from; what bodies may be."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.service_world import ServiceWorld, service_world, token_entry
from zae_limiter.service import endpoint, tokens
from zae_limiter.service.guard import is_loopback_address
from zae_limiter.service.operations import Operation
from zae_limiter.service.routes import OPERATIONS
from zae_limiter.service.tokens import Role

ASKED = {"entity": "key", "resource": "gpt", "consume": {"rpm": 1}}
TEXTS = {role: f"zael_the-token-of-{role}" for role in ("take", "read", "write")}
ENTRIES = [
    *(token_entry(f"a-{role}", text, role) for role, text in TEXTS.items()),
    token_entry("everything", "all-roles", "take", "read", "write"),
    token_entry("tenant", "of-tenant", "take", "read", "write", entity_prefix="acme/"),
    token_entry("elsewhere", "of-blue", "take", "read", "write", namespace="blue"),
]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"tokens": ENTRIES}))
    return path


@pytest.fixture
def guarded(token_file: Path) -> Iterator[ServiceWorld]:
    with service_world(token_file) as world:
        world.run(world.limiter.repository.register_namespace("blue"))
        yield world


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def url_of(operation: Operation) -> str:
    return operation.path.replace("{lease}", "zl1.nope").replace("{entity:path}", "nope")


GUARDED = [operation for operation in OPERATIONS if operation.roles]


@pytest.mark.parametrize("operation", GUARDED, ids=lambda operation: operation.id)
def test_every_operation_needs_a_token_with_one_of_its_roles(guarded: ServiceWorld, operation: Operation) -> None:
    """What is refused is refused before the body is looked at, so that a body that is none shows who was let in."""

    def status(headers: dict[str, str]) -> int:
        body = None if operation.body is None else []
        return guarded.request(operation.method, url_of(operation), body, headers=headers).status_code

    assert status({}) == 401
    assert status(bearer("nonsense")) == 401
    assert status({"authorization": "Basic abc"}) == 401
    if operation.id == "events":
        return  # a stream would not end; its tests are with the reports
    for role in Role:
        found = status(bearer(TEXTS[role]))
        assert (found == 403) == (role not in operation.roles), (role, found)


def test_what_is_for_all_needs_no_token(guarded: ServiceWorld) -> None:
    assert {operation.id for operation in OPERATIONS if not operation.roles} == {"live", "ready", "openapi"}
    for path in ("/livez", "/readyz", "/openapi.json"):
        assert guarded.get(path).status_code == 200


def test_a_refusal_says_what_is_needed(guarded: ServiceWorld) -> None:
    missing = guarded.post("/v1/take", ASKED)
    assert missing.headers["www-authenticate"] == 'Bearer realm="zae-limiter"'
    wrong = guarded.post("/v1/take", ASKED, headers=bearer(TEXTS["read"]))
    assert (wrong.status_code, "role take" in wrong.json()["detail"]) == (403, True)


def test_the_name_of_a_token_is_the_principal(guarded: ServiceWorld) -> None:
    assert guarded.post("/v1/entities", {"id": "x"}, headers=bearer("all-roles")).status_code == 201
    events = guarded.get("/v1/audit?entity=x", headers=bearer("all-roles")).json()["events"]
    assert [event["principal"] for event in events] == ["everything"]


def test_a_token_for_some_entities_reaches_no_others(guarded: ServiceWorld) -> None:
    mine, theirs = bearer("of-tenant"), bearer("all-roles")
    own = {**ASKED, "entity": "acme/key"}
    assert guarded.post("/v1/take", own, headers=mine).status_code == 200
    lease = guarded.post("/v1/leases", ASKED, headers=theirs).json()["lease"]
    refused = [
        guarded.post("/v1/take", ASKED, headers=mine),
        guarded.post("/v1/leases", ASKED, headers=mine),
        guarded.post("/v1/check", ASKED, headers=mine),
        guarded.get(f"/v1/leases/{lease}", headers=mine),
        guarded.post(f"/v1/leases/{lease}/settle", {"actual": {"rpm": 0}}, headers=mine),
        guarded.post(f"/v1/leases/{lease}/adjust", {"deltas": {"rpm": -1}}, headers=mine),
        guarded.request("DELETE", f"/v1/leases/{lease}", headers=mine),
        guarded.post("/v1/entities", {"id": "key"}, headers=mine),
        guarded.post("/v1/entities", {"id": "acme/x", "parent": "key"}, headers=mine),
        guarded.request("PATCH", "/v1/entities/acme/key", {"parent": "key"}, headers=mine),
        guarded.request("PUT", "/v1/limits", {"limits": ["rpm:1"]}, headers=mine),
        guarded.request("PUT", "/v1/limits?resource=gpt", {"limits": ["rpm:1"]}, headers=mine),
        guarded.request("PUT", "/v1/limits?entity=key", {"limits": ["rpm:1"]}, headers=mine),
        guarded.request("PUT", "/v1/access", {"mode": "block"}, headers=mine),
        guarded.post(
            "/v1/grant", {"entity": "key", "resource": "gpt", "amounts": {"rpm": 1}, "key": "k"}, headers=mine
        ),
        guarded.post("/v1/plan", {"manifest": "manifest: a\n"}, headers=mine),
        *(
            guarded.get(path, headers=mine)
            for path in (
                "/v1/entities",
                "/v1/limits",
                "/v1/leases",
                "/v1/audit",
                "/v1/status",
                "/v1/status?entity=key",
                "/v1/usage?resource=gpt",
                "/v1/usage/top",
                "/v1/tightest",
                "/v1/attention",
                "/v1/events?entity=key",
                "/metrics",
            )
        ),
    ]
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    batch = {"calls": [{"call": "take", "body": ASKED}, {"call": "take", "body": own}]}
    results = guarded.post("/v1/batch", batch, headers=mine).json()["results"]
    assert [result["status"] for result in results] == [403, 200]
    assert guarded.available() == {"rpm": 9, "tpm": 1000}


def test_a_token_for_some_entities_is_not_told_of_ancestors(guarded: ServiceWorld) -> None:
    for body in ({"id": "org"}, {"id": "acme/key", "parent": "org", "cascade": True}):
        guarded.post("/v1/entities", body, headers=bearer("all-roles"))
    own = {**ASKED, "entity": "acme/key"}
    names = {limit["entity"] for limit in guarded.post("/v1/take", own, headers=bearer("of-tenant")).json()["limits"]}
    assert names == {"acme/key"}
    names = {limit["entity"] for limit in guarded.post("/v1/take", own, headers=bearer("all-roles")).json()["limits"]}
    assert names == {"acme/key", "org"}


def test_nor_of_the_switches_of_ancestors(guarded: ServiceWorld) -> None:
    for body in ({"id": "org"}, {"id": "acme/key", "parent": "org", "cascade": True}):
        guarded.post("/v1/entities", body, headers=bearer("all-roles"))
    for entity in ("org", "acme/key"):
        guarded.request("PUT", "/v1/access", {"mode": "observe", "entity": entity}, headers=bearer("all-roles"))
    for path in ("/v1/access?entity=acme/key", "/v1/status?entity=acme/key"):
        seen = {text: guarded.get(path, headers=bearer(text)).json()["access"] for text in ("of-tenant", "all-roles")}
        assert {switch["entity_id"] for switch in seen["of-tenant"]} == {"acme/key"}
        assert {switch["entity_id"] for switch in seen["all-roles"]} == {"acme/key", "org"}


def test_a_token_of_a_namespace_stays_there(guarded: ServiceWorld) -> None:
    blue = bearer("of-blue")
    assert guarded.request("PUT", "/v1/limits", {"limits": ["rpm:3/day"]}, headers=blue).status_code == 200
    assert guarded.get("/v1/limits", headers=bearer("all-roles")).json()["limits"][0]["word"] == "rpm:10/day"
    named = {**bearer("all-roles"), "zael-namespace": "blue"}
    assert guarded.get("/v1/limits", headers=named).json()["limits"][0]["word"] == "rpm:3/day"
    assert guarded.get("/v1/limits", headers={**blue, "zael-namespace": "blue"}).status_code == 200
    assert guarded.get("/v1/limits", headers={**blue, "zael-namespace": "default"}).status_code == 403
    missing = {**bearer("all-roles"), "zael-namespace": "green"}
    assert guarded.get("/v1/limits", headers=missing).status_code == 404
    assert guarded.get("/v1/limits", headers={**missing, "zael-namespace": "no#name"}).status_code == 422


def test_keys_of_different_clients_never_meet(guarded: ServiceWorld) -> None:
    key = {"idempotency-key": "n-1"}
    first = guarded.post("/v1/leases", ASKED, headers={**bearer("all-roles"), **key})
    second = guarded.post("/v1/leases", ASKED, headers={**bearer(TEXTS["take"]), **key})
    assert first.json()["lease"] != second.json()["lease"]
    assert guarded.available() == {"rpm": 8, "tpm": 1000}


def test_a_token_is_revoked_and_made_without_a_restart(
    guarded: ServiceWorld, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "SECONDS_BETWEEN_LOOKS", 0.0)
    assert guarded.post("/v1/take", ASKED, headers=bearer(TEXTS["take"])).status_code == 200
    left = [entry for entry in ENTRIES if entry["name"] != "a-take"]
    token_file.write_text(json.dumps({"tokens": [*left, token_entry("new", "newer", "take")]}))

    def status(text: str) -> int:
        return guarded.post("/v1/check", ASKED, headers=bearer(text)).status_code

    until = time.monotonic() + 10
    while status(TEXTS["take"]) != 401:
        assert time.monotonic() < until
    assert status("newer") == 200
    token_file.write_text("nonsense")
    time.sleep(0.01)
    assert status("newer") == 200  # what was in the file before still holds


# Where requests come from


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "10.0.0.1:8080"]
)
def test_without_tokens_only_loopback_names_are_answered(world: ServiceWorld, host: str) -> None:
    assert world.post("/v1/take", ASKED, headers={"host": host}).status_code == 403
    assert world.available() == {"rpm": 10, "tpm": 1000}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"])
def test_loopback_names_are_answered(world: ServiceWorld, host: str) -> None:
    assert world.post("/v1/take", ASKED, headers={"host": host}).status_code == 200


def test_with_tokens_any_name_is_answered(guarded: ServiceWorld) -> None:
    headers = {**bearer("all-roles"), "host": "limits.internal"}
    assert guarded.post("/v1/take", ASKED, headers=headers).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_what_another_site_makes_a_browser_send_is_refused(
    world: ServiceWorld, guarded: ServiceWorld, site: str
) -> None:
    for service in (world, guarded):
        headers = {**bearer("all-roles"), "sec-fetch-site": site}
        assert service.post("/v1/take", ASKED, headers=headers).status_code == 403
        assert service.post("/v1/take", ASKED, headers={**headers, "sec-fetch-site": "same-origin"}).status_code == 200


def test_no_answer_lets_another_site_read_it(world: ServiceWorld) -> None:
    answer = world.post("/v1/take", ASKED, headers={"origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("limits.internal", False),
    ],
)
def test_addresses_of_this_machine_are_known(host: str, expected: bool) -> None:
    assert is_loopback_address(host) is expected


# Bodies


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_says_that_it_is_json(world: ServiceWorld, kind: str) -> None:
    headers = {"content-type": kind}
    assert world.post("/v1/take", ASKED, headers=headers).status_code == 400
    assert (
        world.post("/v1/take", ASKED, headers={"content-type": "Application/JSON; charset=utf-8"}).status_code == 200
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"nonsense", b"\xff", b"NaN", b'{"a": Infinity}', b"[" * 60_000, b'{"a": ' + b"1" * 5_000 + b"}"],
    ids=["nothing", "half", "word", "no text", "NaN", "infinite", "deep", "long number"],
)
def test_a_body_that_is_no_json_is_malformed(world: ServiceWorld, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    assert world.request("POST", "/v1/take", headers=headers, content=content).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        [],
        None,
        "text",
        {},
        {**ASKED, "entity": 1},
        {**ASKED, "entity": ""},
        {**ASKED, "entity": "no#sign"},
        {**ASKED, "entity": "\ud800"},
        {**ASKED, "resource": "x" * 129},
        {**ASKED, "consume": {"rpm": 1.5}},
        {**ASKED, "consume": {"rpm": True}},
        {**ASKED, "consume": {"rpm": -1}},
        {**ASKED, "consume": {"rpm": 10**16}},
        {**ASKED, "consume": {"nope": 1}},
        {**ASKED, "timeout": 61},
        {**ASKED, "timeout": -1},
        {**ASKED, "timeout": "1"},
        {**ASKED, "nonsense": 1},
    ],
    ids=str,
)
def test_a_body_that_is_not_valid_takes_nothing(world: ServiceWorld, body: Any) -> None:
    content = json.dumps(body)
    answer = world.request("POST", "/v1/take", headers={"content-type": "application/json"}, content=content)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["detail"]
    assert world.available() == {"rpm": 10, "tpm": 1000}


def test_a_body_is_bounded(world: ServiceWorld) -> None:
    large = json.dumps({**ASKED, "entity": "x" * endpoint.MOST_BODY_BYTES}).encode()
    headers = {"content-type": "application/json"}
    assert world.request("POST", "/v1/take", headers=headers, content=large).status_code == 413

    async def pieces() -> Any:
        for _ in range(100):
            yield b" " * 1024

    assert world.request("POST", "/v1/take", headers=headers, content=pieces()).status_code == 413


def test_a_client_that_does_not_send_its_body_is_not_waited_for(
    world: ServiceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "BODY_SECONDS", 0.05)

    async def nothing() -> Any:
        yield b"{"
        await asyncio.sleep(60)

    headers = {"content-type": "application/json"}
    answer = world.request("POST", "/v1/take", headers=headers, content=nothing())
    assert answer.status_code == 408


def test_a_wrong_method_or_path_is_a_problem(world: ServiceWorld) -> None:
    wrong = world.get("/v1/take")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.headers["content-type"] == "application/problem+json"
    missing = world.get("/v1/nope")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert world.request("HEAD", "/livez").content == b""


def test_a_failure_that_was_not_foreseen_is_a_500_without_its_reason(
    world: ServiceWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.store.fail("draw", error=RuntimeError("a secret of the store"))
    answer = world.post("/v1/take", ASKED)
    assert (answer.status_code, "secret" in answer.text) == (500, False)
    assert "a secret of the store" in caplog.text
