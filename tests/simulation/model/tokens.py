"""The words of an expression."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from simulation.model.refusals import invalid

LONGEST_EXPRESSION: Final = 4096

_WORDS: Final = (
    "action add agent all and any archive as at attribute auth backup batch before begin between binary blob block "
    "boolean bucket by byte call capacity cascade check class cluster column comment commit condition connection "
    "consumed continue copy count counter create current cursor cycle data date day default delete depth disable "
    "domain duration empty enable end error exceeded exists exit false file filter final first for format from full "
    "function get global grant group hash hidden hour identity if in index input insert int integer interval into is "
    "item items key keys language last left length level limit list local lock log long max method min minute mode "
    "month name names new next no none not null number object of offset old on open option or order other out output "
    "owner parameter partition path percent permission plan position primary private project property public query "
    "range read record ref region release remove replace request reset resource result return role row rows rule scan "
    "schema scope second section segment select sequence session set shard share size source space split start state "
    "status store stream string system table temporary then time timestamp timezone to token total transaction "
    "trigger true ttl type unit unknown unprocessed until update usage use user users using uuid value values view "
    "wait when where window with work write year zone "
)
RESERVED: Final = frozenset(_WORDS.split())
"""Words that cannot be attribute names in an expression: those of DynamoDB's list that might be names of ours."""

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z][A-Za-z0-9_]*)|(?P<alias>#[A-Za-z0-9_]+)|(?P<value>:[A-Za-z0-9_]+)"
    r"|(?P<index>[0-9]+)|(?P<sign><=|>=|<>|[=<>(),.\[\]+-]))"
)


class Token(NamedTuple):
    """One word: a ``name``, an ``alias`` (#x), a ``value`` (:x), an ``index`` or a ``sign``; ``end`` closes all."""

    kind: str
    text: str


END: Final = Token("end", "<EOF>")


def tokens_of(expression: str, what: str) -> list[Token]:
    """The words of an expression. ``what`` names it in errors."""
    if not expression.strip():
        raise invalid(f"Invalid {what}: The expression can not be empty;")
    if len(expression.encode()) > LONGEST_EXPRESSION:
        raise invalid(f"Invalid {what}: Expression size has exceeded the maximum allowed size;")
    found = []
    position = 0
    text = expression.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise syntax_error(what, text[position:].strip()[:1], text[position : position + 12])
        kind = match.lastgroup
        assert kind is not None
        found.append(Token(kind, match[kind]))
        position = match.end()
    found.append(END)
    return found


def syntax_error(what: str, token: str, near: str) -> Exception:
    """An expression that is none."""
    return invalid(f'Invalid {what}: Syntax error; token: "{token}", near: "{near}"')
