"""The table as a whole, and the registry of its namespaces: each under its name and under its opaque id, always
both.

Making and removing the table takes as long as DynamoDB takes, outside the deadline of ordinary verbs. Any number of
clients may make it at the same time. A table of the same name that is none of ours is never touched.

Deleting a namespace is soft. The record says so first, and then every live bucket of the namespace is *fenced*: it
gets a config version that no client has, so that a client that still writes to it is refused by DynamoDB, looks
again, and finds the namespace deleted. Purging says first that it has begun, so that half of a namespace is never
recovered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zae_limiter.exceptions import NamespaceNotFoundError, RateLimiterUnavailable, ValidationError, VersionError
from zae_limiter.models.moments import LAST_MOMENT_MS, at
from zae_limiter.models.reports import NamespaceInfo, Page
from zae_limiter.naming import DEFAULT_NAMESPACE, NAMESPACE_SUBJECT
from zae_limiter.running.plan import Plan
from zae_limiter.stores.cursors import page_of
from zae_limiter.stores.dynamodb.config_versions import LAST_FENCE, fence_of
from zae_limiter.stores.dynamodb.expressions import (
    ABSENT,
    EXISTING,
    NEW,
    NOTHING,
    PRESENT,
    Expected,
    Write,
    delete,
    put,
    update,
)
from zae_limiter.stores.dynamodb.items import decoder, key_of, version_in
from zae_limiter.stores.dynamodb.namespace import (
    LAYOUT,
    MINOR,
    VERSION_KEYS,
    check_age,
    check_layout,
    has_old_data,
    lags_behind,
    record_among,
    version_attributes,
)
from zae_limiter.stores.dynamodb.operations.audit import AuditEntry, audited
from zae_limiter.stores.dynamodb.operations.paging import (
    fetch,
    names_after,
    partition,
    position,
    rows_of,
    side_by_side,
    whole_namespace,
)
from zae_limiter.stores.dynamodb.requests import TABLE_NOT_FOUND, Item, Refused
from zae_limiter.stores.dynamodb.schema import (
    INDEXES,
    REGISTRY,
    Key,
    encode,
    encode_item,
    namespace_id_key,
    namespace_key,
    number_in,
    pk_pulses,
    pk_system,
    sk_namespace,
    version_key,
)
from zae_limiter.stores.dynamodb.table_client import BATCH_WRITE, Deadline, TableClient, commit, persist, verb
from zae_limiter.stores.refusals import not_deleted_yet
from zae_limiter.version import __version__

FENCED_AT_ONCE = 50
PURGED_AT_ONCE = 200

MOST_PASSES = 100
"""How often a purge looks for what was written meanwhile before it gives up."""


class Namespaces:
    """The verbs of a store on its namespaces."""

    def __init__(self, client: TableClient) -> None:
        self.client = client

    @verb
    def register_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        """A namespace; the existing one if the name is taken."""
        entry = AuditEntry(NAMESPACE_SUBJECT, "registered", None, principal, NOTHING)
        info = yield from persist(self.client, lambda deadline: self.register(name, entry, now, deadline))
        return live(info)

    @verb
    def get_namespace(self, name: str) -> Plan[NamespaceInfo]:
        """A namespace that is registered, deleted or not."""
        deadline = yield from self.client.new_deadline()
        return info_of((yield from self._record(name, deadline)))

    @verb
    def list_namespaces(self, limit: int, cursor: str | None) -> Plan[Page[NamespaceInfo]]:
        """All namespaces by name, deleted ones too."""
        records = partition(self.client, pk_system(REGISTRY), names_after(sk_namespace(""), position(cursor)))
        rows = yield from rows_of(records, limit, info_of)
        return page_of(rows, limit, lambda info: (info.name,))

    @verb
    def delete_namespace(self, name: str, principal: str | None, now: int) -> Plan[None]:
        """Refuse every use of the namespace from now on; its data stays.

        One that is deleted already is refused, but its buckets are fenced again: the first try may have been cut
        short.
        """
        info, fence, done = yield from persist(
            self.client, lambda deadline: self._delete(name, principal, now, deadline)
        )
        yield from self._fence(info.id, fence)
        if not done:
            raise NamespaceNotFoundError(name, deleted=True)

    @verb
    def recover_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        """Undo :meth:`delete_namespace`."""
        return (yield from persist(self.client, lambda deadline: self._recover(name, principal, now, deadline)))

    @verb
    def purge_namespace(self, name: str) -> Plan[int]:
        """Remove a deleted namespace and everything in it; the number of things removed. It can be repeated."""
        info = yield from persist(self.client, lambda deadline: self._begin_purge(name, deadline))
        removed = yield from self._remove_everything(info)
        yield from persist(self.client, lambda deadline: self._forget(info, deadline))
        return removed

    # One try each

    def register(self, name: str, entry: AuditEntry | None, now: int, deadline: Deadline) -> Plan[NamespaceInfo]:
        """The existing namespace, or a new one. The one that is there from the beginning leaves no trace."""
        item = yield from self.client.get(namespace_key(name), deadline)
        if item is not None:
            return info_of(item)
        fields = {"name": name, "ns": self.client.write_ids.incarnation(), "created_at": now}
        info = info_of(encode_item(fields))
        writes = [put(self.client.table, key, fields, NEW) for key in places_of(info)]
        if entry is not None:
            writes.append(audited(self.client, info.id, entry, now, deadline))
        yield from commit(self.client, writes, deadline)
        return info

    def _delete(
        self, name: str, principal: str | None, now: int, deadline: Deadline
    ) -> Plan[tuple[NamespaceInfo, str, bool]]:
        """The namespace, the fence for its buckets, and whether it was deleted just now."""
        record = yield from self._record(name, deadline)
        info = info_of(record)
        if info.deleted_at is not None:
            return info, fence_of(changes_of(record)), False
        entry = AuditEntry(NAMESPACE_SUBJECT, "deleted", None, principal, NOTHING)
        writes = [
            *self._updates(record, {"deleted_at": now}, {"deleted_at": ABSENT}),
            audited(self.client, info.id, entry, now, deadline),
        ]
        yield from commit(self.client, writes, deadline)
        return info, fence_of(changes_of(record) + 1), True

    def _recover(self, name: str, principal: str | None, now: int, deadline: Deadline) -> Plan[NamespaceInfo]:
        record = yield from self._record(name, deadline)
        info = info_of(record)
        if "purging" in record:
            raise ValidationError("namespace", name, "is being purged; purge_namespace() finishes that")
        if info.deleted_at is None:
            return info
        entry = AuditEntry(NAMESPACE_SUBJECT, "recovered", None, principal, NOTHING)
        writes = [
            *self._updates(record, {"deleted_at": None}, {"deleted_at": PRESENT, "purging": ABSENT}),
            audited(self.client, info.id, entry, now, deadline),
        ]
        yield from commit(self.client, writes, deadline)
        return replace(info, deleted_at=None)

    def _begin_purge(self, name: str, deadline: Deadline) -> Plan[NamespaceInfo]:
        record = yield from self._record(name, deadline)
        info = info_of(record)
        if info.deleted_at is None:
            raise not_deleted_yet(name)
        writes = self._updates(record, {"purging": True}, {"deleted_at": PRESENT})
        yield from commit(self.client, writes, deadline)
        return info

    def _forget(self, info: NamespaceInfo, deadline: Deadline) -> Plan[None]:
        item = yield from self.client.get(namespace_key(info.name), deadline)
        if item is not None and info_of(item).id == info.id:
            writes = [delete(self.client.table, key, {"ns": info.id}) for key in places_of(info)]
            yield from commit(self.client, writes, deadline)

    def _record(self, name: str, deadline: Deadline) -> Plan[Item]:
        item = yield from self.client.get(namespace_key(name), deadline)
        if item is None:
            raise NamespaceNotFoundError(name)
        return item

    def _updates(self, record: Item, sets: Mapping[str, Any], expected: Expected) -> list[Write]:
        """A change of a namespace as it is: ``changes`` counts them, so that none is done late, after others."""
        info, changes = info_of(record), changes_of(record)
        expected = {"ns": info.id, "changes": changes or ABSENT, **expected}
        sets = {**sets, "changes": changes + 1}
        return [update(self.client.table, key, expected, sets=sets) for key in places_of(info)]

    # A page at a time

    def _fence(self, ns: str, fence: str) -> Plan[None]:
        buckets = whole_namespace(self.client, ns, prefix="BUCKET")
        while found := (yield from buckets.take(FENCED_AT_ONCE)):
            deadline = yield from self.client.new_deadline()
            yield from side_by_side([self._fence_one(key_of(item), fence, deadline) for item in found])

    def _fence_one(self, bucket: Key, fence: str, deadline: Deadline) -> Plan[None]:
        """A request that arrives late must not put the fence of an earlier deletion in the place of a later one's."""
        params = update(self.client.table, bucket, EXISTING, sets={"cv": fence})["Update"]
        params["ConditionExpression"] += " AND NOT #cv BETWEEN :new_cv AND :last"
        params["ExpressionAttributeValues"][":last"] = encode(LAST_FENCE)
        try:
            yield from self.client.ask("UpdateItem", params, deadline, repeatable=True)
        except Refused as refusal:
            if not refusal.by_condition:
                raise

    def _remove_everything(self, info: NamespaceInfo) -> Plan[int]:
        """Go over all there is until nothing is left; the index may show for a while what is gone.

        These deletions have no conditions: every key begins with the namespace's id, which is never given again. Once
        a purge has begun that namespace is not recovered, so a deletion that arrives late finds nothing that lives.
        """
        removed = 0
        for tries in range(MOST_PASSES):
            found = yield from self._remove_all_found(info.id, only_existing=tries > 0)
            removed += found
            if tries and not found:
                return removed
        raise RateLimiterUnavailable(
            f"namespace {info.name!r} is still being written to", hint="stop its clients and purge it again"
        )

    def _remove_all_found(self, ns: str, *, only_existing: bool) -> Plan[int]:
        removed = yield from self._remove_pulses(ns)
        items = whole_namespace(self.client, ns)
        while found := (yield from items.take(PURGED_AT_ONCE)):
            keys = [key_of(item) for item in found]
            if only_existing:
                existing = yield from fetch(self.client, keys)
                keys = [key for key in keys if key in existing]
            deadline = yield from self.client.new_deadline()
            batches = [keys[start : start + BATCH_WRITE] for start in range(0, len(keys), BATCH_WRITE)]
            yield from side_by_side([self.client.delete_all(batch, deadline) for batch in batches])
            removed += len(keys)
        return removed

    def _remove_pulses(self, ns: str) -> Plan[int]:
        """They are in no index."""
        keys = [key_of(item) for item in (yield from self.client.query_all(pk_pulses(ns)))]
        if keys:
            yield from self.client.delete_all(keys, (yield from self.client.new_deadline()))
        return len(keys)


def places_of(info: NamespaceInfo) -> tuple[Key, Key]:
    """Where a namespace is registered: by name, and by id."""
    return namespace_key(info.name), namespace_id_key(info.id)


@decoder("a namespace")
def info_of(record: Item) -> NamespaceInfo:
    """A namespace from its record. Raises ``BrokenItem``."""
    deleted = record.get("deleted_at")
    return NamespaceInfo(
        name=record["name"]["S"],
        id=record["ns"]["S"],
        created_at=at(number_in(record["created_at"], 0, LAST_MOMENT_MS)),
        deleted_at=None if deleted is None else at(number_in(deleted, 0, LAST_MOMENT_MS)),
    )


@decoder("a namespace")
def changes_of(record: Item) -> int:
    """How often the record of a namespace was changed."""
    return version_in(record, "changes") if "changes" in record else 0


def live(info: NamespaceInfo) -> NamespaceInfo:
    """The namespace, unless it is deleted."""
    if info.deleted_at is not None:
        raise NamespaceNotFoundError(info.name, deleted=True)
    return info


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
        "GlobalSecondaryIndexes": [index_params(index) for index in INDEXES],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }


def index_params(index: str) -> dict[str, Any]:
    """An index, as CreateTable and UpdateTable are given it: of keys only."""
    keys = key_schema(f"{index}PK", f"{index}SK")
    return {"IndexName": index, "KeySchema": keys, "Projection": {"ProjectionType": "KEYS_ONLY"}}


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
    """Refuse a table that is not made for us; of one that only lacks indexes, name them."""
    missing = missing_indexes(table, description)
    if missing:
        named = " and ".join(f"{index} (keys {index}PK and {index}SK, strings, KEYS_ONLY)" for index in missing)
        raise VersionError(
            f"table {table!r} lacks the index {named}. Add it with: zae-limiter migrate --url dynamodb://{table}"
        )


def missing_indexes(table: str, description: Mapping[str, Any]) -> list[str]:
    """Which of our indexes a table lacks, as those of older designs do. Refuses a table that is not made for us."""
    indexes = {index["IndexName"]: index["KeySchema"] for index in description.get("GlobalSecondaryIndexes", ())}
    wanted = {index: key_schema(f"{index}PK", f"{index}SK") for index in INDEXES}
    missing = [index for index in wanted if index not in indexes]
    if (
        description["KeySchema"] != key_schema("PK", "SK")
        or len(missing) == len(wanted)
        or any(indexes[index] != keys for index, keys in wanted.items() if index in indexes)
    ):
        raise VersionError(f"table {table!r} exists but was not made by zae-limiter; choose another name")
    if description.get("Replicas"):
        raise VersionError(
            f"table {table!r} has replicas in other regions, where the last writer wins and no limit would hold"
        )
    return missing


class Table:
    """The verbs of a store on its table as a whole."""

    def __init__(self, client: TableClient, namespaces: Namespaces) -> None:
        self.client = client
        self.namespaces = namespaces

    @verb
    def create(self, now: int) -> Plan[None]:
        """Make the table if it is not there, wait until it can be used, and register ``default``."""
        deadline = yield from self._patience()
        if (yield from self.describe(deadline)) is None:
            yield from self._ask_unless_in_use("CreateTable", table_params(self.client.table), deadline)
        yield from self._until_active(deadline)
        yield from self._let_items_expire(deadline)
        yield from persist(self.client, lambda deadline: self._set_up(now, deadline))
        yield from persist(
            self.client, lambda deadline: self.namespaces.register(DEFAULT_NAMESPACE, None, now, deadline)
        )

    @verb
    def destroy(self) -> Plan[None]:
        """Remove the table and wait until it is gone."""
        deadline = yield from self._patience()
        tries = 0
        while (description := (yield from self.describe(deadline))) is not None:
            if description["TableStatus"] == "ACTIVE":
                check_table(self.client.table, description)
                yield from self._ask_unless_in_use("DeleteTable", {"TableName": self.client.table}, deadline)
            tries += 1
            yield from self.client.pause(tries, deadline, Refused(TABLE_IN_USE, "the table is still there"))

    @verb
    def ping(self) -> Plan[None]:
        """Answer, or raise why not."""
        deadline = yield from self.client.new_deadline()
        yield from check_age(self.client, (yield from self.client.get(version_key(), deadline)), deadline)

    def _patience(self) -> Plan[Deadline]:
        deadline = yield from self.client.new_deadline()
        return deadline._replace(give_up_at=deadline.give_up_at - self.client.deadline_ms + PATIENCE_MS)

    def describe(self, deadline: Deadline) -> Plan[Mapping[str, Any] | None]:
        """The table as DynamoDB describes it; nothing, if there is none."""
        try:
            params = {"TableName": self.client.table}
            reply = yield from self.client.ask("DescribeTable", params, deadline, repeatable=True)
        except Refused as refusal:
            if refusal.code != TABLE_NOT_FOUND:
                raise
            return None
        description: Mapping[str, Any] = reply["Table"]
        return description

    def _ask_unless_in_use(self, operation: str, params: Mapping[str, Any], deadline: Deadline) -> Plan[None]:
        """Ask for the table to come or go; another client may be at the same, or have done it."""
        try:
            yield from self.client.ask(operation, params, deadline, repeatable=True)
        except Refused as refusal:
            if refusal.code not in (TABLE_IN_USE, TABLE_NOT_FOUND):
                raise

    def _until_active(self, deadline: Deadline) -> Plan[None]:
        tries = 0
        while True:
            description = yield from self.describe(deadline)
            if description is not None and is_active(description):
                return check_table(self.client.table, description)
            tries += 1
            yield from self.client.pause(tries, deadline, Refused(TABLE_IN_USE, "the table is still being made"))

    def _let_items_expire(self, deadline: Deadline) -> Plan[None]:
        tries = 0
        while not (yield from self._items_expire(deadline)):
            try:
                params = expiry_params(self.client.table)
                yield from self.client.ask("UpdateTimeToLive", params, deadline, repeatable=True)
                return
            except Refused as refusal:
                if refusal.code not in (INVALID, TABLE_IN_USE):
                    raise
                failure = refusal  # another client has just done it, perhaps
            tries += 1
            yield from self.client.pause(tries, deadline, failure)

    def _items_expire(self, deadline: Deadline) -> Plan[bool]:
        params = {"TableName": self.client.table}
        reply = yield from self.client.ask("DescribeTimeToLive", params, deadline, repeatable=True)
        description = reply.get("TimeToLiveDescription", {})
        return description.get("TimeToLiveStatus") in EXPIRY_ON

    def _set_up(self, now: int, deadline: Deadline) -> Plan[None]:
        """Write the version record, or see that it fits. A record that only lacks additions is told of them."""
        table, key = self.client.table, version_key()
        record = record_among((yield from self.client.get_all(VERSION_KEYS, deadline)).values())
        if record is None:
            yield from self._refuse_old_data(deadline)
            return (yield from commit(self.client, [put(table, key, version_attributes(now), NEW)], deadline))
        check_layout(table, record)
        if lags_behind(record):
            told = {"layout_minor": MINOR, "library_version": __version__}
            as_it_was = {"layout_version": LAYOUT}
            yield from commit(self.client, [update(table, key, as_it_was, sets=told)], deadline)
        return None

    def _refuse_old_data(self, deadline: Deadline) -> Plan[None]:
        """A table with data of an older layout must not be taken for a new one: nothing would read that data again.

        What another client has set up in this moment is no such data.
        """
        if not (yield from has_old_data(self.client, deadline)):
            return
        record = yield from self.client.get(version_key(), deadline)
        if record is None:
            yield from check_age(self.client, None, deadline)


def is_active(description: Mapping[str, Any]) -> bool:
    """Whether the table and all its indexes can be used."""
    parts = [description["TableStatus"]]
    parts += [index.get("IndexStatus", "ACTIVE") for index in description.get("GlobalSecondaryIndexes", ())]
    return all(status == "ACTIVE" for status in parts)
