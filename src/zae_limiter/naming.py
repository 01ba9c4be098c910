"""Which names are names, and which amounts are amounts: what every call gives, checked.

Every valid name works on every store. ``#`` separates the parts of a key, so it is in no name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from zae_limiter.exceptions import ValidationError

RESERVED_LIMIT_NAME = "wcu"
"""The balance in which a bucket keeps its own write load; never a user's limit."""

DEFAULT_RESOURCE = "_default_"
"""Stands for "every resource" where an entity's limits are stored; not a resource of its own."""

TOTAL_RESOURCE = "*"
"""Stands for all resources of an entity together, where its total is stored, counted and shown; none of its own."""

DEFAULT_NAMESPACE = "default"

SYSTEM_SUBJECT = "$SYSTEM"
NAMESPACE_SUBJECT = "$NAMESPACE"
RESOURCE_SUBJECT = "$RESOURCE:"
"""Under what the audit trail files changes that are no entity's; the name of the resource follows the last one."""

RECORDS_ID = "zael:manifests"
RECORD_PREFIX = "zael:manifest:"
"""Ids of the entities in which it is recorded what manifests manage. No manifest may name them, no list shows them."""

MAX_AMOUNT = 10**15
"""The most tokens one call may name: every sum of them then stays exact on every store."""

MAX_PAGE = 1_000
"""The most items one page of a list may have."""

_WHOLE_AMOUNT = f"must be a whole number of tokens from 0 to {MAX_AMOUNT}"


class NameKind:
    """One kind of name: what it is called in messages, its pattern, its length, and how to say so."""

    __slots__ = ("_allowed", "_field", "_longest", "_match", "_reserved")

    def __init__(self, field: str, pattern: str, longest: int, allowed: str, reserved: str | None = None) -> None:
        self._field = field
        self._match = re.compile(pattern).fullmatch
        self._longest = longest
        self._allowed = allowed
        self._reserved = reserved

    def check(self, value: object, field: str | None = None) -> str:
        """The name, if it is one. ``field``: which argument it was, if not the usual one."""
        field = field or self._field
        if not isinstance(value, str):
            raise ValidationError(field, value, f"must be a string of {self._allowed}")
        if not value:
            raise ValidationError(field, value, f"must not be empty; use {self._allowed}")
        if len(value) > self._longest:
            raise ValidationError(field, value, f"must have at most {self._longest} characters")
        if not self._match(value):
            raise ValidationError(field, value, f"must be {self._allowed}")
        if value == self._reserved:
            raise ValidationError(field, value, f"{value!r} is reserved; choose another name")
        return value


class TextKind:
    """A kind of name that callers bring along as it is: any text, but for what would not be seen or not be a key."""

    __slots__ = ("_field", "_longest")

    def __init__(self, field: str, longest: int) -> None:
        self._field = field
        self._longest = longest

    def check(self, value: object, field: str | None = None) -> str:
        """The name, if it is one. ``field``: which argument it was, if not the usual one."""
        field = field or self._field
        if not isinstance(value, str):
            raise ValidationError(field, value, f"must be a string of {_ALLOWED_TEXT}")
        if not value:
            raise ValidationError(field, value, f"must not be empty; use {_ALLOWED_TEXT}")
        if len(value) > self._longest:
            raise ValidationError(field, value, f"must have at most {self._longest} characters")
        if not _is_plain(value):
            reason = _why_no_text(value, BYTES_PER_CHARACTER * self._longest)
            if reason is not None:
                raise ValidationError(field, value, reason)
        return value


_ALLOWED_TEXT = "letters, digits and other characters, without '#', control or format characters"
_is_plain = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-:@/]*").fullmatch
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

BYTES_PER_CHARACTER = 3
"""A name has at most so many bytes for each character that it may have: keys of an index are bounded in bytes."""


def _why_no_text(value: str, most_bytes: int) -> str | None:
    """Why a text is no name, if it is none."""
    from unicodedata import category

    if value == TOTAL_RESOURCE:
        return f"{value!r} is reserved; choose another name"
    if value[0] in "$_":
        return f"must be {_ALLOWED_TEXT}, and not begin with '$' or '_'"
    if "#" in value or any(category(character) in _INVISIBLE for character in value):
        return f"must be {_ALLOWED_TEXT}"
    if len(value.encode()) > most_bytes:
        return f"must have at most {most_bytes} bytes in UTF-8; use fewer letters, or shorter ones"
    return None


check_entity_id = TextKind("entity_id", 256).check
"""The id of an entity (a key, a user, a project, an organisation). Ids are compared byte by byte, as they are."""

check_resource = TextKind("resource", 128).check
"""What is being limited (a model, an endpoint)."""

check_request_id = TextKind("request_id", 256).check
"""What a caller calls a request, so that a repeated one is recognised."""

check_key = TextKind("key", 256).check
"""Under what an operator does something once."""

check_namespace = NameKind(
    "namespace",
    r"[A-Za-z0-9][A-Za-z0-9_.\-:@]*",
    256,
    "letters, digits and _ . - : @, beginning with a letter or digit",
).check
"""The name of a namespace (a tenant, an environment)."""

check_limit_name = NameKind(
    "limit name",
    r"[A-Za-z][A-Za-z0-9_.\-]*",
    64,
    "letters, digits and _ . -, beginning with a letter",
    RESERVED_LIMIT_NAME,
).check
"""The name of a limit, e.g. ``rpm``."""

check_stack_name = NameKind(
    "stack name", r"[A-Za-z][A-Za-z0-9-]*", 55, "letters, digits and -, beginning with a letter"
).check
"""The name of a deployment."""


def is_reserved(entity_id: str) -> bool:
    """Whether an entity is one of ours, that only keeps a record."""
    return entity_id == RECORDS_ID or entity_id.startswith(RECORD_PREFIX)


def check_principal(value: object, field: str = "principal") -> str | None:
    """Who makes a change, for the audit trail; ``None`` when the caller does not say."""
    return None if value is None else check_entity_id(value, field)


def check_config_resource(value: object, field: str = "resource") -> str:
    """A resource, ``_default_`` for each resource of an entity, or ``*`` for all of them together."""
    return DEFAULT_RESOURCE if value == DEFAULT_RESOURCE else check_bucket_resource(value, field)


def check_bucket_resource(value: object, field: str = "resource") -> str:
    """A resource, or ``*`` for the total over all resources of an entity."""
    return TOTAL_RESOURCE if value == TOTAL_RESOURCE else check_resource(value, field)


def check_amount(value: object, field: str) -> int:
    """A whole number of tokens, 0 or more. A bool is not an amount."""
    if type(value) is not int or not 0 <= value <= MAX_AMOUNT:
        raise ValidationError(field, value, _WHOLE_AMOUNT)
    return value


_known_limit_name = lru_cache(4096)(check_limit_name)
"""The same, for names that nearly every call repeats: one that was valid is not looked at again."""


def check_consume(consume: object) -> Mapping[str, int]:
    """Amounts by limit: whole tokens, none negative."""
    if not isinstance(consume, Mapping):
        raise ValidationError("consume", consume, 'must be a dict like {"rpm": 1}')
    checked: dict[str, int] = {}
    for name, amount in consume.items():
        if type(amount) is not int or not 0 <= amount <= MAX_AMOUNT:
            check_amount(amount, str(_known_limit_name(name)))
        checked[_known_limit_name(name)] = amount
    return checked


def check_delta(value: object, field: str) -> int:
    """A whole number of tokens of either sign. A bool is not an amount."""
    if type(value) is not int or not -MAX_AMOUNT <= value <= MAX_AMOUNT:
        raise ValidationError(field, value, f"must be a whole number of tokens, at most {MAX_AMOUNT}")
    return value
