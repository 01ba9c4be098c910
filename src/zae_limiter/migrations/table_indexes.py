"""The indexes of a table: the missing one is made, and one that holds more than keys is replaced on request.

Tables of older designs have three indexes of the four, and some of those project everything: each write of an item is
then paid again in the index. DynamoDB changes one index at a time and takes as long as it takes, so each turn looks at
the table, waits while it is being changed, and asks for the next change. Nothing is kept in between: a run that was
ended is continued by the next one, which finds an index missing or still being made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from zae_limiter.exceptions import VersionError
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.operations.namespaces import (
    TABLE_IN_USE,
    Table,
    index_params,
    is_active,
    missing_indexes,
)
from zae_limiter.stores.dynamodb.requests import Refused
from zae_limiter.stores.dynamodb.schema import INDEXES
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient

PATIENCE_MS = 3_600_000
"""How long one change of an index is waited for: DynamoDB reads the whole table for it."""

BUSY = (TABLE_IN_USE, "LimitExceededException")
"""Another change of the table is under way."""

ON_DEMAND = "PAY_PER_REQUEST"


class IndexReport(NamedTuple):
    """The indexes of a table: what it lacks, what holds more than keys, and what was done about it."""

    missing: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    """Those that hold more than keys."""
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def index_report(table: str, description: Mapping[str, Any]) -> IndexReport:
    """What a table lacks, and which of its indexes hold more than keys. Raises ``VersionError`` for a foreign one."""
    wide = [
        index["IndexName"]
        for index in description.get("GlobalSecondaryIndexes", ())
        if index["IndexName"] in INDEXES and index["Projection"].get("ProjectionType") != "KEYS_ONLY"
    ]
    return IndexReport(tuple(missing_indexes(table, description)), tuple(sorted(wide)))


class TableIndexes:
    """Brings the indexes of one table to those of today."""

    def __init__(self, client: TableClient, table: Table, *, on_wait: Callable[[str], None]) -> None:
        self.client = client
        self._table = table
        self._on_wait = on_wait
        self._removed: list[str] = []
        self._made: list[str] = []

    def complete(self, *, replace: bool) -> Plan[IndexReport]:
        """Make every index that is missing; with ``replace``, make those anew that hold more than keys."""
        tries, deadline = 0, (yield from self._patience())
        while True:
            description = yield from self._description()
            found = index_report(self.client.table, description)
            if is_active(description):
                if not found.missing and not (replace and found.wide):
                    added = tuple(index for index in self._made if index not in self._removed)
                    return IndexReport((), found.wide, added, tuple(self._removed))
                if (yield from self._change(found, description)):
                    tries, deadline = 0, (yield from self._patience())
            tries += 1
            self._on_wait(_named((*found.missing, *found.wide)))
            unfinished = Refused(TABLE_IN_USE, "an index of the table is still being made; run it again later")
            yield from self.client.pause(tries, deadline, unfinished)

    def _change(self, found: IndexReport, description: Mapping[str, Any]) -> Plan[bool]:
        """Ask for the next change; whether one was begun. One that was asked for before needs only time."""
        index = (found.missing or found.wide)[0]
        asked = self._made if found.missing else self._removed
        if index in asked:
            return False
        change = creation(index, description) if found.missing else removal(index)
        params = {"TableName": self.client.table, **change}
        try:
            until = yield from self.client.new_deadline()
            yield from self.client.ask("UpdateTable", params, until, repeatable=False)
        except Refused as refusal:
            if refusal.code in BUSY:
                return False
            raise VersionError(
                f"table {self.client.table!r} needs a change of its index {index}, and it was refused ({refusal}). "
                f"Make it yourself, and migrate again: {in_words(params)}"
            ) from refusal
        asked.append(index)
        return True

    def _description(self) -> Plan[Mapping[str, Any]]:
        until = yield from self.client.new_deadline()
        description = yield from self._table.describe(until)
        if description is None:
            raise VersionError(f"there is no table {self.client.table!r} any more")
        return description

    def _patience(self) -> Plan[Deadline]:
        deadline = yield from self.client.new_deadline()
        return deadline._replace(give_up_at=deadline.started + PATIENCE_MS)


def creation(index: str, description: Mapping[str, Any]) -> dict[str, Any]:
    """What UpdateTable is given to make an index. That of a table with bought capacity gets as much as the table."""
    wanted = index_params(index)
    if description.get("BillingModeSummary", {}).get("BillingMode") != ON_DEMAND:
        units = description.get("ProvisionedThroughput", {})
        wanted["ProvisionedThroughput"] = {
            name: max(units.get(name, 0), 1) for name in ("ReadCapacityUnits", "WriteCapacityUnits")
        }
    keys = [key["AttributeName"] for key in wanted["KeySchema"]]
    return {
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for key in keys],
        "GlobalSecondaryIndexUpdates": [{"Create": wanted}],
    }


def removal(index: str) -> dict[str, Any]:
    """What UpdateTable is given to remove an index."""
    return {"GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": index}}]}


def in_words(params: Mapping[str, Any]) -> str:
    """The command of AWS's own tool that makes the same change."""
    return f"aws dynamodb update-table --cli-input-json '{json.dumps(params)}'"


def _named(indexes: tuple[str, ...]) -> str:
    return " and ".join(dict.fromkeys(indexes)) or "indexes"
