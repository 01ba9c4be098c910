"""Audit events that leave the table, as objects for an archive: records in, names and bytes out. Pure.

An event leaves when it expires, or with a namespace that is purged; both are told by the stream. The events of a batch
become one object per day (of the events, in UTC): lines of JSON, compressed. Its name is that of the first of its
records, and its bytes depend on nothing but the records: a batch that comes again gives the same objects, in whatever
order, and writing them again changes nothing. A batch that is cut otherwise the next time may archive an event twice;
``event_id`` tells.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from zae_limiter.models.moments import at
from zae_limiter.stores.dynamodb.plans.audit import event_of
from zae_limiter.stores.dynamodb.snapshots import sequence_key
from zae_limiter_aggregator.processor import Failure
from zae_limiter_aggregator.records import PoisonousRecord, Record

PREFIX: Final = "audit"
EXPIRY: Final = "dynamodb.amazonaws.com"
"""Who removes an item that expired, as a record names it."""

COMPRESSION: Final = 9


class ArchiveObject(NamedTuple):
    """What is to be stored under a name."""

    key: str
    body: bytes
    events: int


class Archived(NamedTuple):
    """What a batch comes to: the objects to store, and the records that made no sense."""

    objects: tuple[ArchiveObject, ...]
    poisonous: tuple[Failure, ...]


class _Line(NamedTuple):
    """An event that left: where in the stream, on which day it had happened, and how it is archived."""

    place: str
    sequence: str
    day: str
    text: str


def archive_of(records: Iterable[Record]) -> Archived:
    """The objects that a batch comes to. Everything that is no audit event that was removed is passed over."""
    lines: dict[str, _Line] = {}
    poisonous = []
    for record in records:
        try:
            line = line_of(record)
        except PoisonousRecord as error:
            poisonous.append(Failure(error.sequence, error))
            continue
        if line is not None:
            lines[line.place] = line
    days: dict[str, list[_Line]] = {}
    for _, line in sorted(lines.items()):
        days.setdefault(line.day, []).append(line)
    objects = (
        ArchiveObject(
            f"{PREFIX}/{day}/{found[0].sequence}.jsonl.gz", compressed([line.text for line in found]), len(found)
        )
        for day, found in sorted(days.items())
    )
    return Archived(tuple(objects), tuple(poisonous))


def line_of(record: Record) -> _Line | None:
    """The line of an audit event that was removed; ``None`` for anything else. Raises :class:`PoisonousRecord`."""
    sequence = ""
    try:
        change = record["dynamodb"]
        sequence = str(change.get("SequenceNumber", ""))
        keys = change["Keys"]
        pk, sk = keys.get("PK", {}).get("S", ""), keys.get("SK", {}).get("S", "")
        if record["eventName"] != "REMOVE" or "/AUDIT#" not in pk or not sk.startswith("#AUDIT#"):
            return None
        image = change["OldImage"]
        day = f"{at(int(image['timestamp']['N'])):year=%Y/month=%m/day=%d}"
        told = document_of(pk, image, expired=(record.get("userIdentity") or {}).get("principalId") == EXPIRY)
        text = json.dumps(told, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return _Line(sequence_key(sequence), sequence, day, text)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise PoisonousRecord(sequence, f"{type(error).__name__}: {error}") from error


def document_of(pk: str, image: Mapping[str, Any], *, expired: bool) -> dict[str, Any]:
    """An event as it is archived: what ``audit list`` shows, whose it was, and whether it expired or was purged."""
    event = event_of(image)
    return {
        "event_id": event.event_id,
        "namespace_id": pk.partition("/")[0],
        "timestamp": event.timestamp.isoformat(),
        "action": event.action,
        "entity_id": event.entity_id,
        "resource": event.resource,
        "principal": event.principal,
        "details": dict(event.details),
        "expired": expired,
    }


def compressed(lines: Iterable[str]) -> bytes:
    """Lines as gzip has them, without the time and the name it would add."""
    whole = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=whole, mtime=0) as file:
        for line in lines:
            file.write(f"{line}\n".encode())
    return whole.getvalue()
