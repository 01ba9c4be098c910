"""What an acquire costs on DynamoDB: round trips, calls, write and read units, for each situation.

    .venv/bin/python benchmarks/costs.py [--quick]

Calls are counted where they leave the client, units are those that dynoxide reports, indexes included. A refused
condition is answered without a figure; DynamoDB charges it like the write it would have been, so it is counted as one
unit. Calls that are sent at the same time are one round trip. Time is a clock in hand, except where many ask at once.

How many calls a grant costs when a whole fleet is at one bucket comes from the simulator of the tests, where a round
trip takes 4 to 8 ms: writes to the bucket, and looks at it by clients that have not met it. Each figure is of ten
seconds at 200 per second, like the goals; in a shorter time the first meetings weigh more.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from presenting import OUT, circumstances

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import Request
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard, split_first
from zae_limiter.stores.dynamodb.requests import Call, Refused, Together
from zae_limiter.stores.dynamodb.schema import bucket_key, shard_key
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target, transports_for
from zae_limiter.testing import FakeClock

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines.servers import Engine, dynoxide_engine
from simulation.crowds import CLIENTS, LOADS, RUNS, measured_often

TABLE, REGION, RESOURCE = "costs-benchmark", "us-east-1", "gpt-4"
KEYS = Credentials("AKIDBENCHMARK", "not-a-secret-at-all-but-long-enough-to-be-one")
RPM, TPM = Limit.per_minute("rpm", 600), Limit.per_minute("tpm", 600_000)
WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}
MEASURED = WRITES | {"GetItem", "Query", "BatchGetItem"}
REFUSED_UNITS = 1.0
AT_ONCE = 32
SECONDS = 20.0
NUMBERS = count()


class Meter:
    """What went over the wire since the last reset."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.trips, self.writes, self.reads = 0, 0.0, 0.0
        self.operations: Counter[str] = Counter()

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        asked = {**params, "ReturnConsumedCapacity": "INDEXES"} if operation in MEASURED else params
        try:
            reply = self._transport.call(operation, asked, seconds)
        except Refused:
            self._note(operation, REFUSED_UNITS)
            raise
        consumed = reply.get("ConsumedCapacity", {})
        parts = consumed if isinstance(consumed, list) else [consumed]
        self._note(operation, sum(part.get("CapacityUnits", 0.0) for part in parts))
        return reply

    def _note(self, operation: str, units: float) -> None:
        with self._lock:
            self.operations[operation] += 1
            if operation in WRITES:
                self.writes += units
            else:
                self.reads += units

    def close(self) -> None:
        self._transport.close()


class Metered(DynamoStore):
    """A store that also counts how often it waits for answers."""

    def __init__(self, meter: Meter, target: Target, **options: Any) -> None:
        super().__init__(TABLE, target, deadline=SECONDS, transport=meter, **options)
        self._meter = meter

    def perform(self, request: Request[Any], /) -> Any:
        beside = threading.current_thread().name.startswith("zae-limiter-call")
        if isinstance(request, (Call, Together)) and not beside:
            self._meter.trips += 1
        return super().perform(request)


class Client(NamedTuple):
    """One process, as far as DynamoDB can tell."""

    store: Metered
    limiter: SyncRateLimiter

    def take(self, entity_id: str, **amounts: int) -> bool:
        """Whether it was granted."""
        try:
            with self.limiter.acquire(entity_id, RESOURCE, amounts):
                return True
        except RateLimitExceeded:
            return False


class Cost(NamedTuple):
    """What one acquire costs in a situation, on average."""

    situation: str
    acquires: int
    round_trips: float
    calls: float
    write_units: float
    read_units: float
    operations: dict[str, int]


class Stage:
    """A table, a clock in hand, and a meter for all clients."""

    def __init__(self, engine: Engine) -> None:
        self._target = Target(REGION, engine.endpoint_url, KEYS)
        self.meter = Meter(transports_for(self._target).sync())
        self.clock = FakeClock()
        self.client = self.open()
        self.run(self.client.store.create(0))
        self.client.limiter.set_system_defaults([RPM, TPM])

    def open(self) -> Client:
        store = Metered(self.meter, self._target)
        return Client(store, SyncRateLimiter(SyncRepository(store, clock=self.clock)))

    def run(self, plan: Any) -> Any:
        return SyncDriver(machine_clock, self.client.store.perform).run(plan)

    def warm(self) -> str:
        """A new entity whose bucket exists and is known."""
        entity_id = f"key-{next(NUMBERS)}"
        self.client.take(entity_id, rpm=1, tpm=500)
        self.clock.advance(60)
        return entity_id

    def cost(self, situation: str, acts: Iterator[Callable[[], object]] | Sequence[Callable[[], object]]) -> Cost:
        """What these acquires cost, each some time after the one before."""
        trips = calls = 0
        writes = reads = 0.0
        operations: Counter[str] = Counter()
        acquires = 0
        for act in acts:
            self.clock.advance(milliseconds=700)
            self.meter.reset()
            act()
            acquires += 1
            trips += self.meter.trips
            calls += self.meter.operations.total()
            writes += self.meter.writes
            reads += self.meter.reads
            operations += self.meter.operations
        each = [round(figure / acquires, 3) for figure in (trips, calls, writes, reads)]
        return Cost(situation, acquires, *each, dict(operations))


# Situations


def alone(stage: Stage) -> list[Cost]:
    """One client, one acquire at a time."""
    take, limiter = stage.client.take, stage.client.limiter
    key, other = stage.warm(), stage.warm()
    rows = [stage.cost("grant", [lambda: take(key, rpm=1, tpm=500)] * 40)]

    def settled() -> None:
        with limiter.acquire(other, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
            lease.adjust(tpm=-123)

    rows.append(stage.cost("grant and settlement", [settled] * 20))

    def failed() -> None:
        with suppress(KeyError), limiter.acquire(other, RESOURCE, {"rpm": 1, "tpm": 500}):
            raise KeyError

    rows.append(stage.cost("grant, given back as the body failed", [failed] * 20))
    poor = stage.warm()
    take(poor, rpm=600)
    denied = [lambda: take(poor, rpm=400)]
    rows.append(stage.cost("denial", denied))
    rows.append(stage.cost("denial, asked again by the same client", denied * 3))
    return rows


def of_every_kind(stage: Stage) -> list[Cost]:
    """Two even limits, and one of another kind."""
    take, rows = stage.client.take, list[Cost]()
    for situation, limit in (
        ("grant with a calendar limit", Limit.per_month("usd", 100_000, tz="Europe/Berlin")),
        ("grant with a call in flight, and its end", Limit.concurrent("calls", 20)),
        ("grant with a limit that watches", Limit.per_minute("usd", 100_000, enforce=False)),
        ("grant that a limit which watches would have refused", Limit.per_day("usd", 1, enforce=False)),
    ):
        key = f"key-{next(NUMBERS)}"
        stage.client.limiter.set_limits(key, [RPM, TPM, limit])
        take(key, rpm=1, tpm=500, **{limit.name: 1})
        stage.clock.advance(60)
        rows.append(stage.cost(situation, [partial(take, key, rpm=1, tpm=500, **{limit.name: 1})] * 20))
    return rows


def in_hierarchies(stage: Stage) -> list[Cost]:
    """Two and three levels."""
    limiter, rows = stage.client.limiter, []
    limiter.create_entity("org")
    limiter.create_entity("project", parent_id="org", cascade=True)
    limiter.create_entity("leaf-2", parent_id="org", cascade=True)
    limiter.create_entity("leaf-3", parent_id="project", cascade=True)
    for levels in (2, 3):
        leaf = f"leaf-{levels}"
        stage.client.take(leaf, rpm=1, tpm=500)
        acts = [lambda leaf=leaf: stage.client.take(leaf, rpm=1, tpm=500)] * 20
        rows.append(stage.cost(f"cascade, {levels} levels", acts))
    limiter.create_entity("poor-org")
    limiter.set_limits("poor-org", [Limit.per_minute("rpm", 1)])
    limiter.create_entity("leaf-poor", parent_id="poor-org", cascade=True)
    stage.client.take("leaf-poor", rpm=1)
    denied = [lambda: stage.client.take("leaf-poor", rpm=1)]
    rows.append(stage.cost("cascade, denied by the parent", denied))
    rows.append(stage.cost("cascade, denied by the parent again", denied))
    return rows


def cold(stage: Stage) -> list[Cost]:
    """What is not known yet."""
    known = [stage.warm() for _ in range(5)]
    fresh = stage.open()
    fresh.take(stage.warm(), rpm=1)
    new = (f"new-{number}" for number in range(5))
    rows = [stage.cost("cold: a bucket that is not there yet", [lambda: fresh.take(next(new), rpm=1)] * 5)]
    acts = [lambda key=key: fresh.take(key, rpm=1) for key in known]
    rows.append(stage.cost("cold: a bucket that this client has not seen", acts))

    def started() -> None:
        stage.open().take(known[0], rpm=1)

    rows.append(stage.cost("cold: the first acquire of a client", [started] * 3))
    return rows


def divided(stage: Stage, shards: int = 4) -> Cost:
    """A bucket of several shards."""
    key, store = stage.warm(), stage.client.store
    first = bucket_key(stage.run(store.space("default").namespace.ns()), key, RESOURCE)
    have = 1
    while have < shards:
        stage.clock.advance(2)
        until = stage.run(store.client.new_deadline())
        assert stage.run(split_first(store.client, first, stage.clock(), until))
        have *= 2
        for shard in range(1, have):
            stage.run(make_shard(store.client, shard_key(first, shard), stage.clock(), until))
    stage.clock.advance(60)
    for _ in range(4):
        stage.client.take(key, rpm=1, tpm=500)
    return stage.cost(f"sharded, {shards} shards", [lambda: stage.client.take(key, rpm=1, tpm=500)] * 40)


def recorded(stage: Stage) -> list[Cost]:
    """Leases with a record, and what operators do once."""
    limiter, key = stage.client.limiter, stage.warm()
    requests = (f"req-{number}" for number in count())
    keys = (f"inv-{number}" for number in count())
    tokens: list[str] = []

    def asked(request_id: str) -> None:
        with limiter.acquire(key, RESOURCE, {"rpm": 1, "tpm": 500}, request_id=request_id):
            pass

    def detached() -> None:
        with limiter.acquire(key, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
            tokens.append(lease.detach())

    def resumed() -> None:
        with limiter.resume(tokens.pop()) as lease:
            lease.settle(tpm=400)

    asked("known")
    return [
        stage.cost("grant with a request id", [lambda: asked(next(requests))] * 10),
        stage.cost("the same request repeated", [lambda: asked("known")] * 5),
        stage.cost("grant, detached", [detached] * 10),
        stage.cost("resumed and settled", [resumed] * 10),
        stage.cost("credit by an operator", [lambda: limiter.grant(key, RESOURCE, {"tpm": 5}, key=next(keys))] * 5),
        stage.cost("lowered to what a provider says", [lambda: limiter.lower(key, RESOURCE, {"tpm": 9_000})] * 5),
    ]


def in_turns(stage: Stage, clients: int = 8) -> Cost:
    """Several clients at one bucket, no two at once: what each knows of it is old."""
    key, chance = stage.warm(), random.Random(1)
    crowd = [stage.open() for _ in range(clients)]
    for client in crowd:
        client.take(key, rpm=1, tpm=500)
    acts = [lambda: chance.choice(crowd).take(key, rpm=3, tpm=500)] * 80
    return stage.cost(f"contended: {clients} clients in turns", acts)


def at_once(stage: Stage) -> list[Cost]:
    """Threads of one process at one bucket, and each at a bucket of its own."""
    rows = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        shared, own = [stage.warm()] * AT_ONCE, [stage.warm() for _ in range(AT_ONCE)]
        for title, keys in [("coalesced: one bucket", shared), ("a bucket each", own)]:

            def together(keys: Sequence[str] = keys) -> None:
                list(pool.map(lambda key: stage.client.take(key, rpm=1, tpm=50), keys))

            row = stage.cost(f"{title}, {AT_ONCE} threads at once", [together] * 5)
            each = {name: round(getattr(row, name) / AT_ONCE, 3) for name in Cost._fields[2:6]}
            rows.append(row._replace(acquires=row.acquires * AT_ONCE, **each))
    return rows


def measure(engine: Engine) -> list[Cost]:
    """All situations."""
    stage = Stage(engine)
    rows = [
        *alone(stage),
        *of_every_kind(stage),
        *in_hierarchies(stage),
        *cold(stage),
        divided(stage),
        *recorded(stage),
        in_turns(stage),
        *at_once(stage),
    ]
    stage.client.store.close()
    return rows


def crowds(runs: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Calls per grant of fleets at one bucket, simulated; a row per number of clients."""
    rows = []
    for clients in CLIENTS:
        tell(f"{clients} simulated clients")
        found = {str(load): measured_often(clients, load, runs=runs) for load in LOADS}
        row: dict[str, Any] = {"clients": clients}
        row["calls_per_grant"] = {load: round(crowd.calls_per_grant, 3) for load, crowd in found.items()}
        row["writes_per_grant"] = {load: round(crowd.writes_per_grant, 3) for load, crowd in found.items()}
        most = found[str(LOADS[-1])]
        row["calls_per_denial"] = round(most.calls_per_denial, 3)
        row["share_given"] = round(most.share, 4)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="every simulated fleet once, not several times")
    runs = 1 if parser.parse_args().quick else RUNS
    shows = sys.stderr.isatty()

    def tell(text: str) -> None:
        if shows:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    with dynoxide_engine() as engine:
        rows = measure(engine)
    fleets = crowds(runs, tell)
    tell("")
    for row in rows:
        print(
            f"{row.situation:<48} trips {row.round_trips:6.3f}  calls {row.calls:6.3f}  "
            f"WCU {row.write_units:6.3f}  RCU {row.read_units:6.3f}"
        )
    for fleet in fleets:
        calls, writes = fleet["calls_per_grant"], fleet["writes_per_grant"]
        print(f"{fleet['clients']:>4} clients: {calls}, writes {writes}, per denial {fleet['calls_per_denial']}")
    OUT.mkdir(exist_ok=True)
    path = OUT / "costs.json"
    found = {**circumstances(["zae-limiter"]), "rows": [row._asdict() for row in rows], "crowds": fleets}
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
