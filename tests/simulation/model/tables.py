"""Tables: items by key, partitions in the order of their sort keys, indexes, the log of changes.

An index holds the keys of the items that have both of its attributes, and nothing else (KEYS_ONLY). Items with the
same keys in an index are in the order of the table's keys; DynamoDB promises none.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from simulation.model.refusals import VALIDATION_FAILED, NotModelled, RefusedOutright, invalid, invalid_values
from simulation.model.values import Attributes, Value, bytes_of, item_size, kind_of

Key: TypeAlias = tuple[str, str]
"""Partition key and sort key."""

Place: TypeAlias = tuple[str, Key]
"""Where an item is in a partition, of the table or of an index: by its sort key there, then by its key."""

KB: Final = 1024
LONGEST_PARTITION_KEY: Final = 2048
LONGEST_SORT_KEY: Final = 1024
LARGEST_ITEM: Final = 400 * KB
LONG_EXPIRED_S: Final = 5 * 365 * 86_400
"""Items that expired longer ago than this are never deleted: such a number is taken for a mistake."""


class Charge(NamedTuple):
    """What one call used of one partition, of the table (``index_name`` is ``None``) or of an index."""

    table: str
    index_name: str | None
    partition: str
    writes: float = 0.0
    reads: float = 0.0


class Change(NamedTuple):
    """One record of a stream: an ``INSERT``, a ``MODIFY`` or a ``REMOVE``, ``expired`` if no client asked for it."""

    sequence: str
    name: str
    key: Key
    old: Attributes | None
    new: Attributes | None
    at_s: float
    expired: bool = False


def units(size: int, step: int = KB) -> int:
    """How many started steps a size has; nothing counts as one."""
    return max(1, -(-size // step))


class Ordered:
    """Partitions of places: of a table, or of an index."""

    __slots__ = ("hash", "index", "partitions", "sort")

    def __init__(self, index: str | None, hash_name: str, sort_name: str) -> None:
        self.index = index
        self.hash = hash_name
        self.sort = sort_name
        self.partitions: dict[str, list[Place]] = {}

    def home(self, item: Attributes | None) -> Key | None:
        """An item's partition and sort key here; nothing if it is not here."""
        if item is None or self.hash not in item or self.sort not in item:
            return None
        return item[self.hash]["S"], item[self.sort]["S"]

    def add(self, home: Key, key: Key) -> None:
        """Put a place in order."""
        insort(self.partitions.setdefault(home[0], []), (home[1], key))

    def drop(self, home: Key, key: Key) -> None:
        """Take a place away."""
        places = self.partitions[home[0]]
        del places[bisect_left(places, (home[1], key))]
        if not places:
            del self.partitions[home[0]]


class Table:
    """One table and its indexes."""

    def __init__(self, name: str, params: Mapping[str, Any]) -> None:
        self.name = name
        self.params = dict(params)
        self.kinds = {one["AttributeName"]: one["AttributeType"] for one in params["AttributeDefinitions"]}
        self.order = self._ordered(None, params["KeySchema"])
        self.indexes: dict[str, Ordered] = {}
        for one in params.get("GlobalSecondaryIndexes") or ():
            if one["Projection"].get("ProjectionType") != "KEYS_ONLY":
                raise NotModelled("indexes that hold more than keys")
            self.indexes[one["IndexName"]] = self._ordered(one["IndexName"], one["KeySchema"])
        if params.get("LocalSecondaryIndexes"):
            raise NotModelled("local secondary indexes")
        self.key_names = frozenset((self.order.hash, self.order.sort))
        self.index_names = frozenset(name for index in self.indexes.values() for name in (index.hash, index.sort))
        self.items: dict[Key, Attributes] = {}
        self._sizes: dict[Key, tuple[Attributes, int]] = {}
        self.ttl_attribute: str | None = None
        self.streaming = bool((params.get("StreamSpecification") or {}).get("StreamEnabled"))
        self.changes: list[Change] = []

    def _ordered(self, index: str | None, schema: Sequence[Mapping[str, str]]) -> Ordered:
        names = [one["AttributeName"] for one in schema]
        if [one["KeyType"] for one in schema] != ["HASH", "RANGE"]:
            raise NotModelled("keys without a sort key")
        for name in names:
            if name not in self.kinds:
                raise invalid_values(f"Some index key attributes are not defined in AttributeDefinitions: {name}")
            if self.kinds[name] != "S":
                raise NotModelled("keys that are not strings")
        return Ordered(index, *names)

    # Keys

    def key_of(self, address: Mapping[str, Mapping[str, Any]]) -> Key:
        """A key from the ``Key`` of a request."""
        order = self.order
        if len(address) != 2:
            raise _mismatch()
        try:
            key = address[order.hash]["S"], address[order.sort]["S"]
        except KeyError:
            raise _mismatch() from None
        self._check_key(key)
        return key

    def key_in(self, item: Attributes) -> Key:
        """A key from an item that is to be stored."""
        for name in (self.order.hash, self.order.sort):
            if name not in item:
                raise invalid_values(f"Missing the key {name} in the item")
            if "S" not in item[name]:
                raise invalid_values(f"Type mismatch for key {name} expected: S actual: {kind_of(item[name])}")
        key = item[self.order.hash]["S"], item[self.order.sort]["S"]
        self._check_key(key)
        return key

    def _check_key(self, key: Key) -> None:
        longest = (LONGEST_PARTITION_KEY, LONGEST_SORT_KEY)
        for name, part, limit in zip((self.order.hash, self.order.sort), key, longest, strict=True):
            if not part:
                raise _empty_key(name)
            if len(part) > limit // 4 and bytes_of(part) > limit:
                raise invalid_values(f"Size of {name} has exceeded the maximum size limit of {limit} bytes")

    def address_of(self, key: Key) -> Attributes:
        """A key as an item has it."""
        return {self.order.hash: {"S": key[0]}, self.order.sort: {"S": key[1]}}

    def check_index_keys(self, item: Attributes) -> None:
        """Fail if an attribute that is a key of an index could not be one."""
        for index in self.indexes.values():
            for name in (index.hash, index.sort):
                if name in item:
                    _check_index_key(name, item[name], index)

    # Sizes are worked out only for those who ask

    def size(self, key: Key) -> int:
        """The bytes the item of a key is charged for; 0 if there is none."""
        return self.size_of(key, self.items.get(key))

    def size_of(self, key: Key, item: Attributes | None) -> int:
        """The bytes an item is charged for that is or was the item of a key."""
        if item is None:
            return 0
        known = self._sizes.get(key)
        if known is not None and known[0] is item:
            return known[1]
        size = item_size(item)
        self._sizes[key] = (item, size)
        return size

    # Writing

    def store(self, key: Key, new: Attributes | None, *, at_s: float, reindex: bool) -> list[Charge]:
        """Put an item, or with ``None`` delete it; what that cost the indexes.

        ``reindex`` is false when no key of an index can have changed.
        """
        old = self.items.get(key)
        if new is None:
            if old is None:
                return []
            del self.items[key]
            self._sizes.pop(key, None)
            self.order.drop(key, key)
        else:
            self.items[key] = new
            if old is None:
                self.order.add(key, key)
        if self.streaming and old != new:
            self._log(key, old, new, at_s)
        return self._reindex(key, old, new) if reindex and self.indexes else []

    def _reindex(self, key: Key, old: Attributes | None, new: Attributes | None) -> list[Charge]:
        charges = []
        for index in self.indexes.values():
            before, after = index.home(old), index.home(new)
            if before == after:
                continue
            if before is not None:
                index.drop(before, key)
                charges.append(self._index_charge(index, before, key))
            if after is not None:
                index.add(after, key)
                charges.append(self._index_charge(index, after, key))
        return charges

    def _index_charge(self, index: Ordered, home: Key, key: Key) -> Charge:
        size = item_size(self.entry(index, home, key))
        return Charge(self.name, index.index, home[0], writes=float(units(size)))

    def entry(self, index: Ordered, home: Key, key: Key) -> Attributes:
        """What an index holds of an item."""
        return {**self.address_of(key), index.hash: {"S": home[0]}, index.sort: {"S": home[1]}}

    def _log(
        self, key: Key, old: Attributes | None, new: Attributes | None, at_s: float, *, expired: bool = False
    ) -> None:
        name = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
        sequence = str(10**20 + len(self.changes) + 1)
        self.changes.append(Change(sequence, name, key, old, new, at_s, expired))

    def expire(self, now_s: float) -> list[Key]:
        """Delete the items whose time is over; their keys."""
        attribute = self.ttl_attribute
        if attribute is None:
            return []
        over = [
            key
            for key, item in self.items.items()
            if (text := item.get(attribute, {}).get("N")) is not None and now_s - LONG_EXPIRED_S <= float(text) < now_s
        ]
        streaming, self.streaming = self.streaming, False
        for key in over:
            if streaming:
                self._log(key, self.items[key], None, now_s, expired=True)
            self.store(key, None, at_s=now_s, reindex=True)
        self.streaming = streaming
        return over


def _check_index_key(name: str, value: Value, index: Ordered) -> None:
    if "S" not in value:
        raise invalid_values(
            f"Type mismatch for Index Key {name} Expected: S Actual: {kind_of(value)} IndexName: {index.index}"
        )
    if not value["S"]:
        raise _empty_key(name)
    limit = LONGEST_PARTITION_KEY if name == index.hash else LONGEST_SORT_KEY
    if bytes_of(value["S"]) > limit:
        raise invalid_values(f"Size of {name} has exceeded the maximum size limit of {limit} bytes")


def _mismatch() -> Exception:
    return invalid("The provided key element does not match the schema")


def _empty_key(name: str) -> Exception:
    return RefusedOutright(
        VALIDATION_FAILED,
        "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty "
        f"string value. Key: {name}",
    )
