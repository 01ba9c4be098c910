"""The Redis store against ``limits`` and ``throttled-py`` on the same server, in one run.

    .venv/bin/python benchmarks/redis_store.py [--quick] [--kind valkey-9.1]

A note on fairness. Ours takes from two limits in one round trip, all or nothing, resolves the limits on the server,
counts usage and can be repeated; a hit of theirs is one limit, so they are called twice, and each of their calls is a
round trip. What the server spends on a call is a row of its own: there a fixed window is cheaper than ours. Pipelined
rows send again what a contender has sent, many commands in one write: the server then never waits, and spends nothing
on waking up. (This file is not called ``redis.py``, for then no benchmark could import redis-py.)
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import limits
import limits.aio.storage
import limits.aio.strategies
import limits.storage
import limits.strategies
import redis
import throttled
from comparing import Comparison, Finding, Goal, find
from measuring import Contender, Costs, Pace, measure
from presenting import circumstances, show, write
from report_steps import REDIS_KIND

from engines.redis_servers import PROGRAMS, RedisServer
from zae_limiter import Limit, RateLimiter, SyncRateLimiter
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.redis.store import RedisStore
from zae_limiter.stores.redis.urls import servers_of

PACKAGES = ["zae-limiter", "limits", "throttled-py", "redis"]
RPM, TPM = 10**9, 10**12
LIMITS = [Limit.per_minute("rpm", RPM), Limit.per_minute("tpm", TPM)]
TASKS = 32
RECORDED = 500
"""So many operations of a contender are sent again, pipelined."""
PATIENCE_S = 3_600.0
"""What is sent again must not be too late."""
QUICK = Pace(rounds=5, seconds=0.03)
THOROUGH = Pace(rounds=15, seconds=0.1)


class Refused(Exception):
    """A limiter of the others said no."""


@contextmanager
def recorded() -> Iterator[list[bytes]]:
    """What this process sends meanwhile."""
    sent: list[bytes] = []
    original = socket.socket.sendall

    def record(self: socket.socket, data: bytes, *flags: int) -> None:
        sent.append(bytes(data))
        return original(self, data, *flags)

    socket.socket.sendall = record  # type: ignore[method-assign, assignment]
    try:
        yield sent
    finally:
        socket.socket.sendall = original  # type: ignore[method-assign]


def commands_in(data: bytes) -> list[bytes]:
    """The commands, one by one, of what was sent."""
    commands, at = [], 0
    while at < len(data):
        begins, end = at, data.index(b"\r\n", at)
        parts = int(data[at + 1 : end])
        at = end + 2
        for _ in range(parts):
            end = data.index(b"\r\n", at)
            at = end + 2 + int(data[at + 1 : end]) + 2
        commands.append(data[begins:at])
    return commands


class Loop:
    """An event loop that contenders run in, and its tasks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, work: Awaitable[object]) -> object:
        return self._loop.run_until_complete(work)

    def sharing(self, one: Callable[[int], Awaitable[None]], tasks: int) -> Callable[[int], object]:
        """Run it so many times, shared by tasks."""

        async def all_of_them(times: int) -> None:
            await asyncio.gather(*(one(times // tasks + 1) for _ in range(tasks)))

        return lambda times: self.run(all_of_them(times) if tasks > 1 else one(times))


class OnServer:
    """The contenders, all on one server."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._url = server.url
        self._servers = servers_of(urlsplit(server.url))
        self._limiter = SyncRateLimiter(SyncRepository(RedisStore(self._servers)))
        self._limiter.set_system_defaults(LIMITS)
        self._limiter.create_entity("org")
        self._limiter.create_entity("team", parent_id="org", cascade=True)
        self._limiter.create_entity("member", parent_id="team", cascade=True)
        self._loop = Loop()
        self._async_limiter = RateLimiter(Repository(RedisStore(self._servers)))
        link = redis.Connection(host=self._servers.addresses[0][0], port=server.port, protocol=2)
        link.connect()
        self._link = link
        self._pipe = redis.Connection(host=self._servers.addresses[0][0], port=server.port, protocol=2)
        self._pipe.connect()
        self._patient = SyncRateLimiter(SyncRepository(RedisStore(self._servers, deadline=PATIENCE_S)))

    def server_cpu(self) -> float:
        """Seconds of CPU that the server has spent."""
        self._link.send_command("INFO", "cpu")
        facts = dict(line.split(":") for line in self._link.read_response().decode().split() if ":" in line)
        return float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])

    # Ours

    def ours(self, entity: str = "key", *, patient: bool = False) -> Contender:
        limiter = self._patient if patient else self._limiter

        def run(times: int) -> None:
            for _ in range(times):
                with limiter.acquire(entity, "gpt-4", {"rpm": 1, "tpm": 500}):
                    pass

        name = "zae-limiter" if entity == "key" else "zae-limiter, three levels"
        return Contender(name, "with acquire, two limits" + (" on three levels" if entity != "key" else ""), run)

    def ours_settled(self) -> Contender:
        limiter = self._limiter

        def run(times: int) -> None:
            for _ in range(times):
                with limiter.acquire("key", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
                    lease.adjust(tpm=-100)

        return Contender("zae-limiter, settled", "with acquire, two limits, settled and written at the end", run)

    def ours_async(self, tasks: int) -> Contender:
        limiter = self._async_limiter

        async def one(times: int) -> None:
            for _ in range(times):
                async with limiter.acquire("key", "gpt-4", {"rpm": 1, "tpm": 500}):
                    pass

        does = f"async with acquire, two limits, {tasks} tasks"
        return Contender(f"zae-limiter, async, {tasks}", does, self._loop.sharing(one, tasks))

    def empty_script(self) -> Contender:
        """The floor: a script that does nothing, over a bare connection of redis-py."""
        link = self._link
        link.send_command("SCRIPT", "LOAD", "return 1")
        sha = link.read_response()
        call = b"*3\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n0\r\n" % sha

        def run(times: int) -> None:
            for _ in range(times):
                link.send_packed_command([call], check_health=False)
                link.read_response()

        return Contender("an empty script", "EVALSHA over a bare connection of redis-py", run)

    # Pipelined

    def pipelined(self, contender: Contender) -> Contender:
        """What a contender has sent, again and again, many commands in one write."""
        contender.run(RECORDED)
        with recorded() as sent:
            contender.run(RECORDED)
        commands = commands_in(b"".join(sent))
        per_operation, rest = divmod(len(commands), RECORDED)
        if rest:
            raise ValueError(f"{contender.name} sends {len(commands)} commands for {RECORDED} operations")

        def run(times: int) -> None:
            for first in range(0, times, RECORDED):
                some = commands[: min(RECORDED, times - first) * per_operation]
                self._forget_marks()
                data = b"".join(some)
                sending = threading.Thread(target=self._pipe.send_packed_command, args=([data], False))
                sending.start()
                for _ in some:
                    self._pipe.read_response()
                sending.join()

        return Contender(f"{contender.name}, pipelined", f"{contender.does}, pipelined", run)

    def _forget_marks(self) -> None:
        """Let what was done be done again: our writes are done once."""
        self._link.send_command("KEYS", "*}w#*")
        marks = self._link.read_response()
        if marks:
            self._link.send_command("UNLINK", *marks)
            self._link.read_response()

    # Theirs

    def limits_hits(self, keys: int, *, moving: bool = False) -> Contender:
        storage = limits.storage.storage_from_string(self._url)
        kind = limits.strategies.MovingWindowRateLimiter if moving else limits.strategies.FixedWindowRateLimiter
        hit = kind(storage).hit
        rpm, tpm = limits.RateLimitItemPerMinute(RPM), limits.RateLimitItemPerMinute(RPM if moving else TPM, 1, "tpm")
        which = "moving" if moving else "fixed"
        names = [f"{which}-{number}" for number in range(keys)]
        cost = 1 if moving else 500  # a moving window stores every token that was taken

        def run(times: int) -> None:
            for _ in range(times):
                for name in names:
                    if not (hit(rpm, name, "gpt-4") and hit(tpm, name, "gpt-4", cost=cost)):
                        raise Refused

        return Contender(f"limits, {which}, {2 * keys} hits", f"{which} window, a hit for each limit", run)

    def limits_async(self, tasks: int) -> Contender:
        storage = limits.aio.storage.RedisStorage(f"async+{self._url}", implementation="redispy")
        hit = limits.aio.strategies.FixedWindowRateLimiter(storage).hit
        rpm, tpm = limits.RateLimitItemPerMinute(RPM), limits.RateLimitItemPerMinute(TPM, 1, "tpm")

        async def one(times: int) -> None:
            for _ in range(times):
                if not (await hit(rpm, "key", "gpt-4") and await hit(tpm, "key", "gpt-4", cost=500)):
                    raise Refused

        does = f"fixed window, a hit for each of two limits, {tasks} tasks"
        return Contender(f"limits, async, 2 hits, {tasks}", does, self._loop.sharing(one, tasks))

    def throttled_twice(self) -> Contender:
        store = throttled.RedisStore(server=self._url)
        quota = throttled.rate_limiter.per_min
        kind = throttled.RateLimiterType.TOKEN_BUCKET.value
        rpm = throttled.Throttled(key="rpm", using=kind, quota=quota(RPM, burst=RPM), store=store)
        tpm = throttled.Throttled(key="tpm", using=kind, quota=quota(TPM, burst=TPM), store=store)

        def run(times: int) -> None:
            for _ in range(times):
                if rpm.limit("key").limited or tpm.limit("key", cost=500).limited:
                    raise Refused

        return Contender("throttled-py, twice", "token bucket, a call for each limit", run)


def at_most(target: float, first_step: float | None = None) -> Goal:
    return Goal(target, first_step, at_most=True)


def measured(rows: list[Comparison], pace: Pace, timer: Callable[[], float]) -> list[Finding]:
    contenders = list({one.name: one for row in rows for one in (row.ours, row.theirs)}.values())
    costs: Costs = measure(contenders, pace, timer=timer)
    return [find(row, costs) for row in rows]


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few short rounds: for trying out, not for quoting")
    parser.add_argument("--kind", choices=PROGRAMS, default=REDIS_KIND)
    chosen = parser.parse_args()
    pace = QUICK if chosen.quick else THOROUGH
    about = circumstances(PACKAGES)
    with RedisServer(chosen.kind) as server:
        on = OnServer(server)
        ours, three, fixed, moving = on.ours(), on.ours("member"), on.limits_hits(1), on.limits_hits(1, moving=True)
        settled, floor = on.ours_settled(), on.empty_script()

        def row(title: str, mine: Contender, theirs: Contender, goal: Goal | None = None) -> Comparison:
            return Comparison(title, mine, theirs, goal, cost_ratio=True)

        client = [
            row("Redis, client's CPU: acquire, two limits", ours, fixed, at_most(0.33, 0.45)),
            row("Redis, client's CPU: acquire, two limits", ours, moving),
            row("Redis, client's CPU: acquire, two limits", ours, on.throttled_twice()),
            row("Redis, client's CPU: three levels", three, on.limits_hits(3), at_most(0.17)),
            row("Redis, client's CPU: async, 1 task", on.ours_async(1), on.limits_async(1), at_most(0.3, 0.45)),
            row(
                f"Redis, client's CPU: async, {TASKS} tasks",
                on.ours_async(TASKS),
                on.limits_async(TASKS),
                at_most(0.2, 0.4),
            ),
            row("Redis, client's CPU: acquire and settle", settled, ours, at_most(2.3)),
            row("Redis, client's CPU: acquire, two limits", ours, floor),
        ]
        waits = [row("Redis, time: acquire, two limits", ours, fixed, at_most(0.6))]
        spent = [
            row("Redis, server's CPU: acquire, two limits", ours, moving, at_most(2)),
            row("Redis, server's CPU: acquire, two limits", ours, fixed),
            row("Redis, server's CPU: three levels against one", three, ours, at_most(2)),
            row("Redis, server's CPU: acquire, two limits", ours, floor),
        ]
        one_leg, three_legs = (on.pipelined(on.ours(entity, patient=True)) for entity in ("key", "member"))
        floor_piped, fixed_piped, moving_piped = (on.pipelined(one) for one in (floor, fixed, moving))
        spent += [
            row("Redis, server's CPU, pipelined: acquire, two limits", one_leg, moving_piped, at_most(2)),
            row("Redis, server's CPU, pipelined: acquire, two limits", one_leg, fixed_piped),
            row("Redis, server's CPU, pipelined: three levels against one", three_legs, one_leg, at_most(2)),
            row("Redis, server's CPU, pipelined: acquire, two limits", one_leg, floor_piped),
        ]
        on_client = measured(client, pace, time.process_time)
        on_the_wall = measured(waits, pace, time.perf_counter)
        on_server = measured(spent, pace, on.server_cpu)
        show(on_client, about)
        show(on_the_wall, about, counted="Time on the wall")
        show(on_server, about, counted="CPU of the server")
        about["server"] = chosen.kind
        print(f"written: {write('redis_store', [*on_client, *on_the_wall, *on_server], about)}")


if __name__ == "__main__":
    main()
