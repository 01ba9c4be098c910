"""Buckets from their items: what a client sees of one, read as a whole or, where only numbers changed, by those."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from zae_limiter.bucket import MILLI, MOST_STORED, Balance, HeldBalance, SteppedBalance, key_of
from zae_limiter.models.limit import MAX_ENDED, Limit
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.naming import RESERVED_LIMIT_NAME
from zae_limiter.stores.dynamodb.intents import CASCADED, DENIED
from zae_limiter.stores.dynamodb.items import (
    BALANCE_FIELDS,
    DUE,
    DUE_DIGITS,
    HELD_FIELDS,
    LENT,
    RECENT_WRITERS,
    REFILLED,
    BrokenItem,
    broken,
    held_limit_of,
    is_enforced,
    limit_of,
)
from zae_limiter.stores.dynamodb.requests import Item, Reply, UnreadReply
from zae_limiter.stores.dynamodb.schema import MOST_SHARDS, number_in

_LOAD_TK = f"b_{RESERVED_LIMIT_NAME}_tk"

TALLIES = (CASCADED, DENIED)

NOTHING_ENDED: Mapping[str, int] = {}

NO_HOLDS: Mapping[str, HeldBalance] = {}

_TOLD = (
    *("rf", "cv", "inc", "balances", "holds", "retired", "ev", "recent_writers", "load_level", "load_burst"),
    *("shard", "shards", "rv", "ended", "eh"),
)
"""What every snapshot is made of, besides its place."""

LONGEST_WRITE_ID = 64

LONGEST_VERSION = 8_192

LONGEST_VALUE = len(str(-MOST_STORED)) - 1
"""So many characters a number or a write id that changes with every write has at most."""


class BucketSnapshot:
    """A bucket (or one shard of it) as a client last saw it.

    ``balances`` has every limit that refills, ``holds`` those of calls in flight. ``retired`` has the keys
    (``bucket.key_of``) of those that were taken away: they keep their tokens and counters but refuse nothing. In the
    item, a retired limit is one without ``cp``. ``rv`` is the id of the last
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
        "holds",
        "inc",
        "is_plain",
        "is_refilled",
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
        holds: Mapping[str, HeldBalance] = NO_HOLDS,
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
        self.holds = holds
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
        self.is_refilled = not holds and all(balance.limit.enforce for balance in balances.values())
        """No limit lends, and none only watches: of each only two numbers change."""
        self.is_plain = self.is_refilled and all(balance.ra for balance in balances.values())
        """All of them refill evenly, too."""
        names = sum(map(len, balances)) + len(RESERVED_LIMIT_NAME)
        about = 420 + 4 * (len(entity_id) + len(resource)) + 78 * (len(balances) + 1) + 6 * names
        for name, lending in holds.items():
            about += 70 + 6 * len(name) + (14 + len(name)) * len(lending.counts)
        self.kilobytes = 1 + about // 1024  # that a write of the item begins, about

    def with_numbers(
        self, balances: Mapping[str, Balance], *, ev: int, recent_writers: tuple[str, ...], load_level: int
    ) -> BucketSnapshot:
        """The same bucket, as obedient as before, with other numbers."""
        same: BucketSnapshot = BucketSnapshot.__new__(BucketSnapshot)
        same.entity_id, same.resource, same.inc = self.entity_id, self.resource, self.inc
        same.rf, same.cv, same.shard, same.shards = self.rf, self.cv, self.shard, self.shards
        same.retired, same.load_burst, same.kilobytes = self.retired, self.load_burst, self.kilobytes
        same.is_plain, same.is_refilled, same.holds = self.is_plain, self.is_refilled, self.holds
        same.rv, same.ended, same.eh = self.rv, self.ended, self.eh
        same.denials, same.tallied = self.denials, self.tallied
        same.balances, same.ev, same.recent_writers, same.load_level = balances, ev, recent_writers, load_level
        return same

    def replaced(self, **changed: Any) -> BucketSnapshot:
        """The same bucket, with other values of these names. Nothing is known of its denials."""
        kept = {name: getattr(self, name) for name in _TOLD}
        return BucketSnapshot(self.entity_id, self.resource, **(kept | changed))

    def balance_of(self, limit: Limit) -> Balance | None:
        """What it has of a limit, retired or not."""
        return self.holds.get(limit.name) if limit.is_held else self.balances.get(limit.name)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits in force, by the terms it carries itself."""
        held = [*self.balances.values(), *self.holds.values()]
        return tuple(balance.limit for balance in held if key_of(balance.limit) not in self.retired)

    def __repr__(self) -> str:
        tokens = {name: balance.tk for name, balance in self.balances.items()}
        return (
            f"BucketSnapshot({self.entity_id}/{self.resource} rf={self.rf} cv={self.cv} tk={tokens} "
            f"recent_writers={self.recent_writers})"
        )


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
        or not before.is_refilled
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
        or not before.is_refilled
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
    fields, held, counts, ended = _limit_fields(item)
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
        enforce = is_enforced(item.get(f"b_{name}_sh"))
        limit = limit_of(name, capacity, terms["bx"], terms["ra"], terms.get("rp"), calendar, enforce=enforce)
        balances[name] = _balance_of(limit, rf, terms, shard, shards)
    holds: dict[str, HeldBalance] = {}
    for name, terms in held.items():
        enforce = is_enforced(item.get(f"h_{name}_sh"))
        limit = held_limit_of(name, terms.get("cp", terms["bx"]), terms["bx"], terms["tl"], enforce=enforce)
        if "cp" not in terms:
            retired.append(key_of(limit))
        holds[name] = _held_balance_of(limit, rf, terms, counts.pop(name, {}), shard, shards)
    if any(count for lent in counts.values() for count in lent.values()):
        raise ValueError(f"it lends of the limit {min(counts)!r}, which it does not have")
    return BucketSnapshot(
        entity_id,
        resource,
        rf=rf,
        cv=cv,
        inc=inc,
        balances=balances,
        holds=holds or NO_HOLDS,
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
    balance: Balance
    if limit.periods is None:
        balance = Balance(limit, rf, tk=tk, tc=tc, shard=shard, shards=shards)
    else:
        extra = terms.get("ex", 0)
        if extra < 0:
            raise ValueError(f"less than nothing is extra of {limit.name!r}")
        balance = SteppedBalance(limit, rf, tk=tk, tc=tc, shard=shard, shards=shards, pn=terms["pn"], extra=extra)
    balance.sn = terms.get("sn", 0) // MILLI
    return balance


def _held_balance_of(
    limit: Limit, rf: int, terms: Mapping[str, int], counts: dict[int, int], shard: int, shards: int
) -> HeldBalance:
    """What is lent, and what is free. Counts of due times that nothing is lent until any more are kept: a write that
    returns what is overdue removes them."""
    if min(counts.values(), default=0) < 0 or any(value % MILLI for value in (terms["tk"], *counts.values())):
        raise ValueError(f"it does not lend whole slots of {limit.name!r}")
    balance = HeldBalance(
        limit, rf, tk=terms["tk"], tc=terms["tc"], shard=shard, shards=shards, counts=counts, hb=terms["hb"]
    )
    balance.sn = terms.get("sn", 0) // MILLI
    return balance


class _Fields(NamedTuple):
    """What an item has of its limits, by name: those that refill, those of calls in flight, what these lend by due
    time, and what those have counted that have ended."""

    refilled: dict[str, dict[str, int]]
    held: dict[str, dict[str, int]]
    counts: dict[str, dict[int, int]]
    ended: dict[str, int]


def _limit_fields(item: Item) -> _Fields:
    found = _Fields({}, {}, {}, {})
    for attribute, value in item.items():
        prefix = attribute[:2]
        if prefix == REFILLED:
            _note_field(found.refilled, BALANCE_FIELDS, attribute, value)
        elif prefix == LENT:
            _note_field(found.held, HELD_FIELDS, attribute, value)
        elif prefix == DUE:
            due, name = attribute[2 : 2 + DUE_DIGITS], attribute[3 + DUE_DIGITS :]
            found.counts.setdefault(name, {})[int(due, 16)] = _int_in(value)
        elif prefix == "e_":
            found.ended[attribute[2:]] = number_in(value)
    return found


def _note_field(fields: dict[str, dict[str, int]], known: frozenset[str], attribute: str, value: Item) -> None:
    name, field = attribute[2:-3], attribute[-2:]
    if field not in known:
        raise ValueError(f"a newer version wrote {attribute!r}")
    held = fields.get(name)
    if held is None:
        held = fields[name] = {}
    if field != "cl":
        held[field] = _int_in(value)


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
