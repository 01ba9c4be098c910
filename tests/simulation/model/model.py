"""The model: one call in, one answer out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from simulation.model.capacity import consumed, wanted
from simulation.model.expressions import prepared
from simulation.model.reads import projected, query, read_units, scan
from simulation.model.refusals import NotModelled, RefusedOutright, invalid
from simulation.model.requests import check_parameters, check_return_values
from simulation.model.tables import Change, Charge, Key, Table
from simulation.model.values import Attributes
from simulation.model.writes import Write, returned
from zae_limiter.stores.dynamodb.requests import TABLE_NOT_FOUND, TRANSACTION_CANCELED, Reason, Refused

MOST_KEYS: Final = 100
MOST_WRITES: Final = 25
MOST_IN_A_TRANSACTION: Final = 100
LONGEST_TOKEN: Final = 36
TOKEN_LIFE_S: Final = 600

Reply = dict[str, Any]


class Model:
    """A DynamoDB of one's own."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self._owed: list[Charge | Write] = []
        self._tokens: dict[str, tuple[float, str]] = {}
        self._left: int = 0
        self._operations: dict[str, Callable[[Mapping[str, Any], float], Reply]] = {
            "CreateTable": self._create_table,
            "DescribeTable": self._describe_table,
            "DeleteTable": self._delete_table,
            "UpdateTimeToLive": self._update_time_to_live,
            "DescribeTimeToLive": self._describe_time_to_live,
            "PutItem": self._put_item,
            "UpdateItem": self._update_item,
            "DeleteItem": self._delete_item,
            "GetItem": self._get_item,
            "BatchGetItem": self._batch_get_item,
            "BatchWriteItem": self._batch_write_item,
            "Query": self._query,
            "Scan": self._scan,
            "TransactWriteItems": self._transact_write_items,
        }

    def call(self, operation: str, params: Mapping[str, Any], *, now_s: float = 0) -> Reply:
        """The reply to one call, done atomically at ``now_s``. Raises ``Refused`` where DynamoDB says no."""
        perform = self._operations.get(operation)
        if perform is None:
            raise NotModelled(operation)
        check_parameters(operation, params)
        self._owed = []
        return perform(params, now_s)

    # For those who watch

    @property
    def charges(self) -> list[Charge]:
        """What the last call used of each partition, also when it was refused.

        A canceled transaction counts as if it had been done.
        """
        return [owed.charge() if isinstance(owed, Write) else owed for owed in self._owed]

    def item(self, table: str, pk: str, sk: str) -> Attributes | None:
        """One item as it is."""
        return self._table(table).items.get((pk, sk))

    def snapshot(self, table: str) -> dict[Key, Attributes]:
        """All items as they are, by key. Later writes do not change it."""
        return dict(self._table(table).items)

    def changes(self, table: str) -> list[Change]:
        """The log of changes, if the table was created with a stream. It grows; clear it when it was read."""
        return self._table(table).changes

    def expire(self, now_s: float) -> dict[str, list[Key]]:
        """Delete what has expired; the keys, by table."""
        return {name: keys for name, table in self.tables.items() if (keys := table.expire(now_s))}

    def leave_unprocessed(self, count: int) -> None:
        """Let the next batch leave so many of its requests undone, the last ones."""
        self._left = count

    # Tables

    def _table(self, name: str) -> Table:
        try:
            return self.tables[name]
        except KeyError:
            raise Refused(TABLE_NOT_FOUND, f"Requested resource not found: Table: {name} not found") from None

    def _create_table(self, params: Mapping[str, Any], now_s: float) -> Reply:
        name = params["TableName"]
        if name in self.tables:
            raise Refused("ResourceInUseException", f"Table already exists: {name}")
        self.tables[name] = Table(name, params)
        return {"TableDescription": self._description(params, "CREATING")}

    def _describe_table(self, params: Mapping[str, Any], now_s: float) -> Reply:
        table = self._table(params["TableName"])
        return {"Table": {**self._description(table.params, "ACTIVE"), "ItemCount": len(table.items)}}

    def _delete_table(self, params: Mapping[str, Any], now_s: float) -> Reply:
        table = self._table(params["TableName"])
        if table.params.get("DeletionProtectionEnabled"):
            raise invalid("Resource cannot be deleted as it is currently protected against deletion.")
        del self.tables[table.name]
        return {"TableDescription": self._description(table.params, "DELETING")}

    def _description(self, params: Mapping[str, Any], status: str) -> Reply:
        kept = ("TableName", "KeySchema", "AttributeDefinitions", "StreamSpecification")
        description = {name: params[name] for name in kept if name in params}
        description["TableStatus"] = status
        description["DeletionProtectionEnabled"] = params.get("DeletionProtectionEnabled", False)
        description["BillingModeSummary"] = {"BillingMode": params.get("BillingMode", "PROVISIONED")}
        if "GlobalSecondaryIndexes" in params:
            indexes = [{**index, "IndexStatus": status} for index in params["GlobalSecondaryIndexes"]]
            description["GlobalSecondaryIndexes"] = indexes
        return description

    def _update_time_to_live(self, params: Mapping[str, Any], now_s: float) -> Reply:
        table = self._table(params["TableName"])
        specification = params["TimeToLiveSpecification"]
        if specification["Enabled"] == (table.ttl_attribute is not None):
            state = "enabled" if specification["Enabled"] else "disabled"
            raise invalid(f"TimeToLive is already {state}")
        table.ttl_attribute = specification["AttributeName"] if specification["Enabled"] else None
        return {"TimeToLiveSpecification": dict(specification)}

    def _describe_time_to_live(self, params: Mapping[str, Any], now_s: float) -> Reply:
        attribute = self._table(params["TableName"]).ttl_attribute
        if attribute is None:
            return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}

    # One item

    def _put_item(self, params: Mapping[str, Any], now_s: float) -> Reply:
        return self._write("Put", params, now_s)

    def _update_item(self, params: Mapping[str, Any], now_s: float) -> Reply:
        return self._write("Update", params, now_s)

    def _delete_item(self, params: Mapping[str, Any], now_s: float) -> Reply:
        return self._write("Delete", params, now_s)

    def _write(self, kind: str, params: Mapping[str, Any], now_s: float) -> Reply:
        table = self._table(params["TableName"])
        check_return_values(kind, params)
        write = Write(kind, table, params)
        write.address()
        if not write.holds():
            self._owed = [write]
            raise write.refusal()
        write.outcome()
        attributes = returned(write)
        self._owed = [write, *write.commit(now_s)]
        reply: Reply = {} if attributes is None else {"Attributes": attributes}
        return self._with_capacity(reply, params)

    def _with_capacity(self, reply: Reply, params: Mapping[str, Any]) -> Reply:
        level = wanted(params)
        if level is not None:
            reply["ConsumedCapacity"] = consumed(self.charges, level)[0]
        return reply

    def _get_item(self, params: Mapping[str, Any], now_s: float) -> Reply:
        table = self._table(params["TableName"])
        program, _ = prepared(params)
        key = table.key_of(params["Key"])
        item = table.items.get(key)
        cost = read_units(table.size(key), consistent=bool(params.get("ConsistentRead")))
        self._owed = [Charge(table.name, None, key[0], reads=cost)]
        reply: Reply = {} if item is None else {"Item": projected(item, program.projection)}
        return self._with_capacity(reply, params)

    def _query(self, params: Mapping[str, Any], now_s: float) -> Reply:
        page = query(self._table(params["TableName"]), params)
        self._owed = [page.charge]
        return self._with_capacity(page.reply, params)

    def _scan(self, params: Mapping[str, Any], now_s: float) -> Reply:
        page = scan(self._table(params["TableName"]), params)
        self._owed = [page.charge]
        return self._with_capacity(page.reply, params)

    # Several items

    def _done_of(self, total: int) -> int:
        """How many of so many requests of a batch are done; the others are left."""
        left, self._left = min(self._left, total), 0
        return total - left

    def _batch_get_item(self, params: Mapping[str, Any], now_s: float) -> Reply:
        requests = params["RequestItems"]
        asked = []
        for name, request in requests.items():
            check_parameters("KeysAndAttributes", request)
            table = self._table(name)
            program, _ = prepared(request)
            asked += [(table, table.key_of(address), address, request, program) for address in request["Keys"]]
        if not 0 < len(asked) <= MOST_KEYS:
            raise invalid("Too many items requested for the BatchGetItem call" if asked else "RequestItems is empty")
        if len({(table.name, key) for table, key, *_ in asked}) < len(asked):
            raise invalid("Provided list of item keys contains duplicates")
        done = self._done_of(len(asked))
        responses: dict[str, list[Attributes]] = {name: [] for name in requests}
        for table, key, _, request, program in asked[:done]:
            cost = read_units(table.size(key), consistent=bool(request.get("ConsistentRead")))
            self._owed.append(Charge(table.name, None, key[0], reads=cost))
            if key in table.items:
                responses[table.name].append(projected(table.items[key], program.projection))
        left: dict[str, Any] = {}
        for table, _, address, request, _ in asked[done:]:
            left.setdefault(table.name, {**request, "Keys": []})["Keys"].append(address)
        return self._of_batch({"Responses": responses, "UnprocessedKeys": left}, params)

    def _batch_write_item(self, params: Mapping[str, Any], now_s: float) -> Reply:
        asked = []
        for name, requests in params["RequestItems"].items():
            table = self._table(name)
            for request in requests:
                ((kind, body),) = request.items()
                write = Write({"PutRequest": "Put", "DeleteRequest": "Delete"}[kind], table, body)
                write.address()
                write.outcome()
                asked.append((write, request))
        if not 0 < len(asked) <= MOST_WRITES:
            raise invalid("Too many items requested for the BatchWriteItem call" if asked else "RequestItems is empty")
        if len({(write.table.name, write.key) for write, _ in asked}) < len(asked):
            raise invalid("Provided list of item keys contains duplicates")
        done = self._done_of(len(asked))
        for write, _ in asked[:done]:
            self._owed += [write, *write.commit(now_s)]
        left: dict[str, Any] = {}
        for write, request in asked[done:]:
            left.setdefault(write.table.name, []).append(request)
        return self._of_batch({"UnprocessedItems": left}, params)

    def _of_batch(self, reply: Reply, params: Mapping[str, Any]) -> Reply:
        level = wanted(params)
        if level is not None:
            reply["ConsumedCapacity"] = consumed(self.charges, level)
        return reply

    def _transact_write_items(self, params: Mapping[str, Any], now_s: float) -> Reply:
        items = params["TransactItems"]
        if not 0 < len(items) <= MOST_IN_A_TRANSACTION:
            raise invalid("Member must have length between 1 and 100: TransactItems")
        writes = [self._part(item) for item in items]
        reasons = [_problem(write, Write.address) for write in writes]
        addressed = [
            (write.table.name, write.key) for write, reason in zip(writes, reasons, strict=True) if not reason
        ]
        if len(set(addressed)) < len(addressed):
            raise invalid("Transaction request cannot include multiple operations on one item")
        again = self._is_repeated(params, now_s)
        level = wanted(params)
        if again:
            for write in writes:
                cost = 2 * read_units(write.table.size(write.key), consistent=True)
                self._owed.append(Charge(write.table.name, None, write.key[0], reads=cost))
            return {} if level is None else {"ConsumedCapacity": consumed(self.charges, level, split=True)}
        for place, write in enumerate(writes):
            if reasons[place] is None:
                reasons[place] = _problem(write, _judge)
            if reasons[place] is None or write.refused:
                self._owed.append(write)
        if any(reasons):
            raise _canceled(reasons)
        token = params.get("ClientRequestToken")
        if token is not None:
            self._tokens[token] = (now_s, _fingerprint(params))
        for write in writes:
            self._owed += write.commit(now_s)
        return {} if level is None else {"ConsumedCapacity": consumed(self.charges, level, split=True)}

    def _part(self, item: Mapping[str, Any]) -> Write:
        """One write of a transaction."""
        if len(item) != 1:
            raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
        ((kind, body),) = item.items()
        check_parameters(kind, body)
        if kind == "ConditionCheck" and "ConditionExpression" not in body:
            raise invalid("The ConditionExpression of a ConditionCheck must not be null")
        if kind == "Update" and "UpdateExpression" not in body:
            raise invalid("The UpdateExpression of an Update must not be null")
        return Write(kind, self._table(body["TableName"]), body, factor=2.0)

    def _is_repeated(self, params: Mapping[str, Any], now_s: float) -> bool:
        """Whether a transaction with this token was done in the last ten minutes."""
        token = params.get("ClientRequestToken")
        if token is None:
            return False
        if not 0 < len(token) <= LONGEST_TOKEN:
            raise invalid("Member must have length between 1 and 36: ClientRequestToken")
        done_s, fingerprint = self._tokens.get(token, (None, ""))
        if done_s is None or now_s - done_s > TOKEN_LIFE_S:
            return False
        if fingerprint != _fingerprint(params):
            raise Refused("IdempotentParameterMismatchException", "the token was used for another transaction")
        return True


def _judge(write: Write) -> None:
    if not write.holds():
        raise write.refusal()
    write.outcome()


def _problem(write: Write, step: Callable[[Write], None]) -> Reason | None:
    """Why a write of a transaction cannot be done, if so."""
    try:
        step(write)
    except RefusedOutright:
        raise
    except Refused as refusal:
        return Reason("ConditionalCheckFailed" if refusal.by_condition else "ValidationError", refusal.item)
    return None


def _canceled(reasons: list[Reason | None]) -> Refused:
    told = [reason or Reason(None) for reason in reasons]
    codes = ", ".join(str(reason.code) for reason in told)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return Refused(TRANSACTION_CANCELED, message, reasons=told)


def _fingerprint(params: Mapping[str, Any]) -> str:
    return json.dumps(params["TransactItems"], sort_keys=True)
