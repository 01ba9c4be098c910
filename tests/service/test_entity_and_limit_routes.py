"""Entities, limits, switches, balances and manifests over HTTP."""

from __future__ import annotations

import pytest

from support.service_world import ServiceWorld

MANIFEST = "manifest: platform\nresources:\n  gpt: [rpm:5/day]\nentities:\n  acme: {limits: [rpm:50/day]}\n"


def test_an_entity_lives(world: ServiceWorld) -> None:
    made = world.post("/v1/entities", {"id": "org/a b", "name": "Acme", "metadata": {"plan": "gold"}})
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    assert world.post("/v1/entities", {"id": "org/a b"}).status_code == 409
    child = world.post("/v1/entities", {"id": "key", "parent": "org/a b", "cascade": True})
    assert child.json()["parent"] == "org/a b"
    path = "/v1/entities/org%2Fa%20b"
    assert world.get(path).json() == made.json()
    changed = world.request("PATCH", path, {"name": None}, headers={"if-match": '"1"'})
    assert (changed.json()["name"], changed.json()["metadata"], changed.headers["etag"]) == (
        None,
        {"plan": "gold"},
        '"2"',
    )
    for named in ('"1"', "nonsense"):
        assert world.request("PATCH", path, {"name": "x"}, headers={"if-match": named}).status_code == 412
        assert world.request("DELETE", path, headers={"if-match": named}).status_code == 412
    assert world.request("DELETE", path).status_code == 422  # it has a child
    assert [entity["id"] for entity in world.get("/v1/entities?parent=org/a b").json()["entities"]] == ["key"]
    assert world.request("DELETE", "/v1/entities/key", headers={"if-match": '"1"'}).status_code == 204
    assert world.get("/v1/entities/key").status_code == 404
    assert world.request("PATCH", "/v1/entities/key", {}).status_code == 404


def test_lists_come_in_pages(world: ServiceWorld) -> None:
    for number in range(5):
        assert world.post("/v1/entities", {"id": f"key-{number}"}).status_code == 201
    first = world.get("/v1/entities?limit=3").json()
    rest = world.get("/v1/entities", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    ids = [entity["id"] for page in (first, rest) for entity in page["entities"]]
    assert (ids, rest["next_cursor"]) == ([f"key-{number}" for number in range(5)], None)
    assert world.get("/v1/entities?limit=0").status_code == 422
    assert world.get("/v1/entities?limit=many").status_code == 422
    assert world.get("/v1/entities?limit=1&limit=2").status_code == 422
    assert world.get("/v1/entities?nonsense=1").status_code == 422


@pytest.mark.parametrize("where", ["", "?resource=gpt", "?entity=key", "?entity=key&resource=gpt"])
def test_limits_of_every_level_are_set_read_and_removed(world: ServiceWorld, where: str) -> None:
    path = f"/v1/limits{where}"
    before = world.get(path)
    done = world.request("PUT", path, {"limits": ["rpm:7/day", "calls:3/inflight"]})
    assert [limit["word"] for limit in done.json()["limits"]] == ["rpm:7/day", "calls:3/inflight,ttl=10min"]
    assert world.get(path).headers["etag"] == done.headers["etag"] != before.headers["etag"]
    in_full = done.json()["limits"]
    again = world.request("PUT", path, {"limits": in_full}, headers={"if-match": done.headers["etag"]})
    assert (again.status_code, again.headers["etag"]) == (200, done.headers["etag"])
    for method, body in (("PUT", {"limits": ["rpm:1"]}), ("DELETE", None)):
        refused = world.request(method, path, body, headers={"if-match": before.headers["etag"]})
        assert refused.status_code == 412
    assert world.request("DELETE", path, headers={"if-match": done.headers["etag"]}).status_code == 204
    assert world.get(path).json()["limits"] == []


def test_a_limit_by_the_calendar_can_be_sent_back_as_it_came(world: ServiceWorld) -> None:
    done = world.request("PUT", "/v1/limits?entity=key", {"limits": ["usd:500/month@Europe/Berlin,start=15"]})
    (limit,) = done.json()["limits"]
    again = world.request("PUT", "/v1/limits?entity=key", {"limits": [limit]})
    assert (again.status_code, again.headers["etag"]) == (200, done.headers["etag"])


def test_limits_that_hold_say_where_they_come_from(world: ServiceWorld) -> None:
    assert world.get("/v1/limits/effective?entity=key&resource=gpt").json()["source"] == "system"
    done = world.request("PUT", "/v1/limits?entity=key", {"limits": ["rpm:7"]})
    assert [replaced["limit"]["name"] for replaced in done.json()["replaced"]] == ["tpm"]
    found = world.get("/v1/limits/effective?entity=key&resource=gpt").json()
    assert (found["source"], [limit["name"] for limit in found["limits"]]) == ("entity_default", ["rpm"])
    merged = world.request("PUT", "/v1/limits?entity=key", {"limits": ["rpm:7"], "merge": True})
    assert [limit["name"] for limit in merged.json()["limits"]] == ["rpm", "tpm"]
    assert world.get("/v1/limits/effective?entity=key").status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"limits": []},
        {"limits": ["rpm"]},
        {"limits": ["rpm:1", "rpm:2"]},
        {"limits": [{"name": "rpm"}]},
        {"limits": [{"name": "rpm", "capacity": 0, "refill_amount": 1, "refill_period_seconds": 1}]},
        {"limits": [{"name": "rpm", "capacity": 1, "calendar": {"unit": "day"}}]},
        {"limits": [1]},
        {"limits": ["rpm:1"], "on_unavailable": "maybe"},
        {"limits": ["rpm:1"], "nonsense": 1},
    ],
)
def test_limits_that_are_none_change_nothing(world: ServiceWorld, body: object) -> None:
    before = world.get("/v1/limits").headers["etag"]
    assert world.request("PUT", "/v1/limits", body).status_code == 422
    assert world.get("/v1/limits").headers["etag"] == before


def test_the_policy_for_outages_is_the_systems(world: ServiceWorld) -> None:
    body = {"limits": ["rpm:9"], "on_unavailable": "allow"}
    assert world.request("PUT", "/v1/limits?entity=key", body).status_code == 422
    assert world.request("PUT", "/v1/limits", body).json()["on_unavailable"] == "allow"
    assert world.post("/v1/take", {"entity": "key", "resource": "gpt", "consume": {"rpm": 1}}).status_code == 200
    world.store.fail("draw")
    degraded = world.post("/v1/leases", {"entity": "key", "resource": "gpt", "consume": {"rpm": 1}})
    assert (degraded.status_code, degraded.json()["degraded"], degraded.json()["lease"]) == (201, True, None)


def test_a_switch_blocks_and_is_lifted(world: ServiceWorld) -> None:
    asked = {"entity": "key", "resource": "gpt", "consume": {"rpm": 1}}
    done = world.request("PUT", "/v1/access", {"mode": "block", "entity": "key"})
    assert (done.status_code, done.json()["mode"]) == (200, "block")
    assert world.post("/v1/take", asked).status_code == 403
    assert world.get("/v1/access").json()["access"][0]["entity_id"] == "key"
    assert world.get("/v1/access?entity=key&resource=gpt").json()["access"][0]["mode"] == "block"
    world.request("PUT", "/v1/access", {"mode": "observe", "entity": "key"})
    lease = world.post("/v1/leases", {**asked, "consume": {"rpm": 11}})
    assert (lease.status_code, lease.json()["lease"], lease.json()["degraded"]) == (201, None, False)
    world.request("PUT", "/v1/access", {"mode": "enforce", "entity": "key"})
    assert world.post("/v1/take", asked).status_code == 200
    assert world.request("PUT", "/v1/access", {"mode": "block", "until": "yesterday"}).status_code == 422


def test_balances_are_given_lowered_and_filled(world: ServiceWorld) -> None:
    where = {"entity": "key", "resource": "gpt"}
    world.post("/v1/take", {**where, "consume": {"rpm": 9, "tpm": 900}})
    for done in (True, False):
        answer = world.post("/v1/grant", {**where, "amounts": {"rpm": 4}, "key": "invoice-1"})
        assert answer.json() == {"done": done, "available": {"rpm": 5, "tpm": 100}}
    assert world.post("/v1/grant", {**where, "amounts": {"rpm": 5}, "key": "invoice-1"}).status_code == 422
    assert world.post("/v1/lower", {**where, "levels": {"rpm": 2}}).json()["available"]["rpm"] == 2
    assert world.post("/v1/reset", {"entity": "key", "limits": ["rpm"]}).json() == {"buckets": 1}
    assert world.available() == {"rpm": 10, "tpm": 100}
    assert world.post("/v1/reset", {"entity": "key", "limits": []}).status_code == 422


def test_a_plan_is_applied_if_nothing_has_changed_since(world: ServiceWorld) -> None:
    planned = world.post("/v1/plan", {"manifest": MANIFEST})
    assert planned.status_code == 200
    assert {change["action"] for change in planned.json()["changes"]} == {"create"}
    assert world.get("/v1/limits?resource=gpt").json()["limits"] == []
    digest = planned.json()["digest"]
    assert world.post("/v1/plan", {"manifest": MANIFEST}).json()["digest"] == digest
    world.request("PUT", "/v1/limits?resource=gpt", {"limits": ["rpm:1"]})
    refused = world.post("/v1/apply", {"manifest": MANIFEST, "digest": digest})
    assert refused.status_code == 409
    again = world.post("/v1/apply", {"manifest": MANIFEST, "digest": refused.json()["digest"]})
    assert (again.status_code, again.json()["remaining"]) == (200, [])
    assert world.get("/v1/limits?resource=gpt").json()["limits"][0]["word"] == "rpm:5/day"
    (event, *_) = world.get("/v1/audit?entity=$RESOURCE:gpt").json()["events"]
    assert event["principal"] == "manifest:platform:loopback"
    done = world.post("/v1/plan", {"manifest": MANIFEST})
    assert done.json()["changes"] == []


def test_a_manifest_may_be_json_and_one_that_is_none_is_told_line_by_line(world: ServiceWorld) -> None:
    assert world.post("/v1/plan", {"manifest": {"manifest": "a", "system": {"limits": ["rpm:1"]}}}).status_code == 200
    wrong = world.post("/v1/plan", {"manifest": "manifest: a\nsystem: {limits: [rpm]}\n"})
    assert (wrong.status_code, wrong.json()["problems"][0].startswith("manifest:2:")) == (422, True)
    other = world.post("/v1/plan", {"manifest": "manifest: a\nnamespace: other\n"})
    assert other.status_code == 422


def test_a_plan_with_a_conflict_is_not_applied(world: ServiceWorld) -> None:
    first = world.post("/v1/plan", {"manifest": MANIFEST}).json()["digest"]
    assert world.post("/v1/apply", {"manifest": MANIFEST, "digest": first}).status_code == 200
    other = MANIFEST.replace("platform", "other").replace("rpm:5", "rpm:6")
    planned = world.post("/v1/plan", {"manifest": other}).json()
    assert planned["conflicts"]
    refused = world.post("/v1/apply", {"manifest": other, "digest": planned["digest"]})
    assert (refused.status_code, len(refused.json()["conflicts"])) == (409, len(planned["conflicts"]))
    taken = world.post("/v1/plan", {"manifest": other, "take_over": True}).json()
    body = {"manifest": other, "digest": taken["digest"], "take_over": True}
    assert world.post("/v1/apply", body).status_code == 200
