"""Pages of a partition, of a table or of an index."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from simulation.model.binding import Values
from simulation.model.expressions import KeyTest, Prepared, prepared
from simulation.model.refusals import NotModelled, invalid
from simulation.model.syntax import FILTER, KEY_CONDITION
from simulation.model.tables import KB, Charge, Key, Ordered, Place, Table, units
from simulation.model.values import Attributes, item_size

LARGEST_PAGE: Final = 1024 * KB


class Page(NamedTuple):
    """What a query or a scan answers, and what it cost."""

    reply: dict[str, Any]
    charge: Charge


def projected(item: Attributes, names: Sequence[str] | None) -> Attributes:
    """The attributes that were asked for."""
    return item if names is None else {name: item[name] for name in names if name in item}


def read_units(size: int, *, consistent: bool) -> float:
    """What reading so many bytes costs."""
    return units(size, 4 * KB) * (1.0 if consistent else 0.5)


def query(table: Table, params: Mapping[str, Any]) -> Page:
    """One page of one partition."""
    if KEY_CONDITION not in params:
        raise invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
    order = _order(table, params)
    program, values = asked = prepared(params, FILTER)
    partition, test = _key_tests(order, program.keys, values)
    forbidden = program.mentioned & {order.hash, order.sort}
    if forbidden:
        raise invalid(
            "Filter Expression can only contain non-primary key attributes: Primary key attribute: " + min(forbidden)
        )
    places = order.partitions.get(partition, [])
    first, last = _span(places, test, values)
    forward = params.get("ScanIndexForward", True)
    start = params.get("ExclusiveStartKey")
    if start is not None:
        home, key = _start(table, order, start)
        if home[0] != partition:
            raise invalid("The provided starting key is outside query boundaries based on provided conditions")
        if forward:
            first = max(first, bisect_right(places, (home[1], key)))
        else:
            last = min(last, bisect_left(places, (home[1], key)))
    window = places[first:last]
    ordered = window if forward else window[::-1]
    return _page(table, order, ((partition, place) for place in ordered), params, asked, partition)


def scan(table: Table, params: Mapping[str, Any]) -> Page:
    """One page of everything, partition by partition."""
    order = _order(table, params)
    asked = prepared(params, FILTER)
    everything = [
        (partition, place) for partition in sorted(order.partitions) for place in order.partitions[partition]
    ]
    start = params.get("ExclusiveStartKey")
    if start is not None:
        home, key = _start(table, order, start)
        everything = everything[bisect_right(everything, (home[0], (home[1], key))) :]
    return _page(table, order, iter(everything), params, asked, "")


def _order(table: Table, params: Mapping[str, Any]) -> Ordered:
    index = params.get("IndexName")
    if index is None:
        return table.order
    if index not in table.indexes:
        raise invalid(f"The table does not have the specified index: {index}")
    if params.get("ConsistentRead"):
        raise invalid("Consistent reads are not supported on global secondary indexes")
    return table.indexes[index]


def _key_tests(order: Ordered, tests: Sequence[KeyTest], values: Values) -> tuple[str, KeyTest | None]:
    """The partition that is asked for, and the condition on the sort key."""
    by_name = {test.name: test for test in tests}
    if len(by_name) != len(tests):
        raise invalid("KeyConditionExpressions must only contain one condition per key")
    if order.hash not in by_name:
        raise invalid(f"Query condition missed key schema element: {order.hash}")
    hash_test = by_name.pop(order.hash)
    if hash_test.operator != "=":
        raise invalid("Query key condition not supported")
    sort_test = by_name.pop(order.sort, None)
    if by_name:
        raise invalid(f"Query condition missed key schema element: {order.sort}")
    for test in (hash_test, sort_test):
        for literal in test.literals if test else ():
            text = values[literal].get("S")
            if text is None:
                raise invalid(
                    "One or more parameter values were invalid: Condition parameter type does not match schema"
                )
            if not text:
                raise invalid(
                    "One or more parameter values are not valid. The AttributeValue for a key attribute cannot "
                    "contain an empty string value."
                )
    return values[hash_test.literals[0]]["S"], sort_test


def _sort_key(place: Place) -> str:
    return place[0]


def _span(places: Sequence[Place], test: KeyTest | None, values: Values) -> tuple[int, int]:
    """From which to before which place the condition holds."""
    if test is None:
        return 0, len(places)
    bounds = [values[literal]["S"] for literal in test.literals]
    low = bisect_left(places, bounds[0], key=_sort_key)
    if test.operator == "begins_with":
        length = len(bounds[0])
        return low, bisect_right(places, bounds[0], key=lambda place: place[0][:length])
    high = bisect_right(places, bounds[-1], key=_sort_key)
    return {
        "=": (low, high),
        "BETWEEN": (low, high),
        "<": (0, low),
        "<=": (0, high),
        ">": (high, len(places)),
        ">=": (low, len(places)),
    }[test.operator]


def _start(table: Table, order: Ordered, start: Attributes) -> tuple[Key, Key]:
    """Where the page before ended."""
    names = {table.order.hash, table.order.sort, order.hash, order.sort}
    if start.keys() != names or any("S" not in value for value in start.values()):
        raise invalid("The provided starting key is invalid")
    home = start[order.hash]["S"], start[order.sort]["S"]
    return home, (start[table.order.hash]["S"], start[table.order.sort]["S"])


def _page(
    table: Table,
    order: Ordered,
    places: Iterator[tuple[str, Place]],
    params: Mapping[str, Any],
    asked: Prepared,
    partition: str,
) -> Page:
    limit = params.get("Limit")
    if limit is not None and limit < 1:
        raise invalid(
            "Value at 'Limit' failed to satisfy constraint: Member must have value greater than or equal to 1"
        )
    select = params.get("Select")
    if select not in (None, "COUNT", "ALL_PROJECTED_ATTRIBUTES", "ALL_ATTRIBUTES", "SPECIFIC_ATTRIBUTES"):
        raise invalid(f"Select cannot be {select}")
    if select == "ALL_ATTRIBUTES" and order.index is not None:
        raise NotModelled("all attributes from an index")
    found, scanned, size, last = [], 0, 0, None
    condition = asked.program.condition
    for home, (sort, key) in places:
        if order.index is None:
            item = table.items[key]
            size += table.size(key)
        else:
            item = table.entry(order, (home, sort), key)
            size += item_size(item)
        scanned += 1
        if condition is None or condition(item, asked.values):
            found.append(projected(item, asked.program.projection))
        if scanned == limit or size >= LARGEST_PAGE:
            last = table.address_of(key) if order.index is None else table.entry(order, (home, sort), key)
            break
    reply: dict[str, Any] = {"Count": len(found), "ScannedCount": scanned}
    if select != "COUNT":
        reply["Items"] = found
    if last is not None:
        reply["LastEvaluatedKey"] = last
    cost = read_units(size, consistent=bool(params.get("ConsistentRead")))
    return Page(reply, Charge(table.name, order.index, partition, reads=cost))
