"""The table itself: what it looks like, how it comes and goes.

Making and removing it takes as long as DynamoDB takes, outside the deadline of ordinary verbs. Any number of clients
may make it at the same time. A table of the same name that is none of ours is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.exceptions import VersionError
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.keys import INDEXES, version_key
from zae_limiter.stores.dynamodb.layout import (
    LAYOUT,
    MINOR,
    VERSION_KEYS,
    check_layout,
    lags_behind,
    record_among,
    version_attributes,
)
from zae_limiter.stores.dynamodb.plans.asking import Asking, Window
from zae_limiter.stores.dynamodb.plans.changes import NEW, commit, persist, put, update
from zae_limiter.stores.dynamodb.plans.registry import Namespaces
from zae_limiter.stores.dynamodb.requests import TABLE_NOT_FOUND, Refused
from zae_limiter.version import __version__

TTL_ATTRIBUTE = "ttl"
PATIENCE_MS = 120_000
"""How long a table may take to come or go."""

TABLE_IN_USE = "ResourceInUseException"
INVALID = "ValidationException"
EXPIRY_ON = ("ENABLED", "ENABLING")


def table_params(table: str) -> dict[str, Any]:
    """What CreateTable is given: on demand, four indexes of keys only, a stream of both images."""
    keys = {prefix: (f"{prefix}PK", f"{prefix}SK") for prefix in ("", *INDEXES)}
    return {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"} for pair in keys.values() for name in pair
        ],
        "KeySchema": key_schema(*keys[""]),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index,
                "KeySchema": key_schema(*keys[index]),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
            for index in INDEXES
        ],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }


def key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    """A partition key and a sort key."""
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


def expiry_params(table: str) -> dict[str, Any]:
    """What UpdateTimeToLive is given."""
    return {
        "TableName": table,
        "TimeToLiveSpecification": {"Enabled": True, "AttributeName": TTL_ATTRIBUTE},
    }


def check_table(table: str, description: Mapping[str, Any]) -> None:
    """Refuse a table that is not made for us."""
    indexes = {index["IndexName"]: index["KeySchema"] for index in description.get("GlobalSecondaryIndexes", ())}
    wanted = {index: key_schema(f"{index}PK", f"{index}SK") for index in INDEXES}
    if description["KeySchema"] != key_schema("PK", "SK") or not wanted.items() <= indexes.items():
        raise VersionError(f"table {table!r} exists but was not made by zae-limiter; choose another name")
    if description.get("Replicas"):
        raise VersionError(
            f"table {table!r} has replicas in other regions, where the last writer wins and no limit would hold"
        )


class Table:
    """The verbs of a store on its table as a whole."""

    def __init__(self, asking: Asking, namespaces: Namespaces) -> None:
        self.asking = asking
        self.namespaces = namespaces

    @verb
    def create(self, now: int) -> Plan[None]:
        """Make the table if it is not there, wait until it can be used, and register ``default``."""
        until = yield from self._patience()
        if (yield from self.describe(until)) is None:
            yield from self._ask_unless_in_use("CreateTable", table_params(self.asking.table), until)
        yield from self._until_active(until)
        yield from self._let_items_expire(until)
        yield from persist(self.asking, lambda until: self._set_up(now, until))
        yield from persist(self.asking, lambda until: self.namespaces.register(DEFAULT_NAMESPACE, None, now, until))

    @verb
    def destroy(self) -> Plan[None]:
        """Remove the table and wait until it is gone."""
        until = yield from self._patience()
        tries = 0
        while (description := (yield from self.describe(until))) is not None:
            if description["TableStatus"] == "ACTIVE":
                check_table(self.asking.table, description)
                yield from self._ask_unless_in_use("DeleteTable", {"TableName": self.asking.table}, until)
            tries += 1
            yield from self.asking.pause(tries, until, Refused(TABLE_IN_USE, "the table is still there"))

    @verb
    def ping(self) -> Plan[None]:
        """Answer, or raise why not."""
        until = yield from self.asking.window()
        check_layout(self.asking.table, (yield from self.asking.get(version_key(), until)))

    def _patience(self) -> Plan[Window]:
        window = yield from self.asking.window()
        return window._replace(give_up_at=window.give_up_at - self.asking.deadline_ms + PATIENCE_MS)

    def describe(self, until: Window) -> Plan[Mapping[str, Any] | None]:
        """The table as DynamoDB describes it; nothing, if there is none."""
        try:
            params = {"TableName": self.asking.table}
            reply = yield from self.asking.ask("DescribeTable", params, until, repeatable=True)
        except Refused as refusal:
            if refusal.code != TABLE_NOT_FOUND:
                raise
            return None
        description: Mapping[str, Any] = reply["Table"]
        return description

    def _ask_unless_in_use(self, operation: str, params: Mapping[str, Any], until: Window) -> Plan[None]:
        """Ask for the table to come or go; somebody else may be at the same, or have done it."""
        try:
            yield from self.asking.ask(operation, params, until, repeatable=True)
        except Refused as refusal:
            if refusal.code not in (TABLE_IN_USE, TABLE_NOT_FOUND):
                raise

    def _until_active(self, until: Window) -> Plan[None]:
        tries = 0
        while True:
            description = yield from self.describe(until)
            if description is not None and is_active(description):
                return check_table(self.asking.table, description)
            tries += 1
            yield from self.asking.pause(tries, until, Refused(TABLE_IN_USE, "the table is still being made"))

    def _let_items_expire(self, until: Window) -> Plan[None]:
        tries = 0
        while not (yield from self._items_expire(until)):
            try:
                params = expiry_params(self.asking.table)
                yield from self.asking.ask("UpdateTimeToLive", params, until, repeatable=True)
                return
            except Refused as refusal:
                if refusal.code not in (INVALID, TABLE_IN_USE):
                    raise
                failure = refusal  # somebody else has just done it, perhaps
            tries += 1
            yield from self.asking.pause(tries, until, failure)

    def _items_expire(self, until: Window) -> Plan[bool]:
        params = {"TableName": self.asking.table}
        reply = yield from self.asking.ask("DescribeTimeToLive", params, until, repeatable=True)
        description = reply.get("TimeToLiveDescription", {})
        return description.get("TimeToLiveStatus") in EXPIRY_ON

    def _set_up(self, now: int, until: Window) -> Plan[None]:
        """Write the version record, or see that it fits. A record that only lacks additions is told of them."""
        table, key = self.asking.table, version_key()
        record = record_among((yield from self.asking.get_all(VERSION_KEYS, until)).values())
        if record is None:
            return (yield from commit(self.asking, [put(table, key, version_attributes(now), NEW)], until))
        check_layout(table, record)
        if lags_behind(record):
            told = {"layout_minor": MINOR, "library_version": __version__}
            as_it_was = {"layout_version": LAYOUT}
            yield from commit(self.asking, [update(table, key, as_it_was, sets=told)], until)
        return None


def is_active(description: Mapping[str, Any]) -> bool:
    """Whether the table and all its indexes can be used."""
    parts = [description["TableStatus"]]
    parts += [index.get("IndexStatus", "ACTIVE") for index in description.get("GlobalSecondaryIndexes", ())]
    return all(status == "ACTIVE" for status in parts)
