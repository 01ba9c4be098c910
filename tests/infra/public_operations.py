"""Every public operation, performed on a real table by a client that knows nothing yet, and what IAM was asked for it.

The operations stand in the order they are performed in. Each begins with a client of its own, so that what a client
reads when it meets a namespace, an entity or a bucket for the first time is noted too. What prepares the ground for
them is not noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from recorded_calls import Question, Recording

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport

SECONDS = 20.0
LIMITS = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]
OTHERS = [Limit.per_minute("rpm", 200), Limit.per_minute("tpm", 20_000)]
NAMESPACE = "acme"
LOST_ANSWERS = 6
"""In so many acquires one answer gets lost, another one each time."""


class Failed(Exception):
    """How the body of a lease ends badly."""


class World:
    """A table, a namespace of it, and the recording of everything that is asked of it."""

    def __init__(self, endpoint_url: str, table: str) -> None:
        self.target = Target("us-east-1", endpoint_url)
        self.table = table
        self.transport = SocketTransport(self.target)
        self.recording = Recording(self.transport)
        self.ground = SyncRateLimiter(self._repository("default", self.transport))
        """An operator, whose calls are not noted."""

    def _repository(self, namespace: str, transport: SocketTransport | Recording) -> SyncRepository:
        store = DynamoStore(self.table, self.target, transport=transport, deadline=SECONDS)
        return SyncRepository(store, namespace=namespace)

    def prepare(self) -> str:
        """A namespace with a hierarchy and limits; its id."""
        info = self.ground.repository.register_namespace(NAMESPACE)
        self.ground = SyncRateLimiter(self._repository(NAMESPACE, self.transport))
        self.ground.set_system_defaults(LIMITS)
        self.ground.create_entity("org")
        self.ground.create_entity("team", parent_id="org", cascade=True)
        self.ground.create_entity("key", parent_id="team", cascade=True)
        self.ground.set_limits("org", OTHERS)
        self.ns = info.id
        return info.id

    def newcomer(self) -> SyncRateLimiter:
        """A client that has never been here, and whose calls are noted."""
        return SyncRateLimiter(self._repository(NAMESPACE, self.recording))

    def remove_bucket(self, entity_id: str) -> None:
        """As if it had expired."""
        key = bucket_key(self.ns, entity_id, "gpt")
        params = {"TableName": self.table, "Key": {"PK": {"S": key.pk}, "SK": {"S": key.sk}}}
        self.transport.call("DeleteItem", params, SECONDS)

    def close(self) -> None:
        self.transport.close()


def take(limiter: SyncRateLimiter, entity_id: str = "key", **how: object) -> None:
    with limiter.acquire(entity_id, "gpt", {"rpm": 1, "tpm": 10}, **how):  # type: ignore[arg-type]
        pass


def acquire(limiter: SyncRateLimiter, world: World) -> None:
    """All an acquire may have to do: create buckets up a hierarchy, draw, follow new limits, be denied, wait."""
    take(limiter)
    take(limiter)
    world.remove_bucket("team")
    take(limiter)
    take(limiter, limits=LIMITS)
    world.ground.set_limits("key", OTHERS, propagate=False)
    limiter.repository.invalidate_config_cache()
    take(limiter)
    scarce = [Limit.per_day("rpm", 1), Limit.per_day("tpm", 10)]
    take(limiter, "poor", limits=scarce)
    with suppress(RateLimitExceeded):
        take(limiter, "poor", limits=scarce, timeout=0.05)


def lease(limiter: SyncRateLimiter, world: World) -> None:
    """All that is done with a lease: corrections, more, less, and both endings; also when the bucket is gone."""
    with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as held:
        held.adjust(tpm=50)
        held.flush()
        held.consume(tpm=5)
        held.release(tpm=5)
        held.renew()
        held.settle(rpm=1, tpm=40)
    with suppress(Failed), limiter.acquire("key", "gpt", {"rpm": 1}):
        raise Failed
    with limiter.acquire("key", "gpt", {"rpm": 1}, request_id="req-1"):
        pass
    with limiter.acquire("key", "gpt", {"rpm": 1}) as held:
        token = held.detach()
    with limiter.resume(token) as held:
        held.settle(tpm=3)
    with limiter.acquire("key", "gpt", {"rpm": 1}) as held:
        held.adjust(tpm=1)
        held.close()
    with limiter.acquire("key", "gpt", {"rpm": 1}) as held:
        world.remove_bucket("key")
        held.adjust(tpm=1)
        held.commit()


def lost_answers(limiter: SyncRateLimiter, world: World) -> None:
    """Acquires of which an answer gets lost on the way, of new buckets and of old ones."""
    for entity_id in ("key", "somebody"):
        for number in range(1, LOST_ANSWERS):
            world.remove_bucket(entity_id)
            for _ in range(2):
                world.recording.lose_answer(number)
                with suppress(Failed), limiter.acquire(entity_id, "gpt", {"rpm": 1}) as held:
                    held.adjust(tpm=number)
                    if number % 2:
                        raise Failed
            world.recording.lose_answer(None)
        limiter.repository.invalidate_config_cache()


def resume(limiter: SyncRateLimiter, world: World) -> None:
    """A lease that another client has detached: settled, and given back."""
    for failed in (False, True):
        with world.ground.acquire("key", "gpt", {"rpm": 1}) as held:
            token = held.detach()
        with suppress(Failed), limiter.resume(token) as held:
            held.settle(tpm=7)
            if failed:
                raise Failed


def write_pulse(limiter: SyncRateLimiter, world: World) -> None:
    """What a process with a pulse tells of itself."""
    repository = limiter.repository
    core = repository._core
    told = SyncRateLimiter(SyncRepository(core.store, namespace=core.namespace, clock=core.clock, pulse=True))
    take(told, timeout=5.0)  # the bucket was lowered just before
    told.repository._core.stop_threads()
    told.write_pulse()


def probe(limiter: SyncRateLimiter, world: World) -> None:
    """What a client asks from time to time when there was no answer for a while."""
    store = limiter.repository._core.store
    assert isinstance(store, DynamoStore)
    store._calls._probe()


Performance = Callable[[SyncRateLimiter, World], object]

ACQUIRING: Mapping[str, Performance] = {
    "acquire": acquire,
    "lease": lease,
    "lost answers": lost_answers,
    "probe": probe,
    "available": lambda limiter, _: limiter.available("key", "gpt"),
    "time_until_available": lambda limiter, _: limiter.time_until_available("key", "gpt", {"rpm": 1}),
    "is_available": lambda limiter, _: limiter.is_available(),
    "check": lambda limiter, _: [limiter.check(), limiter.check("key", "gpt", {"rpm": 1})],
    "resolve_limits": lambda limiter, _: limiter.repository.resolve_limits("key", "gpt"),
    "resume": resume,
    "get_lease": lambda limiter, _: limiter.get_lease("zl1.req-1"),
    "lower": lambda limiter, _: limiter.lower("key", "gpt", {"tpm": 5}),
    "write_pulse": write_pulse,
}
"""What a program does that limits its own calls."""

READING: Mapping[str, Performance] = {
    "get_status": lambda limiter, _: [limiter.get_status("key"), limiter.get_status("key", "gpt")],
    "get_entity": lambda limiter, _: limiter.get_entity("key"),
    "get_children": lambda limiter, _: limiter.get_children("org"),
    "list_entities": lambda limiter, _: limiter.list_entities(),
    "get_limits": lambda limiter, _: limiter.get_limits("org"),
    "get_resource_defaults": lambda limiter, _: limiter.get_resource_defaults("gpt"),
    "get_system_defaults": lambda limiter, _: limiter.get_system_defaults(),
    "list_resources_with_defaults": lambda limiter, _: limiter.list_resources_with_defaults(),
    "list_entities_with_custom_limits": lambda limiter, _: limiter.list_entities_with_custom_limits(),
    "get_resource_capacity": lambda limiter, _: limiter.get_resource_capacity("gpt", "rpm"),
    "get_audit_events": lambda limiter, _: [limiter.get_audit_events(), limiter.get_audit_events("org")],
    "get_usage_snapshots": lambda limiter, _: [
        limiter.get_usage_snapshots("key"),
        limiter.get_usage_snapshots("key", "gpt"),
        limiter.get_usage_snapshots(resource="gpt"),
    ],
    "get_usage_summary": lambda limiter, _: [
        limiter.get_usage_summary("key"),
        limiter.get_usage_summary(resource="gpt"),
        limiter.get_usage_summary(),
    ],
    "get_top_usage": lambda limiter, _: [limiter.get_top_usage(), limiter.get_top_usage(resource="gpt")],
    "verify_usage": lambda limiter, _: limiter.verify_usage("key"),
    "get_tightest_buckets": lambda limiter, _: [limiter.get_tightest_buckets(), limiter.get_tightest_buckets("gpt")],
    "get_access": lambda limiter, _: [limiter.get_access(), limiter.get_access(entity_id="key", resource="gpt")],
    "list_access": lambda limiter, _: limiter.list_access(),
    "resolve_access": lambda limiter, _: [limiter.resolve_access("key"), limiter.resolve_access("key", "gpt")],
    "list_leases": lambda limiter, _: [limiter.list_leases(), limiter.list_leases("key")],
    "list_active_entities": lambda limiter, _: limiter.list_active_entities(),
    "get_pulse": lambda limiter, _: limiter.get_pulse(),
    "get_namespace": lambda limiter, _: limiter.repository.get_namespace(NAMESPACE),
}
"""What an operator does who looks at one namespace."""

READING_ALL: Mapping[str, Performance] = {
    "list_namespaces": lambda limiter, _: limiter.repository.list_namespaces(),
}
"""What an operator does who looks at the whole table."""

MANAGING: Mapping[str, Performance] = {
    "create_entity": lambda limiter, _: limiter.create_entity("new", parent_id="org", cascade=True, principal="ann"),
    "update_entity": lambda limiter, _: [
        limiter.update_entity("new", name="New", principal="ann"),
        limiter.update_entity("new", parent_id=None, cascade=False),
        limiter.update_entity("new", parent_id="team"),
    ],
    "set_system_defaults": lambda limiter, _: limiter.set_system_defaults(OTHERS, on_unavailable="allow"),
    "set_resource_defaults": lambda limiter, _: limiter.set_resource_defaults("gpt", LIMITS),
    "set_limits": lambda limiter, _: [
        limiter.set_limits("key", LIMITS, resource="gpt"),
        limiter.set_limits("key", OTHERS),
    ],
    "reset": lambda limiter, _: [limiter.reset("key", "gpt"), limiter.reset("key", principal="ann", key="night")],
    "set_access": lambda limiter, _: [
        limiter.set_access("observe"),
        limiter.set_access("block", resource="gpt"),
        limiter.set_access("block", entity_id="key", principal="ann"),
        limiter.set_access("enforce"),
        limiter.set_access("enforce", resource="gpt"),
        limiter.set_access("enforce", entity_id="key"),
    ],
    "grant": lambda limiter, _: limiter.grant("key", "gpt", {"rpm": 1}, key="inv-1", principal="ann"),
    "delete_limits": lambda limiter, _: [limiter.delete_limits("key", resource="gpt"), limiter.delete_limits("key")],
    "delete_resource_defaults": lambda limiter, _: limiter.delete_resource_defaults("gpt"),
    "delete_system_defaults": lambda limiter, _: limiter.delete_system_defaults(),
    "delete_entity": lambda limiter, _: [limiter.delete_entity("new"), limiter.delete_entity("key")],
}
"""What an operator of one namespace does."""

MANAGING_ALL: Mapping[str, Performance] = {
    "register_namespace": lambda limiter, _: limiter.repository.register_namespace("another", principal="ann"),
    "delete_namespace": lambda limiter, _: limiter.repository.delete_namespace(NAMESPACE),
    "recover_namespace": lambda limiter, _: limiter.repository.recover_namespace(NAMESPACE),
    "purge_namespace": lambda limiter, _: [
        limiter.repository.delete_namespace(NAMESPACE),
        limiter.repository.purge_namespace(NAMESPACE),
    ],
}
"""What an operator of the whole table does."""

EVERYTHING: Mapping[str, Performance] = {**ACQUIRING, **READING, **READING_ALL, **MANAGING, **MANAGING_ALL}


def asked_for_everything(world: World) -> dict[str, set[Question]]:
    """Perform every operation; what IAM was asked, by operation."""
    for name, perform in EVERYTHING.items():
        with world.recording.during(name):
            perform(world.newcomer(), world)
    return world.recording.asked
