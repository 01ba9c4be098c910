"""Following a stream for as long as it takes: where a Lambda does not count, a process does.

:meth:`Aggregation.begin` reads the checkpoints, every :meth:`Aggregation.go_on` counts what is in the stream by then,
and :meth:`Aggregation.end` writes the checkpoints that are not written yet. On the way they are written every few
seconds, so that whoever continues after a crash has little to count again. Nothing is lost and nothing counted twice
whenever it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.plans.asking import Asking
from zae_limiter_aggregator.checkpoints import Checkpoints
from zae_limiter_aggregator.follower import EMPTY_PAGES, Follower, NoStream, Page, Position
from zae_limiter_aggregator.processor import Failure

SAVE_EVERY_MS: Final = 5_000
"""How often checkpoints are written at most."""


class Tally(NamedTuple):
    """What an aggregation has done so far.

    ``poisonous`` is how many records made no sense, ``trimmed`` how often the next records of a shard had left the
    stream unread. ``lag_s`` says how old the last record was when it was counted, in seconds; ``None`` before there
    was one.
    """

    records: int = 0
    snapshots: int = 0
    poisonous: int = 0
    trimmed: int = 0
    lag_s: float | None = None


Told: TypeAlias = Callable[[Tally, Sequence[Failure]], None]
"""Is told what was done so far, and which records have just been found poisonous."""


class Aggregation:
    """Counts one table's stream into its snapshots. Any number of them may work at the same time."""

    def __init__(self, asking: Asking, *, told: Told | None = None, empty_pages: int = EMPTY_PAGES) -> None:
        self.asking = asking
        self.tally = Tally()
        self._told = told
        self._follower = Follower(asking, empty_pages=empty_pages, after_page=self._after_page)
        self._stream = ""
        self._positions: dict[str, Position] = {}
        self._unsaved: set[str] = set()
        self._saved_ms = 0

    @verb
    def begin(self) -> Plan[None]:
        """Find the stream, and how far it was counted. Raises ``ZAELimiterError`` if the table has none."""
        try:
            self._stream = yield from self._follower.stream()
        except NoStream as error:
            raise ZAELimiterError(f"{error}; the tables that zae-limiter makes have one: of both images") from None
        self._positions = yield from Checkpoints(self.asking, self._stream).load()
        self._saved_ms = (yield from self.asking.window()).started

    @verb
    def go_on(self) -> Plan[None]:
        """Count everything that is in the stream now."""
        finished = self._finished()
        progress = yield from self._follower.catch_up(self._stream, self._positions)
        self._unsaved |= (self._finished() - finished) | set(progress.trimmed)
        self.tally = self.tally._replace(trimmed=self.tally.trimmed + len(progress.trimmed))
        yield from self._save_if_due()

    @verb
    def end(self) -> Plan[None]:
        """Write the checkpoints that are not written yet."""
        yield from self._save()

    def _after_page(self, page: Page) -> Plan[None]:
        processed = page.processed
        if processed.records or processed.poisonous:
            self._unsaved.add(page.shard)
            lag = self.tally.lag_s
            if page.written_s is not None:
                lag = max(0.0, (yield from self.asking.window()).epoch_s - page.written_s)
            self.tally = self.tally._replace(
                records=self.tally.records + processed.records,
                snapshots=self.tally.snapshots + processed.snapshots,
                poisonous=self.tally.poisonous + len(processed.poisonous),
                lag_s=lag,
            )
            if self._told is not None:
                self._told(self.tally, processed.poisonous)
        yield from self._save_if_due()

    def _finished(self) -> set[str]:
        return {shard for shard, position in self._positions.items() if position.finished}

    def _save_if_due(self) -> Plan[None]:
        if self._unsaved:
            now = (yield from self.asking.window()).started
            if now - self._saved_ms >= SAVE_EVERY_MS:
                yield from self._save()
                self._saved_ms = now

    def _save(self) -> Plan[None]:
        yield from Checkpoints(self.asking, self._stream).save(self._positions, sorted(self._unsaved))
        self._unsaved.clear()
