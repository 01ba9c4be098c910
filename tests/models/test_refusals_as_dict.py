"""What a caller may be shown of a refusal: its own limits, and those of its ancestors only on request."""

from __future__ import annotations

import copy
import pickle

import pytest

from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.testing import FakeClock, sync_memory_limiter


def refusal(wanted: int, *, of_org: int) -> RateLimitExceeded:
    limiter = sync_memory_limiter([Limit.per_minute("rpm", 10)], clock=FakeClock())
    limiter.create_entity("secret-org")
    limiter.create_entity("key", parent_id="secret-org", cascade=True)
    limiter.set_limits("secret-org", [Limit.per_minute("rpm", of_org)])
    with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    with pytest.raises(RateLimitExceeded) as raised, limiter.acquire("key", "gpt", {"rpm": wanted}):
        pass
    return raised.value


def test_the_limits_of_ancestors_are_shown_on_request_only() -> None:
    error = refusal(5, of_org=5)
    shown = error.as_dict()
    assert "secret-org" not in str(shown)
    assert shown["violations"] == []
    assert [status["entity_id"] for status in shown["passed"]] == ["key"]
    assert shown["retry_after_seconds"] == error.retry_after_seconds == 12.0
    assert "12.000" in shown["message"]
    everything = error.as_dict(ancestors=True)
    assert [status["entity_id"] for status in everything["violations"]] == ["secret-org"]
    assert everything["message"] == str(error)


def test_what_lacks_of_the_caller_itself_is_told_in_full() -> None:
    error = refusal(10, of_org=1_000)
    assert error.as_dict()["message"] == str(error)
    assert [status["entity_id"] for status in error.as_dict()["violations"]] == ["key"]


@pytest.mark.parametrize(
    "copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"]
)
def test_a_refusal_can_be_copied_and_sent_to_another_process(copied: object) -> None:
    error = refusal(5, of_org=5)
    same = copied(error)  # type: ignore[operator]
    assert type(same) is type(error)
    assert (same.statuses, same.retry_after_seconds, str(same)) == (
        error.statuses,
        error.retry_after_seconds,
        str(error),
    )
