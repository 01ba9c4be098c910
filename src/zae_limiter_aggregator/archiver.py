"""Audit events that expire, as objects for an archive: records in, names and bytes out.

The table's stream tells what DynamoDB removed because its time was over, and only that is archived: what somebody
removed, as a purge does, is to be gone. The events of a batch become one object per day (of the events, in UTC): lines
of JSON, compressed. Its name is made of the first of its records and of what it says, and its bytes depend on nothing
but the records: a batch that comes again gives the same objects, in whatever order, and keeping them again changes
nothing. A batch that is cut otherwise the next time gives objects beside the first ones, and never one that replaces
a longer one. So an event may be archived twice; whoever reads tells by its id.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from zae_limiter.models.moments import at
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.plans.audit import event_of
from zae_limiter.stores.dynamodb.snapshots import sequence_key
from zae_limiter_aggregator.archives import ArchiveUnavailable, KeepObject
from zae_limiter_aggregator.records import Failure, PoisonousRecord, Record

PREFIX: Final = "audit"
ENDING: Final = ".jsonl.gz"
EXPIRY: Final = "dynamodb.amazonaws.com"
"""Who removes an item that expired, as a record names it."""

COMPRESSION: Final = 9
DIGEST: Final = 16


class ArchiveObject(NamedTuple):
    """What is to be kept under a name, and the records that say it."""

    key: str
    body: bytes
    sequences: tuple[str, ...]


class Findings(NamedTuple):
    """What a batch comes to: the objects to keep, and the records that made no sense."""

    objects: tuple[ArchiveObject, ...]
    poisonous: tuple[Failure, ...]


class Archived(NamedTuple):
    """What became of a batch: how many events are in the archive now, and which records are not, and why.

    The ``poisonous`` ones never will be; the ``unwritten`` ones will if they are archived again.
    """

    events: int = 0
    objects: int = 0
    poisonous: tuple[Failure, ...] = ()
    unwritten: tuple[Failure, ...] = ()


NOTHING_ARCHIVED: Final = Archived()


def archive(records: Iterable[Record]) -> Plan[Archived]:
    """Keep the audit events that a batch says have expired. One that cannot be kept does not hinder the others."""
    found = objects_of(records)
    events = objects = 0
    unwritten: list[Failure] = []
    for wanted in found.objects:
        try:
            yield from KeepObject(wanted.key, wanted.body)
        except ArchiveUnavailable as error:
            unwritten += [Failure(sequence, error) for sequence in wanted.sequences]
        else:
            events, objects = events + len(wanted.sequences), objects + 1
    return Archived(events, objects, found.poisonous, tuple(unwritten))


class _Line(NamedTuple):
    """An event that expired: where in the stream, on which day it had happened, and how it is archived."""

    place: str
    sequence: str
    day: str
    text: str


def objects_of(records: Iterable[Record]) -> Findings:
    """The objects that a batch comes to. Everything that is no audit event that expired is passed over."""
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
    return Findings(tuple(_object(day, found) for day, found in sorted(days.items())), tuple(poisonous))


def _object(day: str, lines: list[_Line]) -> ArchiveObject:
    text = "".join(f"{line.text}\n" for line in lines).encode()
    name = f"{day}{lines[0].sequence}-{sha256(text).hexdigest()[:DIGEST]}{ENDING}"
    return ArchiveObject(name, compressed(text), tuple(line.sequence for line in lines))


def line_of(record: Record) -> _Line | None:
    """The line of an audit event that expired; ``None`` for anything else. Raises :class:`PoisonousRecord`.

    Of a record that does not even say what it is about, whoever counts tells.
    """
    try:
        change = record["dynamodb"]
        pk, sk = (change["Keys"].get(name, {}).get("S", "") for name in ("PK", "SK"))
        identity = record.get("userIdentity") or {}
        expired = record["eventName"] == "REMOVE" and identity.get("principalId") == EXPIRY
        if not expired or "/AUDIT#" not in pk or not sk.startswith("#AUDIT#"):
            return None
    except (KeyError, TypeError, AttributeError):
        return None
    sequence = str(change.get("SequenceNumber", ""))
    try:
        image = change["OldImage"]
        text = json.dumps(document_of(pk, image), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return _Line(sequence_key(sequence), sequence, day_folder(at(int(image["timestamp"]["N"]))), text)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise PoisonousRecord(sequence, f"{type(error).__name__}: {error}") from error


def day_folder(moment: datetime) -> str:
    """The folder of a day."""
    return f"{PREFIX}/{moment:year=%Y/month=%m/day=%d}/"


def document_of(pk: str, image: Mapping[str, Any]) -> dict[str, Any]:
    """An event as it is archived: what ``audit list`` shows, and whose it was."""
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
    }


def compressed(text: bytes) -> bytes:
    """Text as gzip has it, without the time and the name it would add."""
    whole = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=whole, mtime=0) as file:
        file.write(text)
    return whole.getvalue()
