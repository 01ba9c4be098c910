"""Entities, limits and usage as older layouts had them, and what becomes of them. Pure.

Limits were stored in whole tokens and seconds; their order was not kept, so they come in the order of their names.
Usage had sums per window; the hours become hours of today, in a life of their own that begins and ends there. Sums of
days and months are made of hours now: the old ones are kept aside, under a key that no client reads, until they
expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import ValidationError
from zae_limiter.migrations.item_kinds import place_of
from zae_limiter.migrations.old_buckets import Unreadable, where
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import milliseconds_at
from zae_limiter.naming import check_entity_id, check_limit_name
from zae_limiter.stores.dynamodb.items import LAST_VERSION, address
from zae_limiter.stores.dynamodb.operations.config import config_write
from zae_limiter.stores.dynamodb.operations.entities import new_entity_attributes
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import Key, decode, encode_item, meta_key, number_in, pk_entity
from zae_limiter.stores.dynamodb.usage_items import (
    Edge,
    Life,
    Span,
    first_attributes,
    hour_text,
    last_attributes,
    sequence_key,
)
from zae_limiter.stores.protocol import Config, Scope
from zae_limiter.stores.windows import NOTHING_COUNTED, Counters, hour_of

OLD_LIFE = "old"
"""What the lives are called that usage of an older layout belongs to: one for each hour."""

KEPT_ASIDE = "#KEPT"
WINDOW_WORDS = frozenset({"entity_id", "resource", "window", "window_start", "window_end", "total_events", "ttl"})

BEGINNING, FIRST_CHANGE = sequence_key("0"), sequence_key("1")
"""Before everything a stream will ever tell."""


# Limits


def old_config(item: Item) -> Config:
    """What one level said. Raises :class:`Unreadable`."""
    names = sorted({attribute[2:-3] for attribute in item if attribute.startswith("l_") and attribute[-3:] == "_cp"})
    try:
        limits = tuple(_limit(item, name) for name in names)
        policy = item.get("on_unavailable", {}).get("S")
        version = number_in(item.get("config_version", {"N": "0"}), 0, LAST_VERSION - 1)
        return Config(limits, OnUnavailable(policy) if policy else None, version)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise Unreadable(f"{where(item)} does not tell limits of an older layout ({error!r})") from error


def _limit(item: Item, name: str) -> Limit:
    cp = number_in(item[f"l_{name}_cp"])
    bx = number_in(item[f"l_{name}_bx"]) if f"l_{name}_bx" in item else cp
    return Limit(name, cp, number_in(item[f"l_{name}_ra"]), number_in(item[f"l_{name}_rp"]), bx)


def config_item(item: Item, ns: str) -> Item:
    """The same limits as they are stored today, one version on."""
    place, config = place_of(item), old_config(item)
    scope = Scope(place.entity_id, place.resource)
    said: Item = config_write("", ns, scope, replace(config, version=config.version + 1))["Put"]["Item"]
    return said


# Entities


def old_entity(item: Item) -> Entity:
    """An entity. Raises :class:`Unreadable`."""
    place = place_of(item)
    try:
        fields = {name: decode(value) for name, value in item.items() if name in _ENTITY_FIELDS}
        metadata = fields.get("metadata") or {}
        parent_id = fields.get("parent_id")
        return Entity(
            id=check_entity_id(str(place.entity_id)),
            name=fields.get("name"),
            parent_id=None if parent_id is None else check_entity_id(parent_id),
            cascade=bool(fields.get("cascade", False)),
            metadata={str(key): str(value) for key, value in metadata.items()},
            version=int(fields.get("version") or 1),
            created_at=_moment(fields.get("created_at")),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise Unreadable(f"{where(item)} does not describe an entity ({error!r})") from error


_ENTITY_FIELDS = frozenset({"name", "parent_id", "cascade", "metadata", "version", "created_at"})


def entity_item(item: Item, ns: str, *, orphan: bool) -> Item:
    """The same entity as it is stored today. Its children count themselves when they follow.

    An ``orphan`` has no parent any more: today every parent exists, and no entity is its own ancestor.
    """
    entity = old_entity(item)
    if orphan:
        entity = replace(entity, parent_id=None)
    try:
        version = number_in(item.get("config_version", {"N": "0"}), 0, LAST_VERSION - 1) + 1
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{where(item)} has no version that can be read ({error!r})") from error
    return address(meta_key(ns, entity.id)) | encode_item(new_entity_attributes(ns, entity, version))


def _moment(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# Usage


def usage_item(item: Item, ns: str) -> Item:
    """An hour of usage as it is stored today; any other window, kept aside. Raises :class:`Unreadable`."""
    place = place_of(item)
    assert place.entity_id is not None
    assert place.resource is not None
    ttl = {"ttl": item["ttl"]} if "ttl" in item else {}
    if item.get("window", {}).get("S") != "hourly":
        kept = {name: value for name, value in item.items() if not name.startswith("GSI")}
        return kept | address(Key(pk_entity(ns, place.entity_id), KEPT_ASIDE + item["SK"]["S"]))
    try:
        start = _moment(item["window_start"]["S"])
        assert start is not None
        counted = Counters(number_in(item.get("total_events", {"N": "0"})), _sums(item))
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{where(item)} is not a window of usage ({error!r})") from error
    hour = hour_of(milliseconds_at(start))
    life = Life(ns, place.entity_id, place.resource, 0, OLD_LIFE + hour_text(hour))
    nothing = Edge(BEGINNING, NOTHING_COUNTED)
    span = Span(life, hour, nothing, Edge(FIRST_CHANGE, counted))
    return span_item(span) | ttl


def _sums(item: Item) -> Mapping[str, int]:
    sums = {}
    for name, value in item.items():
        if "N" in value and name not in WINDOW_WORDS:
            try:
                sums[check_limit_name(name)] = number_in(value) * MILLI
            except ValidationError:
                continue
    return sums


def span_item(span: Span) -> dict[str, Any]:
    """A snapshot of usage, begun and ended."""
    edges = {**first_attributes(span.first), **last_attributes(span.last)}
    return address(span.key) | encode_item({**span.fixed_attributes(), **edges})
