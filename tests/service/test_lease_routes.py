"""Taking over HTTP: charged once, settled once, and nothing lost by a call that fails."""

from __future__ import annotations

import pytest

from support.service_world import ServiceWorld

ASKED = {"entity": "key", "resource": "gpt", "consume": {"rpm": 1, "tpm": 100}}


def test_a_take_is_charged_and_says_what_is_left(world: ServiceWorld) -> None:
    answer = world.post("/v1/take", ASKED)
    assert answer.status_code == 200
    assert answer.json() == {
        "consumed": {"rpm": 1, "tpm": 100},
        "degraded": False,
        "limits": [
            {"entity": "key", "name": "rpm", "available": 9, "burst": 10},
            {"entity": "key", "name": "tpm", "available": 900, "burst": 1000},
        ],
    }
    assert '"rpm";r=9;' in answer.headers["ratelimit"]
    assert answer.headers["cache-control"] == "no-store"
    assert world.available() == {"rpm": 9, "tpm": 900}


def test_a_refused_take_says_when_to_come_back_and_takes_nothing(world: ServiceWorld) -> None:
    assert world.post("/v1/take", {**ASKED, "consume": {"rpm": 10}}).status_code == 200
    answer = world.post("/v1/take", ASKED)
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/problem+json")
    assert answer.json()["violated-policies"] == ["rpm"]
    assert int(answer.headers["retry-after"]) > 0
    assert '"rpm";r=0;' in answer.headers["ratelimit"]
    assert world.available() == {"rpm": 0, "tpm": 1000}


def test_a_take_larger_than_its_limit_never_fits(world: ServiceWorld) -> None:
    assert world.post("/v1/take", {**ASKED, "consume": {"rpm": 11}}).status_code == 413


def test_a_lease_is_settled_once(world: ServiceWorld) -> None:
    made = world.post("/v1/leases", ASKED)
    assert made.status_code == 201
    path = made.headers["location"]
    assert path == f"/v1/leases/{made.json()['lease']}"
    assert world.get(path).json()["state"] == "open"
    settled = world.post(f"{path}/settle", {"actual": {"tpm": 40}})
    assert settled.json() == {
        "lease": made.json()["lease"],
        "consumed": {"rpm": 1, "tpm": 40},
        "ended": True,
        "already_settled": False,
    }
    again = world.post(f"{path}/settle", {"actual": {"tpm": 999}})
    assert (again.status_code, again.json()["already_settled"], again.json()["consumed"]["tpm"]) == (200, True, 40)
    assert world.available() == {"rpm": 9, "tpm": 960}
    assert world.get(path).json()["state"] == "closed"


def test_a_lease_may_be_corrected_many_times_before_it_ends(world: ServiceWorld) -> None:
    path = world.post("/v1/leases", ASKED).headers["location"]
    assert world.post(f"{path}/adjust", {"deltas": {"tpm": -50}}).json()["ended"] is False
    assert world.post(f"{path}/consume", {"consume": {"tpm": 200}}).json()["consumed"] == {"rpm": 1, "tpm": 250}
    assert world.post(f"{path}/settle", {"actual": {"tpm": 10}, "keep_open": True}).json()["ended"] is False
    assert world.available() == {"rpm": 9, "tpm": 990}
    assert world.request("DELETE", path).status_code == 204
    assert world.available() == {"rpm": 10, "tpm": 990}


def test_a_lease_that_is_given_back_is_gone(world: ServiceWorld) -> None:
    path = world.post("/v1/leases", ASKED).headers["location"]
    assert world.request("DELETE", path).status_code == 204
    assert world.available() == {"rpm": 10, "tpm": 1000}
    for answer in (world.request("DELETE", path), world.post(f"{path}/settle", {"actual": {"tpm": 1}})):
        assert answer.status_code == 404
    assert world.available() == {"rpm": 10, "tpm": 1000}


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("settle", {"actual": {"nope": 1}}),
        ("settle", {"actual": {"tpm": -1}}),
        ("adjust", {"deltas": {"tpm": -101}}),
        ("consume", {"consume": {"nope": 1}}),
    ],
)
def test_a_call_that_is_not_valid_leaves_its_lease_as_it_was(
    world: ServiceWorld, verb: str, body: dict[str, object]
) -> None:
    path = world.post("/v1/leases", ASKED).headers["location"]
    assert world.post(f"{path}/{verb}", body).status_code == 422
    assert world.available() == {"rpm": 9, "tpm": 900}
    assert world.get(path).json()["state"] == "open"
    assert world.post(f"{path}/settle", {"actual": {"tpm": 7}}).json()["consumed"]["tpm"] == 7


def test_a_lease_that_cannot_take_more_stays_open(world: ServiceWorld) -> None:
    path = world.post("/v1/leases", ASKED).headers["location"]
    answer = world.post(f"{path}/consume", {"consume": {"tpm": 901}})
    assert answer.status_code == 429
    assert world.post(f"{path}/settle", {"actual": {"tpm": 7}}).json()["ended"] is True


def test_a_repeated_request_gets_the_same_lease_and_is_charged_once(world: ServiceWorld) -> None:
    answers = [world.post("/v1/leases", ASKED, headers={"idempotency-key": "n-1"}) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["lease"] for answer in answers}) == 1
    assert {str(answer.json()["consumed"]) for answer in answers} == {"{'rpm': 1, 'tpm': 100}"}
    assert world.available() == {"rpm": 9, "tpm": 900}
    other = world.post("/v1/leases", {**ASKED, "consume": {"rpm": 2}}, headers={"idempotency-key": "n-1"})
    assert other.status_code == 422
    assert world.available() == {"rpm": 9, "tpm": 900}


def test_a_repeated_take_is_charged_once(world: ServiceWorld) -> None:
    for _ in range(3):
        assert world.post("/v1/take", ASKED, headers={"idempotency-key": "n-1"}).status_code == 200
    assert world.available() == {"rpm": 9, "tpm": 900}


def test_ids_of_leases_tell_nothing_of_the_key(world: ServiceWorld) -> None:
    lease = world.post("/v1/leases", ASKED, headers={"idempotency-key": "n-1"}).json()["lease"]
    assert "n-1" not in lease
    assert world.get("/v1/leases/zl1.n-1").status_code == 404


@pytest.mark.parametrize("lease", ["nope", "zl1.nope", "zl1.", "zl1._short"])
def test_a_lease_that_never_was_is_not_found(world: ServiceWorld, lease: str) -> None:
    assert world.post(f"/v1/leases/{lease}/settle", {"actual": {}}).status_code == 404
    assert world.get(f"/v1/leases/{lease}").status_code == 404
    assert world.request("DELETE", f"/v1/leases/{lease}").status_code == 404


def test_a_check_takes_nothing(world: ServiceWorld) -> None:
    answer = world.post("/v1/check", {**ASKED, "consume": {"rpm": 11}})
    assert (answer.status_code, answer.json()["fits"], answer.json()["wait_seconds"]) == (200, False, None)
    assert world.post("/v1/check", ASKED).json()["fits"] is True
    assert world.available() == {"rpm": 10, "tpm": 1000}


def test_a_store_that_is_away_is_a_503_and_the_lease_can_be_settled_later(world: ServiceWorld) -> None:
    path = world.post("/v1/leases", ASKED).headers["location"]
    world.store.fail("settle")
    assert world.post(f"{path}/settle", {"actual": {"tpm": 40}}).status_code == 503
    world.store.fail()
    for answer in (world.post("/v1/take", ASKED), world.get(path), world.post("/v1/check", ASKED)):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert world.get("/readyz").status_code == 503
    world.store.heal()
    assert world.get("/readyz").status_code == 200
    assert world.post(f"{path}/settle", {"actual": {"tpm": 40}}).json()["already_settled"] is False
    assert world.available() == {"rpm": 9, "tpm": 960}
