"""Updates as functions of an item. Every right-hand side sees the item as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from simulation.model.binding import ADDABLE, NUMERIC, Binding, Values
from simulation.model.refusals import NotModelled, invalid
from simulation.model.syntax import UPDATE, Call, Literal, Operand, Path, Sum, Update
from simulation.model.values import Attributes, Value, add

Worth: TypeAlias = Callable[[Attributes, Values], Value]
"""What the right-hand side of a SET is worth, for an item as it was."""


class Revision(NamedTuple):
    """What an update does to an item."""

    given: tuple[tuple[str, str], ...]
    """Attributes that become a literal."""
    copied: tuple[tuple[str, str], ...]
    """Attributes that become what another was."""
    computed: tuple[tuple[str, Worth], ...]
    added: tuple[tuple[str, str], ...]
    removed: tuple[str, ...]
    touched: frozenset[str]

    @property
    def only_removes(self) -> bool:
        """Whether there is nothing in it that would bring an item into being."""
        return len(self.removed) == len(self.touched)

    def of(self, old: Attributes, base: Attributes, values: Values) -> Attributes:
        """The item after it. ``old`` is what is read (nothing, if there is no item), ``base`` what is changed."""
        new = base.copy()
        for name, literal in self.given:
            new[name] = values[literal]
        try:
            for name, source in self.copied:
                new[name] = old[source]
        except KeyError:
            raise _missing() from None
        for name, worth in self.computed:
            new[name] = worth(old, values)
        for name, literal in self.added:
            have = old.get(name)
            new[name] = values[literal] if have is None else add(have, values[literal])
        for name in self.removed:
            new.pop(name, None)
        return new


def revision(update: Update, binding: Binding) -> Revision:
    """An update as a function."""
    given: list[tuple[str, str]] = []
    copied: list[tuple[str, str]] = []
    computed: list[tuple[str, Worth]] = []
    added: list[tuple[str, str]] = []
    targets: list[str] = []
    for path, operand in update.sets:
        name = binding.name(path, UPDATE)
        targets.append(name)
        if isinstance(operand, Literal):
            given.append((name, binding.literal(operand)))
        elif isinstance(operand, Path):
            copied.append((name, binding.name(operand, UPDATE)))
        else:
            computed.append((name, _worth(operand, binding)))
    for path, literal in update.adds:
        name = binding.name(path, UPDATE)
        targets.append(name)
        binding.needs(literal, ADDABLE, "ADD", UPDATE)
        added.append((name, binding.literal(literal)))
    removed = tuple(binding.name(path, UPDATE) for path in update.removes)
    targets.extend(removed)
    touched = frozenset(targets)
    if len(touched) != len(targets):
        twice = next(name for name in targets if targets.count(name) > 1)
        raise invalid(
            f"Invalid {UPDATE}: Two document paths overlap with each other; must remove or rewrite one of these "
            f"paths; path one: [{twice}], path two: [{twice}]"
        )
    return Revision(tuple(given), tuple(copied), tuple(computed), tuple(added), removed, touched)


def _worth(operand: Operand, binding: Binding) -> Worth:
    if isinstance(operand, Literal):
        literal = binding.literal(operand)
        return lambda old, values: values[literal]
    if isinstance(operand, Path):
        return _attribute(binding.name(operand, UPDATE))
    if isinstance(operand, Sum):
        return _sum(operand, binding)
    return _function(operand, binding)


def _attribute(name: str) -> Worth:
    def attribute(old: Attributes, values: Values) -> Value:
        try:
            return old[name]
        except KeyError:
            raise _missing() from None

    return attribute


def _sum(operand: Sum, binding: Binding) -> Worth:
    for part in (operand.left, operand.right):
        if isinstance(part, Literal):
            binding.needs(part, NUMERIC, "+" if operand.sign > 0 else "-", UPDATE)
    left, sign, right = _worth(operand.left, binding), operand.sign, _worth(operand.right, binding)
    return lambda old, values: add(left(old, values), right(old, values), sign)


def _function(call: Call, binding: Binding) -> Worth:
    if call.function == "list_append":
        raise NotModelled("list_append")
    if call.function != "if_not_exists":
        raise invalid(
            f"Invalid {UPDATE}: The function is not allowed to be used this way in an expression; "
            f"function: {call.function}"
        )
    path, otherwise = call.operands
    if not isinstance(path, Path):
        raise invalid(
            f"Invalid {UPDATE}: Operator or function requires a document path; operator or function: if_not_exists"
        )
    name, fallback = binding.name(path, UPDATE), _worth(otherwise, binding)

    def if_not_exists(old: Attributes, values: Values) -> Value:
        have = old.get(name)
        return fallback(old, values) if have is None else have

    return if_not_exists


def _missing() -> Exception:
    return invalid("The provided expression refers to an attribute that does not exist in the item")
