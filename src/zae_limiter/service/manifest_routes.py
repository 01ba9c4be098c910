"""Limits as code over HTTP: a plan, and its application if nothing has changed since.

A plan has a digest of what would be changed and of what it was based on. Applying names it, so that what is done is
what was looked at; if anything has changed meanwhile, the digest is another one and nothing is done.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from zae_limiter import SyncRepository
from zae_limiter.service.operations import Call, json_reply
from zae_limiter.service.problems import Problem, Reply, encode_json, reply_to_error

if TYPE_CHECKING:
    from zae_limiter.manifests.change_plan import ChangePlan


async def plan(call: Call) -> Reply:
    """What a manifest would change, and the digest to apply it with."""
    change_plan = await asyncio.to_thread(_planned, call, _repository(call))
    return json_reply(_plan_document(change_plan))


async def apply(call: Call) -> Reply:
    """Make the changes of a plan, if it is still the one that the digest names."""
    return await asyncio.to_thread(_applied, call, _repository(call))


def _repository(call: Call) -> SyncRepository:
    call.caller.check_everything()
    return call.backend.sync_repository(call.limiter.repository.namespace)


def _planned(call: Call, repository: SyncRepository) -> ChangePlan:
    from zae_limiter.manifests.change_plan import plan_changes
    from zae_limiter.manifests.inventory import read_situation
    from zae_limiter.manifests.parser import read_manifest
    from zae_limiter.manifests.problems import ManifestError

    given = call.body["manifest"]
    content = given if isinstance(given, str) else encode_json(given)
    try:
        manifest = read_manifest(content)
    except ManifestError as error:
        raise Problem(422, "the manifest cannot be used", problems=error.lines[:100]) from None
    if manifest.namespace not in (None, repository.namespace):
        raise Problem(422, f"the manifest is for namespace {manifest.namespace}, not {repository.namespace}")
    choices = {name: call.body.get(name, False) for name in ("take_over", "keep_removed")}
    return plan_changes(manifest, read_situation(repository, manifest), **choices)


def _applied(call: Call, repository: SyncRepository) -> Reply:
    from zae_limiter.manifests.apply import apply as apply_plan
    from zae_limiter.manifests.description import conflict_as_dict, outcome_as_dict
    from zae_limiter.manifests.record_store import AppliedConcurrently

    change_plan = _planned(call, repository)
    found = _digest(change_plan)
    if call.body["digest"] != found:
        raise Problem(409, "something has changed since the plan was made; plan again", digest=found)
    if change_plan.conflicts:
        conflicts = [conflict_as_dict(conflict) for conflict in change_plan.conflicts]
        raise Problem(409, "the plan has conflicts, and nothing was changed", conflicts=conflicts)
    try:
        outcome = apply_plan(repository, change_plan, principal=call.caller.name)
    except AppliedConcurrently as error:
        raise Problem(409, str(error)) from None
    document = outcome_as_dict(change_plan, outcome)
    if outcome.error is None:
        return json_reply(document)
    status = reply_to_error(outcome.error, "").status
    told = {"done": document["done"], "remaining": document["remaining"]}
    raise Problem(status, f"stopped half-way: {outcome.error}; apply again to finish", **told)


def _plan_document(change_plan: ChangePlan) -> dict[str, Any]:
    from zae_limiter.manifests.description import change_plan_as_dict, summary

    return {"digest": _digest(change_plan), "summary": summary(change_plan), **change_plan_as_dict(change_plan)}


def _digest(change_plan: ChangePlan) -> str:
    """What the plan would do, and what it was made from."""
    from zae_limiter.manifests.description import change_plan_as_dict

    based_on = [change_plan.record.version, *(change.version for change in change_plan.changes)]
    content = encode_json([change_plan_as_dict(change_plan), based_on, sorted(map(str, change_plan.wanted))])
    return hashlib.sha256(content.encode()).hexdigest()
