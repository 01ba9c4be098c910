"""Manifests from text or from drawn states, applied to a repository, and what is there afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zae_limiter import EntityNotFoundError, Limit, OnUnavailable, SyncRepository, ZAELimiterError
from zae_limiter.manifests.apply import Outcome, apply
from zae_limiter.manifests.change_plan import ChangePlan, plan_changes
from zae_limiter.manifests.inventory import read_situation, take_inventory
from zae_limiter.manifests.model import SYSTEM, Level, Manifest, State
from zae_limiter.manifests.parser import read_manifest
from zae_limiter.manifests.record_store import children_of, load
from zae_limiter.manifests.yaml_nodes import MappingNode, Node, RefusedNode, SequenceNode, kind_of
from zae_limiter.models.entity import Entity
from zae_limiter.naming import RECORDS_ID

WRITES = {
    "create_entity",
    "update_entity",
    "delete_entity",
    "set_limits",
    "delete_limits",
    "set_resource_defaults",
    "delete_resource_defaults",
    "set_system_defaults",
    "delete_system_defaults",
}


class Crashed(BaseException):
    """The process is gone: nothing that comes after runs."""


class Failing:
    """A repository that stops before or after its ``at``-th write, and then does nothing any more."""

    def __init__(self, repository: SyncRepository, at: int, error: BaseException, *, after: bool = False) -> None:
        self._repository = repository
        self._left = at
        self._error = error
        self._after = after
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._repository, name)
        return self._counted(method) if name in WRITES else method

    def _counted(self, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.writes += 1
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._after):
                raise self._error
            result = method(*args, **kwargs)
            if self._left == 0:
                raise self._error
            return result

        return call


def manifest(text: str, name: str = "test") -> Manifest:
    """The manifest of a text, under a name."""
    return read_manifest(f"manifest: {name}\n{text}", "limits.yaml")


def of_state(state: State, name: str = "test") -> Manifest:
    """The manifest that says a state."""
    return Manifest(name, state)


def planned(repository: SyncRepository, wanted: Manifest, **choices: bool) -> ChangePlan:
    return plan_changes(wanted, read_situation(repository, wanted), **choices)


def applied(repository: SyncRepository, wanted: Manifest, principal: str | None = None, **choices: bool) -> Outcome:
    """Plan and apply, and it must succeed."""
    outcome = apply(repository, planned(repository, wanted, **choices), principal=principal)
    assert outcome.error is None, outcome.error
    assert list(outcome.remaining) == []
    return outcome


def applied_through(repository: Any, wanted: Manifest) -> Outcome | BaseException:
    """Plan and apply, whatever comes of it."""
    try:
        return apply(repository, planned(repository, wanted))
    except (Crashed, ZAELimiterError) as error:
        return error


def meaning(state: State) -> dict[Any, Any]:
    """A state in a form in which two of the same meaning are equal."""
    return {
        thing: (frozenset(settings.limits), settings.on_unavailable or OnUnavailable.BLOCK)
        if isinstance(settings, Level)
        else settings
        for thing, settings in state.items()
    }


def contents(repository: SyncRepository, *resources: str) -> dict[Any, Any]:
    """What is in a namespace, apart from records."""
    return meaning(take_inventory(repository, resources))


def managed(repository: SyncRepository, name: str = "test") -> set[str]:
    return {str(thing) for thing in load(repository, name).things}


def reserved(repository: SyncRepository) -> list[Entity]:
    """Every entity that keeps a record, from the top."""
    try:
        found = [repository.get_entity(RECORDS_ID)]
    except EntityNotFoundError:
        return []
    for entity in found:
        found += children_of(repository, entity.id)
    return found


def with_policy(state: State) -> State:
    """What a manifest means when it says nothing about the policy."""
    system = state.get(SYSTEM)
    if not isinstance(system, Level):
        return state
    return {**state, SYSTEM: replace(system, on_unavailable=system.on_unavailable or OnUnavailable.BLOCK)}


def per_minute(**rates: int) -> list[Limit]:
    return [Limit.per_minute(name, rate) for name, rate in rates.items()]


def plain_data(node: Node) -> Any:
    """What any YAML 1.2 reader would get."""
    if isinstance(node, SequenceNode):
        return [plain_data(item) for item in node.items]
    if isinstance(node, MappingNode):
        return {key: plain_data(value) for key, (_, value) in node.entries.items()}
    if isinstance(node, RefusedNode):
        return None
    kind = kind_of(node)
    if kind == "nothing":
        return None
    if kind == "yes or no":
        return node.text.lower() == "true"
    if kind == "whole number":
        return int(node.text, {"0o": 8, "0x": 16}.get(node.text[:2], 10))
    return float(node.text.replace(".inf", "inf").replace(".nan", "nan")) if kind == "number" else node.text
