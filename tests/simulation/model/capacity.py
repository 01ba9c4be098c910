"""``ConsumedCapacity``, from the charges of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulation.model.tables import Charge


def wanted(params: Mapping[str, Any]) -> str | None:
    """In which detail a request asks for it: ``TOTAL``, ``INDEXES`` or not at all."""
    level = params.get("ReturnConsumedCapacity", "NONE")
    return None if level == "NONE" else str(level)


def consumed(charges: Sequence[Charge], level: str, *, split: bool = False) -> list[dict[str, Any]]:
    """One entry per table. ``split`` names reads and writes apart, as transactions do."""
    tables = dict.fromkeys(charge.table for charge in charges)
    return [_of_table(table, [one for one in charges if one.table == table], level, split) for table in tables]


def _of_table(table: str, charges: Sequence[Charge], level: str, split: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"TableName": table, **_units(charges, split)}
    if level == "INDEXES":
        entry["Table"] = _units([one for one in charges if one.index_name is None], split)
        indexes = dict.fromkeys(one.index_name for one in charges if one.index_name is not None)
        if indexes:
            entry["GlobalSecondaryIndexes"] = {
                index: _units([one for one in charges if one.index_name == index], split) for index in sorted(indexes)
            }
    return entry


def _units(charges: Sequence[Charge], split: bool) -> dict[str, float]:
    writes = float(sum(charge.writes for charge in charges))
    reads = float(sum(charge.reads for charge in charges))
    entry = {"CapacityUnits": writes + reads}
    if split and writes:
        entry["WriteCapacityUnits"] = writes
    if split and reads:
        entry["ReadCapacityUnits"] = reads
    return entry
