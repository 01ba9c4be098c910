"""Reading and writing the records of what manifests manage (see ``record_format``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from zae_limiter.exceptions import (
    EntityChangedError,
    EntityExistsError,
    EntityNotFoundError,
    ZAELimiterError,
)
from zae_limiter.manifests.record_format import (
    Record,
    RecordError,
    generation_of,
    head_id_of,
    manifest_of,
    pages_named_by,
    read_record,
    stored_form,
)
from zae_limiter.models.entity import Entity
from zae_limiter.models.reports import Page
from zae_limiter.naming import RECORDS_ID
from zae_limiter.repository.sync_repository import SyncRepository

Item = TypeVar("Item")

TRIES = 5
PAGE = 500


class AppliedConcurrently(ZAELimiterError):
    """Another process applied the same manifest at the same time."""

    def __init__(self, manifest: str) -> None:
        self.manifest = manifest
        super().__init__(manifest)

    def __str__(self) -> str:
        return f"another process applied manifest {self.manifest!r} at the same time; plan and apply again"


def load(repository: SyncRepository, manifest: str) -> Record:
    """What a manifest manages; an empty record if it never was applied."""
    for _ in range(TRIES):
        try:
            head = repository.get_entity(head_id_of(manifest))
        except EntityNotFoundError:
            return Record(manifest)
        pages = _pages_of(repository, head)
        if pages is not None:
            return read_record(head, pages)
    raise RecordError(head_id_of(manifest), "names pages that are not there")


def load_others(repository: SyncRepository, manifest: str) -> list[Record]:
    """What every other manifest of the namespace manages."""
    names = [manifest_of(head.id) for head in children_of(repository, RECORDS_ID)]
    return [load(repository, name) for name in names if name != manifest]


def save(repository: SyncRepository, record: Record, principal: str | None) -> Record:
    """Replace the record of which ``record.version`` was read; with its new version.

    Raises :class:`AppliedConcurrently` if there is another version by now.
    """
    try:
        if record.version is None:
            head = _create_head(repository, record, principal)
            if not stored_form(record).pages:
                return replace(record, version=head.version)
            record = replace(record, version=head.version)
        return _update_head(repository, record, principal)
    except (EntityChangedError, EntityExistsError, EntityNotFoundError):
        raise AppliedConcurrently(record.manifest) from None


def children_of(repository: SyncRepository, parent_id: str) -> list[Entity]:
    """All entities directly below one."""
    return list(all_of(repository.get_children, parent_id))


def all_of(list_page: Callable[..., Page[Item]], *arguments: object) -> Iterator[Item]:
    """Everything of a list, over all its pages."""
    cursor: str | None = None
    while True:
        page = list_page(*arguments, limit=PAGE, cursor=cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _create_head(repository: SyncRepository, record: Record, principal: str | None) -> Entity:
    """The first head of a manifest: with the whole record if it fits, else with an empty one."""
    with suppress(EntityExistsError):
        repository.create_entity(RECORDS_ID, name="what manifests manage", principal=principal)
    content = stored_form(record)
    if content.pages:
        content = stored_form(replace(record, things=frozenset(), finished=False))
    return repository.create_entity(
        head_id_of(record.manifest),
        name=f"what manifest {record.manifest} manages",
        parent_id=RECORDS_ID,
        metadata=content.head,
        principal=principal,
    )


def _update_head(repository: SyncRepository, record: Record, principal: str | None) -> Record:
    head_id = head_id_of(record.manifest)
    content = stored_form(record)
    for page_id, metadata in content.pages.items():
        with suppress(EntityExistsError):
            repository.create_entity(page_id, parent_id=head_id, metadata=metadata, principal=principal)
    head = repository.update_entity(
        head_id, metadata=content.head, expected_version=record.version, principal=principal
    )
    _drop_old_pages(repository, head, set(content.pages), principal)
    return replace(record, version=head.version)


def _pages_of(repository: SyncRepository, head: Entity) -> list[Entity] | None:
    """The pages a head names; nothing if one is gone, because the head was replaced meanwhile."""
    try:
        return [repository.get_entity(page_id) for page_id in pages_named_by(head)]
    except EntityNotFoundError:
        return None


def _drop_old_pages(repository: SyncRepository, head: Entity, needed: set[str], principal: str | None) -> None:
    """Remove what earlier heads named, and what runs left behind that never got so far."""
    for page in children_of(repository, head.id):
        generation = generation_of(page.id)
        if page.id not in needed and generation is not None and generation <= head.version:
            with suppress(EntityNotFoundError):
                repository.delete_entity(page.id, principal=principal)
