"""Following a stream for as long as it takes: where a Lambda does not count, a process does.

:meth:`Aggregation.begin` reads the checkpoints, every :meth:`Aggregation.count_available` counts what is in the stream
by then, and :meth:`Aggregation.end` writes the checkpoints that are not written yet. On the way they are written every
few seconds, so that a process that continues after a crash has little to count again. Nothing is lost and nothing
counted twice, whenever it ends. Several processes may share the shards of a stream (see ``membership``).

An :class:`Aggregation` is plans; :class:`StoreAggregator` runs them on an open store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from zae_limiter.exceptions import ValidationError, ZAELimiterError
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import Plan
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.operations.shard_life import sweep_table
from zae_limiter.stores.dynamodb.table_client import TableClient, table_client_of, verb
from zae_limiter_aggregator.archives import Archive, with_archive
from zae_limiter_aggregator.follower import EMPTY_PAGES, Follower, NoStream, Page, Position
from zae_limiter_aggregator.membership import HEARTBEAT_EVERY_MS, Membership, owner_of
from zae_limiter_aggregator.stream_checkpoints import NOWHERE, Checkpoints, place_of
from zae_limiter_aggregator.stream_records import Failure

SAVE_EVERY_MS: Final = 5_000
"""How often checkpoints are written at most."""

SWEEP_EVERY_MS: Final = 3_600_000
"""How often split buckets that are idle are looked for."""


class Tally(NamedTuple):
    """What an aggregation has done so far.

    ``poisonous`` is how many records made no sense, ``trimmed`` how often the next records of a shard had left the
    stream unread, ``archived`` how many audit events went to the archive, ``splits`` how many hot buckets were split,
    ``swept`` how many idle split ones were removed. ``lag_s`` says how old the last record was when it was counted, in
    seconds; ``None`` before there was one.
    """

    records: int = 0
    snapshots: int = 0
    poisonous: int = 0
    trimmed: int = 0
    lag_s: float | None = None
    archived: int = 0
    splits: int = 0
    swept: int = 0


OnPage: TypeAlias = Callable[[Tally, Sequence[Failure]], None]
"""Called with what was done so far, and the records that have just been found poisonous."""


class Aggregation:
    """Counts one table's stream into its snapshots. Any number of them may work at the same time."""

    def __init__(
        self,
        client: TableClient,
        *,
        on_page: OnPage | None = None,
        empty_pages: int = EMPTY_PAGES,
        archiving: bool = False,
        sharing: bool = False,
    ) -> None:
        """With ``archiving`` audit events that expire are archived too: the performer has an archive (``archives``).
        With ``sharing`` the shards are shared with other such processes; without, all of them are read."""
        self.client = client
        self.tally = Tally()
        self._on_page = on_page
        self._follower = Follower(client, empty_pages=empty_pages, after_page=self._after_page, archiving=archiving)
        self._stream = ""
        self._positions: dict[str, Position] = {}
        self._unsaved: set[str] = set()
        self._saved_ms = 0
        self._swept_ms: int | None = None
        self._membership = Membership(client) if sharing else None
        self._present: frozenset[str] = frozenset()
        self._heartbeat_ms = 0

    @verb
    def begin(self) -> Plan[None]:
        """Find the stream, and how far it was counted. Raises ``ZAELimiterError`` if the table has none."""
        try:
            self._stream = yield from self._follower.stream()
        except NoStream as error:
            raise ZAELimiterError(f"{error}; the tables that zae-limiter makes have one: of both images") from None
        self._positions = yield from Checkpoints(self.client, self._stream).load()
        self._saved_ms = (yield from self.client.new_deadline()).started

    @verb
    def count_available(self) -> Plan[None]:
        """Count everything that is in the stream now."""
        yield from self._refresh_members()
        finished = self._finished()
        progress = yield from self._follower.catch_up(self._stream, self._positions, self._owns)
        self._unsaved |= (self._finished() - finished) | set(progress.trimmed)
        self.tally = self.tally._replace(trimmed=self.tally.trimmed + len(progress.trimmed))
        yield from self._save_if_due()
        yield from self._sweep_if_due()

    @verb
    def end(self) -> Plan[None]:
        """Write the checkpoints that are not written yet."""
        yield from self._save()
        if self._membership is not None and self._present:
            yield from self._membership.leave()

    def _refresh_members(self) -> Plan[None]:
        """Send a heartbeat when it is due. When members come or go, continue their shards from the checkpoints."""
        if self._membership is None:
            return
        now = (yield from self.client.new_deadline()).started
        if self._present and now - self._heartbeat_ms < HEARTBEAT_EVERY_MS:
            return
        self._heartbeat_ms = now
        present = yield from self._membership.heartbeat()
        if present != self._present:
            self._present = present
            yield from self._save()
            loaded = yield from Checkpoints(self.client, self._stream).load()
            for shard, position in loaded.items():
                if place_of(position) > place_of(self._positions.get(shard, NOWHERE)):
                    self._positions[shard] = position

    def _owns(self, shard: str) -> bool:
        return self._membership is None or owner_of(shard, self._present) == self._membership.name

    def _after_page(self, page: Page) -> Plan[None]:
        processed = page.processed
        if processed.records or processed.poisonous or processed.archived:
            self._unsaved.add(page.shard)
            lag = self.tally.lag_s
            if page.written_s is not None:
                lag = max(0.0, (yield from self.client.new_deadline()).epoch_s - page.written_s)
            self.tally = self.tally._replace(
                records=self.tally.records + processed.records,
                snapshots=self.tally.snapshots + processed.snapshots,
                poisonous=self.tally.poisonous + len(processed.poisonous),
                lag_s=lag,
                archived=self.tally.archived + processed.archived,
                splits=self.tally.splits + processed.splits,
            )
            if self._on_page is not None:
                self._on_page(self.tally, processed.poisonous)
        yield from self._save_if_due()

    def _finished(self) -> set[str]:
        return {shard for shard, position in self._positions.items() if position.finished}

    def _save_if_due(self) -> Plan[None]:
        if self._unsaved:
            now = (yield from self.client.new_deadline()).started
            if now - self._saved_ms >= SAVE_EVERY_MS:
                yield from self._save()
                self._saved_ms = now

    def _sweep_if_due(self) -> Plan[None]:
        now = (yield from self.client.new_deadline()).started
        if self._swept_ms is None or now - self._swept_ms >= SWEEP_EVERY_MS:
            self._swept_ms = now
            swept = yield from sweep_table(self.client)
            self.tally = self.tally._replace(swept=self.tally.swept + swept)

    def _save(self) -> Plan[None]:
        yield from Checkpoints(self.client, self._stream).save(self._positions, sorted(self._unsaved))
        self._unsaved.clear()


def needs_aggregator(store: Any) -> bool:
    """Whether the usage of an open store is counted by an aggregator: that of DynamoDB tables is."""
    return table_client_of(store) is not None


class StoreAggregator:
    """Runs an :class:`Aggregation` in this thread, on the table of an open store, with an archive if there is one."""

    def __init__(
        self, store: Any, *, archive: Archive | None = None, on_page: OnPage | None = None, sharing: bool = False
    ) -> None:
        client = table_client_of(store)
        if client is None:
            raise ValidationError(
                "store", repr(store), "must be a DynamoDB table; other stores count usage themselves"
            )
        perform = store.perform if archive is None else with_archive(store.perform, archive)
        self._driver = SyncDriver(machine_clock, perform)
        self._aggregation = Aggregation(client, on_page=on_page, archiving=archive is not None, sharing=sharing)

    @property
    def tally(self) -> Tally:
        """What was done so far."""
        return self._aggregation.tally

    def begin(self) -> None:
        """Find the stream, and how far it was counted."""
        self._driver.run(self._aggregation.begin())

    def count_available(self) -> None:
        """Count everything that is in the stream now."""
        self._driver.run(self._aggregation.count_available())

    def end(self) -> None:
        """Write the checkpoints that are not written yet."""
        self._driver.run(self._aggregation.end())
