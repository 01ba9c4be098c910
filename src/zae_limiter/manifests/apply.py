"""Applying a plan. At every moment the record says what may have been changed, and another run finishes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.manifests.change_plan import Action, Change, ChangePlan, Conflict
from zae_limiter.manifests.inventory import OnProgress, find, ignore_progress
from zae_limiter.manifests.model import Kind, Level, Profile, Switch, Thing
from zae_limiter.manifests.record_format import Record
from zae_limiter.manifests.record_store import TRIES, AppliedConcurrently, load, save
from zae_limiter.models.choices import AccessMode
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
    change_plan: ChangePlan,
    *,
    principal: str | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Outcome:
    """Make the changes of a plan, in order, up to the first that fails.

    Every change is in the audit trail with :func:`audit_principal` as its principal. Raises :class:`ConflictsError` if
    the plan has conflicts and :class:`~zae_limiter.manifests.record_store.AppliedConcurrently` if the plan is out of
    date, both before anything is changed.
    """
    if change_plan.conflicts:
        raise ConflictsError(change_plan.conflicts)
    by = audit_principal(change_plan, principal)
    done: list[Change] = []
    if change_plan.is_done:
        return Outcome(done)
    claimed = change_plan.record
    try:
        if change_plan.changes:
            claimed = _claim(repository, change_plan, claimed, by)
        _release_from_others(repository, change_plan, by)
        for change in change_plan.changes:
            on_progress(len(done), len(change_plan.changes))
            _apply_change(repository, change, by)
            done.append(change)
        on_progress(len(done), len(change_plan.changes))
        _settle(repository, change_plan, claimed, by)
    except ZAELimiterError as error:
        if isinstance(error, AppliedConcurrently) and not done:
            raise
        with suppress(ZAELimiterError):
            _claim_again(repository, change_plan, claimed, by)
        return Outcome(done, change_plan.changes[len(done) :], error)
    return Outcome(done)


def audit_principal(change_plan: ChangePlan, principal: str | None) -> str:
    """The principal in the audit trail: ``manifest:NAME``, and ``:PRINCIPAL`` if one is given."""
    who = change_plan.manifest.signature if principal is None else f"{change_plan.manifest.signature}:{principal}"
    check_principal(who)
    return who


# The record


def _claim(repository: SyncRepository, change_plan: ChangePlan, record: Record, by: str) -> Record:
    """Record everything that is managed and will be, before it exists."""
    claimed = replace(record, things=record.things | change_plan.wanted, finished=False, by=by)
    return save(repository, claimed, by)


def _settle(repository: SyncRepository, change_plan: ChangePlan, record: Record, by: str) -> None:
    """Record what is managed now. If another run made what this one deleted, nothing leaves the record."""
    settled = replace(record, things=change_plan.wanted, finished=True, by=by)
    deleted = [change.thing for change in change_plan.changes if change.action is Action.DELETE]
    if any(find(repository, thing) for thing in (*deleted, *change_plan.gone)):
        raise AppliedConcurrently(record.manifest)
    save(repository, settled, by)


def _claim_again(repository: SyncRepository, change_plan: ChangePlan, claimed: Record, by: str) -> None:
    """Keep what this run may have made in the record, although another run settles it.

    If another run claimed after this one, claim once more: either that comes after its settlement, or makes it fail.
    """
    for _ in range(TRIES):
        record = load(repository, change_plan.manifest.name)
        if record.version == claimed.version:
            return
        with suppress(AppliedConcurrently):
            _claim(repository, change_plan, record, by)
            return


def _release_from_others(repository: SyncRepository, change_plan: ChangePlan, by: str) -> None:
    """Remove what this manifest takes over from the records of other manifests."""
    losses: dict[str, set[Thing]] = {}
    for thing, manifest in change_plan.taken.items():
        losses.setdefault(manifest, set()).add(thing)
    for manifest, things in losses.items():
        record = load(repository, manifest)
        save(repository, replace(record, things=record.things - things), by)


# The changes


def _apply_change(repository: SyncRepository, change: Change, by: str) -> None:
    if change.action is Action.DELETE:
        _DELETE[change.thing.kind](repository, change.thing, by)
    elif isinstance(change.after, Switch):
        _turn(repository, change.thing, change.after.mode, by)
    elif isinstance(change.after, Level):
        _SET[change.thing.kind](repository, change.thing, change.after, by)
    elif isinstance(change.after, Profile):
        _put_entity(repository, change, change.after, by)


def _turn(repository: SyncRepository, thing: Thing, mode: AccessMode, by: str) -> None:
    repository.set_access(mode, entity_id=thing.entity_id or None, resource=thing.resource or None, principal=by)


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


_SET: Mapping[Kind, Callable[[SyncRepository, Thing, Level, str], object]] = {
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
    Kind.ACCESS: lambda repository, thing, by: _turn(repository, thing, AccessMode.ENFORCE, by),
}
