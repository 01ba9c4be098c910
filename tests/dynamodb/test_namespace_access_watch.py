"""The wide access switches: what looking at them costs, and what a look that comes too late undoes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from support.dynamodb.counting_transport import Counting
from zae_limiter import AccessBlocked, Limit, SyncRateLimiter, SyncRepository
from zae_limiter.models.access import Access
from zae_limiter.models.choices import AccessMode
from zae_limiter.stores.dynamodb.namespace import (
    LAGGING_MS,
    LOOK_EVERY_MS,
    AccessWatch,
    Namespace,
    switches_attributes,
)
from zae_limiter.stores.dynamodb.schema import encode_item
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.transport.botocore_fallback import BotocoreTransport
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.testing import FakeClock

TABLES = count()


class Client:
    """A limiter whose calls are counted, and whose machine's timer a test moves."""

    def __init__(self, endpoint_url: str, table: str, clock: FakeClock) -> None:
        target = Target("us-east-1", endpoint_url)
        self.calls = Counting(BotocoreTransport(target))
        self.store = DynamoStore(table, target, transport=self.calls, deadline=20)
        self.limiter = SyncRateLimiter(SyncRepository(self.store, clock=clock))

    @property
    def watch(self) -> AccessWatch:
        return self.limiter._core.space.resolver.watch  # type: ignore[attr-defined,no-any-return]

    def let_time_pass(self, milliseconds: int) -> None:
        """As if what is known had been read so much earlier."""
        self.watch.looked_at -= milliseconds

    def operations(self) -> list[str]:
        made = [cost.operation for cost in self.calls.costs]
        self.calls.reset()
        return made


@pytest.fixture
def clients(dynoxide: Engine) -> Iterator[tuple[Client, Client]]:
    name, clock = f"switches-{next(TABLES)}", FakeClock()
    with SyncRepository.open(f"dynamodb://{name}?region=us-east-1&endpoint_url={dynoxide.endpoint_url}", create=True):
        pair = Client(dynoxide.endpoint_url, name, clock), Client(dynoxide.endpoint_url, name, clock)
        pair[0].limiter.set_system_defaults([Limit.per_minute("rpm", 100)])
        for client in pair:
            take(client)
            client.calls.reset()
        yield pair
        for client in pair:
            client.store.close()


def take(client: Client) -> None:
    with client.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass


def test_a_warm_grant_looks_beside_its_write_and_only_when_that_is_due(clients: tuple[Client, Client]) -> None:
    client, _ = clients
    take(client)
    assert client.operations() == ["UpdateItem"]
    client.let_time_pass(LOOK_EVERY_MS)
    take(client)
    assert sorted(client.operations()) == ["GetItem", "UpdateItem"]
    take(client)
    assert client.operations() == ["UpdateItem"]


def test_a_grant_that_finds_itself_blocked_by_its_look_is_given_back(clients: tuple[Client, Client]) -> None:
    operator, client = clients
    operator.limiter.set_access("block")
    before = operator.limiter.available("key", "gpt")
    take(client)  # it has looked a moment ago
    client.let_time_pass(LOOK_EVERY_MS)
    with pytest.raises(AccessBlocked):
        take(client)
    assert operator.limiter.available("key", "gpt") == {"rpm": before["rpm"] - 1}


def test_an_idle_process_learns_by_the_look_of_its_first_acquire(clients: tuple[Client, Client]) -> None:
    operator, client = clients
    operator.limiter.set_access("block", resource="gpt")
    client.let_time_pass(3_600_000)
    with pytest.raises(AccessBlocked):
        take(client)


def test_a_blocked_caller_that_hammers_costs_no_call_until_a_look_is_due(clients: tuple[Client, Client]) -> None:
    operator, client = clients
    operator.limiter.set_access("block", entity_id="key")
    with pytest.raises(AccessBlocked):
        take(client)
    client.calls.reset()
    for _ in range(5):
        with pytest.raises(AccessBlocked):
            take(client)
    assert client.operations() == []


def item(version: int, **modes: str) -> dict[str, Any]:
    switches = {name: Access(AccessMode(mode), None, name) for name, mode in modes.items()}
    return encode_item(switches_attributes(version, switches))


def test_an_older_state_does_not_replace_a_newer_one_that_was_seen_of_late() -> None:
    watch = AccessWatch(Namespace(TableClient("t", deadline_ms=1, write_ids=WriteIds()), "default", corrected=False))
    watch.see(item(2, gpt="block"), 1_000)
    watch.see(item(1), 1_500)
    assert watch.concerning("gpt")
    watch.see(item(1), 1_000 + LAGGING_MS)  # a backup was restored
    assert not watch.concerning("gpt")
