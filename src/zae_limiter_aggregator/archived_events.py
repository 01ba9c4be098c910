"""Reading an archive back: the audit events of one namespace, newest first, each once.

The objects of an archive are in folders of days. A day is read as a whole, the newest first, so what is asked for at
the end of a long trail never needs more than a day's events at a time. An object is unpacked line by line, and only up
to what one of ours may hold.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.models.moments import at, milliseconds_at
from zae_limiter.models.reports import AuditEvent
from zae_limiter_aggregator.archiver import ENDING, PREFIX, day_folder
from zae_limiter_aggregator.archives import MOST_BYTES, Archive

PARTS: Final = ("year", "month", "day")
LONGEST_REASON: Final = 300
UNREADABLE: Final = (LookupError, TypeError, ValueError, ArithmeticError, RecursionError)


class EventFilter(NamedTuple):
    """Which events: of which namespace (by its id), of which subject, from when on and before when."""

    namespace_id: str
    subject: str | None = None
    start_ms: int | None = None
    end_ms: int | None = None

    def has(self, document: dict[str, Any], moment_ms: int) -> bool:
        """Whether an archived event is one of these."""
        return (
            document["namespace_id"] == self.namespace_id
            and self.subject in (None, document["entity_id"])
            and (self.start_ms is None or moment_ms >= self.start_ms)
            and (self.end_ms is None or moment_ms < self.end_ms)
        )


def read_events(archive: Archive, event_filter: EventFilter) -> Iterator[AuditEvent]:
    """The events of a trail that an archive has. Raises ``ZAELimiterError`` for an object that makes no sense."""
    for folder in day_folders(archive, event_filter):
        found: dict[str, AuditEvent] = {}
        for name in archive.inside(folder):
            if name.endswith(ENDING):
                found.update((event.event_id, event) for event in _events_of(name, archive.read(name), event_filter))
        for _, event in sorted(found.items(), reverse=True):
            yield event


def day_folders(archive: Archive, event_filter: EventFilter) -> Iterator[str]:
    """The folders of the days that may have events of a trail, the newest first."""
    first = "" if event_filter.start_ms is None else day_folder(at(event_filter.start_ms))
    last = "~" if event_filter.end_ms is None else day_folder(at(event_filter.end_ms - 1))

    def below(folder: str, parts: tuple[str, ...]) -> Iterator[str]:
        if not parts:
            yield folder
            return
        for inner in reversed(archive.inside(folder)):
            is_part = inner.startswith(f"{folder}{parts[0]}=") and inner.endswith("/")
            if is_part and first[: len(inner)] <= inner <= last[: len(inner)]:
                yield from below(inner, parts[1:])

    return below(f"{PREFIX}/", PARTS)


def _events_of(name: str, body: bytes, event_filter: EventFilter) -> Iterator[AuditEvent]:
    try:
        for line in _lines_of(body):
            document = json.loads(line)
            timestamp = datetime.fromisoformat(document["timestamp"]).astimezone(UTC)
            if event_filter.has(document, milliseconds_at(timestamp)):
                yield _event_of(document, timestamp)
    except (*UNREADABLE, EOFError, OSError, zlib.error) as error:
        raise ZAELimiterError(f"{name} in the archive cannot be read: {str(error)[:LONGEST_REASON]}") from error


def _lines_of(body: bytes) -> Iterator[bytes]:
    left = MOST_BYTES
    with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
        while line := file.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes in it")
            yield line


def _event_of(document: dict[str, Any], timestamp: datetime) -> AuditEvent:
    words = [document[name] for name in ("event_id", "action", "entity_id", "resource", "principal")]
    if not all(isinstance(word, str) or (word is None and place > 2) for place, word in enumerate(words)):
        raise TypeError("an event has something else where words should be")
    if not isinstance(document["details"], dict):
        raise TypeError("an event has no details")
    event_id, action, entity_id, resource, principal = words
    return AuditEvent(event_id, timestamp, action, entity_id, resource, principal, document["details"])
