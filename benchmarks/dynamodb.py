"""What a call to DynamoDB costs the client: our own transports against botocore's. Ratios in one run.

    .venv/bin/python benchmarks/dynamodb.py [--quick]

The engine (dynoxide, or a server that always says the same) is another process, so what is counted is this
process's CPU only: an acquire with its plan, its transport, and the system's part in sending and receiving. Every
contender has the same limiter, the same table and limits that never run out; in steady state an acquire is one
UpdateItem. Where several work at once, each has a key of its own.

Starts are of fresh interpreters, from ``import`` to the first grant, with credentials in the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from answering import answering, certificate_in
from comparing import Comparison, Finding, Goal, find
from measuring import Contender, Costs, Pace, Run, measure
from presenting import circumstances, show, write

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target, TransportKind, transports_for
from zae_limiter.stores.dynamodb.transport.service import Service
from zae_limiter.stores.dynamodb.transport.settings import discovered_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines.servers import Engine, dynoxide_engine

PACKAGES = ["zae-limiter", "botocore", "urllib3"]
TABLE, REGION = "client-benchmark", "us-east-1"
KEYS = Credentials("AKIDBENCHMARK", "not-a-secret-at-all-but-long-enough-to-be-one")
LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
AMOUNTS = {"rpm": 1, "tpm": 500}
AT_ONCE = 32
CPU = Goal(1 / 8, 1 / 4, at_most=True)
SETTLED = Goal(1.1, at_most=True)
TWO_LEVELS = Goal(2.2, at_most=True)
NAMES: dict[TransportKind, str] = {"own": "own", "botocore": "botocore"}
SECONDS = 20.0

ONE, MANY, CANNED = Pace(rounds=15, seconds=0.02), Pace(rounds=7, seconds=0.1), Pace(rounds=15, seconds=0.04)
QUICK_ONE, QUICK_MANY, QUICK_CANNED = Pace(7, 0.01), Pace(3, 0.05), Pace(7, 0.03)
"""Seconds of the client's CPU. The engine takes ten times as long for each write, so there the rounds are short."""

STARTS, QUICK_STARTS = 5, 3

RUNNER = asyncio.Runner()
POOL = ThreadPoolExecutor(AT_ONCE)


def in_the_loop(work: Callable[[int], Coroutine[Any, Any, object]]) -> Run:
    return lambda times: RUNNER.run(work(times))


def shared_out(times: int) -> Iterator[Iterator[int]]:
    """The same operations for every worker: the worker that is free takes the next."""
    operations = iter(range(times))
    return (operations for _ in range(AT_ONCE))


# Acquires


def store(engine: Engine, how: TransportKind) -> DynamoStore:
    target = Target(REGION, engine.endpoint_url, KEYS)
    made = transports_for(target, how)
    return DynamoStore(TABLE, target, deadline=SECONDS, transport=made.sync(), async_transport=made.asynchronous())


def in_threads(opened: DynamoStore, how: TransportKind) -> tuple[Contender, Contender]:
    """One thread, and 32."""
    limiter = SyncRateLimiter(SyncRepository(opened))

    def work(key: str, operations: Iterator[int]) -> None:
        for _ in operations:
            with limiter.acquire(key, "gpt-4", AMOUNTS):
                pass

    def at_once(times: int) -> None:
        list(POOL.map(work, (f"thread-{number}" for number in range(AT_ONCE)), shared_out(times)))

    at_once(AT_ONCE * 2)
    does = "with acquire, two limits of one bucket"
    return (
        Contender(f"{NAMES[how]}, sync", does, lambda times: work("key-1", iter(range(times)))),
        Contender(f"{NAMES[how]}, {AT_ONCE} threads", does, at_once),
    )


def in_tasks(opened: DynamoStore, how: TransportKind) -> tuple[Contender, Contender]:
    """One task, and 32."""
    limiter = RateLimiter(Repository(opened))

    async def work(key: str, operations: Iterator[int]) -> None:
        for _ in operations:
            async with limiter.acquire(key, "gpt-4", AMOUNTS):
                pass

    async def one(times: int) -> None:
        await work("key-1", iter(range(times)))

    async def at_once(times: int) -> None:
        await asyncio.gather(*(work(f"task-{number}", part) for number, part in enumerate(shared_out(times))))

    RUNNER.run(at_once(AT_ONCE * 2))
    does = "async with acquire, two limits of one bucket"
    return (
        Contender(f"{NAMES[how]}, async", does, in_the_loop(one)),
        Contender(f"{NAMES[how]}, {AT_ONCE} tasks", does, in_the_loop(at_once)),
    )


# Acquires whose write is answered always the same, by a server that does nothing else


class Recorder:
    """Remembers the last reply to an UpdateItem."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.reply: dict[str, Any] = {}

    def call(self, operation: str, params: Any, seconds: float) -> Any:
        reply = self._transport.call(operation, params, seconds)
        if operation == "UpdateItem":
            self.reply = reply
        return reply

    def close(self) -> None:
        self._transport.close()


class Split:
    """Writes go to one place, everything else to another. In both worlds: what is returned may be awaited."""

    def __init__(self, writes: Any, others: Any) -> None:
        self._writes, self._others = writes, others

    def call(self, operation: str, params: Any, seconds: float) -> Any:
        return (self._writes if operation == "UpdateItem" else self._others).call(operation, params, seconds)

    def begin(self, operation: str, params: Any, seconds: float, *ended: Any) -> Any:
        """As :meth:`call`, without waiting or a task, for transports that can; ``ended`` hears how it went."""
        begin = getattr(self._writes if operation == "UpdateItem" else self._others, "begin", None)
        return None if begin is None else begin(operation, params, seconds, *ended)

    def close(self) -> Any:
        return self._writes.close()


def recorded(engine: Engine) -> str:
    """What the engine says to the write of an acquire."""
    target = Target(REGION, engine.endpoint_url, KEYS)
    recorder = Recorder(transports_for(target).sync())
    limiter = SyncRateLimiter(SyncRepository(DynamoStore(TABLE, target, deadline=SECONDS, transport=recorder)))
    for _ in range(2):
        with limiter.acquire("key-1", "gpt-4", AMOUNTS):
            pass
    return json.dumps(dict(recorder.reply), separators=(",", ":"))  # as DynamoDB writes it


def split_store(engine: Engine, url: str, how: TransportKind) -> DynamoStore:
    target = Target(REGION, engine.endpoint_url, KEYS)
    writes, others = transports_for(Target(REGION, url, KEYS), how), transports_for(target, how)
    return DynamoStore(
        TABLE,
        target,
        deadline=SECONDS,
        transport=Split(writes.sync(), others.sync()),
        async_transport=Split(writes.asynchronous(), others.asynchronous()),
    )


def measure_answered_acquires(engine: Engine, pace: Pace, tell: Callable[[str], None]) -> list[Finding]:
    with answering(recorded(engine)) as url:
        findings = []
        for title, make in [("sync", in_threads), ("async", in_tasks)]:
            own, theirs = (make(split_store(engine, url, how), how)[0] for how in NAMES)
            findings.append(compared(f"acquire, {title}, canned answer", [own, theirs], pace, CPU, tell))
    return findings


def measure_acquires(engine: Engine, one: Pace, many: Pace, tell: Callable[[str], None]) -> list[Finding]:
    rows: list[tuple[str, Contender, Contender, Pace]] = []
    for title, make in [("acquire, sync", in_threads), ("acquire, async", in_tasks)]:
        own, theirs = (make(store(engine, how), how) for how in NAMES)
        rows.append((title, own[0], theirs[0], one))
        rows.append((f"{title}, {AT_ONCE} at once", own[1], theirs[1], many))
    return [compared(title, [ours, theirs], pace, CPU, tell) for title, ours, theirs, pace in rows]


# More than one write: what is settled, and a hierarchy


def leases_in_threads(limiter: SyncRateLimiter) -> Iterator[Contender]:
    """An acquire that is settled, two acquires, one acquire, and one that takes from a parent too."""

    def work(key: str, times: int, *, settles: bool = False) -> None:
        for _ in range(times):
            with limiter.acquire(key, "gpt-4", AMOUNTS) as lease:
                if settles:
                    lease.settle(tpm=700)

    for key in ("key-1", "child"):
        work(key, 3)
    yield Contender("acquire and settle, sync", "two writes", lambda times: work("key-1", times, settles=True))
    yield Contender("two acquires, sync", "two writes", lambda times: work("key-1", 2 * times))
    yield Contender("one level, sync", "one write", lambda times: work("key-1", times))
    yield Contender("two levels, sync", "two writes at once", lambda times: work("child", times))


def leases_in_tasks(limiter: RateLimiter) -> Iterator[Contender]:
    """The same."""

    async def work(key: str, times: int, *, settles: bool = False) -> None:
        for _ in range(times):
            async with limiter.acquire(key, "gpt-4", AMOUNTS) as lease:
                if settles:
                    await lease.settle(tpm=700)

    for key in ("key-1", "child"):
        RUNNER.run(work(key, 3))
    yield Contender(
        "acquire and settle, async", "two writes", in_the_loop(lambda times: work("key-1", times, settles=True))
    )
    yield Contender("two acquires, async", "two writes", in_the_loop(lambda times: work("key-1", 2 * times)))
    yield Contender("one level, async", "one write", in_the_loop(lambda times: work("key-1", times)))
    yield Contender("two levels, async", "two writes at once", in_the_loop(lambda times: work("child", times)))


def measure_leases(engine: Engine, pace: Pace, tell: Callable[[str], None]) -> list[Finding]:
    findings = []
    sync, asynchronous = (store(engine, "own") for _ in range(2))
    in_both_worlds = (
        leases_in_threads(SyncRateLimiter(SyncRepository(sync))),
        leases_in_tasks(RateLimiter(Repository(asynchronous))),
    )
    for settled, twice, one, two in in_both_worlds:
        findings.append(compared(settled.name, [settled, twice], pace, SETTLED, tell))
        findings.append(compared(two.name, [two, one], pace, TWO_LEVELS, tell))
    return findings


# What no client in Python can do without: the same bytes over a socket, and a signature


def exchanged(url: str) -> Run:
    """The same request over one connection, again and again."""
    settings = discovered_settings(Target(REGION, url, KEYS), "dynamodb")
    assert settings is not None
    request = Service(settings, "dynamodb").sign("UpdateItem", update(), KEYS).data
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(SECONDS)

    def run(times: int) -> None:
        for _ in range(times):
            connection.sendall(request)
            connection.recv(65536)

    return run


def measure_floor(engine: Engine, pace: Pace, tell: Callable[[str], None]) -> list[Finding]:
    """What an acquire costs beyond the bytes that go over the wire, with the engine and with canned answers."""
    findings = []
    with answering(recorded(engine)) as url:
        for title, opened, where in [
            ("acquire, sync", store(engine, "own"), engine.endpoint_url),
            ("acquire, sync, canned answer", split_store(engine, url, "own"), url),
        ]:
            own = in_threads(opened, "own")[0]
            bare = Contender("send and receive", "one request of the same size, signed before", exchanged(where))
            findings.append(compared(f"{title}, beside the bare exchange", [own, bare], pace, None, tell))
    return findings


def compared(
    title: str, both: Sequence[Contender], pace: Pace, goal: Goal | None, tell: Callable[[str], None]
) -> Finding:
    costs = measure(both, pace, lambda text: tell(f"{title}: {text}"))
    return find(Comparison(title, both[0], both[1], goal, cost_ratio=True), costs)


# Single calls, to a server that always says the same


def item() -> str:
    """An answer of the size that an acquire has."""
    attributes = ",".join(f'"b_limit_{number}":{{"N":"{10**9 + number}"}}' for number in range(36))
    return f'{{"Attributes":{{{attributes}}}}}'


def update() -> dict[str, Any]:
    """A call of the size that an acquire has."""
    names = {f"#{number}": f"b_limit_{number}" for number in range(14)}
    values = {f":{number}": {"N": str(10**12 + number)} for number in range(13)}
    condition = " AND ".join(f"#{number} = :{number}" for number in range(9))
    return {
        "TableName": TABLE,
        "Key": {"PK": {"S": "a-namespace/BUCKET#key-1#gpt-4#0"}, "SK": {"S": "#STATE"}},
        "UpdateExpression": "SET " + ", ".join(f"#{number} = :{number}" for number in range(12)),
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        "ReturnValues": "ALL_NEW",
    }


def single_calls(url: str, how: TransportKind) -> tuple[Contender, Contender]:
    made = transports_for(Target(REGION, url, KEYS), how)
    sync, asynchronous = made.sync(), made.asynchronous()
    params = update()

    def run(times: int) -> None:
        for _ in range(times):
            sync.call("UpdateItem", params, SECONDS)

    async def work(times: int) -> None:
        for _ in range(times):
            await asynchronous.call("UpdateItem", params, SECONDS)

    does = "one UpdateItem, answered always the same"
    return (
        Contender(f"{NAMES[how]}, sync", does, run),
        Contender(f"{NAMES[how]}, async", does, in_the_loop(work)),
    )


def measure_calls(pace: Pace, tell: Callable[[str], None]) -> list[Finding]:
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        certificate = certificate_in(folder)
        os.environ["AWS_CA_BUNDLE"] = certificate[0]
        for over, shown in [("plain", []), ("TLS", certificate)]:
            with answering(item(), shown) as url:
                own, theirs = single_calls(url, "own"), single_calls(url, "botocore")
                for ours, other in zip(own, theirs, strict=True):
                    title = f"one call, {ours.name.rpartition(' ')[2]}, {over}"
                    findings.append(compared(title, [ours, other], pace, None, tell))
    return findings


# Starts

STARTING = """
import sys, time
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import transports_for
from zae_limiter.stores.dynamodb.transport.protocol import Target

url, how, world, what = sys.argv[1:]
target = Target(None, url)
made = transports_for(target, how)
carried = {"transport": made.sync()} if world == "sync" else {"async_transport": made.asynchronous()}
store = DynamoStore("client-benchmark", target, deadline=20, **carried)
amounts = {"rpm": 1, "tpm": 500}
if world == "sync":
    from zae_limiter import SyncRateLimiter, SyncRepository

    limiter = SyncRateLimiter(SyncRepository(store))
    with limiter.acquire("key-1", "gpt-4", amounts):
        pass
else:
    import asyncio
    from zae_limiter import RateLimiter, Repository

    async def main():
        async with RateLimiter(Repository(store)).acquire("key-1", "gpt-4", amounts):
            pass
        await store.aclose()
    asyncio.run(main())
if what == "cpu":
    print(time.process_time())
else:
    print(*sorted({name.partition(".")[0] for name in sys.modules} & set(what.split(","))))
"""


COMPILED = tempfile.TemporaryDirectory(prefix="client-benchmark-")
"""Where starts find the modules that the first one, which is not counted, has compiled: as installed programs do."""


def started(engine: Engine, how: TransportKind, world: str, what: str) -> str:
    """What a fresh interpreter tells after its first grant."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
    environment |= {"AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1]}
    environment["PYTHONPYCACHEPREFIX"] = COMPILED.name
    command = [sys.executable, "-c", STARTING, engine.endpoint_url, how, world, what]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def measure_starts(engine: Engine, rounds: int, tell: Callable[[str], None]) -> list[Finding]:
    findings = []
    for world in ("sync", "async"):
        seconds: dict[str, list[float]] = {"own": [], "botocore": []}
        wall: dict[str, list[float]] = {"own": [], "botocore": []}
        for number in range(rounds + 1):
            tell(f"start, {world}: round {number} of {rounds}")
            for how in NAMES:
                began = time.monotonic()
                cpu = float(started(engine, how, world, "cpu"))
                if number:
                    seconds[how].append(cpu)
                    wall[how].append(time.monotonic() - began)
        ours, theirs = (Contender(how, "a fresh interpreter to its first grant", _never) for how in NAMES)
        for counted, costs in [("CPU", seconds), ("wall", wall)]:
            row = Comparison(f"start to first grant, {world}, {counted}", ours, theirs, cost_ratio=True)
            findings.append(find(row, Costs(costs)))
    return findings


def _never(times: int) -> None:
    raise AssertionError("starts are measured by measure_starts")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = arguments.parse_args().quick
    shows = sys.stderr.isatty()

    def tell(text: str) -> None:
        if shows:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    with dynoxide_engine() as engine:
        limiter = SyncRateLimiter(SyncRepository(store(engine, "own")))
        limiter.repository._driver.run(limiter.repository._core.store.create(0))
        limiter.set_system_defaults(LIMITS)
        limiter.create_entity("parent")
        limiter.create_entity("child", parent_id="parent", cascade=True)
        one, many, canned = (QUICK_ONE, QUICK_MANY, QUICK_CANNED) if quick else (ONE, MANY, CANNED)
        findings = measure_acquires(engine, one, many, tell)
        findings += measure_leases(engine, one, tell)
        findings += measure_answered_acquires(engine, canned, tell)
        findings += measure_floor(engine, one, tell)
        findings += measure_calls(canned, tell)
        findings += measure_starts(engine, QUICK_STARTS if quick else STARTS, tell)
        loaded = started(engine, "own", "sync", "botocore,urllib3,http,email")
    tell("")
    about = circumstances(PACKAGES)
    show(findings, about)
    print(f"Loaded by a start with our own transport, of botocore and its like: {loaded or 'nothing'}.")
    print(f"written: {write('dynamodb', findings, about)}")
    POOL.shutdown()
    COMPILED.cleanup()


if __name__ == "__main__":
    main()
