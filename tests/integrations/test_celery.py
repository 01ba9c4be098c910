"""Tasks of Celery on a worker: over a limit they go back to the queue, and none is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from support.provider_books import eventually, still_limiter, taken
from zae_limiter import Limit, RateLimitExceeded, RequestExceedsBurst, ValidationError
from zae_limiter.integrations.celery import LimitedTask, current_lease
from zae_limiter.testing import sync_memory_limiter


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("limited", broker="memory://", backend="cache+memory://")
    app.conf.update(task_always_eager=False, worker_hijack_root_logger=False, broker_connection_retry_on_startup=False)
    yield app
    app.close()


def test_tasks_over_the_limit_come_again_when_they_fit(app: Celery) -> None:
    limiter = sync_memory_limiter([Limit.custom("requests", 3, 20, 1)])
    done: list[int] = []
    begun: list[int] = []
    lock = threading.Lock()

    @app.task(base=LimitedTask, limiter=limiter, entity="{team}", resource="gpt", longest_wait=0.0)
    def work(team: str, number: int) -> None:
        with lock:
            done.append(number)

    @app.task
    def count(number: int) -> None:
        begun.append(number)

    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
        for number in range(9):
            work.delay("blue", number)
        eventually(lambda: len(done) == 9, 60)
    assert sorted(done) == list(range(9))
    assert limiter.get_status("blue").buckets[0].total_events == 9


def test_a_task_settles_and_one_that_fails_gives_back(app: Celery) -> None:
    limiter = still_limiter([Limit.per_day("requests", 10), Limit.per_day("tpm", 1_000)])

    @app.task(
        base=LimitedTask,
        limiter=lambda: limiter,
        entity=lambda team, *_: team,
        resource="gpt",
        consume=lambda team, size: {"requests": 1, "tpm": size},
    )
    def work(team: str, size: int) -> None:
        lease = current_lease()
        assert lease is not None
        if size > 100:
            raise ZeroDivisionError
        lease.settle(tpm=7)

    work("blue", 50)
    assert taken(limiter, "blue") == {"requests": 1, "tpm": 7}
    with pytest.raises(ZeroDivisionError):
        work("blue", 500)
    assert taken(limiter, "blue") == {"requests": 1, "tpm": 7}
    assert current_lease() is None
    with pytest.raises(RequestExceedsBurst):
        work("blue", 1_001)


def test_a_task_that_is_called_directly_says_what_lacks(app: Celery) -> None:
    limiter = still_limiter([Limit.per_day("requests", 1)])

    @app.task(base=LimitedTask, limiter=limiter, resource="gpt", longest_wait=0.0)
    def work() -> str:
        return "done"

    assert work() == "done"
    with pytest.raises(RateLimitExceeded):
        work()


def test_a_limiter_is_needed(app: Celery) -> None:
    @app.task(base=LimitedTask)
    def work() -> None: ...

    with pytest.raises(ValidationError, match="SyncRateLimiter"):
        work()
