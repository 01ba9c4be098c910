"""Load is no outage: throttled calls and transactions in the way deny, on every path, whatever the policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from support.dynamodb.watched_store import Watched
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import Request
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.requests import (
    KEY_THROTTLED,
    TRANSACTION_CANCELED,
    TRANSACTION_CONFLICT,
    Call,
    NoAnswer,
    Reason,
    Refused,
)
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing import FakeClock

TABLES = count()
DEADLINE_S = 1.0
LIMITS = [Limit.per_minute("rpm", 10)]

Trouble = Callable[[Call], Exception | None]


class Troubled(Watched):
    """Fails those calls that a test says."""

    trouble: Trouble = staticmethod(lambda call: None)

    def perform(self, request: Request[Any], /) -> Any:
        error = self.trouble(request) if isinstance(request, Call) else None
        if error is not None:
            raise error
        return super().perform(request)


@pytest.fixture
def store(engine: Engine) -> Iterator[Troubled]:
    table = f"load-{os.getpid()}-{next(TABLES)}"
    store = Troubled(table, Target("us-east-1", engine.endpoint_url), deadline=DEADLINE_S)
    driver = SyncDriver(machine_clock, store.perform)
    driver.run(store.create(0))
    yield store
    store.trouble = lambda call: None
    driver.run(store.destroy())
    store.close()


@pytest.fixture
def limiter(store: Troubled) -> SyncRateLimiter:
    """A child and its parent, with limits and without buckets."""
    limiter = SyncRateLimiter(SyncRepository(store, clock=FakeClock()))
    limiter.set_system_defaults(LIMITS)
    limiter.create_entity("team")
    limiter.create_entity("key", parent_id="team", cascade=True)
    return limiter


def denied(limiter: SyncRateLimiter) -> RateLimitExceeded:
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow").__enter__()
    return caught.value


def refuse(*operations: str, code: str) -> Trouble:
    def trouble(call: Call) -> Exception | None:
        if operations and call.operation not in operations:
            return None
        if call.operation == "TransactWriteItems":
            reasons = [Reason("TransactionConflict") for _ in call.params["TransactItems"]]
            return Refused(TRANSACTION_CANCELED if code == TRANSACTION_CONFLICT else code, reasons=reasons)
        return Refused(code, "simulated")

    return trouble


@pytest.mark.parametrize("code", [KEY_THROTTLED, "ThrottlingException", "RequestLimitExceeded", TRANSACTION_CONFLICT])
@pytest.mark.parametrize("warm", [False, True], ids=["new buckets", "known buckets"])
def test_writes_that_are_refused_for_good_deny(
    store: Troubled, limiter: SyncRateLimiter, code: str, warm: bool
) -> None:
    if warm:
        with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    store.trouble = refuse("UpdateItem", "PutItem", "TransactWriteItems", code=code)
    error = denied(limiter)
    assert {status.limit_name for status in error.violations} == {"rpm"}
    assert 0 < (error.retry_after_seconds or 0) <= 0.1
    store.trouble = lambda call: None
    assert limiter.available("key", "gpt") == {"rpm": 9 if warm else 10}


@pytest.mark.parametrize("code", [KEY_THROTTLED, "ThrottlingException"])
def test_reads_that_are_throttled_for_good_deny_who_knows_no_limits(
    store: Troubled, limiter: SyncRateLimiter, code: str
) -> None:
    limiter.repository.invalidate_config_cache()
    store.trouble = refuse("GetItem", "BatchGetItem", code=code)
    assert denied(limiter).statuses == ()


def test_a_draw_that_met_load_is_not_let_through_when_its_last_answer_is_missing(
    store: Troubled, limiter: SyncRateLimiter
) -> None:
    """Each refusal takes long, and the deadline comes while the last one is on its way."""
    calls = count()

    def trouble(call: Call) -> Exception | None:
        return Refused(KEY_THROTTLED, "simulated") if next(calls) < 2 else NoAnswer("simulated")

    limiter.repository.invalidate_config_cache()
    store.trouble = trouble
    assert denied(limiter).retry_after_seconds == 0.1


def test_what_cannot_be_given_back_because_of_load_is_counted(store: Troubled, limiter: SyncRateLimiter) -> None:
    """The child was drawn from, its parent takes no write, and neither does the child any more."""
    with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    written: list[str] = []

    def trouble(call: Call) -> Exception | None:
        if call.operation != "UpdateItem":
            return None
        if "#key#" in call.params["Key"]["PK"]["S"] and not written:
            written.append("key")
            return None
        return Refused("ThrottlingException", "simulated")

    store.trouble = trouble
    denied(limiter)
    assert written == ["key"]
    assert limiter.repository.unresolved == 1
    store.trouble = lambda call: None
    assert limiter.available("key", "gpt") == {"rpm": 8}, "it was charged, and that is told"
    assert limiter.available("team", "gpt") == {"rpm": 9}
