"""What exists: as much of a namespace as a manifest needs, or all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zae_limiter.exceptions import EntityNotFoundError
from zae_limiter.manifests.change_plan import Dependents, Existing, Situation
from zae_limiter.manifests.model import (
    SYSTEM,
    Kind,
    Level,
    Manifest,
    Profile,
    Settings,
    Switch,
    Thing,
    access_thing,
    entity_thing,
    limits_of,
    resource_defaults,
)
from zae_limiter.manifests.record_format import Record
from zae_limiter.manifests.record_store import PAGE, all_of, children_of, load, load_others
from zae_limiter.manifests.replaced_limits import wider_things
from zae_limiter.models.access import Access
from zae_limiter.models.choices import AccessMode
from zae_limiter.models.entity import Entity
from zae_limiter.models.reports import AuditEvent
from zae_limiter.naming import DEFAULT_RESOURCE, TOTAL_RESOURCE, is_reserved
from zae_limiter.repository.sync_repository import SyncRepository

OnProgress = Callable[[int, int], None]
"""Called with how many things have been read or changed, and how many there are."""


def ignore_progress(done: int, total: int) -> None:
    """The default: progress is not shown."""


def read_situation(
    repository: SyncRepository, manifest: Manifest, on_progress: OnProgress = ignore_progress
) -> Situation:
    """What a plan for this manifest needs to know."""
    record = load(repository, manifest.name)
    others = load_others(repository, manifest.name)
    concerned = [*manifest.things, *sorted(record.things - set(manifest.things))]
    actual: dict[Thing, Existing] = {}
    for number, thing in enumerate(concerned):
        on_progress(number, len(concerned))
        found = find(repository, thing)
        if found is not None:
            actual[thing] = found
    on_progress(len(concerned), len(concerned))
    gone = [thing for thing in actual if thing.kind is Kind.ENTITY and thing not in manifest.things]
    known = _resources_known(repository, [record, *others], manifest) if gone else set()
    return Situation(
        record=record,
        others={thing: other.manifest for other in others for thing in other.things},
        actual=actual,
        parents=_parents_outside(repository, manifest),
        dependents={thing.entity_id: _dependents_of(repository, thing.entity_id, known) for thing in gone},
        wider=_wider_levels(repository, manifest),
    )


def _wider_levels(repository: SyncRepository, manifest: Manifest) -> dict[Thing, Existing]:
    """The levels behind those that a manifest names, as far as it does not name them and they exist."""
    wider = {behind: None for thing in manifest.things for behind in wider_things(thing)}
    if any(thing.kind is Kind.LIMITS and thing.resource == DEFAULT_RESOURCE for thing in manifest.things):
        wider |= {resource_defaults(name): None for name in all_of(repository.list_resources_with_defaults)}
    found = {thing: find(repository, thing) for thing in wider if thing not in manifest.things}
    return {thing: existing for thing, existing in found.items() if existing is not None}


def find(repository: SyncRepository, thing: Thing) -> Existing | None:
    """What one thing is like, if it exists."""
    if thing.kind is Kind.ENTITY:
        try:
            entity = repository.get_entity(thing.entity_id)
        except EntityNotFoundError:
            return None
        return Existing(Profile.of(entity), entity.version)
    if thing.kind is Kind.ACCESS:
        access = repository.get_access(entity_id=thing.entity_id or None, resource=thing.resource or None)
        return None if access.mode is AccessMode.ENFORCE else Existing(_switch(access))
    level = _level(repository, thing)
    return Existing(level) if level.limits or level.on_unavailable else None


def take_inventory(repository: SyncRepository, more_resources: Iterable[str] = ()) -> dict[Thing, Settings]:
    """Everything that exists in a namespace, except the records of manifests.

    No store can list the resources for which an entity has limits of its own. They are looked for on every resource
    that has defaults, is managed by a manifest, or stands in the audit trail; ``more_resources`` adds to these.
    """
    found: dict[Thing, Settings] = {}
    system = _level(repository, SYSTEM)
    if system.limits:
        found[SYSTEM] = system
    for resource in all_of(repository.list_resources_with_defaults):
        found[resource_defaults(resource)] = _level(repository, resource_defaults(resource))
    for entity in all_of(repository.list_entities):
        found[entity_thing(entity.id)] = Profile.of(entity)
    records = load_others(repository, "")
    resources = _resources_known(repository, records, None) | set(more_resources)
    resources |= {event.resource for event in _limit_events(repository, None) if event.resource}
    for resource in sorted(resources | {DEFAULT_RESOURCE, TOTAL_RESOURCE}):
        for entity_id in list(all_of(repository.list_entities_with_custom_limits, resource)):
            thing = limits_of(entity_id, resource)
            level = _level(repository, thing)
            if level.limits and not is_reserved(entity_id):
                found[thing] = level
    for access in all_of(repository.list_access):
        if access.until is None:  # what ends by itself is no state to keep
            resource = access.resource or (DEFAULT_RESOURCE if access.entity_id else "")
            found[access_thing(access.entity_id or "", resource)] = _switch(access)
    return found


def _switch(access: Access) -> Switch:
    return Switch(access.mode, None if access.until is None else access.until.isoformat())


def last_event(repository: SyncRepository, thing: Thing) -> AuditEvent | None:
    """The last change of a thing that the audit trail still has."""
    events = repository.get_audit_events(thing.audited_as, limit=PAGE).items
    return next((event for event in events if _concerns(event, thing)), None)


def _concerns(event: AuditEvent, thing: Thing) -> bool:
    if thing.kind is Kind.ENTITY:
        return event.action.startswith("entity_")
    if event.action == "access_set" or thing.kind is Kind.ACCESS:
        return event.action == "access_set" and thing.kind is Kind.ACCESS and (event.resource or "") == thing.resource
    if event.action in ("limits_set", "limits_deleted"):
        return (event.resource or "") == thing.resource
    return event.action == "entity_deleted"


def _level(repository: SyncRepository, thing: Thing) -> Level:
    if thing.kind is Kind.SYSTEM:
        limits, policy = repository.get_system_defaults()
        return Level(tuple(limits), policy)
    if thing.kind is Kind.RESOURCE:
        return Level(tuple(repository.get_resource_defaults(thing.resource)))
    return Level(tuple(repository.get_limits(thing.entity_id, resource=thing.resource)))


def _parents_outside(repository: SyncRepository, manifest: Manifest) -> dict[str, str | None]:
    """The entities the manifest needs as ancestors without naming them, and their parents, as far as they exist."""
    parents: dict[str, str | None] = {}
    ahead = [settings.parent_id for settings in manifest.things.values() if isinstance(settings, Profile)]
    while ahead:
        entity_id = ahead.pop()
        if entity_id is None or entity_id in parents or entity_thing(entity_id) in manifest.things:
            continue
        try:
            entity: Entity = repository.get_entity(entity_id)
        except EntityNotFoundError:
            continue
        parents[entity_id] = entity.parent_id
        ahead.append(entity.parent_id)
    return parents


def _dependents_of(repository: SyncRepository, entity_id: str, known: set[str]) -> Dependents:
    children = tuple(child.id for child in children_of(repository, entity_id))
    mentioned = {event.resource for event in _limit_events(repository, entity_id) if event.resource}
    resources = tuple(
        resource
        for resource in sorted(known | mentioned | {DEFAULT_RESOURCE, TOTAL_RESOURCE})
        if repository.get_limits(entity_id, resource=resource)
    )
    return Dependents(children, resources)


def _resources_known(repository: SyncRepository, records: Iterable[Record], manifest: Manifest | None) -> set[str]:
    """Resources that have defaults, or that a manifest names."""
    known = set(all_of(repository.list_resources_with_defaults))
    for record in records:
        known |= {thing.resource for thing in record.things if thing.resource}
    if manifest is not None:
        known |= {thing.resource for thing in manifest.things if thing.resource}
    return known


def _limit_events(repository: SyncRepository, subject: str | None) -> Iterator[AuditEvent]:
    events = all_of(repository.get_audit_events, subject)
    return (event for event in events if event.action == "limits_set" and not event.entity_id.startswith("$"))
