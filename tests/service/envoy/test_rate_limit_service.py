"""What the service takes, gives back and settles."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from zae_limiter import Limit, NamespaceNotFoundError, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.service.envoy.descriptors import Descriptor, DescriptorRules, Override
from zae_limiter.service.envoy.rate_limit_service import Counts, DomainLimiters, RateLimitService
from zae_limiter.service.envoy.responses import OK, OVER_LIMIT, Response
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing import FailingStore, FakeClock

LIMITS = [Limit.per_hour("requests", 5), Limit.per_hour("tpm", 1_000)]


class World:
    """A service on a store in memory that fails on demand."""

    def __init__(self, **options: Any) -> None:
        self.store = FailingStore(MemoryStore())
        repository = SyncRepository(self.store, clock=FakeClock())
        self.limiter = SyncRateLimiter(repository)
        self.limiter.set_system_defaults(LIMITS)
        self.service = RateLimitService(repository, **options)

    def ask(self, *descriptors: Descriptor, **options: Any) -> Response:
        return self.service.answer("default", descriptors, **options)

    def take(self, entity: str, limit: str = "requests", hits: int | None = None) -> Response:
        return self.ask(Descriptor({"entity": entity, "resource": "chat", "limit": limit}, hits))

    def left(self, entity: str) -> dict[str, int]:
        return self.limiter.available(entity, "chat")

    @property
    def counts(self) -> dict[str, int]:
        return self.service.counts.as_dict()


@pytest.fixture
def world() -> World:
    return World()


def lease_of(response: Response) -> str:
    ((name, token),) = response.request_headers
    assert name == "x-zael-lease"
    return token


# Taking


def test_five_are_let_through_and_the_sixth_is_refused(world: World) -> None:
    responses = [world.take("a") for _ in range(6)]
    assert [response.code for response in responses] == [OK] * 5 + [OVER_LIMIT]
    assert [response.statuses[0].remaining for response in responses] == [4, 3, 2, 1, 0, 0]
    assert world.counts == {"let_through": 5, "refused": 1}


def test_several_amounts_are_taken_together_or_not_at_all(world: World) -> None:
    key = {"entity": "a", "resource": "chat"}
    over = world.ask(Descriptor(key), Descriptor({**key, "limit": "tpm"}, 1_001))
    assert over.code == OVER_LIMIT
    assert [status.code for status in over.statuses] == [OK, OVER_LIMIT]
    assert world.left("a") == {"requests": 5, "tpm": 1_000}
    assert world.ask(Descriptor(key), Descriptor({**key, "limit": "tpm"}, 400)).code == OK
    assert world.left("a") == {"requests": 4, "tpm": 600}


def test_what_earlier_pairs_took_comes_back_if_a_later_one_is_refused(world: World) -> None:
    world.limiter.set_limits("address", [Limit.per_hour("requests", 1)])
    pairs = [Descriptor({"entity": name, "resource": "chat"}) for name in ("a", "b", "address")]
    assert [world.ask(*pairs).code for _ in range(3)] == [OK, OVER_LIMIT, OVER_LIMIT]
    assert world.left("a")["requests"] == world.left("b")["requests"] == 4
    refused = world.ask(*pairs)
    assert [status.code for status in refused.statuses] == [OK, OK, OVER_LIMIT]


def test_no_lease_is_left_of_a_request_that_was_refused(world: World) -> None:
    estimate = Descriptor({"entity": "a", "resource": "chat", "limit": "tpm"}, 400)
    assert world.ask(estimate, Descriptor({"entity": "b", "resource": "chat"}, 6)).code == OVER_LIMIT
    assert world.left("a")["tpm"] == 1_000
    assert world.limiter.list_leases().items == []


def test_a_limit_that_watches_lets_through(world: World) -> None:
    world.limiter.set_limits("a", [Limit.per_hour("requests", 1, enforce=False)])
    assert [world.take("a").code for _ in range(3)] == [OK] * 3
    assert world.counts["let_through_by_watching_limits"] == 2


def test_an_access_switch_that_observes_lets_through(world: World) -> None:
    world.limiter.set_access("observe", entity_id="a")
    assert [world.take("a", "tpm", 600).code for _ in range(2)] == [OK, OK]
    assert world.ask(Descriptor({"entity": "a", "resource": "chat"}, 0)).code == OK


def test_a_blocked_caller_is_refused_also_when_it_only_looks(world: World) -> None:
    world.limiter.set_access("block", entity_id="a")
    for hits in (1, 0):
        response = world.take("a", hits=hits)
        assert response.code == OVER_LIMIT
        assert json.loads(response.body)["title"] == "Access is blocked"


# Looking


def test_a_look_takes_nothing(world: World) -> None:
    assert [world.take("a", hits=0).code for _ in range(9)] == [OK] * 9
    assert world.left("a")["requests"] == 5


@pytest.mark.parametrize("taken", [1_000, 1_500])
def test_a_look_at_what_is_empty_or_in_debt_is_refused(world: World, taken: int) -> None:
    with world.limiter.acquire("a", "chat", {"tpm": 1}) as lease:
        lease.settle(tpm=taken)
    response = world.take("a", "tpm", 0)
    assert response.code == OVER_LIMIT
    assert response.statuses[0].reset_seconds == (4 if taken == 1_000 else 1_800)


def test_what_is_taken_beside_a_look_that_is_refused_comes_back(world: World) -> None:
    with world.limiter.acquire("a", "chat", {"tpm": 1_000}):
        pass
    key = {"entity": "a", "resource": "chat"}
    assert world.ask(Descriptor(key), Descriptor({**key, "limit": "tpm"}, 0)).code == OVER_LIMIT
    assert world.left("a") == {"requests": 5, "tpm": 0}


# Leases


def test_an_estimate_is_settled_to_what_was_used(world: World) -> None:
    token = lease_of(world.take("a", "tpm", 400))
    assert world.left("a")["tpm"] == 600
    done = Descriptor({"lease": token, "limit": "tpm"}, 123)
    assert world.ask(done).code == OK
    assert world.left("a")["tpm"] == 877
    world.ask(Descriptor({"lease": token, "limit": "tpm"}, 0))
    assert world.left("a")["tpm"] == 877
    assert world.counts == {"let_through": 1, "leases_settled": 1, "leases_settled_before": 1}


def test_more_than_the_estimate_is_a_debt(world: World) -> None:
    token = lease_of(world.take("a", "tpm", 400))
    world.ask(Descriptor({"lease": token, "limit": "tpm"}, 1_200))
    assert world.left("a")["tpm"] == -200


def test_leases_of_several_pairs_travel_together(world: World) -> None:
    pairs = [Descriptor({"entity": name, "resource": "chat", "limit": "tpm"}, 400) for name in ("a", "b")]
    world.ask(Descriptor({"lease": lease_of(world.ask(*pairs)), "limit": "tpm"}, 10))
    assert world.left("a")["tpm"] == world.left("b")["tpm"] == 990


def test_requests_alone_have_no_lease(world: World) -> None:
    assert world.take("a").request_headers == []
    assert world.limiter.list_leases().items == []


def test_a_call_in_flight_ends_with_its_stream(world: World) -> None:
    world.limiter.set_limits("a", [Limit.concurrent("calls", 1, ttl=600)])
    token = lease_of(world.take("a", "calls"))
    assert world.take("a", "calls").code == OVER_LIMIT
    world.ask(Descriptor({"lease": token}))
    assert world.take("a", "calls").code == OK
    assert world.counts["leases_ended"] == 1


@pytest.mark.parametrize("token", ["zl1._AAAAAAAAAAAAAAAAAAAAAA", "nonsense", ""])
def test_a_lease_that_is_none_changes_nothing(world: World, token: str) -> None:
    assert world.ask(Descriptor({"lease": token, "limit": "tpm"}, 0)).code == OK
    assert world.counts == {"leases_not_found": 1}


def test_the_cost_of_another_limit_than_it_took_leaves_a_lease_as_it_is(world: World) -> None:
    token = lease_of(world.take("a", "tpm", 400))
    world.ask(Descriptor({"lease": token, "limit": "requests"}, 5))
    assert world.left("a") == {"requests": 5, "tpm": 600}


# What is ignored, and what Envoy may say


def test_negative_hits_mint_nothing(world: World) -> None:
    world.take("a")
    response = world.ask(Descriptor({"entity": "a", "resource": "chat"}, 3, is_negative=True))
    assert response.code == OK
    assert world.left("a")["requests"] == 4
    assert world.counts["ignored_negative_hits"] == 1


def test_an_override_counts_only_if_it_is_allowed() -> None:
    generous = Descriptor({"entity": "a", "resource": "chat"}, 6, Override(50, 3))
    assert World().ask(generous).code == OVER_LIMIT
    world = World(rules=DescriptorRules(allow_overrides=True))
    assert world.ask(generous).statuses[0].remaining == 44


def test_an_override_of_one_limit_leaves_the_others_as_they_are() -> None:
    world = World(rules=DescriptorRules(allow_overrides=True))
    key = {"entity": "a", "resource": "chat"}
    both = [Descriptor(key, None, Override(50, 3)), Descriptor({**key, "limit": "tpm"}, 1_001)]
    response = world.ask(*both)
    assert [status.code for status in response.statuses] == [OK, OVER_LIMIT]
    assert response.statuses[0].requests_per_unit == 50


def test_an_override_that_is_no_limit_is_refused() -> None:
    world = World(rules=DescriptorRules(allow_overrides=True))
    assert world.ask(Descriptor({"entity": "a"}, None, Override(0, 3))).code == OVER_LIMIT


# What goes wrong


@pytest.mark.parametrize(
    "entries", [{"entity": "a#b"}, {"entity": "a", "resource": "_x"}, {"entity": "a", "limit": "unknown"}]
)
def test_names_that_are_none_are_refused_and_no_error(world: World, entries: dict[str, str]) -> None:
    """Envoy lets errors through: any client could choose not to be limited."""
    response = world.ask(Descriptor(entries))
    assert response.code == OVER_LIMIT
    assert world.counts == {"refused_as_not_limitable": 1}


def test_without_limits_a_request_is_refused() -> None:
    world = World()
    world.limiter.delete_system_defaults()
    assert world.take("a").code == OVER_LIMIT


def test_a_domain_that_is_no_namespace_is_the_operators_to_correct(world: World) -> None:
    with pytest.raises(NamespaceNotFoundError):
        world.service.answer("other", [Descriptor({"entity": "a"})])
    with pytest.raises(ValidationError):
        world.service.answer("", [Descriptor({"entity": "a"})])


def test_a_domain_is_a_namespace(world: World) -> None:
    world.limiter.repository.register_namespace("other")
    other = SyncRateLimiter(world.limiter.repository.in_namespace("other"))
    other.set_system_defaults([Limit.per_hour("requests", 1)])
    codes = [world.service.answer("other", [Descriptor({"entity": "a"})]).code for _ in range(2)]
    assert codes == [OK, OVER_LIMIT]
    assert world.take("a").code == OK


@pytest.mark.parametrize(("policy", "code"), [("allow", OK), ("block", OVER_LIMIT)])
@pytest.mark.parametrize("hits", [1, 0])
def test_a_store_that_is_away_is_met_as_the_operator_decided(policy: str, code: int, hits: int) -> None:
    world = World()
    world.limiter.set_system_defaults(LIMITS, on_unavailable=policy)
    world.take("a")
    world.store.fail("draw")
    response = world.take("a", hits=hits)
    assert (response.code, response.request_headers) == (code, [])
    if code == OVER_LIMIT:
        assert json.loads(response.body)["title"] == "The rate limiter is unavailable"


def test_an_estimate_whose_lease_cannot_be_recorded_stays_charged(world: World) -> None:
    world.take("a")
    for verb in ("record_lease", "settle_recorded", "settle"):
        world.store.fail(verb)
    response = world.take("a", "tpm", 400)
    world.store.heal()
    assert (response.code, response.request_headers) == (OK, [])
    assert world.left("a")["tpm"] == 600
    assert world.counts["leases_without_a_record"] == 1


def test_a_settlement_that_fails_leaves_the_estimate_charged(world: World) -> None:
    token = lease_of(world.take("a", "tpm", 400))
    world.store.fail("lease_record")
    assert world.ask(Descriptor({"lease": token, "limit": "tpm"}, 1)).code == OK
    world.store.heal()
    assert world.left("a")["tpm"] == 600
    assert world.counts["leases_not_settled"] == 1


# Tokens that are for some entities


def test_other_entities_than_a_token_is_for_are_refused_and_none_is_taken_of(world: World) -> None:
    mine, yours = Descriptor({"entity": "me:1", "resource": "chat"}), Descriptor({"entity": "you:1"})
    with pytest.raises(PermissionError, match="me:"):
        world.ask(mine, yours, entity_prefix="me:")
    assert world.left("me:1")["requests"] == 5
    assert world.ask(mine, entity_prefix="me:").code == OK


def test_a_lease_of_another_entity_is_none(world: World) -> None:
    token = lease_of(world.take("you:1", "tpm", 400))
    done = Descriptor({"lease": token, "limit": "tpm"}, 0)
    world.ask(done, entity_prefix="me:")
    assert world.left("you:1")["tpm"] == 600
    world.ask(done, entity_prefix="you:")
    assert world.left("you:1")["tpm"] == 1_000


# Bounds


def test_so_many_domains_are_kept_and_no_more() -> None:
    with SyncRateLimiter.open("memory://") as limiter:
        limiters = DomainLimiters(limiter.repository, most=2)
        one, two = limiters.of("one"), limiters.of("two")
        assert limiters.of("one") is one
        limiters.of("three")
        assert limiters.of("one") is one
        assert limiters.of("two") is not two


def test_a_kind_of_failure_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "zae_limiter.envoy")
    now = [0.0]
    counts = Counts(timer=lambda: now[0])
    for second in range(130):
        now[0] = float(second)
        counts.failed("errors", ValueError("no"))
    assert [line.getMessage() for line in caplog.records if line.name == "zae_limiter.envoy"] == [
        "errors (1 so far): no",
        "errors (61 so far): no",
        "errors (121 so far): no",
    ]
