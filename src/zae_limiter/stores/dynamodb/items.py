"""Items of the table, from and to what the plans work with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

from zae_limiter.bucket import MILLI
from zae_limiter.calendars import calendar_from
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit, even_rate
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import Key, number_in
from zae_limiter.stores.protocol import Config, Scope, access_from_text, access_to_text

logger = logging.getLogger("zae_limiter")

Decoded = TypeVar("Decoded")


RECENT_WRITERS = ("w0", "w1", "w2", "w3")
"""Where the write ids of the recent writers stand, newest first."""


def address(key: Key) -> dict[str, Any]:
    """A key as DynamoDB writes it."""
    return {"PK": {"S": key.pk}, "SK": {"S": key.sk}}


def key_of(item: Item) -> Key:
    """Where an item is."""
    return Key(item["PK"]["S"], item["SK"]["S"])


@lru_cache(4096)
def limit_of(
    name: str, cp: int, bx: int, ra: int, rp: int | None, cl: str | None = None, *, enforce: bool = True
) -> Limit:
    """A limit from its stored terms: millitokens and milliseconds, or a calendar instead of a period.

    Raises ``ValueError`` for what are none.
    """
    if cp % MILLI or bx % MILLI or ra % MILLI or (rp or 0) % MILLI or (rp is None) is (cl is None):
        raise ValueError(f"the limit {name!r} is not one of whole tokens and seconds, or of a calendar")
    seconds, periods = (None, calendar_from(cl)) if rp is None and cl is not None else ((rp or 0) // MILLI, None)
    return Limit(name, cp // MILLI, ra // MILLI, seconds, bx // MILLI, periods, enforce=enforce)


@lru_cache(4096)
def held_limit_of(name: str, cp: int, bx: int, tl: int, *, enforce: bool = True) -> Limit:
    """A limit of calls in flight from its stored terms. Raises ``ValueError`` for what are none."""
    if cp % MILLI or cp != bx or tl % MILLI:
        raise ValueError(f"the limit {name!r} is not one of whole calls and seconds")
    return Limit(name, cp // MILLI, 0, None, bx // MILLI, hold_seconds=tl // MILLI, enforce=enforce)


REFILLED, LENT, DUE = "b_", "h_", "x_"
"""How attributes begin of limits that refill, of limits of calls in flight, and of what those lend by due time."""

TERMS = ("cp", "bx", "ra", "rp", "cl", "tl", "sh")
"""What the terms of a limit are stored as. Of a period, a calendar and a time to hold a limit has one; ``sh`` says
that it only watches."""

BALANCE_FIELDS = frozenset(("tk", "tc", "sn", "pn", "ex", "cp", "bx", "ra", "rp", "cl", "sh"))
"""All that may be stored of a limit that refills: also the number of the period at the baseline, if it has a
calendar, and what is extra in that period, if anything is; and what it would have refused, if it only watched."""

HELD_FIELDS = frozenset(("tk", "tc", "sn", "hb", "cp", "bx", "tl", "sh"))
"""All that may be stored of a limit of calls in flight: also the latest due time whose holds were returned."""

DUE_DIGITS = 8


def due_attribute(name: str, due: int) -> str:
    """Where an item counts what a limit lends until ``due``, in seconds."""
    return f"{DUE}{due:0{DUE_DIGITS}x}_{name}"


def prefix_of(limit: Limit) -> str:
    """How the attributes of a limit begin: those of calls in flight are apart from all others of the same name."""
    return LENT if limit.is_held else REFILLED


_TERM_ENDINGS = frozenset(f"_{field}" for field in TERMS)


def terms_of(limit: Limit) -> dict[str, int | str]:
    """The stored terms of a limit: millitokens and milliseconds, or its calendar in words; whether it only watches."""
    amounts: dict[str, int | str] = {
        "cp": limit.capacity * MILLI,
        "bx": limit.burst * MILLI,
        "ra": limit.refill_amount * MILLI,
    }
    if limit.hold_seconds is not None:
        del amounts["ra"]
        amounts["tl"] = limit.hold_seconds * MILLI
    elif limit.periods is not None:
        amounts["cl"] = str(limit.periods)
    else:
        amounts["rp"] = even_rate(limit)[1] * MILLI
    if not limit.enforce:
        amounts["sh"] = 1
    return amounts


class BrokenItem(ValueError):
    """An item that is none of ours, or was damaged by hand."""


def broken(item: Item, what: str, error: Exception) -> BrokenItem:
    """The error for an item that should be ``what``."""
    try:
        where = item["PK"]["S"]
    except (LookupError, TypeError):
        where = "?"
    return BrokenItem(f"the item {where!r} is not {what} this version can read ({error!r})")


def decoder(what: str) -> Callable[[Callable[[Item], Decoded]], Callable[[Item], Decoded]]:
    """Makes a function that reads items raise :class:`BrokenItem`, and nothing else, for what is not ``what``."""

    def made(decode: Callable[[Item], Decoded]) -> Callable[[Item], Decoded]:
        @wraps(decode)
        def decode_or_tell(item: Item) -> Decoded:
            try:
                return decode(item)
            except BrokenItem:
                raise
            except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
                raise broken(item, what, error) from error

        return decode_or_tell

    return made


def unless_broken(decode: Callable[[Item], Decoded], item: Item) -> Decoded | None:
    """What an item says; nothing, and a line in the log, if it is broken. For lists and reports of many items."""
    try:
        return decode(item)
    except BrokenItem as error:
        logger.warning("left out: %s", error)
        return None


# The registry


@decoder("a namespace")
def ns_in(item: Item) -> str:
    """The id in the record of a namespace."""
    ns: str = item["ns"]["S"]
    return ns


# Config items

LAST_VERSION = 2**53
"""No config, and no entity, is changed so often."""


def config_attributes(limits: Iterable[Limit]) -> dict[str, Any]:
    """The limits of one level, as attributes of its item. ``order`` keeps the order they were given in."""
    attributes: dict[str, Any] = {}
    names = []
    for limit in limits:
        names.append(limit.name)
        for field, value in terms_of(limit).items():
            attributes[f"l_{limit.name}_{field}"] = value
    attributes["order"] = ",".join(names)
    return attributes


def config_of(item: Item | None) -> Config:
    """What one level says: nothing, if it has no item or only a tombstone. Raises :class:`BrokenItem`."""
    return Config() if item is None else _config_of(item)


@decoder("a config")
def _config_of(item: Item) -> Config:
    names = [name for name in item.get("order", {"S": ""})["S"].split(",") if name]
    strange = [name for name in item if name[:2] == "l_" and name[-3:] not in _TERM_ENDINGS]
    if strange:
        raise ValueError(f"a newer version wrote {strange[0]!r}")
    if len(set(names)) < len(names):
        raise ValueError("it names a limit twice")
    limits = tuple(_limit_in(item, name) for name in names)
    policy = item["on_unavailable"]["S"] if "on_unavailable" in item else None
    access = _access_in(item) if "access" in item else None
    return Config(limits, OnUnavailable(policy) if policy else None, version_in(item, "config_version"), access)


def _limit_in(item: Item, name: str) -> Limit:
    cp, bx = number_in(item[f"l_{name}_cp"]), number_in(item[f"l_{name}_bx"])
    enforce = is_enforced(item.get(f"l_{name}_sh"))
    if f"l_{name}_tl" in item:
        if any(f"l_{name}_{field}" in item for field in TERMS if field not in HELD_FIELDS):
            raise ValueError(f"the limit {name!r} is of two kinds")
        return held_limit_of(name, cp, bx, number_in(item[f"l_{name}_tl"]), enforce=enforce)
    ra = number_in(item[f"l_{name}_ra"])
    if f"l_{name}_cl" in item:
        return limit_of(name, cp, bx, ra, None, item[f"l_{name}_cl"]["S"], enforce=enforce)
    return limit_of(name, cp, bx, ra, number_in(item[f"l_{name}_rp"]), enforce=enforce)


def is_enforced(attribute: Item | None) -> bool:
    """Whether a limit refuses, by the attribute that says otherwise."""
    if attribute is None:
        return True
    number_in(attribute, 1, 1)
    return False


def _access_in(item: Item) -> Access:
    """The access switch of an entity, which stands in its config."""
    return access_from_text(Scope(item["entity_id"]["S"], item["resource"]["S"]), item["access"]["S"])


def access_attributes(access: Access | None) -> dict[str, Any]:
    """The access switch of a level, as attributes of its item."""
    return {} if access is None else {"access": access_to_text(access)}


def version_in(item: Item, attribute: str) -> int:
    """A counter of changes."""
    return number_in(item[attribute], 0, LAST_VERSION)


# Entities


class EntityRoute(NamedTuple):
    """What buckets must know of an entity: where acquires go on from it, and the counter of such changes."""

    entity_id: str
    version: int = 0
    parent_id: str | None = None
    cascade: bool = False


NO_ROUTE = EntityRoute("")
"""Of an entity that was never created."""


@decoder("an entity")
def route_of(item: Item) -> EntityRoute:
    """The route of an entity, or of its tombstone."""
    return EntityRoute(
        item["entity_id"]["S"],
        version_in(item, "config_version"),
        item["parent_id"]["S"] if "parent_id" in item else None,
        item["cascade"]["BOOL"] if "cascade" in item else False,
    )
