"""For any namespace: an export changes nothing. For any two manifests: the second alone decides what there is."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from applied_manifests import (
    Crashed,
    Failing,
    applied,
    applied_through,
    contents,
    managed,
    meaning,
    of_state,
    planned,
    with_policy,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manifest_strategies import RESOURCES, states

from zae_limiter import SyncRepository
from zae_limiter.manifests.export import write_manifest
from zae_limiter.manifests.inventory import take_inventory
from zae_limiter.manifests.model import SYSTEM, Kind, Level, Profile, State
from zae_limiter.manifests.parser import read_manifest

EVERY_RESOURCE = ["gpt-4", "claude/opus", "7", "true", "a:b", "embeddings"]
ANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


def furnish(repository: SyncRepository, state: State) -> None:
    """Make a namespace by hand, without any manifest."""
    for thing, wanted in state.items():
        if isinstance(wanted, Profile):
            repository.create_entity(
                thing.entity_id,
                name=wanted.name,
                parent_id=wanted.parent_id,
                cascade=wanted.cascade,
                metadata=wanted.metadata,
            )
    for thing, wanted in state.items():
        if not isinstance(wanted, Level):
            continue
        if thing == SYSTEM:
            repository.set_system_defaults(wanted.limits, on_unavailable=wanted.on_unavailable)
        elif thing.kind is Kind.RESOURCE:
            repository.set_resource_defaults(thing.resource, wanted.limits)
        else:
            repository.set_limits(thing.entity_id, wanted.limits, resource=thing.resource)


def check_that_an_export_changes_nothing(repository: SyncRepository, state: State) -> None:
    furnish(repository, state)
    found = take_inventory(repository)
    assert meaning(found) == meaning(state)
    exported = read_manifest(write_manifest("exported", found, comment="What exists."))
    change_plan = planned(repository, exported)
    assert list(change_plan.changes) == []
    assert list(change_plan.conflicts) == []
    applied(repository, exported)
    assert meaning(take_inventory(repository)) == meaning(state)
    assert planned(repository, exported).is_done


def check_that_the_second_alone_decides(
    repository: SyncRepository, fresh: SyncRepository, first: State, second: State
) -> None:
    applied(repository, of_state(with_policy(first)))
    applied(repository, of_state(with_policy(second)))
    applied(fresh, of_state(with_policy(second)))
    left = {
        thing: value
        for thing, value in contents(repository, *EVERY_RESOURCE).items()
        if str(thing) in managed(repository)
    }
    assert left == contents(fresh, *EVERY_RESOURCE) == meaning(second)
    assert managed(repository) == managed(fresh)


@ANY
@given(states())
def test_what_is_exported_and_applied_changes_nothing(state: State) -> None:
    with SyncRepository.open("memory://") as repository:
        check_that_an_export_changes_nothing(repository, state)


@ANY
@given(states(uncreated=False), states(uncreated=False))
def test_after_two_manifests_everything_is_as_the_second_says(first: State, second: State) -> None:
    with SyncRepository.open("memory://") as repository, SyncRepository.open("memory://") as fresh:
        check_that_the_second_alone_decides(repository, fresh, first, second)
        assert contents(repository, *EVERY_RESOURCE) == meaning(second)


@ANY
@given(states(), states())
def test_likewise_when_some_entities_are_left_to_others(first: State, second: State) -> None:
    with SyncRepository.open("memory://") as repository, SyncRepository.open("memory://") as fresh:
        if planned_conflicts(first, second):
            return
        check_that_the_second_alone_decides(repository, fresh, first, second)


def planned_conflicts(first: State, second: State) -> bool:
    """Whether an entity that is left to others would have a parent that goes: only a person can decide that."""
    with SyncRepository.open("memory://") as trial:
        applied(trial, of_state(with_policy(first)))
        return bool(planned(trial, of_state(with_policy(second))).conflicts)


@ANY
@given(states(uncreated=False), states(uncreated=False), states(uncreated=False), st.integers(1, 25), st.booleans())
def test_crashes_in_between_make_no_difference(
    first: State, crashed: State, last: State, at: int, after: bool
) -> None:
    with SyncRepository.open("memory://") as repository:
        applied(repository, of_state(with_policy(first)))
        applied_through(Failing(repository, at, Crashed(), after=after), of_state(with_policy(crashed)))
        applied(repository, of_state(with_policy(last)))
        assert contents(repository, *EVERY_RESOURCE) == meaning(last)
        assert managed(repository) == set(map(str, last))


@FEW
@given(states(), states(uncreated=False))
def test_the_same_holds_on_sqlite(exported: State, second: State) -> None:
    with TemporaryDirectory() as folder:
        urls = [f"sqlite:///{Path(folder) / name}" for name in ("a.db", "b.db", "c.db")]
        a, b, c = map(SyncRepository.open, urls)
        with a, b, c:
            check_that_an_export_changes_nothing(a, exported)
            check_that_the_second_alone_decides(b, c, {}, second)


@pytest.mark.parametrize("repository", ["dynamodb"], indirect=True)
def test_the_same_holds_on_dynamodb(repository: SyncRepository) -> None:
    @settings(FEW, max_examples=3, database=None)
    @given(states(), states(uncreated=False), states(uncreated=False), st.integers(0, 10**9))
    def holds(exported: State, first: State, second: State, number: int) -> None:
        names = [f"ns-{number}-{letter}" for letter in "abc"]
        for name in names:
            repository.register_namespace(name)
        a, b, c = map(repository.in_namespace, names)
        check_that_an_export_changes_nothing(a, exported)
        check_that_the_second_alone_decides(b, c, first, second)

    holds()


def test_resources_are_found_where_they_can_be() -> None:
    assert set(EVERY_RESOURCE) == set(RESOURCES.elements)  # type: ignore[attr-defined]
