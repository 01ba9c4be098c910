"""Names for aliases and rules for literals, gathered while an expression becomes functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from simulation.model.refusals import invalid
from simulation.model.syntax import Literal, Path
from simulation.model.values import ALL_KINDS, Value, in_order, kind_of

Values: TypeAlias = Mapping[str, Value]
"""The literals of one request, by placeholder."""

ORDERED: Final = frozenset({"S", "N", "B"})
PREFIXED: Final = frozenset({"S", "B"})
NUMERIC: Final = frozenset({"N"})
ADDABLE: Final = frozenset({"N", "SS", "NS", "BS"})


class Needs(NamedTuple):
    """A rule on the type of one literal."""

    literal: str
    kinds: frozenset[str]
    operator: str
    what: str

    def violated(self, values: Values) -> Exception:
        """What is raised for a literal of another type."""
        return invalid(
            f"Invalid {self.what}: Incorrect operand type for operator or function; operator or function: "
            f"{self.operator}, operand type: {kind_of(values[self.literal])}"
        )


class Bounds(NamedTuple):
    """A rule on two literals around something: they have one type, and an order."""

    low: str
    high: str
    what: str

    def check(self, values: Values) -> None:
        """Raise if they have not."""
        low, high = values[self.low], values[self.high]
        if kind_of(low) != kind_of(high):
            raise invalid(
                f"Invalid {self.what}: The BETWEEN operator requires same data type for lower and upper bounds"
            )
        if not in_order(lambda a, b: a <= b, low, high):
            raise invalid(
                f"Invalid {self.what}: The BETWEEN operator requires upper bound to be greater than or equal to "
                "lower bound"
            )


class TypeName(NamedTuple):
    """A rule on the literal that names a type."""

    literal: str
    what: str

    def check(self, values: Values) -> None:
        """Raise if it names none."""
        if values[self.literal].get("S") not in ALL_KINDS:
            raise invalid(f"Invalid {self.what}: Invalid attribute type name found; type: {values[self.literal]}")


Rule: TypeAlias = Bounds | TypeName
"""Something that must be true of the literals of every request, whatever the item is."""


class Binding:
    """The aliases of a request; and what its expressions use: aliases, attributes, literals, and rules of those."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.mentioned: set[str] = set()
        self.aliases: set[str] = set()
        self.literals: set[str] = set()
        self.needed: list[Needs] = []
        self.rules: list[Rule] = []

    def name(self, path: Path, what: str) -> str:
        """The attribute that is meant."""
        name = path.text
        if name.startswith("#"):
            self.aliases.add(name)
            if name not in self.names:
                raise invalid(
                    f"Invalid {what}: An expression attribute name used in the document path is not defined; "
                    f"attribute name: {name}"
                )
            name = self.names[name]
        self.mentioned.add(name)
        return name

    def literal(self, literal: Literal) -> str:
        """The placeholder, noted as used."""
        self.literals.add(literal.text)
        return literal.text

    def needs(self, literal: Literal, kinds: frozenset[str], operator: str, what: str) -> None:
        """Note that a literal has to be of one of some types."""
        self.needed.append(Needs(literal.text, kinds, operator, what))
