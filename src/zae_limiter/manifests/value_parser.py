"""Parsing the values of a manifest: texts, numbers, tables with known keys, and limits in both their forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from zae_limiter.exceptions import ValidationError
from zae_limiter.manifests.limit_syntax import EXAMPLES, parse_limit
from zae_limiter.manifests.model import Place
from zae_limiter.manifests.problems import Problem, shown, suggestion
from zae_limiter.manifests.yaml_nodes import MappingNode, Node, RefusedNode, ScalarNode, SequenceNode, kind_of
from zae_limiter.models.limit import MAX_LIMITS, Limit
from zae_limiter.naming import check_limit_name

LIMIT_KEYS = ("name", "capacity", "refill_amount", "refill_period_seconds", "burst", "enforce")
NEEDED_LIMIT_KEYS = LIMIT_KEYS[:4]
PERIOD_KEYS = ("name", "amount", "per", "burst", "tz", "start", "fresh", "enforce")
IN_FLIGHT_KEYS = ("name", "inflight", "ttl", "enforce")

_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})").fullmatch

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_+\-/:.]+").fullmatch

_CALLED = {ScalarNode: "a single value", SequenceNode: "a list", MappingNode: "a mapping"}


class ValueParser:
    """Parses the values of a manifest. Each method reports what is wrong and then returns ``None``."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def problem(self, place: Place, message: str) -> None:
        """Something is wrong here."""
        self._problems.append(Problem(place, message))

    def valid(self, place: Place, value: object, check: Callable[[object], object]) -> bool:
        """Whether a value passes one of the library's own checks."""
        try:
            check(value)
        except ValidationError as error:
            got = f" (got {shown(error.value)})" if isinstance(error.value, str) else ""
            self.problem(place, f"{error.field} {error.reason}{got}")
            return False
        return True

    # Values

    def is_empty(self, node: Node) -> bool:
        """Whether there is a key, but nothing behind it."""
        return isinstance(node, ScalarNode) and kind_of(node) == "nothing"

    def text(self, node: Node, what: str) -> str | None:
        """A text. What YAML takes for something else needs quotes."""
        if not isinstance(node, ScalarNode):
            self.wrong_shape(node, what, "a text")
            return None
        kind = kind_of(node)
        if kind != "text":
            told = "nothing" if kind == "nothing" else f"a {kind}"
            self.problem(
                node.place, f"{what} must be a text, but YAML takes this for {told}; write {shown(node.text)}"
            )
            return None
        return node.text

    def flag(self, node: Node, what: str) -> bool | None:
        """True or false."""
        if not isinstance(node, ScalarNode):
            self.wrong_shape(node, what, "true or false")
            return None
        if kind_of(node) != "yes or no":
            self.problem(node.place, f"{what} must be true or false, not {shown(node.text)}")
            return None
        return node.text.lower() == "true"

    def whole_number(self, node: Node, what: str) -> int | None:
        """A whole number in plain digits."""
        if not isinstance(node, ScalarNode):
            self.wrong_shape(node, what, "a whole number")
            return None
        if kind_of(node) != "whole number" or not _DECIMAL(node.text):
            hint = ""
            if re.fullmatch(r"[0-9][0-9_, ]*", node.text):
                digits = re.sub(r"[_, ]", "", node.text).lstrip("0")
                hint = f"; write {digits}" if 0 < len(digits) < 19 else ""
            self.problem(node.place, f"{what} must be a whole number in plain digits, not {shown(node.text)}{hint}")
            return None
        return int(node.text)

    def table(self, node: Node, what: str, known: Sequence[str] | None = None) -> MappingNode | None:
        """Keys and values, with no key but the known ones."""
        if not isinstance(node, MappingNode):
            keys = f" with the keys {', '.join(known)}" if known else ""
            self.wrong_shape(node, what, f"a mapping{keys}")
            return None
        for key, (place, _) in node.entries.items():
            if known is not None and key not in known:
                self.problem(place, f"{shown(key)} is not a key of {what}; {suggestion(key, known)}")
        return node

    # Limits

    def limits(self, node: Node, what: str) -> tuple[Limit, ...] | None:
        """The limits of one level: at least one, not too many, each name once."""
        if not isinstance(node, SequenceNode):
            self.wrong_shape(node, what, "a list like [rpm:100, tpm:10000]")
            return None
        if not node.items:
            self.problem(node.place, f"{what} must have at least one limit; to have none, leave them out")
            return None
        if len(node.items) > MAX_LIMITS:
            self.problem(node.place, f"{what} must be at most {MAX_LIMITS} limits")
        found: dict[str, Limit] = {}
        for item in node.items:
            limit = self._limit(item)
            if limit is not None and limit.name in found:
                self.problem(item.place, f"{what} name {limit.name} twice")
            elif limit is not None:
                found[limit.name] = limit
        return tuple(found.values())

    def _limit(self, node: Node) -> Limit | None:
        if isinstance(node, MappingNode):
            return self._limit_in_full(node)
        if not isinstance(node, ScalarNode):
            self.wrong_shape(node, "a limit", f"{EXAMPLES}, or a mapping with the keys {', '.join(LIMIT_KEYS)}")
            return None
        try:
            return parse_limit(node.text)
        except ValidationError as error:
            self.problem(node.place, f"limit {shown(node.text)} {error.reason}")
            return None

    def _limit_in_full(self, node: MappingNode) -> Limit | None:
        short = self._written_as_mapping(node)
        if short is not None:
            self.problem(node.place, f"a space made this a mapping; write {short}")
            return None
        if "inflight" in node.entries:
            return self._limit_from_words(node, IN_FLIGHT_KEYS, "inflight")
        if "amount" in node.entries or "per" in node.entries:
            return self._limit_from_words(node, PERIOD_KEYS, "amount")
        before = len(self._problems)
        self.table(node, "a limit", LIMIT_KEYS)
        missing = [key for key in NEEDED_LIMIT_KEYS if key not in node.entries]
        if missing:
            self.problem(node.place, f"a limit in full needs {', '.join(NEEDED_LIMIT_KEYS)}; no {', '.join(missing)}")
            return None
        name = self.text(node.entries["name"][1], "name")
        numbers = {
            key: self.whole_number(node.entries[key][1], key)
            for key in LIMIT_KEYS[1:5]
            if key in node.entries and not (key == "burst" and self.is_empty(node.entries[key][1]))
        }
        enforce = self.flag(node.entries["enforce"][1], "enforce") if "enforce" in node.entries else True
        if len(self._problems) > before or name is None or enforce is None:
            return None
        try:
            return Limit(name, **numbers, enforce=enforce)  # type: ignore[arg-type]  # a number that is none was reported
        except ValidationError as error:
            place = node.entries["name" if error.field == "limit name" else error.field][1].place
            self.problem(place, f"{error.field} {error.reason}")
            return None

    def _limit_from_words(self, node: MappingNode, keys: Sequence[str], amount_key: str) -> Limit | None:
        """A limit by the calendar, of calls in flight, or per a unit, with a key for each part of its word."""
        before = len(self._problems)
        self.table(node, "a limit", keys)
        missing = [key for key in ("name", amount_key) if key not in node.entries]
        if missing:
            self.problem(node.place, f"this limit needs the keys name and {amount_key}; no {', '.join(missing)}")
            return None
        name = self.text(node.entries["name"][1], "name")
        if name is not None and not self.valid(node.entries["name"][1].place, name, check_limit_name):
            return None
        amount = self.whole_number(node.entries[amount_key][1], amount_key)
        burst = self.whole_number(node.entries["burst"][1], "burst") if self._says(node, "burst") else None
        fresh = self.flag(node.entries["fresh"][1], "fresh") if self._says(node, "fresh") else False
        enforce = self.flag(node.entries["enforce"][1], "enforce") if self._says(node, "enforce") else True
        per, tz, start, ttl = (self._word(node, key) for key in ("per", "tz", "start", "ttl"))
        if len(self._problems) > before or name is None:
            return None
        word = f"{name}:{amount}/inflight" if amount_key == "inflight" else f"{name}:{amount}/{per or 'min'}"
        word += "" if burst is None else f":{burst}"
        word += "" if tz is None else f"@{tz}"
        word += "".join(f",{key}={value}" for key, value in (("start", start), ("ttl", ttl)) if value is not None)
        word += (",fresh" if fresh else "") + ("" if enforce else ",shadow")
        try:
            return parse_limit(word)
        except ValidationError as error:
            self.problem(node.place, f"limit {shown(word)} {error.reason}")
            return None

    def _says(self, node: MappingNode, key: str) -> bool:
        return key in node.entries and not self.is_empty(node.entries[key][1])

    def _word(self, node: MappingNode, key: str) -> str | None:
        """A single value as it is written, whatever YAML takes it for: 07:00 would be a number."""
        if not self._says(node, key):
            return None
        value = node.entries[key][1]
        if not isinstance(value, ScalarNode):
            self.wrong_shape(value, key, "a single value")
            return None
        if not _PLAIN_WORD(value.text):
            self.problem(value.place, f"{key} must not be {shown(value.text)}")
            return None
        return value.text

    def _written_as_mapping(self, node: MappingNode) -> str | None:
        """``- rpm: 100`` is a mapping to YAML; what was meant."""
        if len(node.entries) != 1:
            return None
        [(name, (_, value))] = node.entries.items()
        if name in (*LIMIT_KEYS, *PERIOD_KEYS, *IN_FLIGHT_KEYS) or not isinstance(value, ScalarNode):
            return None
        word = f"{name}:{value.text}"
        try:
            parse_limit(word)
        except ValidationError:
            return None
        return word

    def wrong_shape(self, node: Node, what: str, wanted: str) -> None:
        """It is a list where a text should be, or the like."""
        if not isinstance(node, RefusedNode):
            self.problem(node.place, f"{what} must be {wanted}, not {self._called(node)}")

    def _called(self, node: Node) -> str:
        if self.is_empty(node):
            return "empty"
        return shown(node.text) if isinstance(node, ScalarNode) else _CALLED[type(node)]
