"""Audit events that expire, as objects for an archive: records in, names and bytes out.

The table's stream tells what DynamoDB removed because its time was over, and only that is archived: what an operator
removed, as a purge does, is to be gone. The events of a batch become one object per day (of the events, in UTC): lines
of JSON, compressed. Its name is made of the first of its records and of what it says, and its bytes depend on nothing
but the records: a batch that comes again gives the same objects, in whatever order, and keeping them again changes
nothing. A batch that is cut otherwise the next time gives objects beside the first ones, and never one that replaces a
longer one. So an event may be archived twice; a reader recognises it by its id.

The archive is also where poisonous records are put aside, so that they leave the stream at once: one that is reported
to Lambda instead would hold up its shard until all tries are used up.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from zae_limiter.models.reports import AuditEvent
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.operations.audit import event_of, is_event_key
from zae_limiter.stores.dynamodb.usage_items import SEQUENCE_DIGITS, sequence_key
from zae_limiter_aggregator.archives import ArchiveUnavailable, KeepObject
from zae_limiter_aggregator.stream_records import Failure, PoisonousRecord, Record

PREFIX: Final = "audit"
ENDING: Final = ".jsonl.gz"
EXPIRY: Final = "dynamodb.amazonaws.com"
"""Who removes an item that expired, as a record names it."""

COMPRESSION: Final = 9
DIGEST: Final = 16

POISON_PREFIX: Final = "aws/lambda/poisonous"
"""Beside the records that Lambda itself has given up."""

_is_audit_key = re.compile(r"[^/#]+/AUDIT#[^#]+").fullmatch


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


def put_aside(poisonous: Sequence[Failure]) -> Plan[bool]:
    """Keep poisonous records in the archive, for an operator to look at; whether they are there now."""
    wanted = poison_object(poisonous)
    try:
        yield from KeepObject(wanted.key, wanted.body)
    except ArchiveUnavailable:
        return False
    return True


def poison_object(poisonous: Sequence[Failure]) -> ArchiveObject:
    """The object that poisonous records come to: a line for each, with why. The same ones give the same object."""
    lines = {
        json.dumps(
            {"sequence": failure.sequence, "error": str(failure.error), "record": failure.record},
            ensure_ascii=False,
            sort_keys=True,
            default=str,
        ): failure.sequence
        for failure in poisonous
    }
    text = "".join(f"{line}\n" for line in sorted(lines)).encode(errors="replace")
    numbers = sorted(sequence for sequence in lines.values() if sequence.isascii() and sequence.isdigit())
    first = f"{numbers[0]}-" if numbers else ""
    name = f"{POISON_PREFIX}/{first[: SEQUENCE_DIGITS + 1]}{sha256(text).hexdigest()[:DIGEST]}.jsonl"
    return ArchiveObject(name, text, tuple(lines.values()))


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
            poisonous.append(Failure(error.sequence, error, record))
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

    A record that does not even say what it is about is reported by the processor.
    """
    try:
        change = record["dynamodb"]
        pk, sk = (change["Keys"].get(name, {}).get("S", "") for name in ("PK", "SK"))
        identity = record.get("userIdentity") or {}
        expired = record["eventName"] == "REMOVE" and identity.get("principalId") == EXPIRY
        if not expired or not _is_audit_key(pk) or not is_event_key(sk):
            return None
        sequence = str(change.get("SequenceNumber", ""))
    except (KeyError, TypeError, AttributeError):
        return None
    try:
        event = event_of({**change["OldImage"], **change["Keys"]})
        text = json.dumps(document_of(pk, event), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return _Line(sequence_key(sequence), sequence, day_folder(event.timestamp), text)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise PoisonousRecord(sequence, f"{type(error).__name__}: {error}") from error


def day_folder(moment: datetime) -> str:
    """The folder of a day."""
    return f"{PREFIX}/{moment:year=%Y/month=%m/day=%d}/"


def document_of(pk: str, event: AuditEvent) -> dict[str, Any]:
    """An event as it is archived: what ``audit list`` shows, and whose it was."""
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
