"""What the page asks besides the routes of the service: who it is, levels, previews, charts, its own files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import httpx
import pytest
from dashboard_world import Company, served

from zae_limiter import Limit
from zae_limiter.dashboard.pages import POLICY, static_files
from zae_limiter.dashboard.routes import DashboardRoutes
from zae_limiter.dashboard.session import Session
from zae_limiter.service.backend import Backend
from zae_limiter.stores.memory.store import MemoryStore

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:uvicorn"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:websockets"),
]


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="module")
def keys(store: MemoryStore) -> Company:
    keys = Company(store)
    keys.set_up()
    keys.live()
    return keys


@pytest.fixture(scope="module")
def client(store: MemoryStore, keys: Company) -> Iterator[httpx.Client]:
    with served(store) as address, httpx.Client(base_url=address) as client:
        yield client


def test_the_page_comes_under_a_strict_policy(client: httpx.Client) -> None:
    for name in static_files():
        reply = client.get("/" if name == "index.html" else f"/{name}")
        assert reply.status_code == 200, name
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        again = client.get(reply.url.path, headers={"if-none-match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/vendor/LICENSE-htm.txt").status_code == 404


def test_what_is_vendored_is_what_was_taken_from_its_makers() -> None:
    folder = files("zae_limiter.dashboard") / "static" / "vendor"
    origins = json.loads((folder / "origins.json").read_text())
    assert {entry["file"] for entry in origins} == {
        name.removeprefix("vendor/") for name in static_files() if name.startswith("vendor/")
    }
    for entry in origins:
        content = (folder / entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry["file"]
        for licence in entry["licences"]:
            assert (folder / licence).read_text()


def test_nothing_comes_from_elsewhere() -> None:
    for name, content in static_files().items():
        if not name.startswith("vendor/"):
            text = content.decode().replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text, name
            assert "https://" not in text, name


def test_it_says_who_asks(client: httpx.Client) -> None:
    me = client.get("/v1/me").json()
    assert (me["name"], me["roles"], me["namespace"]) == ("loopback", ["read", "take", "write"], "default")


def test_levels_of_some_entities(client: httpx.Client) -> None:
    levels = client.post("/v1/levels", json={"entities": ["batch-nightly", "unknown"]}).json()["levels"]
    assert levels["unknown"] == []
    ((found),) = [level for level in levels["batch-nightly"] if level["name"] == "tpm"]
    assert (found["resource"], found["burst"], found["used_permille"] > 1000) == ("embeddings", 1_000_000, True)
    assert client.post("/v1/levels", json={"entities": ["x"] * 51}).status_code == 422


def test_limits_of_all_levels(client: httpx.Client) -> None:
    found = client.get("/v1/limits/all").json()
    levels = {(level["entity"], level["resource"]): level["limits"] for level in found["levels"]}
    assert levels[None, None] == ["rpm:120/min", "tpm:60000/min"]
    assert levels[None, "claude-sonnet"] == ["rpm:300/min", "tpm:80000/min"]
    assert levels["acme", None] == ["tpm:1200000/min", "usd:500/month@UTC"]
    assert levels["batch-nightly", "embeddings"] == ["tpm:1000000/min"]


def preview(client: httpx.Client, **body: Any) -> dict[str, Any]:
    reply = client.post("/v1/limits/preview", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_a_preview_tells_the_difference_and_what_binds_next(client: httpx.Client, keys: Company) -> None:
    keys.live()
    seen_by = {"entity": "ci-runner-7", "resource": "gpt-4o"}
    found = preview(
        client,
        entity="ci-runner-7",
        resource="gpt-4o",
        limits=["tpm:900k/min", "calls:5/inflight"],
        seen_by=seen_by,
        requested={"tpm": 6_200},
    )
    assert [(line["mark"], line["name"]) for line in found["lines"]] == [
        ("removed", "rpm"),
        ("changed", "tpm"),
        ("added", "calls"),
    ]
    assert found["lines"][1]["from"] == "tpm:40000/min"
    assert not found["now"]["fits"]
    assert found["now"]["binding"]["entity"] == "ci-runner-7"
    assert found["then"]["wait_seconds"] < found["now"]["wait_seconds"]
    assert keys.limiter.get_limits("ci-runner-7", resource="gpt-4o")[0] == Limit.per_minute("rpm", 60)


def test_a_preview_says_if_a_narrower_level_holds(client: httpx.Client) -> None:
    found = preview(
        client, resource="gpt-4o", limits=["tpm:1/min"], seen_by={"entity": "ci-runner-7", "resource": "gpt-4o"}
    )
    assert "narrower level" in found["effect"]
    assert found["then"] is None
    assert [line["mark"] for line in preview(client, limits=["rpm:120", "tpm:60k"])["lines"]] == ["same", "same"]


@pytest.mark.parametrize("word", ["tpm", "tpm:-1", "tpm:5/fortnight"])
def test_a_preview_of_no_limit_is_refused(client: httpx.Client, word: str) -> None:
    reply = client.post("/v1/limits/preview", json={"limits": [word]})
    assert (reply.status_code, "limits[0]" in reply.json()["detail"]) == (422, True)


def test_usage_by_the_hour(client: httpx.Client) -> None:
    chart = client.get("/v1/usage/chart", params={"entity": "batch-nightly", "hours": 48}).json()
    assert (len(chart["hours"]), len(chart["refused"])) == (48, 48)
    assert [series["name"] for series in chart["series"]] == ["embeddings"]
    assert sum(chart["series"][0]["values"]["tpm"]) >= 990_000
    by_key = client.get("/v1/usage/chart", params={"resource": "gpt-4o"}).json()
    assert {"ci-runner-7", "search-api"} <= {series["name"] for series in by_key["series"]}
    assert sum(by_key["refused"]) > 0
    assert client.get("/v1/usage/chart").status_code == 422
    assert client.get("/v1/usage/chart", params={"entity": "a", "hours": 0}).status_code == 422


def test_a_code_is_exchanged_once_and_roles_hold(store: MemoryStore) -> None:
    session = Session("no name of an entity\n", read_only=True)
    with served(store, session, (session.operation,)) as address, httpx.Client(base_url=address) as client:
        assert client.get("/v1/attention").status_code == 401
        assert client.post("/v1/session", json={"once": "wrong"}).status_code == 401
        token = client.post("/v1/session", json={"once": session.code}).json()["token"]
        assert session.code is None
        assert client.post("/v1/session", json={"once": "None"}).status_code == 401
        headers = {"authorization": f"Bearer {token}"}
        me = client.get("/v1/me", headers=headers).json()
        assert (me["name"], me["roles"]) == ("dashboard", ["read"])
        assert client.get("/v1/attention", headers=headers).status_code == 200
        refused = client.put("/v1/limits", headers=headers, json={"limits": ["rpm:1"]})
        assert refused.status_code == 403


def test_routes_of_the_page_are_private_and_in_no_document(client: httpx.Client) -> None:
    """They change with the page. What other programs may use is in the document of the service."""
    shown = client.get("/openapi.json").json()["paths"]
    private = {operation.path for operation in DashboardRoutes(Backend(MemoryStore())).operations}
    assert private
    assert private.isdisjoint(shown)
    assert "/v1/take" in shown
