"""Conditions as functions of an item.

**Missing attributes.** Every comparison with one is false, except ``<>``, which is true: also between two missing
ones. Values of different types are not equal and have no order; that is no error, unless a literal could never be
compared that way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from simulation.model.binding import ORDERED, PREFIXED, Binding, Bounds, TypeName, Values
from simulation.model.refusals import invalid
from simulation.model.syntax import (
    Between,
    Both,
    Comparison,
    Condition,
    Either,
    Grouped,
    Literal,
    Not,
    OneOf,
    Operand,
    Path,
    Predicate,
    Sum,
)
from simulation.model.values import Attributes, Value, in_order, kind_of, length_of

Verdict: TypeAlias = Callable[[Attributes, Values], bool]
"""Whether a condition holds for an item (an empty one if there is none) with the literals of a request."""

Reading: TypeAlias = Callable[[Attributes, Values], Value | None]
"""What an operand is worth; nothing if the attribute is missing."""

ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def verdict(condition: Condition, binding: Binding, what: str) -> Verdict:
    """A condition as a function."""
    if isinstance(condition, Grouped):
        return verdict(condition.part, binding, what)
    if isinstance(condition, Both):
        return _all_of(tuple(verdict(part, binding, what) for part in condition.parts))
    if isinstance(condition, Either):
        return _any_of(tuple(verdict(part, binding, what) for part in condition.parts))
    if isinstance(condition, Not):
        return _contrary(verdict(condition.part, binding, what))
    if isinstance(condition, Comparison):
        return _compared(condition, binding, what)
    if isinstance(condition, Between):
        return _between(condition, binding, what)
    if isinstance(condition, OneOf):
        return _one_of(condition, binding, what)
    return _PREDICATES[condition.function](condition, binding, what)


def _all_of(parts: tuple[Verdict, ...]) -> Verdict:
    def holds(item: Attributes, values: Values) -> bool:
        for part in parts:  # noqa: SIM110 - all() over a generator takes twice as long
            if not part(item, values):
                return False
        return True

    return holds


def _any_of(parts: tuple[Verdict, ...]) -> Verdict:
    def holds(item: Attributes, values: Values) -> bool:
        for part in parts:  # noqa: SIM110 - likewise
            if part(item, values):
                return True
        return False

    return holds


def _contrary(part: Verdict) -> Verdict:
    return lambda item, values: not part(item, values)


# Operands


def reading(operand: Operand, binding: Binding, what: str) -> Reading:
    """An operand as a function."""
    if isinstance(operand, Path):
        name = binding.name(operand, what)
        return lambda item, values: item.get(name)
    if isinstance(operand, Literal):
        literal = binding.literal(operand)
        return lambda item, values: values[literal]
    if isinstance(operand, Sum) or operand.function != "size":
        function = "+" if isinstance(operand, Sum) else operand.function
        raise invalid(
            f"Invalid {what}: The function is not allowed to be used this way in an expression; function: {function}"
        )
    inner = reading(operand.operands[0], binding, what)

    def size(item: Attributes, values: Values) -> Value | None:
        value = inner(item, values)
        length = None if value is None else length_of(value)
        return None if length is None else {"N": str(length)}

    return size


def _distinct(operator_: str, operands: tuple[Operand, ...], binding: Binding, what: str) -> None:
    first, *others = operands
    if isinstance(first, Path):
        names = [binding.name(other, what) for other in others if isinstance(other, Path)]
        if binding.name(first, what) in names:
            raise invalid(
                f"Invalid {what}: The first operand must be distinct from the remaining operands for this operator "
                f"or function; operator: {operator_}, first operand: [{binding.name(first, what)}]"
            )


# Comparisons


def _compared(condition: Comparison, binding: Binding, what: str) -> Verdict:
    sign, left, right = condition
    _distinct(sign, (left, right), binding, what)
    if sign in ORDERS:
        for operand in (left, right):
            if isinstance(operand, Literal):
                binding.needs(operand, ORDERED, sign, what)
    if isinstance(left, Path) and isinstance(right, Literal):
        return _attribute_compared(sign, binding.name(left, what), binding.literal(right))
    first, second = reading(left, binding, what), reading(right, binding, what)
    if sign == "=":

        def equal(item: Attributes, values: Values) -> bool:
            value = first(item, values)
            return value is not None and value == second(item, values)

        return equal
    if sign == "<>":

        def unequal(item: Attributes, values: Values) -> bool:
            value = first(item, values)
            return value is None or value != second(item, values)

        return unequal
    compare = ORDERS[sign]

    def ordered(item: Attributes, values: Values) -> bool:
        one, other = first(item, values), second(item, values)
        return one is not None and other is not None and in_order(compare, one, other)

    return ordered


def _attribute_compared(sign: str, name: str, literal: str) -> Verdict:
    """The common case, an attribute and a literal, without detours."""
    if sign == "=":
        return lambda item, values: item.get(name) == values[literal]
    if sign == "<>":
        return lambda item, values: item.get(name) != values[literal]
    compare = ORDERS[sign]

    def ordered(item: Attributes, values: Values) -> bool:
        have = item.get(name)
        if have is None:
            return False
        want = values[literal]
        try:
            return compare(int(have["N"]), int(want["N"]))
        except (KeyError, ValueError):
            return in_order(compare, have, want)

    return ordered


def _between(condition: Between, binding: Binding, what: str) -> Verdict:
    operand, low, high = condition
    for part in condition:
        if isinstance(part, Literal):
            binding.needs(part, ORDERED, "BETWEEN", what)
    if isinstance(low, Literal) and isinstance(high, Literal):
        binding.rules.append(Bounds(low.text, high.text, what))
    value_of, low_of, high_of = (reading(part, binding, what) for part in (operand, low, high))

    def within(item: Attributes, values: Values) -> bool:
        value, least, most = value_of(item, values), low_of(item, values), high_of(item, values)
        if value is None or least is None or most is None:
            return False
        return in_order(operator.le, least, value) and in_order(operator.le, value, most)

    return within


def _one_of(condition: OneOf, binding: Binding, what: str) -> Verdict:
    _distinct("IN", (condition.operand, *condition.choices), binding, what)
    value_of = reading(condition.operand, binding, what)
    choices = [reading(choice, binding, what) for choice in condition.choices]

    def found(item: Attributes, values: Values) -> bool:
        value = value_of(item, values)
        return value is not None and any(choice(item, values) == value for choice in choices)

    return found


# Functions that are conditions


def _exists(condition: Predicate, binding: Binding, what: str) -> Verdict:
    name = _path_of(condition, binding, what)
    return lambda item, values: name in item


def _not_exists(condition: Predicate, binding: Binding, what: str) -> Verdict:
    name = _path_of(condition, binding, what)
    return lambda item, values: name not in item


def _path_of(condition: Predicate, binding: Binding, what: str) -> str:
    operand = condition.operands[0]
    if not isinstance(operand, Path):
        if isinstance(operand, Literal):
            binding.literal(operand)
        raise invalid(
            f"Invalid {what}: Operator or function requires a document path; operator or function: "
            f"{condition.function}"
        )
    return binding.name(operand, what)


def _has_type(condition: Predicate, binding: Binding, what: str) -> Verdict:
    operand, kind = condition.operands
    if not isinstance(kind, Literal):
        raise invalid(
            f"Invalid {what}: Incorrect operand type for operator or function; operator or function: attribute_type"
        )
    value_of, literal = reading(operand, binding, what), binding.literal(kind)
    binding.rules.append(TypeName(literal, what))

    def has_type(item: Attributes, values: Values) -> bool:
        value = value_of(item, values)
        return value is not None and kind_of(value) == values[literal]["S"]

    return has_type


def _begins_with(condition: Predicate, binding: Binding, what: str) -> Verdict:
    _distinct("begins_with", condition.operands, binding, what)
    for operand in condition.operands:
        if isinstance(operand, Literal):
            binding.needs(operand, PREFIXED, "begins_with", what)
    value_of, prefix_of = (reading(operand, binding, what) for operand in condition.operands)

    def begins(item: Attributes, values: Values) -> bool:
        value, prefix = value_of(item, values), prefix_of(item, values)
        if value is None or prefix is None or "S" not in value or "S" not in prefix:
            return False
        return bool(value["S"].startswith(prefix["S"]))

    return begins


def _contains(condition: Predicate, binding: Binding, what: str) -> Verdict:
    _distinct("contains", condition.operands, binding, what)
    whole_of, part_of = (reading(operand, binding, what) for operand in condition.operands)

    def contains(item: Attributes, values: Values) -> bool:
        whole, part = whole_of(item, values), part_of(item, values)
        if whole is None or part is None:
            return False
        if "L" in whole:
            return part in whole["L"]
        return "S" in whole and "S" in part and part["S"] in whole["S"]

    return contains


_PREDICATES: Final[dict[str, Callable[[Predicate, Binding, str], Verdict]]] = {
    "attribute_exists": _exists,
    "attribute_not_exists": _not_exists,
    "attribute_type": _has_type,
    "begins_with": _begins_with,
    "contains": _contains,
}
