"""What a manifest manages, as entities keep it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from applied_manifests import reserved
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import SyncRepository
from zae_limiter.manifests.model import Thing, entity_thing, limits_of
from zae_limiter.manifests.record_format import (
    Record,
    RecordError,
    generation_of,
    head_id_of,
    pages_named_by,
    read_record,
    stored_form,
)
from zae_limiter.manifests.record_store import AppliedConcurrently, load, load_others, save
from zae_limiter.models.entity import Entity
from zae_limiter.repository.arguments import MAX_METADATA_ENTRIES, MAX_METADATA_VALUE, check_metadata

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.\-:@]{0,40}", fullmatch=True)
THINGS = st.one_of(
    st.just(Thing.parse("system")),
    NAMES.map(lambda name: Thing.parse(f"resource {name}")),
    NAMES.map(entity_thing),
    st.tuples(NAMES, NAMES | st.just("_default_")).map(lambda pair: limits_of(*pair)),
)


def many(count: int) -> frozenset[Thing]:
    return frozenset(limits_of(f"entity-{number:06}-{'x' * 200}", "y" * 128) for number in range(count))


def back(record: Record) -> Record:
    """Write it and read it."""
    content = stored_form(record)
    head = Entity(head_id_of(record.manifest), metadata=content.head, version=9)
    pages = [Entity(page_id, metadata=content.pages[page_id]) for page_id in pages_named_by(head)]
    for entity in (head, *pages):
        check_metadata(entity.metadata)
        assert len(entity.metadata) < MAX_METADATA_ENTRIES
        assert max(map(len, entity.metadata.values())) <= MAX_METADATA_VALUE
        assert len(entity.id) <= 256
    return read_record(head, pages)


@settings(max_examples=50, deadline=None)
@given(st.frozensets(THINGS, max_size=60), st.booleans(), st.none() | NAMES)
def test_what_is_written_is_read(things: frozenset[Thing], finished: bool, by: str | None) -> None:
    record = Record("m", things, 9, finished, by)
    assert back(record) == record


@pytest.mark.parametrize("count", [0, 1, 100, 119, 120, 121, 1_000, 5_000])
def test_a_record_may_be_long(count: int) -> None:
    record = Record("x" * 64, many(count), 9)
    assert back(record).things == record.things
    pages = stored_form(record).pages
    assert bool(pages) == (count > 80)
    assert {generation_of(page_id) for page_id in pages} <= {10}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"format": "another"},
        {"format": "zae-limiter manifest 1", "count": "1", "things-00": "who knows"},
        {"format": "zae-limiter manifest 1", "count": "2", "things-00": "system"},
        {"format": "zae-limiter manifest 1", "things-00": "system"},
    ],
)
def test_a_record_that_was_changed_by_hand_is_refused_with_advice(metadata: dict[str, str]) -> None:
    with pytest.raises(RecordError, match="delete that entity and those below it, then apply again"):
        read_record(Entity("zael:manifest:m", metadata=metadata), [])


# In a store


def test_a_record_is_kept(repository: SyncRepository) -> None:
    assert load(repository, "m") == Record("m")
    record = save(repository, Record("m", many(3), finished=False, by="ann"), "ann")
    assert load(repository, "m") == record
    record = save(repository, replace(record, things=many(2), finished=True), "ann")
    assert load(repository, "m") == record
    assert load(repository, "other") == Record("other")
    assert load_others(repository, "other") == [record]
    assert load_others(repository, "m") == []


def test_a_long_record_comes_and_goes_without_leaving_pages(repository: SyncRepository) -> None:
    record = Record("m")
    for count in (300, 301, 5, 250, 0):
        record = save(repository, replace(record, things=many(count)), None)
        assert load(repository, "m").things == many(count)
        entities = reserved(repository)
        assert len(entities) == 2 + len(stored_form(record).pages)


def test_only_one_of_two_writers_replaces_a_record(repository: SyncRepository) -> None:
    first = save(repository, Record("m", many(200)), None)
    with pytest.raises(AppliedConcurrently):
        save(repository, Record("m", many(1)), None)
    second = save(repository, replace(first, things=many(150)), None)
    with pytest.raises(AppliedConcurrently):
        save(repository, replace(first, things=many(201)), None)
    assert load(repository, "m") == second
    save(repository, replace(second, things=many(2)), None)
    assert len(reserved(repository)) == 2


def test_a_page_that_is_gone_is_told(repository: SyncRepository) -> None:
    save(repository, Record("m", many(200)), None)
    page = next(entity for entity in reserved(repository) if entity.parent_id == "zael:manifest:m")
    repository.delete_entity(page.id)
    with pytest.raises(RecordError, match="names pages that are not there"):
        load(repository, "m")


def test_records_are_not_among_the_entities_that_are_listed(repository: SyncRepository) -> None:
    save(repository, Record("m", many(200)), None)
    made = ["a", "zael", "zael:manifester", "zael:mine", "zzz"]
    for entity_id in made:
        repository.create_entity(entity_id)
    assert len(reserved(repository)) > 3
    for size in (1, 2, 3, 100):
        listed, cursor = [], None
        while True:
            page = repository.list_entities(limit=size, cursor=cursor)
            assert len(page.items) == size or page.next_cursor is None
            listed += [entity.id for entity in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert listed == made
