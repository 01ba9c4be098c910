"""Calls as the store makes them, drawn at random: composite buckets, recent writers, guards, transactions, indexes.

A call that exercises something an engine is known to get wrong says so by its ``trait`` (see
``engine_differences``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from simulation.drawn import Drawn, Part
from simulation.engine_differences import ODD_NUMBER, OLD_OF_NO_ITEM, ONLY_REMOVALS, SORT_KEY_FIRST
from simulation.model import Model
from simulation.random_expressions import LIMITS, NUMBERS, Expressions, Words
from simulation.wrong_calls import IN_A_TRANSACTION, all_wrong
from zae_limiter.stores.dynamodb.items import RECENT_WRITERS, address
from zae_limiter.stores.dynamodb.schema import (
    Key,
    bucket_key,
    encode,
    encode_item,
    gsi2_bucket,
    gsi3_bucket,
    gsi4,
    meta_key,
)


class Caller(Words):
    """Draws calls on a few items of one namespace of one table."""

    def __init__(self, table: str, namespace: str, model: Model, seed: int) -> None:
        super().__init__(random.Random(seed))
        self.table = table
        self.ns = namespace
        self.model = model
        self.buckets = [bucket_key(namespace, f"e{number}", "gpt-4") for number in range(3)]
        self.metas = [meta_key(namespace, "e0"), *(Key(f"{namespace}/ENTITY#e0", f"#CONFIG#r{n}") for n in range(4))]
        self.keys = [*self.buckets, *self.metas]
        self.last_transaction: dict[str, Any] | None = None
        self.tokens = 0

    def draw(self) -> Drawn:
        """The next call."""
        choices: Sequence[tuple[int, Callable[[], Drawn]]] = (
            (40, self.update),
            (10, self.put),
            (4, self.delete),
            (18, self.transaction),
            (3, self.repeated_transaction),
            (4, self.get),
            (4, self.batch_get),
            (3, self.batch_write),
            (10, self.query),
            (6, self.mistake),
        )
        weights = [weight for weight, _ in choices]
        ((_, chosen),) = self.rng.choices(choices, weights)
        self.odd = False
        call = chosen()
        return call._replace(trait=ODD_NUMBER) if self.odd and call.trait is None else call

    # What is there

    def item(self, key: Key) -> dict[str, Any]:
        return self.model.item(self.table, key.pk, key.sk) or {}

    # Writes of one item

    def bucket(self, key: Key) -> dict[str, Any]:
        entity = key.pk.split("#")[1]
        attributes: dict[str, Any] = {
            "PK": key.pk,
            "SK": key.sk,
            "entity_id": entity,
            "resource": "gpt-4",
            "rf": 1_700_000_000_000,
            "ttl": 1_700_000_100,
            "shard_count": 1,
            "cascade": self.chance(0.5),
            "cv": "1.0.0.0.0",
            "inc": f"inc{self.rng.randrange(9)}",
            "ev": 0,
            **{place: f"m{self.rng.randrange(4)}" for place in RECENT_WRITERS},
            **gsi2_bucket(self.ns, entity, "gpt-4", 0),
            **gsi3_bucket(self.ns, entity, "gpt-4", 0),
            **gsi4(self.ns, key.pk, f"BUCKET#{entity}"),
        }
        for limit in LIMITS:
            terms = {"tk": self.rng.randrange(10**7), "cp": 10**6, "bx": 10**6, "ra": 10**6, "rp": 60_000, "tc": 0}
            attributes |= {f"b_{limit}_{field}": value for field, value in terms.items()}
        if self.chance(0.1):
            attributes["padding"] = "x" * self.rng.randrange(3000)
        return encode_item(attributes)

    def small(self, key: Key) -> dict[str, Any]:
        attributes = {"PK": key.pk, "SK": key.sk, "config_version": self.rng.randrange(5), "name": "é" * 3}
        item = encode_item(attributes)
        if self.chance(0.5):
            item |= encode_item(gsi4(self.ns, key.pk, f"ENTITY#{key.sk}"))
        if self.chance(0.3):
            item["extra"] = self.any_value()
        return item

    def put_part(self, key: Key) -> Part:
        params: dict[str, Any] = {
            "TableName": self.table,
            "Item": self.bucket(key) if key in self.buckets else self.small(key),
        }
        asked = Expressions(self.rng)
        if self.chance(0.4) and not self.calm:
            params["ConditionExpression"] = f"attribute_not_exists({asked.name('PK')})"
        elif self.chance(0.2):
            params["ConditionExpression"] = self.condition(asked, self.item(key))
        return Part("Put", params | asked.params() | self.on_failure())

    def delete_part(self, key: Key) -> Part:
        params: dict[str, Any] = {"TableName": self.table, "Key": address(key)}
        asked = Expressions(self.rng)
        if self.chance(0.5):
            params["ConditionExpression"] = self.condition(asked, self.item(key))
        return Part("Delete", params | asked.params() | self.on_failure())

    def check_part(self, key: Key) -> Part:
        asked = Expressions(self.rng)
        condition = self.condition(asked, self.item(key))
        params = {"TableName": self.table, "Key": address(key), "ConditionExpression": condition}
        return Part("ConditionCheck", params | asked.params() | self.on_failure())

    def on_failure(self) -> dict[str, Any]:
        if self.chance(0.6):
            return {"ReturnValuesOnConditionCheckFailure": self.rng.choice(("ALL_OLD", "ALL_OLD", "NONE"))}
        return {}

    def update_part(self, key: Key) -> Part:
        rng, item = self.rng, self.item(key)
        asked = Expressions(rng)
        sets: list[str] = []
        adds: list[str] = []
        removes: list[str] = []
        free = list(NUMBERS)
        rng.shuffle(free)
        if self.chance(0.5) and (RECENT_WRITERS[0] in item or self.chance(0.1)):
            places = [asked.name(place) for place in RECENT_WRITERS]
            sets += [f"{later} = {earlier}" for earlier, later in pairwise(places)]
            sets.append(f"{places[0]} = {asked.value({'S': f'm{rng.randrange(6)}'})}")
        for _ in range(rng.randrange(5)):
            adds.append(f"{asked.name(free.pop())} {asked.value(self.number())}")
        for _ in range(rng.randrange(4)):
            sets.append(f"{asked.name(name := free.pop())} = {self.assigned(asked, name, item)}")
        if self.chance(0.3):
            removes.append(asked.name(rng.choice((free.pop(), "parent_id", "nothing"))))
        if self.chance(0.12):
            sets.append(f"{asked.name('GSI2SK')} = {asked.value({'S': f'BUCKET#{key.pk}#{rng.randrange(3)}'})}")
        elif self.chance(0.05):
            removes.append(asked.name("GSI2PK"))
        if self.chance(0.05):
            sets.append(f"{asked.name('extra')} = {asked.value(self.any_value())}")
        clauses = [("SET", sets), ("ADD", adds), ("REMOVE", removes)]
        rng.shuffle(clauses)
        params: dict[str, Any] = {"TableName": self.table, "Key": address(key)}
        params["UpdateExpression"] = " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses if parts)
        if not params["UpdateExpression"]:
            params["UpdateExpression"] = f"SET {asked.name('ev')} = {asked.value(self.number())}"
        if self.chance(0.7):
            params["ConditionExpression"] = self.condition(asked, item)
        trait = ONLY_REMOVALS if removes and not sets and not adds and not item else None
        return Part("Update", params | asked.params() | self.on_failure(), trait)

    # Calls

    def capacity(self) -> dict[str, Any]:
        return {"ReturnConsumedCapacity": self.rng.choice(("TOTAL", "INDEXES"))} if self.chance(0.5) else {}

    def update(self) -> Drawn:
        key = self.rng.choice(self.buckets if self.chance(0.85) else self.keys)
        part = self.update_part(key)
        params = part.params | self.capacity()
        trait = part.trait
        if self.chance(0.7):
            values = ("ALL_NEW", "ALL_NEW", "ALL_OLD", "UPDATED_NEW", "UPDATED_OLD", "NONE")
            params["ReturnValues"] = self.rng.choice(values)
            if params["ReturnValues"] == "ALL_OLD" and not self.model.item(self.table, *key):
                trait = trait or OLD_OF_NO_ITEM
        return Drawn("UpdateItem", params, trait)

    def put(self) -> Drawn:
        part = self.put_part(self.rng.choice(self.keys))
        params = part.params | self.capacity()
        if self.chance(0.5):
            params["ReturnValues"] = "ALL_OLD"
        return Drawn("PutItem", params, part.trait)

    def delete(self) -> Drawn:
        part = self.delete_part(self.rng.choice(self.keys))
        params = part.params | self.capacity()
        if self.chance(0.5):
            params["ReturnValues"] = "ALL_OLD"
        return Drawn("DeleteItem", params)

    def transaction(self) -> Drawn:
        keys = self.rng.sample(self.keys, self.rng.randrange(2, 5))
        if self.chance(0.04):
            keys.append(keys[0])
        makers = (
            self.update_part,
            self.update_part,
            self.update_part,
            self.put_part,
            self.delete_part,
            self.check_part,
        )
        self.calm = self.chance(0.6)
        parts = [self.rng.choice(makers)(key) for key in keys]
        self.calm = False
        params: dict[str, Any] = {"TransactItems": [{part.kind: part.params} for part in parts], **self.capacity()}
        if self.chance(0.5):
            self.tokens += 1
            params["ClientRequestToken"] = f"{self.table}-{self.ns}-{self.tokens}"[-36:]
            self.last_transaction = params
        return Drawn(
            "TransactWriteItems", params, next((part.trait + IN_A_TRANSACTION for part in parts if part.trait), None)
        )

    def repeated_transaction(self) -> Drawn:
        if self.last_transaction is None:
            return self.transaction()
        if self.chance(0.7):
            return Drawn("TransactWriteItems", self.last_transaction, "a transaction again")
        other = self.check_part(self.keys[0])
        params = {**self.last_transaction, "TransactItems": [{other.kind: other.params}]}
        return Drawn("TransactWriteItems", params, "a transaction again")

    def get(self) -> Drawn:
        key = self.rng.choice(self.keys)
        params = {"TableName": self.table, "Key": address(key), "ConsistentRead": self.chance(0.7), **self.capacity()}
        return Drawn("GetItem", params)

    def batch_get(self) -> Drawn:
        keys = self.rng.sample(self.keys, self.rng.randrange(1, 6))
        if self.chance(0.05):
            keys.append(keys[0])
        request = {"Keys": [address(key) for key in keys], "ConsistentRead": self.chance(0.7)}
        return Drawn("BatchGetItem", {"RequestItems": {self.table: request}, **self.capacity()})

    def batch_write(self) -> Drawn:
        requests: list[dict[str, Any]] = []
        for key in self.rng.sample(self.metas, self.rng.randrange(1, 4)):
            if self.chance(0.5):
                requests.append({"PutRequest": {"Item": self.small(key)}})
            else:
                requests.append({"DeleteRequest": {"Key": address(key)}})
        return Drawn("BatchWriteItem", {"RequestItems": {self.table: requests}, **self.capacity()})

    def query(self) -> Drawn:
        rng = self.rng
        params: dict[str, Any] = {"TableName": self.table, **self.capacity()}
        index, (partition, sort), values = rng.choice(
            (
                (None, ("PK", "SK"), (self.metas[0].pk, "#CONFIG#r", "#CONFIG#r1", "#CONFIG#r2")),
                (None, ("PK", "SK"), (self.metas[0].pk, "#", "#CONFIG", "#N")),
                ("GSI2", ("GSI2PK", "GSI2SK"), (f"{self.ns}/RESOURCE#gpt-4", "BUCKET#", "BUCKET#e1", "BUCKET#e2")),
                ("GSI3", ("GSI3PK", "GSI3SK"), (f"{self.ns}/ENTITY#e1", "BUCKET", "A", "Z")),
                ("GSI4", ("GSI4PK", "GSI4SK"), (f"{self.ns}/{rng.randrange(16)}", "BUCKET#", "BUCKET#e1", "F")),
            )
        )
        hash_value, prefix, low, high = values
        asked = Expressions(rng)
        condition = f"{asked.name(partition)} = {asked.value({'S': hash_value})}"
        trait = None
        kind = rng.randrange(5)
        if kind == 1:
            condition += f" AND begins_with({asked.name(sort)}, {asked.value({'S': prefix})})"
        elif kind == 2:
            bounds = f"{asked.value({'S': low})} AND {asked.value({'S': high})}"
            condition += f" AND {asked.name(sort)} BETWEEN {bounds}"
        elif kind == 3:
            operator = rng.choice(("=", "<", "<=", ">", ">="))
            condition = f"{asked.name(sort)} {operator} {asked.value({'S': low})} AND {condition}"
            trait = SORT_KEY_FIRST if operator == "=" else None
        if index is not None:
            params["IndexName"] = index
        elif self.chance(0.5):
            params["ConsistentRead"] = True
        if self.chance(0.5):
            params["ScanIndexForward"] = self.chance(0.5)
        if self.chance(0.3) and index is None:
            name = asked.name("config_version")
            params["FilterExpression"] = f"{name} >= {asked.value(encode(rng.randrange(5)))}"
        if self.chance(0.4):
            params["Limit"] = rng.randrange(1, 4)
        params = params | asked.params() | {"KeyConditionExpression": condition}
        if "Limit" in params and self.chance(0.6):
            page = self.model.call("Query", params)
            if "LastEvaluatedKey" in page:
                params["ExclusiveStartKey"] = page["LastEvaluatedKey"]
        return Drawn("Query", params, trait)

    def mistake(self) -> Drawn:
        """A call that is wrong in one of many ways."""
        here, there = self.rng.sample(self.buckets, 2)
        for key in (here, there):
            if not {"cv", "ev"} <= self.item(key).keys():
                return Drawn("PutItem", {"TableName": self.table, "Item": self.bucket(key)})
        wrong = all_wrong(self.table, here, there)
        return wrong[self.rng.choice(sorted(wrong))]
