"""Slots that move, masters that change: acquires go on, and nothing is counted twice."""

from __future__ import annotations

import threading
import time
from binascii import crc_hqx
from contextlib import ExitStack

from engines.redis_servers import SLOTS, RedisCluster, RedisServer, flush
from engines.servers import HOST
from support.redis_stores import consumed, events, has_no_gaps, limiter_on, store_at
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository

QUOTA = [Limit.per_day("rpd", 10**9)]
KEYS_AT_ONCE = 10
GIVE_UP_S = 30.0


def slot_of(tag: str) -> int:
    return crc_hqx(tag.encode(), 0) % SLOTS


def owner_of(slot: int, cluster: RedisCluster) -> RedisServer:
    for node in cluster.nodes:
        mine = node.ask("CLUSTER", "MYID")
        for first, last, (_, _, node_id, *_), *_ in node.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last and node_id == mine:
                return node
    raise AssertionError(f"no node has slot {slot}")


def migrate(slot: int, cluster: RedisCluster) -> None:
    """Move a slot and its keys to another node, as ``redis-cli --cluster reshard`` does."""
    source = owner_of(slot, cluster)
    target = next(node for node in cluster.nodes if node is not source)
    source_id, target_id = source.ask("CLUSTER", "MYID"), target.ask("CLUSTER", "MYID")
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, KEYS_AT_ONCE):
        source.ask("MIGRATE", HOST, target.port, "", 0, 5_000, "KEYS", *keys)
        time.sleep(0.005)
    for node in (target, source, *cluster.nodes):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)


def test_a_namespace_that_moves_to_another_node_loses_nothing(valkey_cluster: RedisCluster) -> None:
    flush(valkey_cluster.nodes)
    limiter = limiter_on(valkey_cluster)
    limiter.set_system_defaults(QUOTA)
    limiter.create_entity("org")
    keys = [f"key-{number}" for number in range(40)]
    for key in keys:
        limiter.create_entity(key, parent_id="org", cascade=True)
        with limiter.acquire(key, "gpt", {"rpd": 1}):
            pass
    told = [0, 0]
    stop = threading.Event()

    def work(place: int) -> None:
        mine = limiter_on(valkey_cluster)
        number = 0
        while not stop.is_set():
            number += 1
            with mine.acquire(keys[number % len(keys)], "gpt", {"rpd": 1}) as lease:
                lease.adjust(rpd=1)
            told[place] += 2
        mine.repository.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(told))]
    for thread in threads:
        thread.start()
    slot = slot_of("zael:ns1")
    for _ in range(3):
        before = sum(told)
        migrate(slot, valkey_cluster)
        give_up_at = time.monotonic() + GIVE_UP_S
        while sum(told) < before + 50 and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert sum(told) > before, "acquires go on after the slot has moved"
    stop.set()
    for thread in threads:
        thread.join(GIVE_UP_S)
    assert sum(consumed(limiter, key) for key in keys) == sum(told) + len(keys) == consumed(limiter, "org")
    assert sum(events(limiter, key) for key in keys) == events(limiter, "org")
    assert all(has_no_gaps(limiter, key) for key in ("org", *keys))
    limiter.repository.close()


def test_plain_urls_of_a_node_find_the_others(valkey_cluster: RedisCluster) -> None:
    flush(valkey_cluster.nodes)
    for node in valkey_cluster.nodes:
        limiter = limiter_on(node)
        limiter.set_system_defaults(QUOTA)
        with limiter.acquire("key", "gpt", {"rpd": 1}):
            pass
        limiter.repository.close()
    assert consumed(limiter_on(valkey_cluster), "key") == 3


def _offset(server: RedisServer, name: str) -> int:
    """How far a server is in the stream of writes. (WAIT would only know of writes by its own connection.)"""
    lines = server.ask("INFO", "replication").decode().splitlines()
    return int(next(line.partition(":")[2] for line in lines if line.startswith(name)))


def test_a_new_master_is_found_by_the_sentinels(redis_6_2: RedisServer) -> None:
    kind = redis_6_2.kind
    with ExitStack() as stack:
        master = stack.enter_context(RedisServer(kind))
        replica = stack.enter_context(RedisServer(kind, "--replicaof", HOST, str(master.port)))
        watch = (
            f"sentinel monitor limits {HOST} {master.port} 1\nsentinel down-after-milliseconds limits 500\n"
            "sentinel failover-timeout limits 3000\n"
        )
        sentinel = stack.enter_context(RedisServer(kind, sentinel=watch))
        url = f"redis+sentinel://{HOST}:{sentinel.port}/limits"
        limiter = SyncRateLimiter(SyncRepository(store_at(url)))
        limiter.set_system_defaults(QUOTA)
        told = 0
        for _ in range(200):
            with limiter.acquire("key", "gpt", {"rpd": 1}):
                told += 1
        give_up_at = time.monotonic() + GIVE_UP_S
        while not sentinel.ask("SENTINEL", "REPLICAS", "limits"):
            assert time.monotonic() < give_up_at, "the sentinel hears of the replica"
            time.sleep(0.05)
        while _offset(replica, "slave_repl_offset") < _offset(master, "master_repl_offset"):
            assert time.monotonic() < give_up_at, "the replica is in step"
            time.sleep(0.05)
        master.kill()
        for _ in range(50):
            with limiter.acquire("key", "gpt", {"rpd": 1}):
                told += 1
        assert b"role:master" in replica.ask("INFO", "replication")
        assert told - 3 <= consumed(limiter, "key") <= told, "what the replica had not got yet may be granted again"
        limiter.repository.close()
