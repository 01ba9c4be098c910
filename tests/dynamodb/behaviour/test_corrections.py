"""What went wrong in earlier designs, on real engines: each scenario holds, and fails when its correction is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from simulation.mutations import every_write_is_told_in_full
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.bucket import Balance
from zae_limiter.lease import lease_base
from zae_limiter.lease.ledger import postings
from zae_limiter.stores.dynamodb import write_forms
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.operations import acquire, acquire_writes
from zae_limiter.stores.dynamodb.operations.acquire import Acquire, AcquireLeg
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing import FakeClock

TABLES = count()
RPM = Limit.per_minute("rpm", 60)


class World:
    """Several clients on one table, one clock."""

    def __init__(self, engine: Engine) -> None:
        self.clock = FakeClock()
        self._target = Target("us-east-1", engine.endpoint_url)
        self._table = f"corrections-{next(TABLES)}"
        self._open: list[SyncRepository] = []
        first = self._repository()
        first._driver.run(first._create())
        self.store = first

    def _repository(self) -> SyncRepository:
        repository = SyncRepository(DynamoStore(self._table, self._target, deadline=20), clock=self.clock)
        self._open.append(repository)
        return repository

    def client(self) -> SyncRateLimiter:
        return SyncRateLimiter(self._repository())

    def item(self) -> dict[str, Any]:
        """The only bucket there is."""
        store: Any = self.store._core.store
        found = store._calls.transport().call("Scan", {"TableName": self._table}, 10)["Items"]
        (bucket,) = [item for item in found if item["SK"]["S"] == "#STATE"]
        return bucket

    def close(self) -> None:
        self.store.delete_table()
        for repository in self._open:
            repository.close()


def take(limiter: SyncRateLimiter, **amounts: int) -> None:
    with limiter.acquire("key", "gpt", amounts):
        pass


def takes(limiter: SyncRateLimiter, **amounts: int) -> bool:
    """Whether it is granted."""
    try:
        take(limiter, **amounts)
    except RateLimitExceeded:
        return False
    return True


# The scenarios


def a_full_idle_bucket_admits_its_burst_once(world: World) -> None:
    limiter = world.client()
    limiter.set_system_defaults([RPM])
    take(limiter, rpm=1)
    world.clock.advance(3_600)
    assert takes(limiter, rpm=60)
    assert not takes(limiter, rpm=1)
    world.clock.advance(3_600)
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        lease.adjust(rpm=30)
    assert limiter.available("key", "gpt") == {"rpm": 29}


def a_stale_image_takes_nothing_that_is_not_there(world: World) -> None:
    one, other = world.client(), world.client()
    one.set_system_defaults([RPM])
    take(one, rpm=10)
    take(other, rpm=50)
    assert not takes(one, rpm=20)
    assert int(world.item()["b_rpm_tk"]["N"]) == 0


def a_slow_limit_beside_a_fast_one_does_not_starve(world: World) -> None:
    limiter = world.client()
    limiter.set_system_defaults([Limit.per_second("fast", 1), Limit.per_day("slow", 50)])
    take(limiter, slow=50)
    for _ in range(50):
        world.clock.advance(milliseconds=34_573)
        take(limiter, fast=1)
    assert limiter.available("key", "gpt")["slow"] == 1


def taking_moves_no_baseline(world: World) -> None:
    limiter = world.client()
    limiter.set_system_defaults([RPM])
    take(limiter, rpm=60)
    baseline = world.item()["rf"]
    for _ in range(10):
        world.clock.advance(milliseconds=1_700)
        take(limiter, rpm=1)
    assert world.item()["rf"] == baseline


def giving_back_stops_at_the_ceiling(world: World) -> None:
    limiter = world.client()
    limiter.set_system_defaults([RPM])
    take(limiter, rpm=10)
    with suppress(ZeroDivisionError), limiter.acquire("key", "gpt", {"rpm": 30}):
        world.clock.advance(3_600)
        raise ZeroDivisionError
    item = {name: int(value["N"]) for name, value in world.item().items() if "N" in value}
    accrued = item["b_rpm_ra"] * (world.clock() - item["rf"]) // item["b_rpm_rp"]
    assert item["b_rpm_tk"] + accrued <= item["b_rpm_bx"]
    assert takes(limiter, rpm=60)
    assert not takes(limiter, rpm=1)


def a_changed_limit_is_obeyed_by_a_warm_client(world: World) -> None:
    operator, warm = world.client(), world.client()
    operator.set_resource_defaults("gpt", [RPM])
    take(warm, rpm=1)
    operator.set_resource_defaults("gpt", [Limit.per_minute("rpm", 5)])
    assert not takes(warm, rpm=6)
    operator.set_resource_defaults("gpt", [Limit.per_minute("rpm", 5), Limit.per_minute("tpm", 100)])
    assert takes(warm, rpm=1, tpm=100)
    with operator.acquire("key", "gpt", {}) as lease:
        lease.adjust(tpm=50)
    operator.set_resource_defaults("gpt", [Limit.per_minute("rpm", 5)])
    assert takes(warm, rpm=1)
    operator.set_resource_defaults("gpt", [Limit.per_minute("rpm", 5), Limit.per_minute("tpm", 100)])
    assert not takes(warm, rpm=1), "tpm is in debt"


def every_limit_of_the_bucket_can_be_adjusted(world: World) -> None:
    limiter = world.client()
    limiter.set_system_defaults([RPM, Limit.per_minute("tpm", 100)])
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        lease.adjust(tpm=150)
    assert limiter.available("key", "gpt") == {"rpm": 59, "tpm": -50}
    assert not takes(limiter, rpm=1)
    for wrong in ({"rps": 1}, {"rpm": -1}):
        with pytest.raises(ValidationError):
            take(limiter, **wrong)
    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, rpm=61)
    assert caught.value.retry_after_seconds is None


# The same with a correction undone


Patch = pytest.MonkeyPatch


def _move_without(ceiling_of_draws: bool, ceiling_of_credits: bool) -> Callable[..., int]:
    exact = write_forms.move

    def move(write: write_forms.Update, balance: Balance, limit: Limit, change: Any, **how: Any) -> int:
        delta = change.intent.deltas.get(balance.name, 0)
        if (delta > 0 and ceiling_of_draws) or (delta < 0 and ceiling_of_credits):
            accrued = balance.since_rf(change.now)
            if change.intent.needed is not None:
                write.demand(f"b_{balance.name}_tk", ">=", delta - accrued)
            write.add(f"b_{balance.name}_tk", -delta)
            write.add(f"b_{balance.name}_tc", delta)
            return 0
        return exact(write, balance, limit, change, **how)

    return move


def ignore_the_ceiling(patch: Patch) -> None:
    patch.setattr(write_forms, "move", _move_without(ceiling_of_draws=True, ceiling_of_credits=False))


def ignore_the_ceiling_for_credits(patch: Patch) -> None:
    patch.setattr(write_forms, "move", _move_without(ceiling_of_draws=False, ceiling_of_credits=True))


def _demand_all_but(ignored: Callable[[str, str], bool]) -> Callable[..., None]:
    exact = write_forms.Update.demand

    def demand(self: write_forms.Update, attribute: str, comparison: str, value: int | str) -> None:
        if not ignored(attribute, comparison):
            exact(self, attribute, comparison, value)

    return demand


def demand_no_tokens(patch: Patch) -> None:
    patch.setattr(write_forms.Update, "demand", _demand_all_but(lambda attribute, comparison: comparison == ">="))


def demand_no_version(patch: Patch) -> None:
    patch.setattr(write_forms.Update, "demand", _demand_all_but(lambda attribute, comparison: attribute == "cv"))


def move_the_baseline_with_every_take(patch: Patch) -> None:
    def rebasing(self: Acquire, leg: AcquireLeg) -> UpdateParams:
        assert leg.snapshot is not None
        leg.set_anchor()
        intent = write_forms.Intent(leg.deltas, leg.needed, leg.terms, grants=1)
        return self.parts.writer.params(
            leg.key, leg.snapshot, intent, self.now, leg.write_id, self.deadline, guess=True
        )

    for module in (acquire, acquire_writes):
        patch.setattr(module, "params_of", rebasing)


def round_the_accrual_at_every_take(patch: Patch) -> None:
    move_the_baseline_with_every_take(patch)
    seconds = 1_000

    def floored(self: Balance, now: int) -> int:
        rf = -(-self.at_rf * self.rp // self.ra)
        return max(now - rf, 0) // seconds * seconds * self.ra // self.rp

    patch.setattr(Balance, "since_rf", floored)


def lose_what_was_not_consumed(patch: Patch) -> None:
    def lossy(legs: Any, deltas: Any) -> Any:
        return postings(legs, {name: delta for name, delta in deltas.items() if name == "rpm"})

    patch.setattr(lease_base, "postings", lossy)


CORRECTIONS: dict[str, tuple[Callable[[World], None], Callable[[Patch], None]]] = {
    "C1": (a_full_idle_bucket_admits_its_burst_once, ignore_the_ceiling),
    "C2": (a_stale_image_takes_nothing_that_is_not_there, demand_no_tokens),
    "C3": (a_slow_limit_beside_a_fast_one_does_not_starve, round_the_accrual_at_every_take),
    "C4": (taking_moves_no_baseline, move_the_baseline_with_every_take),
    "C9": (giving_back_stops_at_the_ceiling, ignore_the_ceiling_for_credits),
    "C12": (a_changed_limit_is_obeyed_by_a_warm_client, demand_no_version),
    "C13": (every_limit_of_the_bucket_can_be_adjusted, lose_what_was_not_consumed),
}


@pytest.fixture
def world(engine: Engine) -> Iterator[World]:
    world = World(engine)
    yield world
    world.close()


@pytest.fixture
def other_world(dynoxide: Engine) -> Iterator[World]:
    world = World(dynoxide)
    yield world
    world.close()


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_each_correction_holds(correction: str, world: World) -> None:
    CORRECTIONS[correction][0](world)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_correction_that_is_undone_is_noticed(
    correction: str, other_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, undo = CORRECTIONS[correction]
    every_write_is_told_in_full(monkeypatch)
    undo(monkeypatch)
    with pytest.raises(AssertionError):
        scenario(other_world)
