"""What an item of the table is, and of which layout. Pure.

Before there were namespaces, keys had no ``{ns}/`` in front. Both kinds are known here, and what had none goes into
the namespace ``default``. Names never contain ``#``, so the number of parts tells a bucket of one limit
(``#BUCKET#{resource}#{limit}``) from one of all limits (``#BUCKET#{resource}``).

Entities and limits stayed at their keys but were written differently: whole tokens and seconds where today has
millitokens and milliseconds. They are told apart by an attribute that only today's have.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from zae_limiter.stores.dynamodb.operations.audit import is_event_key
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import REGISTRY, SK_META, SK_STATE

_PARTITION = re.compile(r"(?:([^/#]+)/)?(ENTITY|RESOURCE|SYSTEM|BUCKET)#(.*)", re.DOTALL).fullmatch
_AUDIT_PARTITION = re.compile(r"(?:[^/#]+/)?AUDIT#").match


class Kind(StrEnum):
    """What an item tells of. The first six are of older layouts; of those only audit events stay as they are."""

    OLD_LIMIT = "old limit"
    OLD_BUCKET = "old bucket"
    OLD_ENTITY = "old entity"
    OLD_CONFIG = "old config"
    OLD_USAGE = "old usage"
    OLD_AUDIT = "old audit event"
    BUCKET = "bucket"
    ENTITY = "entity"
    CONFIG = "config"
    USAGE = "usage"
    OTHER = "other"


class OldPlace(NamedTuple):
    """Where something is (or was): the namespace's id (``None`` before there were any), and its names."""

    ns: str | None
    entity_id: str | None
    resource: str | None
    rest: str | None = None
    """The limit of an old bucket, or the window of old usage."""


def kind_of(item: Item) -> Kind:
    """What an item tells of."""
    if _AUDIT_PARTITION(item["PK"]["S"]):
        return Kind.OTHER if is_event_key(item["SK"]["S"]) else Kind.OLD_AUDIT
    parts = _PARTITION(item["PK"]["S"])
    if parts is None or parts[1] == REGISTRY:
        return Kind.OTHER
    family, sort_key = parts[2], item["SK"]["S"]
    words = sort_key.split("#")
    if family == "BUCKET":
        return Kind.BUCKET if sort_key == SK_STATE else Kind.OTHER
    if family == "ENTITY" and words[:2] == ["", "BUCKET"]:
        return {3: Kind.OLD_BUCKET, 4: Kind.OLD_LIMIT}.get(len(words), Kind.OTHER)
    if family == "ENTITY" and words[:2] == ["", "USAGE"]:
        return (
            Kind.USAGE
            if len(words) == len(("", "USAGE", "resource", "window", "start", "shard", "inc"))
            else (Kind.OLD_USAGE if len(words) == len(("", "USAGE", "resource", "window")) else Kind.OTHER)
        )
    if family == "ENTITY" and sort_key == SK_META:
        return Kind.ENTITY if "children" in item or "deleted" in item else Kind.OLD_ENTITY
    if words[:2] == ["", "CONFIG"] and len(words) == (3 if family == "ENTITY" else 2):
        return Kind.CONFIG if "order" in item else Kind.OLD_CONFIG
    return Kind.OTHER


def place_of(item: Item) -> OldPlace:
    """Where an item of an older layout is."""
    parts = _PARTITION(item["PK"]["S"])
    assert parts is not None
    ns, family, name = parts.groups()
    words = item["SK"]["S"].split("#")
    resource = words[2] if len(words) > 2 else None
    rest = words[3] if len(words) > 3 else None
    if family == "ENTITY":
        return OldPlace(ns, name, resource, rest)
    return OldPlace(ns, None, name or None, rest)
