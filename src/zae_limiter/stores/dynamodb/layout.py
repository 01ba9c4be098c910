"""Which layout the stored data has, and whether this version of the library may use it. Pure.

The table's version record says two numbers. The *layout* is what everybody must agree on: keys, attributes, what they
mean. Another one is never used, because each side would break what the other wrote. The *minor* counts additions that
whoever does not know them may ignore, so any minor of the same layout is used as it is; a lower one is raised when
somebody sets the table up or migrates it, who may write the registry anyway.

======  ===================================================================================================
layout  where a bucket is
======  ===================================================================================================
1       an item per limit: ``ENTITY#{id}``, ``#BUCKET#{resource}#{limit}``
2       one item per entity and resource: ``ENTITY#{id}``, ``#BUCKET#{resource}``
3       a partition of its own: ``{ns}/BUCKET#{id}#{resource}#{shard}``, ``#STATE``
======  ===================================================================================================

The first two never had a version record that this library reads; a table without one, or with one that does not say,
is as old as can be. ``zae_limiter.migrations`` brings it here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zae_limiter.exceptions import VersionError
from zae_limiter.stores.dynamodb.keys import SK_VERSION, Key, version_key
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.values import number_in
from zae_limiter.version import __version__

LAYOUT = 3
"""The layout of everything that is stored: keys, attributes, what they mean."""

MINOR = 0
"""Additions to this layout that older clients may ignore."""

OLDEST_LAYOUT = 1

OLD_VERSION_KEY = Key("SYSTEM#", SK_VERSION)
"""Where the version was before there were namespaces."""

VERSION_KEYS = (version_key(), OLD_VERSION_KEY)
"""What tells a table that was never set up from one that is old."""


def version_attributes(now: int) -> dict[str, Any]:
    """The record of a table that is set up by this version."""
    return {"layout_version": LAYOUT, "layout_minor": MINOR, "library_version": __version__, "created_at": now}


def layout_of(record: Item) -> int:
    """The layout a version record tells of."""
    return _told(record, "layout_version", OLDEST_LAYOUT)


def minor_of(record: Item) -> int:
    """The minor a version record tells of."""
    return _told(record, "layout_minor", 0)


def _told(record: Item, attribute: str, otherwise: int) -> int:
    try:
        return number_in(record[attribute], 0) if attribute in record else otherwise
    except (LookupError, TypeError, ValueError) as error:
        raise VersionError(f"the version record of this table cannot be read ({error!r})") from error


def lags_behind(record: Item) -> bool:
    """Whether a record of this layout should be told of additions."""
    return minor_of(record) < MINOR or "layout_minor" not in record


def record_among(items: Iterable[Item]) -> Item | None:
    """The version record that counts: the one of today's place, else one of an older place."""
    by_place = {(item["PK"]["S"], item["SK"]["S"]): item for item in items}
    return next((by_place[key] for key in VERSION_KEYS if key in by_place), None)


def check_layout(table: str, record: Item | None) -> None:
    """Refuse data of another layout, or a table that was never set up, and say what to do about it."""
    if record is None:
        raise VersionError(f"table {table!r} is not set up; deploy it, or open it once with create=True")
    found = layout_of(record)
    if found == LAYOUT:
        return
    made_by = record.get("library_version", {}).get("S")
    whose = f" (of zae-limiter {made_by})" if made_by else ""
    about = f"table {table!r} has layout {found}{whose}; zae-limiter {__version__} uses {LAYOUT}"
    if found > LAYOUT:
        raise VersionError(f"{about}. Install a newer one: pip install --upgrade zae-limiter")
    if "migration" in record:
        raise VersionError(
            f"{about}. It is being migrated; if nobody is at it any more, this continues: "
            f"zae-limiter migrate --url dynamodb://{table}"
        )
    raise VersionError(f"{about}. Bring it here with: zae-limiter migrate --url dynamodb://{table}")
