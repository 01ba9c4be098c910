"""The expressions of one request, prepared: aliases filled in, placeholders checked, ready to be run on an item."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from simulation.model.binding import Binding, Needs, Rule, Values
from simulation.model.conditions import Verdict, verdict
from simulation.model.refusals import invalid
from simulation.model.syntax import (
    CONDITION,
    FILTER,
    KEY_CONDITION,
    PROJECTION,
    UPDATE,
    Between,
    Comparison,
    Literal,
    Operand,
    Path,
    Predicate,
    conjuncts,
    parsed_condition,
    parsed_projection,
    parsed_update,
)
from simulation.model.updates import Revision, revision
from simulation.model.values import Value, canonical, canonical_number

NO_VALUES: Values = {}


class KeyTest(NamedTuple):
    """One condition on a key: the attribute, ``=``, ``<``, …, ``BETWEEN`` or ``begins_with``, and its literals."""

    name: str
    operator: str
    literals: tuple[str, ...]


class Program(NamedTuple):
    """What the expressions of a request do."""

    condition: Verdict | None
    revision: Revision | None
    keys: tuple[KeyTest, ...]
    projection: tuple[str, ...] | None
    mentioned: frozenset[str]
    """Attributes that the condition or filter names."""
    literals: frozenset[str]
    needed: tuple[Needs, ...]
    rules: tuple[Rule, ...]


class Prepared(NamedTuple):
    """A program and the literals to run it with."""

    program: Program
    values: Values


def prepared(params: Mapping[str, Any], condition: str = CONDITION) -> Prepared:
    """The expressions of a request. ``condition`` names the parameter that has its condition."""
    names = params.get("ExpressionAttributeNames")
    program = _program(
        params.get(condition),
        condition,
        params.get(UPDATE),
        params.get(KEY_CONDITION),
        params.get(PROJECTION),
        None if names is None else tuple(names),
        () if names is None else tuple(names.values()),
    )
    given = params.get("ExpressionAttributeValues")
    if given is None:
        if program.literals:
            raise _undefined(min(program.literals))
        return Prepared(program, NO_VALUES)
    values = _values(given)
    if values.keys() != program.literals:
        _explain(program.literals, values)
    for needs in program.needed:
        if needs[1].isdisjoint(values[needs[0]]):
            raise needs.violated(values)
    for rule in program.rules:
        rule.check(values)
    return Prepared(program, values)


def _values(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Value]:
    if not given:
        raise invalid("ExpressionAttributeValues must not be empty")
    values = {}
    for placeholder, value in given.items():
        if len(value) == 1 and "N" in value:
            values[placeholder] = {"N": canonical_number(value["N"])}
        else:
            values[placeholder] = canonical(value)
    return values


def _explain(used: frozenset[str], values: Values) -> None:
    for placeholder in values:
        if not placeholder.startswith(":") or not placeholder[1:]:
            raise invalid(f'ExpressionAttributeValues contains invalid key: Syntax error; key: "{placeholder}"')
    missing = used - values.keys()
    if missing:
        raise _undefined(min(missing))
    if not used:
        raise invalid("ExpressionAttributeValues can only be specified when using expressions")
    unused = ", ".join(sorted(values.keys() - used))
    raise invalid(f"Value provided in ExpressionAttributeValues unused in expressions: keys: {{{unused}}}")


def _undefined(placeholder: str) -> Exception:
    return invalid(f"An expression attribute value used in expression is not defined; attribute value: {placeholder}")


@lru_cache(8192)
def _program(
    condition: str | None,
    condition_name: str,
    update: str | None,
    key_condition: str | None,
    projection: str | None,
    aliases: tuple[str, ...] | None,
    names: tuple[str, ...],
) -> Program:
    binding = Binding(dict(zip(aliases or (), names, strict=True)))
    keys = () if key_condition is None else _key_tests(key_condition, binding)
    mentioned: frozenset[str] = frozenset()
    condition_of = None
    if condition is not None:
        own = Binding(binding.names)
        condition_of = verdict(parsed_condition(condition, condition_name), own, condition_name)
        binding.aliases |= own.aliases
        binding.literals |= own.literals
        binding.needed += own.needed
        binding.rules += own.rules
        mentioned = frozenset(own.mentioned)
    revision_of = None if update is None else revision(parsed_update(update), binding)
    wanted = None
    if projection is not None:
        wanted = tuple(binding.name(path, PROJECTION) for path in parsed_projection(projection))
        if len(set(wanted)) != len(wanted):
            raise invalid(f"Invalid {PROJECTION}: Two document paths overlap with each other")
    if aliases is not None:
        _check_aliases(aliases, binding.aliases)
    return Program(
        condition_of,
        revision_of,
        keys,
        wanted,
        mentioned,
        frozenset(binding.literals),
        tuple(dict.fromkeys(binding.needed)),
        tuple(dict.fromkeys(binding.rules)),
    )


def _check_aliases(aliases: tuple[str, ...], used: set[str]) -> None:
    if not aliases:
        raise invalid("ExpressionAttributeNames must not be empty")
    for alias in aliases:
        if not alias.startswith("#") or not alias[1:]:
            raise invalid(f'ExpressionAttributeNames contains invalid key: Syntax error; key: "{alias}"')
    if not used:
        raise invalid("ExpressionAttributeNames can only be specified when using expressions")
    unused = ", ".join(sorted(set(aliases) - used))
    if unused:
        raise invalid(f"Value provided in ExpressionAttributeNames unused in expressions: keys: {{{unused}}}")


def _key_tests(expression: str, binding: Binding) -> tuple[KeyTest, ...]:
    tests = []
    for part in conjuncts(parsed_condition(expression, KEY_CONDITION)):
        path: Operand
        literals: tuple[Operand, ...]
        if isinstance(part, Comparison) and part.operator != "<>":
            operator, path, literals = part.operator, part.left, (part.right,)
        elif isinstance(part, Between):
            operator, path, literals = "BETWEEN", part.operand, (part.low, part.high)
        elif isinstance(part, Predicate) and part.function == "begins_with":
            operator, path, literals = part.function, part.operands[0], part.operands[1:]
        else:
            raise invalid(f"Invalid operator used in {KEY_CONDITION}")
        if not isinstance(path, Path) or not all(isinstance(literal, Literal) for literal in literals):
            raise invalid(f"Invalid condition in {KEY_CONDITION}: Multiple attribute names used in one condition")
        verdict(part, binding, KEY_CONDITION)
        used = tuple(literal.text for literal in literals if isinstance(literal, Literal))
        tests.append(KeyTest(binding.name(path, KEY_CONDITION), operator, used))
    return tuple(tests)


__all__ = ["CONDITION", "FILTER", "KeyTest", "Prepared", "Program", "prepared"]
