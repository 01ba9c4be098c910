"""Reading an archive back: the audit events of one namespace, newest first, each once.

The objects of an archive are in folders of days. A day is read as a whole, the newest first, so what is asked for at
the end of a long trail never needs more than a day's events at a time.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.models.moments import at, milliseconds_at
from zae_limiter.models.reports import AuditEvent
from zae_limiter_aggregator.archiver import ENDING, PREFIX, day_folder
from zae_limiter_aggregator.archives import Archive

PARTS: Final = ("year", "month", "day")


class Trail(NamedTuple):
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


def events_in(archive: Archive, trail: Trail) -> Iterator[AuditEvent]:
    """The events of a trail that an archive has. Raises ``ZAELimiterError`` for an object that makes no sense."""
    for folder in days_in(archive, trail):
        found: dict[str, AuditEvent] = {}
        for name in archive.inside(folder):
            if name.endswith(ENDING):
                found.update((event.event_id, event) for event in _events_of(name, archive.read(name), trail))
        for _, event in sorted(found.items(), reverse=True):
            yield event


def days_in(archive: Archive, trail: Trail) -> Iterator[str]:
    """The folders of the days that may have events of a trail, the newest first."""
    first = "" if trail.start_ms is None else day_folder(at(trail.start_ms))
    last = "~" if trail.end_ms is None else day_folder(at(trail.end_ms - 1))

    def below(folder: str, parts: tuple[str, ...]) -> Iterator[str]:
        if not parts:
            yield folder
            return
        for inner in reversed(archive.inside(folder)):
            is_part = inner.startswith(f"{folder}{parts[0]}=") and inner.endswith("/")
            if is_part and first[: len(inner)] <= inner <= last[: len(inner)]:
                yield from below(inner, parts[1:])

    return below(f"{PREFIX}/", PARTS)


def _events_of(name: str, body: bytes, trail: Trail) -> Iterator[AuditEvent]:
    try:
        for line in gzip.decompress(body).splitlines():
            document = json.loads(line)
            timestamp = datetime.fromisoformat(document["timestamp"]).astimezone(UTC)
            if trail.has(document, milliseconds_at(timestamp)):
                yield AuditEvent(
                    event_id=document["event_id"],
                    timestamp=timestamp,
                    action=document["action"],
                    entity_id=document["entity_id"],
                    resource=document["resource"],
                    principal=document["principal"],
                    details=document["details"],
                )
    except (EOFError, OSError, zlib.error, KeyError, TypeError, ValueError) as error:
        raise ZAELimiterError(f"{name} in the archive cannot be read: {error}") from error
