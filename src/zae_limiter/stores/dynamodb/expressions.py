"""How a write is told to DynamoDB: an UpdateItem in the making, and the writes of a transaction. Pure.

Writes of one *shape* do and demand the same of the same attributes, and differ in their values only. So the
expressions of a shape are put together once, and so is all of its JSON but the values: an acquire is one such write,
and neither builds a tree of dicts nor walks through one.

What is changed seldom (entities, limits, namespaces) is written in transactions of a few writes, each with the
*expectation* that an item still is as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, Final, TypeAlias

from zae_limiter.stores.dynamodb.items import RECENT_WRITERS, address
from zae_limiter.stores.dynamodb.schema import Key, encode, encode_item

Value: TypeAlias = int | str | bool
"""What an attribute is set to, moved by or compared with."""

_quoted = encode_basestring_ascii

_HOLES: Final[Mapping[type, str]] = {int: '{"N":"%d"}', str: '{"S":%s}', bool: '{"BOOL":%s}'}
"""Where a value of each kind goes."""

_WORDS: Final[Mapping[type, Callable[[Any], str]]] = {str: _quoted, bool: {True: "true", False: "false"}.__getitem__}
"""How JSON has a value that is no number."""


def _escaped(text: str) -> str:
    return _quoted(text).replace("%", "%%")


class Shape:
    """All writes that differ in their values only, each of the same kind."""

    __slots__ = ("condition", "names", "text", "update", "values", "words")

    def __init__(
        self, update: str, condition: str, names: Mapping[str, str], values: Sequence[str], kinds: Sequence[type]
    ) -> None:
        self.update = update
        self.condition = condition
        self.names = names
        self.values = values
        self.words = tuple((place, _WORDS[kind]) for place, kind in enumerate(kinds) if kind is not int)
        """Which of its values are no numbers, and how they become words of JSON."""
        holes = ",".join(f"{_escaped(place)}:{_HOLES[kind]}" for place, kind in zip(values, kinds, strict=True))
        named = ",".join(f"{_escaped(place)}:{_escaped(name)}" for place, name in names.items())
        self.text = (
            '{"TableName":%s,"Key":{"PK":{"S":%s},"SK":{"S":%s}},'
            f'"UpdateExpression":{_escaped(update)},"ConditionExpression":{_escaped(condition)},'
            f'"ExpressionAttributeNames":{{{named}}},"ExpressionAttributeValues":{{{holes}}},'
            '"ReturnValuesOnConditionCheckFailure":"ALL_OLD"%s}'
        )
        """Its JSON, with holes for the table, the key, the values and what else is asked for."""


class UpdateParams(Mapping[str, Any]):
    """What UpdateItem is given, or (as a dict) an Update within a transaction.

    It is a mapping like that of any other call, for callers that look into it; :meth:`written` is what is sent.
    """

    __slots__ = ("_key", "_shape", "_table", "_values", "_whole", "returns_new")

    def __init__(self, shape: Shape, table: str, key: Key, values: Sequence[Value]) -> None:
        self._shape = shape
        self._table = table
        self._key = key
        self._values = values
        self.returns_new = False
        """Whether it is answered with the item as it is afterwards; to be said before it is looked into."""
        self._whole: dict[str, Any] | None = None

    def written(self) -> bytes:
        """All of it as JSON."""
        shape, (pk, sk), values = self._shape, self._key, list[Any](self._values)
        for place, word in shape.words:
            values[place] = word(values[place])
        more = ',"ReturnValues":"ALL_NEW"' if self.returns_new else ""
        return (shape.text % (_quoted(self._table), _quoted(pk), _quoted(sk), *values, more)).encode()

    def __getitem__(self, name: str) -> Any:
        return self._put_together()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._put_together())

    def __len__(self) -> int:
        return len(self._put_together())

    def __repr__(self) -> str:
        return repr(self._put_together())

    def _put_together(self) -> dict[str, Any]:
        whole = self._whole
        if whole is None:
            shape = self._shape
            whole = self._whole = {
                "TableName": self._table,
                "Key": {"PK": {"S": self._key.pk}, "SK": {"S": self._key.sk}},
                "UpdateExpression": shape.update,
                "ConditionExpression": shape.condition,
                "ExpressionAttributeNames": shape.names,
                "ExpressionAttributeValues": dict(zip(shape.values, map(encode, self._values), strict=True)),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
            if self.returns_new:
                whole["ReturnValues"] = "ALL_NEW"
        return whole


class Update:
    """An UpdateItem in the making: what it does and demands, attribute by attribute, and the values for it.

    Names and values go through placeholders.
    """

    __slots__ = ("_steps", "_values")

    def __init__(self) -> None:
        self._steps: list[tuple[str, str]] = []
        self._values: list[Value] = []

    def set(self, attribute: str, value: Value) -> None:
        self._steps.append(("SET", attribute))
        self._values.append(value)

    def add(self, attribute: str, amount: int) -> None:
        if amount:
            self._steps.append(("ADD", attribute))
            self._values.append(amount)

    def copy(self, attribute: str, source: str) -> None:
        """Set an attribute to what another has before the write."""
        self._steps.append(("COPY", f"{attribute} {source}"))

    def set_sum(self, attribute: str, source: str, amount: int) -> None:
        """Set an attribute to what another has before the write, and so much more."""
        self._steps.append(("SUM", f"{attribute} {source}"))
        self._values.append(amount)

    def remove(self, attribute: str) -> None:
        self._steps.append(("REMOVE", attribute))

    def demand(self, attribute: str, comparison: str, value: int | str) -> None:
        self._steps.append((comparison, attribute))
        self._values.append(value)

    def demand_absent(self, attribute: str) -> None:
        self._steps.append(("ABSENT", attribute))

    def demand_nothing_in(self, counter: str) -> None:
        """A counter must not be there, or be 0."""
        self._steps.append(("NOTHING", counter))
        self._values.append(0)

    def push_write_id(self, write_id: str, anchor: str | None) -> None:
        """Put a write id among the recent writers, unless it is there. With ``anchor``: only while that one is."""
        self._steps.append(("PUSH", ""))
        self._values.append(write_id)
        if anchor is not None:
            self._steps.append(("ANCHOR", ""))
            self._values.append(anchor)

    def demand_not_written(self, write_id: str) -> None:
        """Another write id must not be among the recent writers."""
        self._steps.append(("NOT WRITTEN", ""))
        self._values.append(write_id)

    def params(self, table: str, key: Key) -> UpdateParams:
        """What UpdateItem, or an Update within a transaction, is given."""
        return UpdateParams(self.shape(), table, key, self._values)

    def shape(self) -> Shape:
        """Its shape."""
        return _shape_of(tuple(self._steps), tuple(map(type, self._values)))


class _Expressions:
    """The expressions of a shape in the making. Names and values get their placeholders in the order they come."""

    __slots__ = ("clauses", "conditions", "names", "values")

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: list[str] = []
        self.clauses: dict[str, list[str]] = {"SET": [], "ADD": [], "REMOVE": []}
        self.conditions: list[str] = []

    def name(self, attribute: str) -> str:
        return self.names.setdefault(attribute, f"#{len(self.names)}")

    def value(self) -> str:
        self.values.append(f":{len(self.values)}")
        return self.values[-1]

    def recent_writers(self) -> list[str]:
        return [self.name(attribute) for attribute in RECENT_WRITERS]

    def set(self, attribute: str) -> None:
        self.clauses["SET"].append(f"{self.name(attribute)} = {self.value()}")

    def add(self, attribute: str) -> None:
        self.clauses["ADD"].append(f"{self.name(attribute)} {self.value()}")

    def remove(self, attribute: str) -> None:
        self.clauses["REMOVE"].append(self.name(attribute))

    def copy(self, attributes: str) -> None:
        target, source = map(self.name, attributes.split())
        self.clauses["SET"].append(f"{target} = {source}")

    def set_sum(self, attributes: str) -> None:
        target, source = map(self.name, attributes.split())
        self.clauses["SET"].append(f"{target} = {source} + {self.value()}")

    def demand_absent(self, attribute: str) -> None:
        self.conditions.append(f"attribute_not_exists({self.name(attribute)})")

    def demand_nothing_in(self, counter: str) -> None:
        name = self.name(counter)
        self.conditions.append(f"(attribute_not_exists({name}) OR {name} = {self.value()})")

    def push_write_id(self, _: str) -> None:
        places, write_id = self.recent_writers(), self.value()
        self.clauses["SET"] += [f"{later} = {earlier}" for earlier, later in pairwise(places)]
        self.clauses["SET"].append(f"{places[0]} = {write_id}")
        self.conditions += [f"{place} <> {write_id}" for place in places]

    def demand_not_written(self, _: str) -> None:
        places, write_id = self.recent_writers(), self.value()
        self.conditions += [f"{place} <> {write_id}" for place in places]

    def demand_anchor(self, _: str) -> None:
        places, anchor = self.recent_writers(), self.value()
        self.conditions.append(f"({' OR '.join(f'{place} = {anchor}' for place in places)})")

    def compare(self, attribute: str, comparison: str) -> None:
        self.conditions.append(f"{self.name(attribute)} {comparison} {self.value()}")

    def shape(self, kinds: Sequence[type]) -> Shape:
        return Shape(
            " ".join(f"{verb} {', '.join(parts)}" for verb, parts in self.clauses.items() if parts),
            " AND ".join(self.conditions),
            {placeholder: attribute for attribute, placeholder in self.names.items()},
            self.values,
            kinds,
        )


_STEPS: Final[Mapping[str, Callable[[_Expressions, str], None]]] = {
    "SET": _Expressions.set,
    "ADD": _Expressions.add,
    "REMOVE": _Expressions.remove,
    "COPY": _Expressions.copy,
    "SUM": _Expressions.set_sum,
    "ABSENT": _Expressions.demand_absent,
    "NOTHING": _Expressions.demand_nothing_in,
    "PUSH": _Expressions.push_write_id,
    "NOT WRITTEN": _Expressions.demand_not_written,
    "ANCHOR": _Expressions.demand_anchor,
    **{sign: partial(_Expressions.compare, comparison=sign) for sign in ("=", "<>", "<", "<=", ">", ">=")},
}
"""What each step of an :class:`Update` adds to the expressions."""


@lru_cache(2048)
def _shape_of(steps: tuple[tuple[str, str], ...], kinds: tuple[type, ...]) -> Shape:
    """The shape of all writes that take these steps, in this order, with values of these kinds."""
    expressions = _Expressions()
    for what, attribute in steps:
        _STEPS[what](expressions, attribute)
    return expressions.shape(kinds)


PRESENT: Final[Any] = type("Present", (), {"__repr__": lambda self: "PRESENT"})()
ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda self: "ABSENT"})()

Expected: TypeAlias = Mapping[str, Any]
"""What an item must look like for a write to happen: attribute → value, ``PRESENT`` or ``ABSENT``."""

NEW: Expected = {"PK": ABSENT}
EXISTING: Expected = {"PK": PRESENT}
NOTHING: Mapping[str, Any] = {}

Write: TypeAlias = dict[str, Any]
"""One write of a transaction, as DynamoDB writes it."""


def put(table: str, key: Key, attributes: Mapping[str, Any], expected: Expected) -> Write:
    """Replace an item. ``None`` means that the attribute is not there."""
    item = encode_item({"PK": key.pk, "SK": key.sk, **attributes})
    return {"Put": {"TableName": table, "Item": item, **_condition(expected)}}


def update(
    table: str,
    key: Key,
    expected: Expected,
    *,
    sets: Mapping[str, Any] = NOTHING,
    adds: Mapping[str, int] = NOTHING,
) -> Write:
    """Change some attributes of an item. ``None`` removes one."""
    clauses: dict[str, list[str]] = {"SET": [], "REMOVE": [], "ADD": []}
    params = _condition(expected)
    names = params.setdefault("ExpressionAttributeNames", {})
    values = params.setdefault("ExpressionAttributeValues", {})
    for name, value in sets.items():
        names[f"#{name}"] = name
        if value is None:
            clauses["REMOVE"].append(f"#{name}")
        else:
            clauses["SET"].append(f"#{name} = :new_{name}")
            values[f":new_{name}"] = encode(value)
    for name, amount in adds.items():
        names[f"#{name}"] = name
        clauses["ADD"].append(f"#{name} :add_{name}")
        values[f":add_{name}"] = encode(amount)
    if not values:
        del params["ExpressionAttributeValues"]
    expression = " ".join(f"{clause} {', '.join(parts)}" for clause, parts in clauses.items() if parts)
    return {"Update": {"TableName": table, "Key": address(key), "UpdateExpression": expression, **params}}


def check(table: str, key: Key, expected: Expected) -> Write:
    """Change nothing, but let nothing happen unless the item is as expected."""
    return {"ConditionCheck": {"TableName": table, "Key": address(key), **_condition(expected)}}


def delete(table: str, key: Key, expected: Expected) -> Write:
    """Remove an item."""
    return {"Delete": {"TableName": table, "Key": address(key), **_condition(expected)}}


def _condition(expected: Expected) -> dict[str, Any]:
    """The condition expression; attribute names that expectations are about are plain words."""
    parts = []
    names = {}
    values = {}
    for name, value in expected.items():
        names[f"#{name}"] = name
        if value is PRESENT:
            parts.append(f"attribute_exists(#{name})")
        elif value is ABSENT:
            parts.append(f"attribute_not_exists(#{name})")
        else:
            parts.append(f"#{name} = :is_{name}")
            values[f":is_{name}"] = encode(value)
    params: dict[str, Any] = {}
    if parts:
        params = {"ConditionExpression": " AND ".join(parts), "ExpressionAttributeNames": names}
    if values:
        params["ExpressionAttributeValues"] = values
    return params
