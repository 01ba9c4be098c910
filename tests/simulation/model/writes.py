"""Writes of one item: prepared without looking at the item, then judged and worked out for the item as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simulation.model.binding import Values
from simulation.model.expressions import Program, prepared
from simulation.model.refusals import invalid, invalid_values
from simulation.model.tables import LARGEST_ITEM, Charge, Key, Table, units
from simulation.model.values import Attributes, canonical, item_size
from zae_limiter.stores.dynamodb.requests import CONDITION_FAILED, Refused

NOTHING: Final[Attributes] = {}
"""What is read where there is no item."""

MANY_ATTRIBUTES: Final = 400
LONG_VALUE: Final = 256
"""Updates beyond neither of these are not checked for the size of the item: that would cost more than all the rest."""


class Write:
    """One write: of which item, on which condition, and what becomes of it.

    ``kind`` is ``Put``, ``Update``, ``Delete`` or ``ConditionCheck``. Making one raises for what is wrong with the
    expressions; :meth:`address` for what does not fit the table; :meth:`outcome` for what does not fit the item.
    """

    __slots__ = ("factor", "item", "key", "kind", "new", "old", "params", "program", "refused", "table", "values")

    table: Table
    key: Key
    old: Attributes | None
    new: Attributes | None

    def __init__(self, kind: str, table: Table, params: Mapping[str, Any], factor: float = 1.0) -> None:
        self.kind = kind
        self.table = table
        self.params = params
        self.factor = factor
        self.refused = False
        self.program: Program
        self.values: Values
        self.program, self.values = prepared(params)
        self.item: Attributes | None = None
        if kind == "Put":
            self.item = {name: canonical(value) for name, value in params["Item"].items()}

    def address(self) -> None:
        """Find the item, and check that the write fits the table."""
        table = self.table
        if self.item is not None:
            self.key = table.key_in(self.item)
            table.check_index_keys(self.item)
        else:
            self.key = table.key_of(self.params["Key"])
            revision = self.program.revision
            if revision is not None and not revision.touched.isdisjoint(table.key_names):
                name = min(revision.touched & table.key_names)
                raise invalid_values(f"Cannot update attribute {name}. This attribute is part of the key")
        self.old = table.items.get(self.key)

    def holds(self) -> bool:
        """Whether its condition does; if not, it is refused."""
        condition = self.program.condition
        if condition is None or condition(self.old or NOTHING, self.values):
            return True
        self.refused = True
        return False

    def outcome(self) -> None:
        """Work out the item afterwards."""
        if self.kind == "Update":
            self.new = self._updated(self.table, self.old)
        elif self.kind == "ConditionCheck":
            self.new = self.old
        else:
            self.new = self.item
        if self.new is not None and self._may_be_large(self.new) and item_size(self.new) > LARGEST_ITEM:
            raise invalid("Item size has exceeded the maximum allowed size")

    def _updated(self, table: Table, old: Attributes | None) -> Attributes | None:
        revision = self.program.revision
        base = table.address_of(self.key) if old is None else old
        if revision is None:
            return base
        new = revision.of(old or NOTHING, base, self.values)
        if old is None and revision.only_removes:
            return None
        if not revision.touched.isdisjoint(table.index_names):
            table.check_index_keys(new)
        return new

    def _may_be_large(self, new: Attributes) -> bool:
        """Whether its size has to be looked at."""
        if self.item is not None or len(new) > MANY_ATTRIBUTES:
            return True
        for value in self.values.values():
            if "N" not in value and (len(value.get("S", "")) > LONG_VALUE or "L" in value or "M" in value):
                return True
        return False

    def charge(self) -> Charge:
        """What it costs the table: by the larger of before and after, or by before alone if it was refused."""
        size = self.table.size_of(self.key, self.old)
        if not self.refused:
            size = max(size, self.table.size_of(self.key, self.new))
        return Charge(self.table.name, None, self.key[0], writes=self.factor * units(size))

    def commit(self, at_s: float) -> list[Charge]:
        """Store the outcome; what that cost the indexes."""
        if self.kind == "ConditionCheck":
            return []
        revision = self.program.revision
        reindex = self.kind != "Update" or (
            revision is not None and not revision.touched.isdisjoint(self.table.index_names)
        )
        return self.table.store(self.key, self.new, at_s=at_s, reindex=reindex)

    def shown(self) -> Attributes | None:
        """The item a refusal brings, if it was asked for."""
        return self.old if self.params.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else None

    def refusal(self) -> Refused:
        """What is raised when the condition does not hold."""
        return Refused(CONDITION_FAILED, "The conditional request failed", item=self.shown())


def returned(write: Write) -> Attributes | None:
    """The attributes a reply brings, as ``ReturnValues`` asks; call it before the write is committed."""
    wanted = write.params.get("ReturnValues", "NONE")
    if wanted == "NONE":
        return None
    if wanted == "ALL_OLD":
        return write.old
    if wanted == "ALL_NEW":
        return write.new
    source = (write.old if wanted == "UPDATED_OLD" else write.new) or NOTHING
    revision = write.program.revision
    touched = frozenset() if revision is None else revision.touched
    return {name: value for name, value in source.items() if name in touched} or None
