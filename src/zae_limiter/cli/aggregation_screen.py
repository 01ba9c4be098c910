"""An aggregation on the screen: in place on a terminal, as lines, or as documents."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from zae_limiter.cli.output.documents import on_one_line
from zae_limiter.cli.session import Session, note
from zae_limiter.cli.views.formats import plural
from zae_limiter.models.moments import at
from zae_limiter_aggregator.aggregation import Tally
from zae_limiter_aggregator.stream_records import Failure


class AggregationScreen:
    """Shows what was done so far. ``live`` draws it on a terminal."""

    def __init__(self, session: Session, *, once: bool, live: Callable[[str], None] | None) -> None:
        self._session = session
        self._once = once
        self._live = live
        self._shown = Tally()

    def page(self, tally: Tally, poisonous: Sequence[Failure]) -> None:
        """Some records were counted."""
        for failure in poisonous:
            note(f"skipped: {failure.error}")
        if self._live is not None:
            self._live(tally_in_words(tally))

    def caught_up(self, tally: Tally) -> None:
        """Everything that was there is counted."""
        if tally.trimmed > self._shown.trimmed:
            note(
                "some records left the stream before they were counted; the next record of a bucket makes up for them"
            )
        if self._live is not None:
            self._live(f"{tally_in_words(tally)}; Ctrl-C ends")
        elif tally != self._shown and not self._once:
            self._line(tally)
        self._shown = tally

    def end(self, tally: Tally) -> None:
        """The aggregation has ended."""
        if self._once or not self._session.as_json:
            self._session.say(tally_document(tally, self._session.now_ms()), tally_in_words(tally))

    def _line(self, tally: Tally) -> None:
        now = self._session.now_ms()
        if self._session.as_json:
            click.echo(on_one_line(tally_document(tally, now)))
        else:
            click.echo(f"{at(now):%Y-%m-%dT%H:%M:%SZ}  {tally_in_words(tally)}")


@contextmanager
def aggregation_screen(session: Session, *, once: bool) -> Iterator[AggregationScreen]:
    """How this session shows an aggregation. The live line is removed at the end."""
    if once or session.as_json or not session.output.console.is_terminal:
        yield AggregationScreen(session, once=once, live=None)
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=session.output.console, auto_refresh=False, transient=True) as live:
        yield AggregationScreen(session, once=once, live=lambda words: live.update(Text(words), refresh=True))


def tally_in_words(tally: Tally) -> str:
    """What was done so far, in a line."""
    words = f"{plural(tally.records, 'change')} counted into {plural(tally.snapshots, 'window')}"
    if tally.lag_s is not None:
        words += f", the last one {tally.lag_s:,.0f} s after it was made"
    if tally.archived:
        words += f"; {plural(tally.archived, 'audit event')} archived"
    if tally.splits:
        words += f"; {plural(tally.splits, 'hot bucket')} split"
    if tally.swept:
        words += f"; {plural(tally.swept, 'idle split bucket')} removed"
    if tally.poisonous:
        words += f"; {plural(tally.poisonous, 'unreadable record')} skipped"
    return words


def tally_document(tally: Tally, now: int) -> dict[str, Any]:
    """What was done so far, for programs."""
    return {
        "time": at(now).isoformat(),
        "records": tally.records,
        "snapshots": tally.snapshots,
        "poisonous": tally.poisonous,
        "trimmed": tally.trimmed,
        "archived": tally.archived,
        "splits": tally.splits,
        "swept": tally.swept,
        "lag_seconds": tally.lag_s,
    }


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM, which container runtimes send, ends the command as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
