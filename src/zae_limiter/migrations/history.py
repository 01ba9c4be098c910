"""The migrations there are, each from one layout to the next. To add one, write its conversions and name them here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from zae_limiter.migrations.conversions import (
    MigrationContext,
    combine_limits,
    convert_config,
    convert_entity,
    convert_usage,
    move_bucket,
)
from zae_limiter.migrations.item_kinds import Kind
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import Item

Conversion: TypeAlias = Callable[[MigrationContext, Item], Plan[int]]
"""Converts what an item of a scanned page belongs to; how many items were converted by it."""


class Migration(NamedTuple):
    """From one layout to the next: which kinds of items it converts, and how, in the order they are done."""

    before: int
    after: int
    title: str
    conversions: Mapping[Kind, Conversion]


MIGRATIONS = (
    Migration(1, 2, "an item per limit → one per bucket", {Kind.OLD_LIMIT: combine_limits}),
    Migration(
        2,
        3,
        "buckets beside their entity → a partition of their own",
        {
            Kind.OLD_ENTITY: convert_entity,
            Kind.OLD_CONFIG: convert_config,
            Kind.OLD_BUCKET: move_bucket,
            Kind.OLD_USAGE: convert_usage,
        },
    ),
)
"""In the order they are done."""


def migrations_from(layout: int) -> list[Migration]:
    """What leads from a layout to today's."""
    return [migration for migration in MIGRATIONS if migration.before >= layout]
