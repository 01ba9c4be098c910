"""Items of the table, from and to what the plans work with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

from zae_limiter.bucket import MILLI, MOST_STORED, Balance, SteppedBalance
from zae_limiter.calendars import calendar_from
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import MAX_ENDED, Limit, even_rate
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.naming import RESERVED_LIMIT_NAME
from zae_limiter.stores.dynamodb.requests import Item, Reply, UnreadReply
from zae_limiter.stores.dynamodb.schema import MOST_SHARDS, Key, number_in
from zae_limiter.stores.dynamodb.tallies import CASCADED, DENIED
from zae_limiter.stores.protocol import Config, Scope, access_from_text, access_to_text

logger = logging.getLogger("zae_limiter")

Decoded = TypeVar("Decoded")

_LOAD_TK = f"b_{RESERVED_LIMIT_NAME}_tk"

TALLIES = (CASCADED, DENIED)

NOTHING_ENDED: Mapping[str, int] = {}

RECENT_WRITERS = ("w0", "w1", "w2", "w3")
"""Where the write ids of the recent writers stand, newest first."""

LONGEST_WRITE_ID = 64
LONGEST_VERSION = 8_192
LONGEST_VALUE = len(str(-MOST_STORED)) - 1
"""So many characters a number or a write id that changes with every write has at most."""


def address(key: Key) -> dict[str, Any]:
    """A key as DynamoDB writes it."""
    return {"PK": {"S": key.pk}, "SK": {"S": key.sk}}


def key_of(item: Item) -> Key:
    """Where an item is."""
    return Key(item["PK"]["S"], item["SK"]["S"])


@lru_cache(4096)
def limit_of(name: str, cp: int, bx: int, ra: int, rp: int | None, cl: str | None = None) -> Limit:
    """A limit from its stored terms: millitokens and milliseconds, or a calendar instead of a period.

    Raises ``ValueError`` for what are none.
    """
    if cp % MILLI or bx % MILLI or ra % MILLI or (rp or 0) % MILLI or (rp is None) is (cl is None):
        raise ValueError(f"the limit {name!r} is not one of whole tokens and seconds, or of a calendar")
    seconds, periods = (None, calendar_from(cl)) if rp is None and cl is not None else ((rp or 0) // MILLI, None)
    return Limit(name, cp // MILLI, ra // MILLI, seconds, bx // MILLI, periods)


TERMS = ("cp", "bx", "ra", "rp", "cl")
"""What the terms of a limit are stored as. Of a period and a calendar a limit has one."""

BALANCE_FIELDS = frozenset(("tk", "tc", "pn", *TERMS))
"""All that may be stored of a limit: also the number of the period at the baseline, if it has a calendar."""


_TERM_ENDINGS = frozenset(f"_{field}" for field in TERMS)


def terms_of(limit: Limit) -> dict[str, int | str]:
    """The stored terms of a limit: millitokens and milliseconds, or its calendar in words."""
    amounts: dict[str, int | str] = {
        "cp": limit.capacity * MILLI,
        "bx": limit.burst * MILLI,
        "ra": limit.refill_amount * MILLI,
    }
    if limit.periods is not None:
        return {**amounts, "cl": str(limit.periods)}
    return {**amounts, "rp": even_rate(limit)[1] * MILLI}


class BucketSnapshot:
    """A bucket (or one shard of it) as a client last saw it.

    ``balances`` has every limit it holds. ``retired`` names those that were taken away: they keep their tokens
    and counters but refuse nothing. In the item, a retired limit is one without ``cp``. ``rv`` is the id of the last
    write that changed which limits rest. ``ended`` has the counters of limits that rest no longer, up to the end of
    the hour that begins at ``eh``; in the item they begin with ``e_``. ``denials`` are those by each limit, and
    ``tallied`` the limits that count denials or what cascaded: as they were when the item was last read as a whole.
    """

    __slots__ = (
        "balances",
        "cv",
        "denials",
        "eh",
        "ended",
        "entity_id",
        "ev",
        "inc",
        "is_even",
        "kilobytes",
        "load_burst",
        "load_level",
        "recent_writers",
        "resource",
        "retired",
        "rf",
        "rv",
        "shard",
        "shards",
        "tallied",
    )

    def __init__(
        self,
        entity_id: str,
        resource: str,
        *,
        rf: int,
        cv: str,
        inc: str,
        balances: Mapping[str, Balance],
        retired: frozenset[str] = frozenset(),
        ev: int = 0,
        recent_writers: tuple[str, ...] = (),
        load_level: int = 0,
        load_burst: int = 0,
        shard: int = 0,
        shards: int = 1,
        rv: str = "",
        ended: Mapping[str, int] = NOTHING_ENDED,
        eh: int = 0,
        denials: Mapping[str, int] = NOTHING_ENDED,
        tallied: frozenset[str] = frozenset(),
    ) -> None:
        self.entity_id = entity_id
        self.resource = resource
        self.rf = rf
        self.cv = cv
        self.inc = inc
        self.balances = balances
        self.retired = retired
        self.ev = ev
        self.recent_writers = recent_writers
        self.load_level = load_level
        self.load_burst = load_burst
        self.shard = shard
        self.shards = shards
        self.rv = rv
        self.ended = ended
        self.eh = eh
        self.denials = denials
        self.tallied = tallied
        self.is_even = all(balance.ra for balance in balances.values())  # no limit has another kind
        names = sum(map(len, balances)) + len(RESERVED_LIMIT_NAME)
        about = 420 + 4 * (len(entity_id) + len(resource)) + 78 * (len(balances) + 1) + 6 * names
        self.kilobytes = 1 + about // 1024  # that a write of the item begins, about

    def with_numbers(
        self, balances: Mapping[str, Balance], *, ev: int, recent_writers: tuple[str, ...], load_level: int
    ) -> BucketSnapshot:
        """The same bucket, as obedient as before, with other numbers."""
        same: BucketSnapshot = BucketSnapshot.__new__(BucketSnapshot)
        same.entity_id, same.resource, same.inc = self.entity_id, self.resource, self.inc
        same.rf, same.cv, same.shard, same.shards = self.rf, self.cv, self.shard, self.shards
        same.retired, same.load_burst, same.kilobytes = self.retired, self.load_burst, self.kilobytes
        same.is_even = self.is_even
        same.rv, same.ended, same.eh = self.rv, self.ended, self.eh
        same.denials, same.tallied = self.denials, self.tallied
        same.balances, same.ev, same.recent_writers, same.load_level = balances, ev, recent_writers, load_level
        return same

    def __repr__(self) -> str:
        tokens = {name: balance.tk for name, balance in self.balances.items()}
        return (
            f"BucketSnapshot({self.entity_id}/{self.resource} rf={self.rf} cv={self.cv} tk={tokens} "
            f"recent_writers={self.recent_writers})"
        )


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


def snapshot_of(item: Item, before: BucketSnapshot | None = None) -> BucketSnapshot:
    """A bucket from its item. Raises :class:`BrokenItem` for anything that is none.

    ``before`` is how the same bucket was last seen: as long as it obeys the same terms since the same moment, only its
    numbers are read. (Not if a limit rests: within a millisecond one may come back and rest again, under other terms.)
    """
    try:
        return (before is not None and _snapshot_after(before, item)) or _snapshot_of(item)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise broken(item, "a bucket", error) from error


def snapshot_in(reply: Reply, before: BucketSnapshot | None = None) -> BucketSnapshot:
    """The bucket that the reply to a write brings. ``before``, and what is raised: see :func:`snapshot_of`."""
    if before is not None and isinstance(reply, UnreadReply):
        snapshot = _snapshot_in_text(before, reply.text)
        if snapshot is not None:
            return snapshot
    try:
        item = reply["Attributes"]
    except ValueError as error:
        raise BrokenItem(f"the reply to a write cannot be read ({error!r})") from error
    return snapshot_of(item, before)


def _snapshot_in_text(before: BucketSnapshot, text: str) -> BucketSnapshot | None:
    """The same as :func:`_snapshot_after` from JSON as DynamoDB writes it, and nothing if it is not quite so.

    Where nothing is escaped no text contains a quote, so what looks like an attribute is one.
    """
    if (
        before.retired
        or text.count('_tk":') != len(before.balances) + 1
        or f'"rf":{{"N":"{before.rf}"}}' not in text
        or f'"cv":{{"S":"{before.cv}"}}' not in text
        or f'"inc":{{"S":"{before.inc}"}}' not in text
        or f'"shard_count":{{"N":"{before.shards}"}}' not in text
        or (f'"rv":{{"S":"{before.rv}"}}' not in text if before.rv else '"rv":' in text)
        or "\\" in text
    ):
        return None
    found = []
    for place in _places_of(tuple(before.balances)):
        begin = text.find(place) + len(place)
        end = text.find('"', begin)
        if begin < len(place) or end < 0 or end - begin > LONGEST_VALUE:
            return None
        found.append(text[begin:end])
    try:
        w0, w1, w2, w3, ev, load_level, *numbers = found
        tokens = iter(map(int, numbers))
        balances = {}
        for name, balance in before.balances.items():
            balances[name] = balance.with_tokens(next(tokens), next(tokens))
        return before.with_numbers(
            balances,
            ev=int(ev),
            recent_writers=(w0, w1, w2, w3),
            load_level=int(load_level),
        )
    except ValueError:
        return None


@lru_cache(1024)
def _places_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """What stands before each number that changes in a bucket with these limits, and before each write id."""
    numbers = ["ev", _LOAD_TK, *(f"b_{name}_{field}" for name in names for field in ("tk", "tc"))]
    return (*(f'"{place}":{{"S":"' for place in RECENT_WRITERS), *(f'"{number}":{{"N":"' for number in numbers))


def _snapshot_after(before: BucketSnapshot, item: Item) -> BucketSnapshot | None:
    if (
        before.retired
        or sum([attribute[-3:] == "_tk" for attribute in item]) != len(before.balances) + 1
        or item["cv"]["S"] != before.cv
        or item["inc"]["S"] != before.inc
        or int(item["rf"]["N"]) != before.rf
        or int(item["shard_count"]["N"]) != before.shards
        or (item["rv"]["S"] if "rv" in item else "") != before.rv
    ):
        return None
    return before.with_numbers(
        {
            name: balance.with_tokens(_int_in(item[f"b_{name}_tk"]), _int_in(item[f"b_{name}_tc"]))
            for name, balance in before.balances.items()
        },
        ev=_int_in(item["ev"]),
        recent_writers=_recent_writers_of(item),
        load_level=_int_in(item[_LOAD_TK]),
    )


def _int_in(attribute: Item) -> int:
    """As :func:`number_in`, of a balance or a counter, and faster: it is short enough to be within bounds."""
    digits = attribute["N"]
    if len(digits) > LONGEST_VALUE:
        raise ValueError("a number is out of bounds")
    return int(digits)


def _snapshot_of(item: Item) -> BucketSnapshot:
    fields, ended = _limit_fields(item)
    denials = {attribute[2:]: number_in(value) for attribute, value in item.items() if attribute[:2] == DENIED}
    entity_id, resource, inc, cv = item["entity_id"]["S"], item["resource"]["S"], item["inc"]["S"], item["cv"]["S"]
    rv = item["rv"]["S"] if "rv" in item else ""
    rf = number_in(item["rf"], 0, LAST_MOMENT_MS)
    shard, shards = _shard_in(item, entity_id, resource)
    if len(inc) > LONGEST_WRITE_ID or len(rv) > LONGEST_WRITE_ID or len(cv) > LONGEST_VERSION:
        raise ValueError("its life or its version has no such length")
    if len(ended) > MAX_ENDED:
        raise ValueError(f"it counts {len(ended)} limits that have ended")
    load = fields.pop(RESERVED_LIMIT_NAME, {})
    if load.get("bx", 0) < 0:
        raise ValueError("its write load has no ceiling")
    balances: dict[str, Balance] = {}
    retired = []
    for name, terms in fields.items():
        if "cp" not in terms:
            retired.append(name)
        calendar = item[f"b_{name}_cl"]["S"] if f"b_{name}_cl" in item else None
        capacity = terms.get("cp", terms["bx"] if calendar is None else terms["ra"])
        limit = limit_of(name, capacity, terms["bx"], terms["ra"], terms.get("rp"), calendar)
        balances[name] = _balance_of(limit, rf, terms, shard, shards)
    return BucketSnapshot(
        entity_id,
        resource,
        rf=rf,
        cv=cv,
        inc=inc,
        balances=balances,
        retired=frozenset(retired),
        ev=number_in(item["ev"]),
        recent_writers=_recent_writers_of(item),
        load_level=load.get("tk", 0),
        load_burst=load.get("bx", 0),
        shard=shard,
        shards=shards,
        rv=rv,
        ended=ended or NOTHING_ENDED,
        eh=number_in(item["eh"], 0, LAST_MOMENT_MS) if "eh" in item else 0,
        denials=denials or NOTHING_ENDED,
        tallied=frozenset(attribute[2:] for attribute in item if attribute[:2] in TALLIES),
    )


def _balance_of(limit: Limit, rf: int, terms: Mapping[str, int], shard: int, shards: int) -> Balance:
    tk, tc = terms["tk"], terms["tc"]
    if limit.periods is None:
        return Balance(limit, rf, tk=tk, tc=tc, shard=shard, shards=shards)
    return SteppedBalance(limit, rf, tk=tk, tc=tc, shard=shard, shards=shards, pn=terms["pn"])


def _limit_fields(item: Item) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """The fields of every limit that is there, and what those have counted that have ended."""
    fields: dict[str, dict[str, int]] = {}
    ended: dict[str, int] = {}
    for attribute, value in item.items():
        if attribute[:2] == "b_":
            name = attribute[2:-3]
            held = fields.get(name)
            if held is None:
                held = fields[name] = {}
            field = attribute[-2:]
            if field not in BALANCE_FIELDS:
                raise ValueError(f"a newer version wrote {attribute!r}")
            if field != "cl":
                held[field] = _int_in(value)
        elif attribute[:2] == "e_":
            ended[attribute[2:]] = number_in(value)
        elif attribute[:2] in ("h_", "x_"):  # limits of calls in flight, and what they lend
            raise ValueError(f"a newer version wrote {attribute!r}")
    return fields, ended


def _shard_in(item: Item, entity_id: str, resource: str) -> tuple[int, int]:
    """Which shard an item is, of how many. Raises ``ValueError`` if its key is that of another bucket."""
    place, _, shard_text = item["PK"]["S"].partition("/")[2].rpartition("#")
    shard, shards = int(shard_text), number_in(item["shard_count"], 1, MOST_SHARDS)
    if place != f"BUCKET#{entity_id}#{resource}" or str(shard) != shard_text:
        raise ValueError("it has the key of another bucket")
    if MOST_SHARDS % shards or not 0 <= shard < shards:
        raise ValueError(f"it cannot be shard {shard} of {shards}")
    return shard, shards


def _recent_writers_of(item: Item) -> tuple[str, ...]:
    recent_writers = tuple([item[place]["S"] for place in RECENT_WRITERS if place in item])
    for write_id in recent_writers:
        if len(write_id) > LONGEST_WRITE_ID:
            raise ValueError("no write has such an id")
    return recent_writers


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
    cp, bx, ra = (number_in(item[f"l_{name}_{field}"]) for field in ("cp", "bx", "ra"))
    if f"l_{name}_cl" in item:
        return limit_of(name, cp, bx, ra, None, item[f"l_{name}_cl"]["S"])
    return limit_of(name, cp, bx, ra, number_in(item[f"l_{name}_rp"]))


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
