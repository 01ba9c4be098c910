"""A namespace is deleted, purged and registered again while its clients go on, and requests are lost and late.

What the next namespace of that name grants is what its own limits allow; nothing of the purge reaches it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulation.clients import Client, Task
from simulation.faults import Faults
from simulation.fleet import Fleet
from zae_limiter.exceptions import NamespaceNotFoundError, RateLimiterUnavailable, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import READ_CLOCK, Pause, Plan
from zae_limiter.stores.dynamodb.operations.namespaces import Namespaces
from zae_limiter.stores.protocol import Draw, Grant, Scope

BURST = 10
DAY = (Limit.per_day("day", BURST),)
FAULTS = Faults(lost=0.02, unanswered=0.04, late=0.1, unprocessed=0.2, short_page=0.2, index_lag=100)


class Purged:
    """A namespace, its clients, and an operator."""

    def __init__(self, seed: int) -> None:
        self.fleet = Fleet(seed, FAULTS)
        self.fleet.oracle.happened = lambda *_, **__: None  # type: ignore[method-assign]  # it knows one namespace
        self.granted: list[tuple[str, int]] = []
        self.operator = self.fleet.client()
        self.registry = Namespaces(self.operator.space.namespace.client)
        self.fleet.at_once(self.operator.space.set_config(Scope(), DAY, None, None, False, self.fleet.now))

    @property
    def ns(self) -> str | None:
        record = self.fleet.items.get(("_/SYSTEM#", "#NAMESPACE#default"))
        return None if record is None else record["ns"]["S"]

    def client(self) -> None:
        client = self.fleet.client(config_ttl_ms=1_000)
        client.start(lambda task: self._draws(client))

    def _draws(self, client: Client) -> Plan[None]:
        for _ in range(60):
            yield from Pause(int(self.fleet.rng.random() * 60))
            try:
                outcome = yield from client.space.draw(Draw("e", "r", {"day": 1}), (yield from READ_CLOCK))
            except (NamespaceNotFoundError, RateLimiterUnavailable, ValidationError):
                continue
            if isinstance(outcome, Grant):
                self.granted.append((str(self.ns), self.fleet.now))

    def operate(self, task: Task) -> Plan[None]:
        now = self.fleet.now
        yield from Pause(300)
        yield from self._insist(lambda: self.registry.delete_namespace("default", None, now), NamespaceNotFoundError)
        yield from self._insist(lambda: self.registry.purge_namespace("default"), NamespaceNotFoundError)
        yield from self._insist(lambda: self.registry.register_namespace("default", None, now))
        space = self.fleet.client().space
        yield from self._insist(lambda: space.set_config(Scope(), DAY, None, None, True, now))

    def _insist(self, verb: Callable[[], Plan[Any]], *done_before: type[Exception]) -> Plan[None]:
        """Until it is done, as an operator would. ``done_before``: a try before whose answer was lost has done it."""
        for _ in range(20):
            try:
                yield from verb()
            except RateLimiterUnavailable:
                continue
            except done_before:
                pass
            return
        raise AssertionError("it was never done")


@pytest.mark.parametrize("seed", range(30))
def test_the_next_namespace_of_a_name_is_its_own(seed: int) -> None:
    world = Purged(seed)
    fleet, old = world.fleet, world.ns
    for _ in range(4):
        world.client()
    world.operator.start(world.operate)
    fleet.run()
    new = world.ns
    assert new is not None
    assert new != old
    while isinstance(fleet.at_once(fleet.client().space.draw(Draw("e", "r", {"day": 1}), fleet.now)), Grant):
        world.granted.append((new, fleet.now))
    granted = [ns for ns, _ in world.granted if ns == new]
    buckets = [item for (pk, sk), item in fleet.items.items() if pk.startswith(f"{new}/BUCKET") and sk == "#STATE"]
    assert len(buckets) == 1
    assert len(granted) <= BURST, "the accrual of some seconds is no token"
    assert int(buckets[0]["b_day_tc"]["N"]) == BURST * 1000, "the new bucket was made once, and used up"
