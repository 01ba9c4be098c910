"""What each manifest manages, written down in the namespace itself.

**Where.** Under one reserved entity, ``zael:manifests``, every manifest has an entity of its own,
``zael:manifest:NAME``: its *head*. The metadata of the head lists the things the manifest manages, one per line,
several lines to an entry. What does not fit goes into further entities below the head, its *pages*, which the head
names. Entities are kept by every store, and are audited like every other; lists of entities leave these out.

**When.** Before the first change everything the manifest names is *claimed*: the record then has all that was managed
and all that will be. After the last change it is *settled*: what was deleted leaves it. So at every moment the record
has everything the manifest may have made, and a run after a crash knows all of it and finishes the work.

**Concurrency.** Pages are written before the head that names them, under names that no other run gives (the version
the head will have, and a digest of the content), and the head is changed only if it still has the version that was
read. So a record is never half of one and half of another, and a plan that is out of date is refused at its claim. A
head is never deleted, not even when nothing is managed any more: its versions would begin anew, and a run could take
the new one for the one it read.

Two runs of one manifest at the same time may undo each other's work, but nothing they make is without a record: a run
that finds at its end that another one claimed meanwhile, or that what it deleted is back, releases nothing and says
so; a run that fails after another one claimed claims once more, which makes the settlement of the other fail. (Only a
run that is killed beside another one, between a creation of its own and the settlement of the other, leaves a thing
behind.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from zae_limiter.exceptions import ValidationError, ZAELimiterError
from zae_limiter.manifests.model import Thing
from zae_limiter.models.entity import Entity
from zae_limiter.naming import RECORD_PREFIX

FORMAT = "zae-limiter manifest 1"
ENTRY_CHARACTERS = 1_000
ENTRIES = 40
"""An entity's metadata may have 50 entries of 1024 characters."""

APPLYING, APPLIED = "applying", "applied"

_PAGE = "page "


class RecordError(ZAELimiterError):
    """The record of a manifest cannot be read: it was changed by hand."""

    def __init__(self, head_id: str, reason: str) -> None:
        self.head_id = head_id
        self.reason = reason
        super().__init__(head_id, reason)

    def __str__(self) -> str:
        return (
            f"the record {self.head_id!r} {self.reason}; delete that entity and those below it, then apply again: "
            "what the manifest names is adopted, what it no longer names stays as it is"
        )


@dataclass(frozen=True, slots=True)
class Record:
    """The things a manifest manages. ``version`` is the head's, ``None`` if there is none yet.

    ``finished``: the last run came to its end. ``by`` says who applied it last.
    """

    manifest: str
    things: frozenset[Thing] = frozenset()
    version: int | None = None
    finished: bool = True
    by: str | None = None


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as entities: the head's metadata, and the metadata of each page by its id."""

    head: Mapping[str, str]
    pages: Mapping[str, Mapping[str, str]]


def head_id_of(manifest: str) -> str:
    """The entity that keeps the record of a manifest."""
    return f"{RECORD_PREFIX}{manifest}"


def manifest_of(head_id: str) -> str:
    """The manifest whose record an entity keeps."""
    return head_id.removeprefix(RECORD_PREFIX)


def stored_form(record: Record) -> StoredRecord:
    """A record in the form it is stored in, for the version after ``record.version``."""
    state = {
        "format": FORMAT,
        "state": APPLIED if record.finished else APPLYING,
        "count": str(len(record.things)),
    }
    if record.by is not None:
        state["by"] = record.by
    entries = list(_packed(map(str, sorted(record.things))))
    if len(entries) <= ENTRIES:
        return StoredRecord(state | _numbered(entries), {})
    generation = (record.version or 0) + 1
    pages: dict[str, Mapping[str, str]] = {}
    for start in range(0, len(entries), ENTRIES):
        content = entries[start : start + ENTRIES]
        digest = sha256("\n".join(content).encode()).hexdigest()[:16]
        pages[f"{head_id_of(record.manifest)}:{generation}-{digest}"] = {"format": FORMAT} | _numbered(content)
    prefix = f"{head_id_of(record.manifest)}:"
    references = list(_packed(f"{_PAGE}{page_id.removeprefix(prefix)}" for page_id in pages))
    return StoredRecord(state | _numbered(references), pages)


def pages_named_by(head: Entity) -> list[str]:
    """The ids of the pages a head needs."""
    return [f"{head.id}:{line.removeprefix(_PAGE)}" for line in _lines(head) if line.startswith(_PAGE)]


def generation_of(page_id: str) -> int | None:
    """The version of the head a page was written for."""
    number = page_id.rpartition(":")[2].partition("-")[0]
    return int(number) if number.isdecimal() else None


def read_record(head: Entity, pages: Iterable[Entity]) -> Record:
    """The record that a head and its pages keep. Raises :class:`RecordError`."""
    lines = [line for line in _lines(head) if not line.startswith(_PAGE)]
    for page in pages:
        lines += _lines(page)
    try:
        things = frozenset(map(Thing.parse, lines))
    except ValidationError as error:
        raise RecordError(head.id, f"has a line that is none of ours, {error.value!r}") from None
    if head.metadata.get("count") != str(len(things)):
        raise RecordError(head.id, f"lists {len(things)} things and says there are {head.metadata.get('count')}")
    return Record(
        manifest_of(head.id),
        things,
        head.version,
        finished=head.metadata.get("state") == APPLIED,
        by=head.metadata.get("by"),
    )


def _packed(lines: Iterable[str]) -> Iterator[str]:
    """As many lines as fit, entry by entry."""
    held: list[str] = []
    size = 0
    for line in lines:
        if held and size + len(line) + 1 > ENTRY_CHARACTERS:
            yield "\n".join(held)
            held, size = [], 0
        held.append(line)
        size += len(line) + 1
    if held:
        yield "\n".join(held)


def _numbered(entries: list[str]) -> dict[str, str]:
    return {f"things-{number:02}": entry for number, entry in enumerate(entries)}


def _lines(entity: Entity) -> list[str]:
    if entity.metadata.get("format") != FORMAT:
        raise RecordError(entity.id, "is not in a form that this version knows")
    entries = sorted((key, value) for key, value in entity.metadata.items() if key.startswith("things-"))
    return [line for _, value in entries for line in value.split("\n")]
