"""What is deleted in an embedded store is gone, however often it comes and goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from zae_limiter import Limit, SyncRepository
from zae_limiter.stores.memory.store import MemorySpace
from zae_limiter.stores.sqlite.connections import Connections
from zae_limiter.stores.sqlite.store import SqliteStore

TENANTS = 200
LIMITS = [Limit.per_minute("rpm", 10)]


@pytest.fixture(params=["memory", "sqlite"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyncRepository]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"
    with SyncRepository.open(url) as repository:
        yield repository


def levels_kept(repository: SyncRepository) -> int:
    """How many levels the store has something written for."""
    space = repository._core.space
    if isinstance(space, MemorySpace):
        return len(space._tables._configs)
    store = repository._core.store
    assert isinstance(store, SqliteStore)
    connections: Connections = store._connections
    with connections.aside(lambda: 0) as connection:
        (count,) = connection.execute("SELECT count(*) FROM configs").fetchone()
        return int(count)


def test_limits_of_entities_that_come_and_go_leave_nothing(repository: SyncRepository) -> None:
    for number in range(TENANTS):
        repository.create_entity(f"tenant-{number}")
        repository.set_limits(f"tenant-{number}", LIMITS)
        repository.set_limits(f"tenant-{number}", LIMITS, resource="gpt")
    assert levels_kept(repository) == 2 * TENANTS
    for number in range(TENANTS):
        repository.delete_entity(f"tenant-{number}")
    assert levels_kept(repository) == 0


def test_limits_that_are_deleted_leave_nothing(repository: SyncRepository) -> None:
    repository.set_system_defaults(LIMITS)
    repository.set_resource_defaults("gpt", LIMITS)
    repository.set_limits("key", LIMITS, resource="gpt")
    repository.delete_limits("key", resource="gpt")
    repository.delete_resource_defaults("gpt")
    repository.delete_system_defaults()
    assert levels_kept(repository) == 0
    assert repository.list_resources_with_defaults().items == []
    assert repository.list_entities_with_custom_limits("gpt").items == []


def test_limits_are_deleted_once(repository: SyncRepository) -> None:
    repository.set_limits("key", LIMITS)
    for _ in range(2):
        repository.delete_limits("key")
    assert [event.action for event in repository.get_audit_events("key").items] == ["limits_deleted", "limits_set"]
