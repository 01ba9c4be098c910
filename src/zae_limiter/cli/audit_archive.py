"""Archives of audit events on the command line: the option that names one, and its events merged with the store's."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zae_limiter.cli.options import as_usage_error
from zae_limiter.cli.pages import PAGE_SIZE, Pages
from zae_limiter.cli.session import Session

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter import AuditEvent
    from zae_limiter_aggregator.archives import Archive

Command = TypeVar("Command", bound=Callable[..., Any])


def archive_option(words: str) -> Callable[[Command], Command]:
    """``--archive``: where audit events are that have expired."""
    return click.option(
        "--archive",
        "archive_url",
        envvar="ZAEL_ARCHIVE",
        show_envvar=True,
        metavar="ARCHIVE",
        help=words,
    )


def archive_at(url: str) -> Archive:
    """The archive of a URL or folder."""
    from zae_limiter_aggregator.archives import open_archive

    with as_usage_error():
        return open_archive(url)


def archived_events(
    session: Session, url: str | None, subject: str | None, start: datetime | None, end: datetime | None
) -> Iterator[AuditEvent]:
    """The events of this session's namespace that an archive has, newest first."""
    from zae_limiter.models.moments import milliseconds_at
    from zae_limiter_aggregator.archived_events import EventFilter, read_events

    if url is None:
        raise click.UsageError("name the archive with --archive or ZAEL_ARCHIVE")
    archive = archive_at(url)
    start_ms, end_ms = (None if moment is None else milliseconds_at(moment) for moment in (start, end))
    namespace_id = session.repository.get_namespace(session.namespace).id
    return read_events(archive, EventFilter(namespace_id, subject, start_ms, end_ms))


class MergedPages(Pages["AuditEvent"]):
    """The events of a store and those of an archive as one list, newest first, each once, up to ``most``."""

    def __init__(self, kept: Pages[AuditEvent], archived: Iterable[AuditEvent], most: int | None) -> None:
        self._kept = kept
        self._archived = archived
        self._most = most
        self.seen = 0
        self.more = False

    def __iter__(self) -> Iterator[Sequence[AuditEvent]]:
        events = self._merged()
        while True:
            size = PAGE_SIZE if self._most is None else min(PAGE_SIZE, self._most - self.seen)
            page = list(islice(events, size))
            self.seen += len(page)
            yield page
            if len(page) < size:
                return
            if self.seen == self._most:
                self.more = next(events, None) is not None
                return

    def _merged(self) -> Iterator[AuditEvent]:
        last: str | None = None
        both = heapq.merge(self._kept.items(), self._archived, key=lambda event: event.event_id, reverse=True)
        for event in both:
            if event.event_id != last:
                yield event
            last = event.event_id
