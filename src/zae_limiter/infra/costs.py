"""What a deployment costs, from the measured request units of each operation.

The request units below are measured on an engine that counts as DynamoDB does (``tests/infra/test_cost_figures.py``),
for buckets of up to one kilobyte. One thing no engine shows: DynamoDB charges for a write whose condition failed,
which is what a denial is. Prices are those of on-demand tables in us-east-1, in US dollars, and can be replaced. Two
figures are guesses, and marked as such: how load spreads over buckets, and how long the function takes.
"""

from __future__ import annotations

from math import ceil, expm1
from typing import Final, NamedTuple

from zae_limiter.stores.open_store import DEFAULT_CONFIG_CACHE_TTL
from zae_limiter.stores.windows import DAYS_KEPT
from zae_limiter_aggregator.lambda_output import METRICS

SECONDS_PER_MONTH: Final = 730 * 3_600
HOURS_PER_MONTH: Final = 730
MILLION: Final = 1_000_000


class Units(NamedTuple):
    """Request units of something: writes (table and indexes) and strongly consistent reads."""

    writes: float = 0
    reads: float = 0


GRANT: Final = Units(writes=1)
"""Each leg of an acquire."""

SETTLEMENT: Final = Units(writes=1)
"""Each leg of an acquire whose real cost is told, or that is given back."""

DENIAL: Final = Units(writes=1)
"""A denial that the client does not remember. One that it remembers is repeated for free."""

DENIAL_ABOVE: Final = Units(writes=3, reads=1)
"""A denial by an ancestor, of two legs: one was taken and given back, and all are read for the answer."""

NEW_BUCKET: Final = Units(writes=4, reads=16)
"""The first acquire of a pair of entity and resource: the item in the table and in three indexes."""

LIMITS: Final = Units(reads=7)
"""Reading the limits of a pair anew, once they have been remembered for a minute."""

SNAPSHOT: Final = Units(writes=1)
"""One bucket in one batch of the stream."""

FIRST_SNAPSHOT: Final = Units(writes=3)
"""The first one of an hour: also in two indexes."""

BUCKET_BYTES: Final = 950
SNAPSHOT_BYTES: Final = 600
"""With the index entries that belong to them."""

RECORDS_PER_BATCH: Final = 1_000
"""At most: Lambda takes 6 MB at once."""

STREAM_SHARDS: Final = 4
"""Of a table that was never large; more come with load."""

WRITES_PER_SHARD: Final = 1_000
SHORTEST_WINDOW_S: Final = 0.25
"""Without a window, a batch is what came while the one before was under way."""

MS_PER_BATCH: Final = 10
MS_PER_SNAPSHOT: Final = 6
"""Guesses: a round trip for each snapshot, one after the other."""

LOG_BYTES_PER_BATCH: Final = 700
TABLE_ALARMS: Final = 4
ALARMS: Final = TABLE_ALARMS + 8


class Prices(NamedTuple):
    """US dollars, of on-demand tables in us-east-1."""

    million_writes: float = 0.625
    million_reads: float = 0.125
    gb_month: float = 0.25
    backup_gb_month: float = 0.20
    million_invocations: float = 0.20
    gb_second: float = 0.0000166667
    log_gb: float = 0.50
    alarm: float = 0.10
    custom_metric: float = 0.30


class Load(NamedTuple):
    """What a deployment has to do, on average over a month."""

    acquires_per_second: float
    legs: int = 1
    """Entities an acquire takes from: 1, or more in a hierarchy."""
    settled: float = 1.0
    """Which part of the grants is settled or given back."""
    denied: float = 0.0
    """Which part of all acquires is denied by a call; what a client remembers costs nothing."""
    buckets: int = 100
    """Pairs of entity and resource in use at the same time, of all levels of a hierarchy together."""
    clients: int = 1
    """Processes, each of which remembers limits by itself."""
    window_seconds: float = 2.0
    """How long the function waits for a batch to fill."""
    memory_mb: int = 256
    backups: bool = True
    aggregator: bool = True
    alarms: bool = True


class Item(NamedTuple):
    """One line of the bill."""

    what: str
    amount: float
    unit: str
    dollars: float


class Bill(NamedTuple):
    """What a month costs."""

    items: tuple[Item, ...]

    @property
    def dollars(self) -> float:
        """Everything together."""
        return sum(item.dollars for item in self.items)


def per_acquire(legs: int = 1, *, settled: bool = False, denied: bool = False) -> Units:
    """What one acquire takes on a client that knows its limits."""
    if denied:
        if legs == 1:
            return DENIAL
        others = legs - 2
        return Units(DENIAL_ABOVE.writes + 2 * others * GRANT.writes, DENIAL_ABOVE.reads + others)
    return Units(legs * (GRANT.writes + (SETTLEMENT.writes if settled else 0)))


def stream_shards(writes_per_second: float) -> int:
    """Into how many shards the stream is divided; each has batches of its own."""
    return max(STREAM_SHARDS, ceil(writes_per_second / WRITES_PER_SHARD))


def seconds_per_batch(writes_per_second: float, window_seconds: float) -> float:
    """How often a batch is full or has waited long enough."""
    full_after = RECORDS_PER_BATCH * stream_shards(writes_per_second) / writes_per_second
    return max(min(window_seconds, full_after), SHORTEST_WINDOW_S)


def snapshots_per_second(writes_per_second: float, buckets: int, window_seconds: float) -> float:
    """How many buckets are in the batches of a second, if load falls on them at random."""
    if not writes_per_second:
        return 0.0
    window = seconds_per_batch(writes_per_second, window_seconds)
    return buckets * -expm1(-writes_per_second * window / buckets) / window


def monthly_bill(load: Load, prices: Prices | None = None) -> Bill:
    """What a month of a load costs."""
    price = prices or Prices()
    grants = load.acquires_per_second * (1 - load.denied) * SECONDS_PER_MONTH
    denials = load.acquires_per_second * load.denied * SECONDS_PER_MONTH
    refused = per_acquire(load.legs, denied=True)
    minutes = SECONDS_PER_MONTH / DEFAULT_CONFIG_CACHE_TTL
    pairs = min(load.buckets * load.clients, load.acquires_per_second * load.legs * DEFAULT_CONFIG_CACHE_TTL)
    items = [
        _writes("grants", grants * load.legs * GRANT.writes, price),
        _writes("settlements", grants * load.settled * load.legs * SETTLEMENT.writes, price),
        _writes("denials", denials * refused.writes, price),
        _reads("reading limits", pairs * minutes * LIMITS.reads + denials * refused.reads, price),
    ]
    if load.aggregator:
        items += _aggregator(load, price, grants * load.legs * (1 + load.settled) / SECONDS_PER_MONTH)
    if load.alarms:
        alarms = ALARMS if load.aggregator else TABLE_ALARMS
        items.append(Item("alarms", alarms, "alarms", alarms * price.alarm))
    stored = _stored_gb(load)
    items.append(Item("storage", stored, "GB", stored * price.gb_month))
    if load.backups:
        items.append(Item("backups", stored, "GB", stored * price.backup_gb_month))
    return Bill(tuple(items))


def _aggregator(load: Load, price: Prices, writes_per_second: float) -> list[Item]:
    snapshots = snapshots_per_second(writes_per_second, load.buckets, load.window_seconds)
    batches = 0.0
    if writes_per_second:
        often = stream_shards(writes_per_second) / seconds_per_batch(writes_per_second, load.window_seconds)
        batches = min(often, writes_per_second)
    hourly = min(load.buckets, snapshots * 3_600) * (FIRST_SNAPSHOT.writes - SNAPSHOT.writes)
    seconds = (batches * MS_PER_BATCH + snapshots * MS_PER_SNAPSHOT) / 1_000
    gb_seconds = seconds * load.memory_mb / 1_024 * SECONDS_PER_MONTH
    logs = batches * LOG_BYTES_PER_BATCH * SECONDS_PER_MONTH / 10**9
    written = snapshots * SECONDS_PER_MONTH * SNAPSHOT.writes + hourly * HOURS_PER_MONTH
    invocations = batches * SECONDS_PER_MONTH
    return [
        _writes("usage snapshots", written, price),
        Item("function calls", invocations, "calls", invocations / MILLION * price.million_invocations),
        Item("function time", gb_seconds, "GB-s", gb_seconds * price.gb_second),
        Item("function logs", logs, "GB", logs * price.log_gb),
        Item("function metrics", len(METRICS), "metrics", len(METRICS) * price.custom_metric),
    ]


def _stored_gb(load: Load) -> float:
    hours = DAYS_KEPT * 24 if load.aggregator else 0
    return load.buckets * (BUCKET_BYTES + hours * SNAPSHOT_BYTES) / 10**9


def _writes(what: str, units: float, price: Prices) -> Item:
    return Item(what, units, "writes", units / MILLION * price.million_writes)


def _reads(what: str, units: float, price: Prices) -> Item:
    return Item(what, units, "reads", units / MILLION * price.million_reads)
