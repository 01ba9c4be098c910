"""The FastAPI example answers as HTTP wants it: 429 with a Retry-After that is true, per key, and nothing taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fastapi_app
import pytest
from fastapi.testclient import TestClient

from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing import FailingStore, FakeClock, memory_limiter


class Service:
    """The app on a store that can fail, and a clock that obeys."""

    def __init__(self, client: TestClient, store: FailingStore, clock: FakeClock) -> None:
        self.client = client
        self.store = store
        self.clock = clock

    def ask(self, secret: str = "secret-of-ann", **question: Any) -> Any:
        return self.client.post("/ask", json={"prompt": "why", **question}, headers={"X-API-Key": secret})


@pytest.fixture
def service() -> Iterator[Service]:
    clock = FakeClock()
    store = FailingStore(MemoryStore())
    fastapi_app.app.state.limiter = memory_limiter(fastapi_app.LIMITS, clock=clock, store=store)
    with TestClient(fastapi_app.app) as client:
        yield Service(client, store, clock)
    fastapi_app.app.state.limiter = None


def use_up(service: Service) -> None:
    for _ in range(3):
        assert service.ask().status_code == 200


def test_a_key_over_its_limit_gets_429_and_the_wait(service: Service) -> None:
    use_up(service)
    refused = service.ask()
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "1"
    body = refused.json()
    assert [violation["limit_name"] for violation in body["violations"]] == ["requests"]
    assert body["retry_after_seconds"] == 1.0


def test_the_retry_after_is_true(service: Service) -> None:
    use_up(service)
    service.clock.advance(milliseconds=999)
    assert service.ask().status_code == 429
    service.clock.advance(milliseconds=1)
    assert service.ask().status_code == 200


def test_keys_do_not_share_a_limit(service: Service) -> None:
    use_up(service)
    assert service.ask("secret-of-bob").status_code == 200


def test_a_refused_request_costs_nothing(service: Service) -> None:
    costly = "word " * 98  # 1,000 tokens
    assert [service.ask(prompt=costly, max_tokens=1_500).status_code for _ in range(4)] == [200, 200, 200, 429]
    service.clock.advance(1)
    granted = service.ask(max_tokens=1)  # costs 30
    assert granted.headers["X-RateLimit-Remaining-Requests"] == "0"
    assert int(granted.headers["X-RateLimit-Remaining-Tokens"]) == 6_000 - 3 * 1_000 + 100 - 30


def test_what_can_never_fit_is_413_without_a_retry_after(service: Service) -> None:
    refused = service.ask(max_tokens=6_001)
    assert refused.status_code == 413
    assert "Retry-After" not in refused.headers


def test_an_outage_is_503(service: Service) -> None:
    service.store.fail("draw")
    refused = service.ask()
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")


def test_an_unknown_key_is_401_and_asks_no_limiter(service: Service) -> None:
    service.store.fail()
    assert service.ask("secret-of-eve").status_code == 401


def test_the_app_opens_a_limiter_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{tmp_path}/limits.db")
    with TestClient(fastapi_app.app) as client:
        body = {"prompt": "why", "max_tokens": 1}
        asked = (client.post("/ask", json=body, headers={"X-API-Key": "secret-of-ann"}) for _ in range(20))
        statuses = [answer.status_code for answer in asked]
    assert statuses[:3] == [200, 200, 200]
    assert 429 in statuses  # a machine too slow to ask twenty times in sixteen seconds has other worries
    assert fastapi_app.app.state.limiter is None
