"""Expressions as trees. Each distinct text is parsed once; placeholders are filled in later (see ``conditions``).

Operands are one of: ``Path`` (an attribute, perhaps by an alias), ``Literal`` (a placeholder for a value), ``Call``
(a function of operands), ``Sum`` (two operands added or subtracted, in updates only).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from simulation.model.refusals import NotModelled, invalid
from simulation.model.tokens import END, RESERVED, Token, syntax_error, tokens_of

MOST_OPERATORS: Final = 300
MOST_OPERANDS: Final = 100
COMPARATORS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
PREDICATES: Final = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}
"""Functions that are conditions, and how many operands they have."""
OTHER_FUNCTIONS: Final = {"size": 1, "if_not_exists": 2, "list_append": 2}

CONDITION: Final = "ConditionExpression"
FILTER: Final = "FilterExpression"
KEY_CONDITION: Final = "KeyConditionExpression"
UPDATE: Final = "UpdateExpression"
PROJECTION: Final = "ProjectionExpression"


class Path(NamedTuple):
    """An attribute: its name, or an alias that begins with ``#``."""

    text: str


class Literal(NamedTuple):
    """A placeholder for a value: ``:name``."""

    text: str


class Call(NamedTuple):
    """A function of operands."""

    function: str
    operands: tuple[Operand, ...]


class Sum(NamedTuple):
    """Two operands, added (1) or subtracted (-1)."""

    left: Operand
    sign: int
    right: Operand


Operand: TypeAlias = Path | Literal | Call | Sum


class Comparison(NamedTuple):
    """Two operands compared."""

    operator: str
    left: Operand
    right: Operand


class Between(NamedTuple):
    """An operand within two others, both included."""

    operand: Operand
    low: Operand
    high: Operand


class OneOf(NamedTuple):
    """An operand equal to one of several."""

    operand: Operand
    choices: tuple[Operand, ...]


class Predicate(NamedTuple):
    """A function that is a condition."""

    function: str
    operands: tuple[Operand, ...]


class Both(NamedTuple):
    """All of several conditions."""

    parts: tuple[Condition, ...]


class Either(NamedTuple):
    """Any of several conditions."""

    parts: tuple[Condition, ...]


class Not(NamedTuple):
    """The contrary of a condition."""

    part: Condition


class Grouped(NamedTuple):
    """A condition in parentheses."""

    part: Condition


Condition: TypeAlias = Comparison | Between | OneOf | Predicate | Both | Either | Not | Grouped


class Update(NamedTuple):
    """What an update does: attributes to set, to add to, to remove."""

    sets: tuple[tuple[Path, Operand], ...]
    adds: tuple[tuple[Path, Literal], ...]
    removes: tuple[Path, ...]


class Parser:
    """A reader of one expression, from its first word to its last."""

    def __init__(self, expression: str, what: str) -> None:
        self.what = what
        self.tokens = tokens_of(expression, what)
        self.position = 0
        self.operators = 0

    # Words

    def next(self) -> Token:
        """The next word, taken."""
        token = self.tokens[self.position]
        self.position += 1
        return token

    def take(self, text: str) -> bool:
        """Whether the next word is this sign; if so it is taken."""
        token = self.tokens[self.position]
        if token.kind == "sign" and token.text == text:
            self.position += 1
            return True
        return False

    def take_word(self, *words: str) -> str | None:
        """Which of these keywords is next, if any; it is taken. Case does not matter."""
        token = self.tokens[self.position]
        if token.kind == "name" and token.text.upper() in words:
            self.position += 1
            return token.text.upper()
        return None

    def expect(self, text: str) -> None:
        """Take this sign, or fail."""
        if not self.take(text):
            raise self.unexpected()

    def unexpected(self) -> Exception:
        """The next word is none that could be here."""
        near = " ".join(token.text for token in self.tokens[max(0, self.position - 1) : self.position + 2])
        return syntax_error(self.what, self.tokens[self.position].text, near)

    def count(self, how_many: int = 1) -> None:
        """One more operator or function."""
        self.operators += how_many
        if self.operators > MOST_OPERATORS:
            raise invalid(f"Invalid {self.what}: The expression contains too many operators; maximum: 300")

    def finish(self) -> None:
        """Fail unless everything was read."""
        if self.tokens[self.position] is not END:
            raise self.unexpected()

    # Operands

    def path(self) -> Path:
        """An attribute of the item itself."""
        token = self.next()
        if token.kind not in ("name", "alias"):
            self.position -= 1
            raise self.unexpected()
        if token.kind == "name" and token.text.lower() in RESERVED:
            raise invalid(f"Invalid {self.what}: Attribute name is a reserved keyword; reserved keyword: {token.text}")
        if self.take(".") or self.take("["):
            raise NotModelled("paths into documents")
        return Path(token.text)

    def literal(self) -> Literal:
        """A placeholder for a value."""
        token = self.next()
        if token.kind != "value":
            self.position -= 1
            raise self.unexpected()
        return Literal(token.text)

    def operand(self) -> Operand:
        """An attribute, a value or a function."""
        token = self.tokens[self.position]
        if token.kind == "value":
            return self.literal()
        if token.kind == "name" and self.tokens[self.position + 1].text == "(":
            return self.call()
        return self.path()

    def call(self) -> Call:
        """A function of operands."""
        function = self.next().text
        self.count()
        operands = tuple(self.in_parentheses())
        known = PREDICATES.get(function) or OTHER_FUNCTIONS.get(function)
        if known is None:
            raise invalid(f"Invalid {self.what}: Invalid function name; function: {function}")
        if len(operands) != known:
            raise invalid(
                f"Invalid {self.what}: Incorrect number of operands for operator or function; "
                f"operator or function: {function}, number of operands: {len(operands)}"
            )
        return Call(function, operands)

    def in_parentheses(self) -> list[Operand]:
        """Operands, separated by commas."""
        self.expect("(")
        operands = [self.operand()]
        while self.take(","):
            operands.append(self.operand())
        self.expect(")")
        return operands

    # Conditions: OR binds weakest, then AND, then NOT

    def condition(self) -> Condition:
        """Any of several."""
        parts = [self.all_of()]
        while self.take_word("OR"):
            self.count()
            parts.append(self.all_of())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def all_of(self) -> Condition:
        """All of several."""
        parts = [self.negated()]
        while self.take_word("AND"):
            self.count()
            parts.append(self.negated())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def negated(self) -> Condition:
        """One, or the contrary of one."""
        if self.take_word("NOT"):
            self.count()
            return Not(self.negated())
        return self.simple()

    def simple(self) -> Condition:
        """One condition, or several in parentheses."""
        if self.take("("):
            inner = self.condition()
            self.expect(")")
            if isinstance(inner, Grouped):
                raise invalid(f"Invalid {self.what}: The expression has redundant parentheses;")
            return Grouped(inner)
        left = self.operand()
        if isinstance(left, Call) and left.function in PREDICATES:
            return Predicate(left.function, left.operands)
        if self.take_word("BETWEEN"):
            self.count()
            low = self.operand()
            if not self.take_word("AND"):
                raise self.unexpected()
            return Between(left, low, self.operand())
        if self.take_word("IN"):
            self.count()
            choices = tuple(self.in_parentheses())
            if len(choices) >= MOST_OPERANDS:
                raise invalid(f"Invalid {self.what}: Invalid number of operands for operator IN; maximum: 100")
            return OneOf(left, choices)
        token = self.next()
        if token.kind != "sign" or token.text not in COMPARATORS:
            self.position -= 1
            raise self.unexpected()
        self.count()
        return Comparison(token.text, left, self.operand())

    # Updates

    def update(self) -> Update:
        """Up to one clause of each kind, in any order."""
        sets: list[tuple[Path, Operand]] = []
        adds: list[tuple[Path, Literal]] = []
        removes: list[Path] = []
        seen: set[str] = set()
        while self.tokens[self.position] is not END:
            clause = self.take_word("SET", "ADD", "REMOVE", "DELETE")
            if clause is None:
                raise self.unexpected()
            if clause in seen:
                raise invalid(
                    f'Invalid {self.what}: The "{clause}" section can only be used once in an update expression;'
                )
            seen.add(clause)
            while True:
                if clause == "SET":
                    sets.append(self.assignment())
                elif clause == "ADD":
                    self.count()
                    adds.append((self.path(), self.literal()))
                elif clause == "REMOVE":
                    removes.append(self.path())
                else:
                    raise NotModelled("DELETE from sets")
                if not self.take(","):
                    break
        return Update(tuple(sets), tuple(adds), tuple(removes))

    def assignment(self) -> tuple[Path, Operand]:
        """An attribute and what it becomes."""
        path = self.path()
        self.expect("=")
        self.count()
        if self.take("("):
            value = self.summed()
            self.expect(")")
            return path, value
        return path, self.summed()

    def summed(self) -> Operand:
        """An operand, or two added or subtracted."""
        left = self.operand()
        for sign, factor in (("+", 1), ("-", -1)):
            if self.take(sign):
                self.count()
                return Sum(left, factor, self.operand())
        return left


@lru_cache(4096)
def parsed_condition(expression: str, what: str) -> Condition:
    """A condition, a filter or a condition on keys."""
    parser = Parser(expression, what)
    condition = parser.condition()
    parser.finish()
    return condition


@lru_cache(4096)
def parsed_update(expression: str) -> Update:
    """What an update does."""
    parser = Parser(expression, UPDATE)
    return parser.update()


@lru_cache(256)
def parsed_projection(expression: str) -> tuple[Path, ...]:
    """The attributes that are asked for."""
    parser = Parser(expression, PROJECTION)
    paths = [parser.path()]
    while parser.take(","):
        paths.append(parser.path())
    parser.finish()
    return tuple(paths)


def conjuncts(condition: Condition) -> Iterable[Condition]:
    """The conditions that all have to hold, without the parentheses around them."""
    if isinstance(condition, Grouped):
        yield from conjuncts(condition.part)
    elif isinstance(condition, Both):
        for part in condition.parts:
            yield from conjuncts(part)
    else:
        yield condition
