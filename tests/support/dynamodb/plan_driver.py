"""Plans of the DynamoDB store, run by hand: one call at a time, with a world that can be made to misbehave.

A driver here checks on the way that every read which can be consistent is.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from engines.servers import Engine
from support.transports import Ask, sync_asking, target_of
from zae_limiter.running.plan import Plan, Request
from zae_limiter.stores.dynamodb.bucket_write import BucketWriter
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.items import address
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.audit import AuditTrail
from zae_limiter.stores.dynamodb.operations.config import Configs
from zae_limiter.stores.dynamodb.operations.entities import Entities
from zae_limiter.stores.dynamodb.operations.namespaces import Namespaces, Table
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.requests import (
    Backoff,
    Call,
    DeadlineOver,
    MachineTime,
    NoAnswer,
    ReadMachineTime,
    Refused,
    Together,
)
from zae_limiter.stores.dynamodb.schema import bucket_key, decode_item, encode_item, gsi2_bucket, gsi3_bucket, gsi4
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.protocol import Scope

Result = TypeVar("Result")
Hook = Callable[[Call], None]

NUMBERS = count()
CLIENTS = count(1)
DEADLINE_MS = 2_000
EPOCH_S = 1_800_000_000
MOST_STEPS = 200_000


class Driver:
    """Answers requests of plans by ``ask``; machine time moves by a millisecond per reading."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.before: Hook = lambda call: None
        """Called before every call: what others do meanwhile. May raise ``NoAnswer``: then it is not made."""
        self.after: Hook = lambda call: None
        """Called after every call that was done; may raise ``NoAnswer``: the reply is lost."""
        self.calls: list[Call] = []
        self.backoffs = 0
        self.most_backoffs = 1_000
        self._timer = 0
        self._index_replies: dict[str, Any] = {}
        self._index_frozen = False

    def run(self, plan: Plan[Result]) -> Result:
        answer: Any = None
        for _ in range(MOST_STEPS):
            try:
                request = plan.throw(answer) if isinstance(answer, Exception) else plan.send(answer)
            except StopIteration as finished:
                result: Result = finished.value
                return result
            answer = self.answer(request)
        raise AssertionError("a plan that does not end")

    def answer(self, request: Request[Any]) -> Any:
        """The answer, or the error as a value."""
        if isinstance(request, Together):
            return [self._call(call) for call in request.calls]
        if isinstance(request, Call):
            return self._call(request)
        if isinstance(request, Backoff):
            self.backoffs += 1
            return DeadlineOver() if request.tries > self.most_backoffs else None
        assert isinstance(request, ReadMachineTime)
        self._timer += 1
        return MachineTime(self._timer, EPOCH_S)

    def _call(self, call: Call) -> Any:
        check_consistency(call)
        try:
            self.before(call)
            self.calls.append(call)
            reply = self._reply(call)
            self.after(call)
        except (Refused, NoAnswer) as failure:
            return failure
        return reply

    def _reply(self, call: Call) -> Any:
        if "IndexName" not in call.params:
            return self.ask(call.operation, call.params)
        asked = json.dumps(call.params, sort_keys=True)
        if not self._index_frozen:
            self._index_replies[asked] = self.ask(call.operation, call.params)
        return self._index_replies[asked]

    def freeze_indexes(self, frozen: bool = True) -> None:
        """From now on, queries of indexes that were made before are answered as they were then."""
        self._index_frozen = frozen

    def operations(self) -> list[str]:
        return [call.operation for call in self.calls]


def check_consistency(call: Call) -> None:
    if call.operation == "GetItem" or (call.operation == "Query" and "IndexName" not in call.params):
        assert call.params["ConsistentRead"] is True, call
    if call.operation == "BatchGetItem":
        assert all(part["ConsistentRead"] is True for part in call.params["RequestItems"].values()), call


def interleaved(plans: Sequence[Plan[Any]], driver: Driver, seed: int) -> list[Any]:
    """Run plans at the same time, a request of one of them at a time, in an order drawn from ``seed``.

    The results; errors as values.
    """
    chance = random.Random(seed)
    waiting: dict[int, Any] = dict.fromkeys(range(len(plans)))
    results: list[Any] = [None] * len(plans)
    while waiting:
        place = chance.choice(sorted(waiting))
        answer = waiting[place]
        plan = plans[place]
        try:
            request = plan.throw(answer) if isinstance(answer, Exception) else plan.send(answer)
        except StopIteration as finished:
            results[place] = finished.value
            del waiting[place]
        except Exception as error:
            results[place] = error
            del waiting[place]
        else:
            waiting[place] = driver.answer(request)
    return results


class NotedPropagation(Propagation):
    """Notes what it would do to buckets."""

    def __init__(self, namespace: Namespace, done: list[tuple[Any, ...]]) -> None:
        super().__init__(namespace, ConfigResolver(namespace, 0), BucketWriter(namespace))
        self.done = done

    def propagate(self, ns: str, scope: Scope, now: int) -> Plan[None]:
        self.done.append(("propagate", ns, scope, now))
        return
        yield

    def rewrite_buckets_of(self, ns: str, entity_id: str, now: int) -> Plan[None]:
        self.done.append(("rewrite", ns, entity_id, now))
        return
        yield

    def rewrite_buckets_below(self, ns: str, entity_id: str, now: int, *, scope: Scope | None = None) -> Plan[None]:
        """Those are tested where there are buckets."""
        return
        yield

    def drop_buckets_of(self, ns: str, entity_id: str, now: int, configured: Sequence[str]) -> Plan[None]:
        self.done.append(("drop", ns, entity_id))
        return
        yield


class Space:
    """A namespace with the verbs under test only; it notes what it would do to buckets."""

    def __init__(self, asking: TableClient, namespace: str) -> None:
        self.client = asking
        self.done: list[tuple[Any, ...]] = []
        self.namespace = Namespace(asking, namespace, corrected=False)
        propagation = NotedPropagation(self.namespace, self.done)
        entities, configs = Entities(self.namespace, propagation), Configs(self.namespace, propagation)
        self.ns, self.checked_ns = self.namespace.ns, self.namespace.checked_ns
        self.create_entity, self.get_entity = entities.create_entity, entities.get_entity
        self.update_entity, self.delete_entity = entities.update_entity, entities.delete_entity
        self.children, self.entities = entities.children, entities.entities
        self.set_config, self.get_config = configs.set_config, configs.get_config
        self.delete_config, self.resolve = configs.delete_config, propagation.resolver.resolve
        self.resources_with_defaults = configs.resources_with_defaults
        self.entities_with_custom_limits = configs.entities_with_custom_limits
        self.audit_events = AuditTrail(self.namespace).audit_events


class Store:
    """A store with the verbs under test only."""

    def __init__(self, asking: TableClient) -> None:
        self.client = asking
        self.namespaces = Namespaces(asking)
        self.table = Table(asking, self.namespaces)
        self.create, self.destroy, self.ping = self.table.create, self.table.destroy, self.table.ping
        self.register_namespace = self.namespaces.register_namespace
        self.get_namespace, self.list_namespaces = self.namespaces.get_namespace, self.namespaces.list_namespaces
        self.delete_namespace = self.namespaces.delete_namespace
        self.recover_namespace = self.namespaces.recover_namespace
        self.purge_namespace = self.namespaces.purge_namespace


class World:
    """One table on an engine, and clients of it."""

    def __init__(self, ask: Ask, table: str) -> None:
        self.ask = ask
        self.table = table
        self.driver = Driver(ask)
        self.store = Store(self.table_client())
        self.space = self.client()

    def table_client(self) -> TableClient:
        return TableClient(self.table, deadline_ms=DEADLINE_MS, write_ids=WriteIds(f"{next(CLIENTS):08x}"))

    def client(self, namespace: str = "default") -> Space:
        return Space(self.table_client(), namespace)

    def run(self, plan: Plan[Result]) -> Result:
        return self.driver.run(plan)

    def ns(self, name: str = "default") -> str:
        return self.run(self.store.get_namespace(name)).id

    def items(self) -> list[dict[str, Any]]:
        """Everything in the table, decoded."""
        found: list[dict[str, Any]] = []
        params: dict[str, Any] = {"TableName": self.table, "ConsistentRead": True}
        while True:
            reply = self.ask("Scan", params)
            found += [decode_item(item) for item in reply["Items"]]
            if "LastEvaluatedKey" not in reply:
                return found
            params["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    def items_of(self, ns: str) -> list[dict[str, Any]]:
        return [item for item in self.items() if item["PK"].startswith(f"{ns}/")]

    def item(self, pk: str, sk: str) -> dict[str, Any] | None:
        key = {"PK": {"S": pk}, "SK": {"S": sk}}
        reply = self.ask("GetItem", {"TableName": self.table, "Key": key, "ConsistentRead": True})
        return decode_item(reply["Item"]) if "Item" in reply else None

    def put(self, attributes: Mapping[str, Any]) -> None:
        self.ask("PutItem", {"TableName": self.table, "Item": encode_item(attributes)})

    def put_bucket(self, ns: str, entity_id: str, resource: str, shard: int = 0) -> None:
        key = bucket_key(ns, entity_id, resource, shard)
        self.put(
            {
                "PK": key.pk,
                "SK": key.sk,
                "entity_id": entity_id,
                "resource": resource,
                "cv": "1.0.0.0.0",
                **gsi2_bucket(ns, entity_id, resource, shard),
                **gsi3_bucket(ns, entity_id, resource, shard),
                **gsi4(ns, key.pk, "BUCKET"),
            }
        )

    def remove_bucket(self, ns: str, entity_id: str, resource: str) -> None:
        key = bucket_key(ns, entity_id, resource)
        self.ask("DeleteItem", {"TableName": self.table, "Key": address(key)})


@contextmanager
def asking_of(engine: Engine) -> Iterator[Ask]:
    """One transport to an engine, for the tests of a module."""
    with sync_asking(target_of(engine)) as ask:
        yield ask


@contextmanager
def world_by(ask: Ask, *, created: bool = True) -> Iterator[World]:
    """A table of its own."""
    world = World(ask, f"plans-{os.getpid()}-{next(NUMBERS)}")
    if created:
        world.run(world.store.create(0))
    yield world
    Driver(ask).run(world.store.destroy())


def lose_next_reply(driver: Driver, operation: str) -> None:
    """The next call of that kind is done, but its answer is lost."""

    def lose(call: Call) -> None:
        if call.operation == operation:
            driver.after = lambda call: None
            raise NoAnswer("the connection was reset")

    driver.after = lose


def meanwhile(driver: Driver, operation: str, work: Callable[[], Any]) -> None:
    """Another client does ``work`` just before the next call of that kind."""

    def intervene(call: Call) -> None:
        if call.operation == operation:
            driver.before = lambda call: None
            work()

    driver.before = intervene
