"""One transport in many threads, tasks, event loops and forked processes."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from engines.servers import Engine
from support.transports import ASYNC_TRANSPORTS, SECONDS, SYNC_TRANSPORTS, Ask, add, get, put, target_of
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport import botocore_fallback
from zae_limiter.stores.dynamodb.transport.botocore_fallback import AsyncBotocoreTransport
from zae_limiter.stores.dynamodb.transport.protocol import Target

pytestmark = pytest.mark.usefixtures("no_credentials_here")


@SYNC_TRANSPORTS
def test_threads_share_one_transport(make: Any, engine: Engine, table: str) -> None:
    transport = make(target_of(engine))

    def work() -> None:
        for _ in range(20):
            transport.call("UpdateItem", add(table, "shared"), SECONDS)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert transport.call("GetItem", get(table, "shared"), SECONDS)["Item"]["n"] == {"N": "160"}
    transport.close()


@ASYNC_TRANSPORTS
def test_tasks_share_one_transport(make: Any, engine: Engine, table: str) -> None:
    async def main() -> Mapping[str, Any]:
        transport = make(target_of(engine))
        await asyncio.gather(*(transport.call("UpdateItem", add(table, "shared"), SECONDS) for _ in range(160)))
        try:
            return await transport.call("GetItem", get(table, "shared"), SECONDS)
        finally:
            await transport.close()

    assert asyncio.run(main())["Item"]["n"] == {"N": "160"}


@ASYNC_TRANSPORTS
def test_one_transport_serves_loops_one_after_the_other_and_leaves_nothing_open(
    make: Any, engine: Engine, table: str
) -> None:
    transport = make(target_of(engine))
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        for _ in range(3):
            asyncio.run(_awaited(transport.call("UpdateItem", add(table, "loops"), SECONDS)))
            gc.collect()
        assert asyncio.run(_awaited(transport.call("GetItem", get(table, "loops"), SECONDS)))["Item"]["n"] == {
            "N": "3"
        }
        del transport
        gc.collect()
    assert [str(complaint.message) for complaint in complaints] == []


@ASYNC_TRANSPORTS
def test_a_transport_that_is_forgotten_in_its_loop_leaves_nothing_open(make: Any, engine: Engine, table: str) -> None:
    async def main() -> None:
        await make(target_of(engine)).call("GetItem", get(table, "a"), SECONDS)
        gc.collect()
        await asyncio.sleep(0.1)

    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(complaint.message) for complaint in complaints] == []


@ASYNC_TRANSPORTS
def test_loops_in_two_threads_at_once_each_have_a_client_and_one_closes_both(
    make: Any, engine: Engine, table: str
) -> None:
    transport = make(target_of(engine))
    closed = threading.Event()
    called = threading.Barrier(2, timeout=30)
    failures: list[BaseException] = []

    async def other() -> None:
        await transport.call("UpdateItem", add(table, "both"), SECONDS)
        await asyncio.to_thread(called.wait)
        for _ in range(200):
            if closed.is_set():
                break
            await asyncio.sleep(0.05)

    async def main() -> None:
        await transport.call("UpdateItem", add(table, "both"), SECONDS)
        await asyncio.to_thread(called.wait)
        await transport.close()
        closed.set()

    def run_other() -> None:
        try:
            asyncio.run(other())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run_other)
    thread.start()
    asyncio.run(main())
    thread.join(30)
    assert closed.is_set()
    assert failures == []


@SYNC_TRANSPORTS
def test_a_closed_transport_opens_again(make: Any, engine: Engine, table: str) -> None:
    transport = make(target_of(engine))
    for _ in range(2):
        transport.call("GetItem", get(table, "a"), SECONDS)
        transport.close()
        transport.close()


@ASYNC_TRANSPORTS
def test_a_closed_transport_opens_again_in_the_same_loop(make: Any, engine: Engine, table: str) -> None:
    async def main() -> None:
        transport = make(target_of(engine))
        for _ in range(2):
            await transport.call("GetItem", get(table, "a"), SECONDS)
            await transport.close()
            await transport.close()

    asyncio.run(main())


def test_a_caller_who_gives_up_early_does_not_stop_the_client_from_being_made(
    engine: Engine, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[Target] = []
    given_up = threading.Event()

    def counted(target: Target) -> Any:
        began.append(target)
        assert given_up.wait(20)
        return make_session(target)

    async def main() -> None:
        transport = AsyncBotocoreTransport(target_of(engine))
        with pytest.raises(NoAnswer):
            await transport.call("GetItem", get(table, "a"), 0.001)
        given_up.set()
        await transport.call("GetItem", get(table, "a"), SECONDS)
        await transport.close()

    make_session = botocore_fallback._session
    monkeypatch.setattr(botocore_fallback, "_session", counted)
    asyncio.run(main())
    assert len(began) == 1


@ASYNC_TRANSPORTS
def test_cancelling_a_call_leaves_the_transport_usable(make: Any, engine: Engine, table: str) -> None:
    async def main() -> None:
        transport = make(target_of(engine))
        await transport.call("PutItem", put(table, "a"), SECONDS)
        tasks = [asyncio.create_task(transport.call("UpdateItem", add(table, "a"), SECONDS)) for _ in range(20)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        answered = [outcome for outcome in outcomes if not isinstance(outcome, asyncio.CancelledError)]
        assert 0 < len(answered) < len(tasks)
        counted = await transport.call("GetItem", get(table, "a"), SECONDS)
        assert len(answered) <= int(counted["Item"]["n"]["N"]) <= len(tasks)
        await transport.close()

    asyncio.run(main())


FORKING = """
import asyncio, gc, os, sys
from zae_limiter.stores.dynamodb.transport.protocol import Target, transports_for

url, table, world, how = sys.argv[1:]
transports = transports_for(Target("us-east-1", url), how)
transport = transports.sync() if world == "sync" else transports.asynchronous()
params = {
    "TableName": table, "Key": {"PK": {"S": "forks"}}, "UpdateExpression": "ADD #n :one",
    "ExpressionAttributeNames": {"#n": "n"}, "ExpressionAttributeValues": {":one": {"N": "1"}},
}

def sockets():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return {name for name in found if name.startswith("socket:")}

def call(times):
    if world == "sync":
        for _ in range(times):
            transport.call("UpdateItem", params, 5)
        return
    async def main():
        for _ in range(times):
            await transport.call("UpdateItem", params, 5)
    loops[-1].run_until_complete(main())

def close():
    if world == "sync":
        transport.close()
    else:
        loops[-1].run_until_complete(transport.close())

loops = [asyncio.new_event_loop()]
call(5)
mine = sockets()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        loops.append(asyncio.new_event_loop())
        call(20)
        code = 0 if sockets() - mine else 3
        if (world, how) == ("async", "own") and {loop for loop, _ in transport._process._lifetimes} != {loops[-1]}:
            code = 4
        close()
        gc.collect()
        os._exit(code)
    children.append(child)
call(20)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
call(5)
assert codes == [0, 0, 0], codes
close()
loops[-1].close()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("how", ["own", "botocore"])
@pytest.mark.parametrize("world", ["sync", "async"])
def test_a_forked_child_has_connections_of_its_own(
    world: str, how: str, engine: Engine, table: str, asking_engine: Ask
) -> None:
    threads = "ignore:This process"  # what Python 3.12 says to a fork beside the threads that carry botocore's calls
    command = [sys.executable, "-W", "error", "-W", threads, "-c", FORKING, engine.endpoint_url, table, world, how]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert asking_engine("GetItem", get(table, "forks"))["Item"]["n"] == {"N": "90"}


async def _awaited(reply: Awaitable[Any]) -> Any:
    return await reply
