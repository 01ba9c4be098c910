"""Several calls in one request: in order, each with its own status."""

from __future__ import annotations

from support.service_world import ServiceWorld

ASKED = {"entity": "key", "resource": "gpt", "consume": {"rpm": 4}}


def test_calls_are_done_in_order_each_with_its_status(world: ServiceWorld) -> None:
    lease = world.post("/v1/leases", {**ASKED, "consume": {"rpm": 1, "tpm": 100}}).json()["lease"]
    calls = [
        {"call": "take", "body": ASKED},
        {"call": "take", "body": ASKED},
        {"call": "take", "body": ASKED},
        {"call": "settle", "lease": lease, "body": {"actual": {"tpm": 3}}},
        {"call": "check", "body": ASKED},
        {"call": "take", "body": {}},
        {"call": "show_lease", "lease": lease},
        {"call": "release", "lease": "zl1.nope"},
        {"call": "acquire", "body": {**ASKED, "consume": {"rpm": 1}}, "idempotency_key": "n-1"},
        {"call": "acquire", "body": {**ASKED, "consume": {"rpm": 1}}, "idempotency_key": "n-1"},
    ]
    answer = world.post("/v1/batch", {"calls": calls}, headers={"idempotency-key": "of the batch"})
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [200, 200, 429, 200, 200, 422, 200, 404, 201, 201]
    assert results[2]["retry_after"] > 0
    assert results[3]["body"]["consumed"] == {"rpm": 1, "tpm": 3}
    assert results[8]["body"]["lease"] == results[9]["body"]["lease"]
    assert world.available() == {"rpm": 0, "tpm": 997}


def test_a_batch_is_bounded(world: ServiceWorld) -> None:
    too_many = {"calls": [{"call": "check", "body": ASKED}] * 101}
    assert world.post("/v1/batch", too_many).status_code == 422
    assert world.post("/v1/batch", {"calls": []}).status_code == 422
    assert world.post("/v1/batch", {"calls": [{"call": "batch"}]}).status_code == 422
    too_long = {"calls": [{"call": "take", "body": {**ASKED, "timeout": 31}}] * 2}
    assert world.post("/v1/batch", too_long).status_code == 422
    assert world.available() == {"rpm": 10, "tpm": 1000}
