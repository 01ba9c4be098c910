"""Doing what was planned, so that at every moment it can be seen what was done, and running it again finishes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.manifests.change_plan import Action, Blueprint, Change, Conflict
from zae_limiter.manifests.inventory import Tell, find, tell_nobody
from zae_limiter.manifests.model import Kind, Level, Profile, Thing
from zae_limiter.manifests.record_format import Record
from zae_limiter.manifests.record_store import TRIES, AppliedMeanwhile, load, save
from zae_limiter.naming import check_principal
from zae_limiter.repository.sync_repository import SyncRepository


class ConflictsError(ZAELimiterError):
    """The plan has conflicts. Nothing was changed."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        self.conflicts = tuple(conflicts)
        super().__init__(self.conflicts)

    def __str__(self) -> str:
        return "nothing was changed: " + "; ".join(conflict.message for conflict in self.conflicts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far it came. ``error`` is what stopped it at the first of ``remaining``."""

    done: Sequence[Change]
    remaining: Sequence[Change] = ()
    error: ZAELimiterError | None = None


def apply(
    repository: SyncRepository,
    blueprint: Blueprint,
    *,
    principal: str | None = None,
    tell: Tell = tell_nobody,
) -> Outcome:
    """Make the changes of a plan, in order, up to the first that fails.

    Every change is in the audit trail with :func:`signed` as its principal. Raises :class:`ConflictsError` if the
    plan has conflicts and :class:`~zae_limiter.manifests.recording.AppliedMeanwhile` if the plan is out of date,
    both before anything is changed.
    """
    if blueprint.conflicts:
        raise ConflictsError(blueprint.conflicts)
    by = signed(blueprint, principal)
    done: list[Change] = []
    if blueprint.is_done:
        return Outcome(done)
    claimed = blueprint.record
    try:
        if blueprint.changes:
            claimed = _claim(repository, blueprint, claimed, by)
        _let_others_go(repository, blueprint, by)
        for change in blueprint.changes:
            tell(len(done), len(blueprint.changes))
            _make(repository, change, by)
            done.append(change)
        tell(len(done), len(blueprint.changes))
        _settle(repository, blueprint, claimed, by)
    except ZAELimiterError as error:
        if isinstance(error, AppliedMeanwhile) and not done:
            raise
        with suppress(ZAELimiterError):
            _stay_recorded(repository, blueprint, claimed, by)
        return Outcome(done, blueprint.changes[len(done) :], error)
    return Outcome(done)


def signed(blueprint: Blueprint, principal: str | None) -> str:
    """Who the audit trail says it was: ``manifest:NAME``, and ``:WHO`` if somebody said so."""
    who = blueprint.manifest.signature if principal is None else f"{blueprint.manifest.signature}:{principal}"
    check_principal(who)
    return who


# The record


def _claim(repository: SyncRepository, blueprint: Blueprint, record: Record, by: str) -> Record:
    """Record everything that is managed and will be, before it exists."""
    claimed = replace(record, things=record.things | blueprint.wanted, finished=False, by=by)
    return save(repository, claimed, by)


def _settle(repository: SyncRepository, blueprint: Blueprint, record: Record, by: str) -> None:
    """Record what is managed now, unless somebody else was at it meanwhile: then nothing leaves the record."""
    settled = replace(record, things=blueprint.wanted, finished=True, by=by)
    deleted = [change.thing for change in blueprint.changes if change.action is Action.DELETE]
    if any(find(repository, thing) for thing in (*deleted, *blueprint.gone)):
        raise AppliedMeanwhile(record.manifest)
    save(repository, settled, by)


def _stay_recorded(repository: SyncRepository, blueprint: Blueprint, claimed: Record, by: str) -> None:
    """What we may have made must not leave the record with somebody else's settlement.

    If somebody claimed after us, claim once more: either it comes after their settlement, or that will fail.
    """
    for _ in range(TRIES):
        record = load(repository, blueprint.manifest.name)
        if record.version == claimed.version:
            return
        with suppress(AppliedMeanwhile):
            _claim(repository, blueprint, record, by)
            return


def _let_others_go(repository: SyncRepository, blueprint: Blueprint, by: str) -> None:
    """What this manifest takes over leaves the records of those that had it."""
    losses: dict[str, set[Thing]] = {}
    for thing, manifest in blueprint.taken.items():
        losses.setdefault(manifest, set()).add(thing)
    for manifest, things in losses.items():
        record = load(repository, manifest)
        save(repository, replace(record, things=record.things - things), by)


# The changes


def _make(repository: SyncRepository, change: Change, by: str) -> None:
    if change.action is Action.DELETE:
        _DELETE[change.thing.kind](repository, change.thing, by)
    elif isinstance(change.after, Level):
        _SET[change.thing.kind](repository, change.thing, change.after, by)
    elif isinstance(change.after, Profile):
        _put_entity(repository, change, change.after, by)


def _put_entity(repository: SyncRepository, change: Change, profile: Profile, by: str) -> None:
    if change.action is Action.CREATE:
        repository.create_entity(
            change.thing.entity_id,
            name=profile.name,
            parent_id=profile.parent_id,
            cascade=profile.cascade,
            metadata=profile.metadata,
            principal=by,
        )
    else:
        repository.update_entity(
            change.thing.entity_id,
            name=profile.name,
            parent_id=profile.parent_id,
            cascade=profile.cascade,
            metadata=profile.metadata,
            expected_version=change.version,
            principal=by,
        )


_SET: Mapping[Kind, Callable[[SyncRepository, Thing, Level, str], None]] = {
    Kind.SYSTEM: lambda repository, thing, level, by: repository.set_system_defaults(
        level.limits, on_unavailable=level.on_unavailable, principal=by
    ),
    Kind.RESOURCE: lambda repository, thing, level, by: repository.set_resource_defaults(
        thing.resource, level.limits, principal=by
    ),
    Kind.LIMITS: lambda repository, thing, level, by: repository.set_limits(
        thing.entity_id, level.limits, resource=thing.resource, principal=by
    ),
}

_DELETE: Mapping[Kind, Callable[[SyncRepository, Thing, str], None]] = {
    Kind.SYSTEM: lambda repository, thing, by: repository.delete_system_defaults(principal=by),
    Kind.RESOURCE: lambda repository, thing, by: repository.delete_resource_defaults(thing.resource, principal=by),
    Kind.LIMITS: lambda repository, thing, by: repository.delete_limits(
        thing.entity_id, resource=thing.resource, principal=by
    ),
    Kind.ENTITY: lambda repository, thing, by: repository.delete_entity(thing.entity_id, principal=by),
}
