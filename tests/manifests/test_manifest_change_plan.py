"""What it takes: decided from what is wanted and what was found, without a store."""

from __future__ import annotations

from typing import Any

import pytest
from applied_manifests import manifest, per_minute

from zae_limiter import Limit
from zae_limiter.manifests.change_plan import Action, ChangePlan, Dependents, Existing, Situation, plan_changes
from zae_limiter.manifests.model import (
    SYSTEM,
    Level,
    Manifest,
    Place,
    Profile,
    Settings,
    Thing,
    entity_thing,
    limits_of,
    resource_defaults,
)
from zae_limiter.manifests.record_format import Record
from zae_limiter.naming import DEFAULT_RESOURCE, TOTAL_RESOURCE


def found(**entities: str | None) -> dict[Thing, Existing]:
    """Entities that exist, each with its parent."""
    return {
        entity_thing(name.replace("_", "-")): Existing(Profile(parent_id=parent), 1)
        for name, parent in entities.items()
    }


def level(**rates: int) -> Existing:
    return Existing(Level(tuple(per_minute(**rates))))


def situation(actual: dict[Thing, Existing], *, managed: Any = None, **rest: Any) -> Situation:
    """A namespace of which everything is managed, unless it is said what is."""
    things = frozenset(actual if managed is None else managed)
    return Situation(Record("test", things, version=3), actual=actual, **rest)


def steps(change_plan: ChangePlan) -> list[str]:
    marks = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}
    return [f"{marks[change.action]} {change.thing}" for change in change_plan.changes]


def messages(change_plan: ChangePlan) -> list[str]:
    return [conflict.message for conflict in change_plan.conflicts]


EMPTY = situation({})


# Order


def test_parents_come_before_children_limits_after_and_deletions_last() -> None:
    wanted = manifest(
        """
entities:
  key: {parent: project, limits: {gpt: [x:1]}}
  project: {parent: org}
  org: {limits: [x:1]}
resources: {gpt: [x:1]}
system: {limits: [x:1]}
"""
    )
    actual = {
        **found(old=None, older="old", oldest="older"),
        limits_of("older", "_default_"): level(x=1),
        Thing.parse("resource old"): level(x=1),
    }
    assert steps(plan_changes(wanted, situation(actual))) == [
        "+ entity org",
        "+ entity project",
        "+ entity key",
        "+ system",
        "+ resource gpt",
        "+ limits org _default_",
        "+ limits key gpt",
        "- limits older _default_",
        "- resource old",
        "- entity oldest",
        "- entity older",
        "- entity old",
    ]


def test_two_entities_that_change_places_are_moved_in_an_order_that_closes_no_circle() -> None:
    wanted = manifest("entities:\n  child: {}\n  parent: {parent: child}\n")
    change_plan = plan_changes(wanted, situation(found(parent=None, child="parent")))
    assert steps(change_plan) == ["~ entity child", "~ entity parent"]
    assert messages(change_plan) == []


def test_what_hangs_below_a_stranger_is_ordered_by_the_hierarchy_as_it_will_be() -> None:
    wanted = manifest("entities:\n  a: {parent: stranger}\n  b: {}\n")
    change_plan = plan_changes(wanted, situation(found(a=None, b="a"), parents={"stranger": "b"}))
    assert steps(change_plan) == ["~ entity b", "~ entity a"]
    assert messages(change_plan) == []


# What is managed


def test_what_is_as_it_should_be_is_left_alone() -> None:
    wanted = manifest("entities: {a: {limits: [x:1, y:2]}}\nsystem: {limits: [x:1]}")
    actual = {
        **found(a=None),
        limits_of("a", "_default_"): level(y=2, x=1),
        Thing.parse("system"): level(x=1),
    }
    change_plan = plan_changes(wanted, situation(actual))
    assert change_plan.is_done
    assert change_plan.unchanged == 3
    stranger = plan_changes(wanted, situation(actual, managed=[]))
    assert steps(stranger) == []
    assert not stranger.is_done
    assert len(stranger.adopted) == 3


def test_only_what_the_record_has_is_deleted() -> None:
    actual = {**found(mine=None), limits_of("mine", "gpt"): level(x=1)}
    change_plan = plan_changes(manifest(""), situation(actual))
    assert steps(change_plan) == ["- limits mine gpt", "- entity mine"]
    assert steps(plan_changes(manifest(""), situation(actual, managed=[]))) == []


def test_what_is_gone_already_leaves_the_record() -> None:
    change_plan = plan_changes(manifest(""), situation({}, managed=[entity_thing("gone")]))
    assert (steps(change_plan), list(change_plan.gone)) == ([], [entity_thing("gone")])
    assert not change_plan.is_recorded


def test_an_entity_left_to_others_stays() -> None:
    wanted = manifest("entities: {a: {create: false, limits: [x:1]}}")
    actual = {**found(a=None), limits_of("a", "_default_"): level(x=1)}
    change_plan = plan_changes(wanted, situation(actual))
    assert (steps(change_plan), list(change_plan.released)) == ([], [entity_thing("a")])


def test_what_was_removed_can_be_kept() -> None:
    change_plan = plan_changes(manifest(""), situation(found(a=None)), keep_removed=True)
    assert (steps(change_plan), list(change_plan.released)) == ([], [entity_thing("a")])


def test_an_unfinished_run_is_to_be_finished_even_if_nothing_changes() -> None:
    unfinished = Situation(Record("test", frozenset(), version=1, finished=False))
    assert not plan_changes(manifest(""), unfinished).is_done


# Conflicts


def test_what_another_manifest_manages_is_a_conflict_unless_taken_over() -> None:
    wanted = manifest("\nresources: {gpt: [x:1]}")
    there = situation({}, others={Thing.parse("resource gpt"): "other"})
    change_plan = plan_changes(wanted, there)
    assert messages(change_plan) == [
        "resource gpt is managed by manifest 'other'; remove it from one, or use --take-over"
    ]
    assert change_plan.conflicts[0].place == Place(3, 13)
    taken = plan_changes(wanted, there, take_over=True)
    assert (messages(taken), taken.taken) == ([], {Thing.parse("resource gpt"): "other"})


def test_what_another_manifest_manages_is_not_deleted() -> None:
    there = situation(found(a=None), others={entity_thing("a"): "other"})
    change_plan = plan_changes(manifest(""), there)
    assert (steps(change_plan), list(change_plan.released)) == ([], [entity_thing("a")])


def test_a_parent_that_does_not_exist_is_a_conflict_at_its_line() -> None:
    change_plan = plan_changes(manifest("entities:\n  a:\n    parent: nobody\n"), EMPTY)
    assert messages(change_plan) == ["nobody, the parent of a, does not exist; add it to entities, or create it"]
    assert change_plan.conflicts[0].place == Place(4, 13)


def test_a_circle_through_a_stranger_is_a_conflict() -> None:
    wanted = manifest("entities: {a: {parent: stranger}}")
    change_plan = plan_changes(wanted, situation(found(a=None), parents={"stranger": "a"}))
    assert messages(change_plan) == ["a would become its own ancestor: a → stranger → a"]


@pytest.mark.parametrize(
    ("text", "dependents", "parents", "part"),
    [
        (
            "",
            Dependents(children=("stranger",)),
            {},
            "old is no longer in the manifest but is the parent of stranger;",
        ),
        ("", Dependents(children=tuple("abcde")), {}, "is the parent of a, b, c and 2 more;"),
        ("", Dependents(resources=("gpt",)), {}, "deleting old would delete its limits for gpt, not managed here;"),
        ("entities: {new: {parent: old}}", Dependents(), {"old": None}, "is the parent of new;"),
        (
            "entities: {child: {parent: old}}",
            Dependents(children=("child",)),
            {"old": None},
            "is the parent of child;",
        ),
    ],
)
def test_an_entity_is_not_deleted_with_what_is_not_managed(
    text: str, dependents: Dependents, parents: dict[str, str | None], part: str
) -> None:
    there = situation(found(old=None), dependents={"old": dependents}, parents=parents)
    change_plan = plan_changes(manifest(text), there)
    assert len(messages(change_plan)) == 1
    assert part in messages(change_plan)[0]
    assert "--keep-removed" in messages(change_plan)[0]
    assert messages(plan_changes(manifest(text), there, keep_removed=True)) == []


def test_children_that_move_or_go_too_are_no_conflict() -> None:
    actual = {**found(old=None, goes="old", moves="old"), limits_of("old", "gpt"): level(x=1)}
    dependents = {
        "old": Dependents(children=("goes", "moves"), resources=("gpt",)),
        "goes": Dependents(),
    }
    change_plan = plan_changes(manifest("entities: {moves: {}}"), situation(actual, dependents=dependents))
    assert messages(change_plan) == []
    assert steps(change_plan) == ["~ entity moves", "- limits old gpt", "- entity goes", "- entity old"]


def test_settings_of_another_kind_never_agree() -> None:
    profile: Settings = Profile()
    assert not profile.agrees_with(Level(()))
    assert not Level(()).agrees_with(profile)


def test_a_plan_says_which_limits_of_wider_levels_are_replaced() -> None:
    rpm, tpm, usd = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100), Limit.per_day("usd", 5)
    wanted = {
        resource_defaults("gpt"): Level((tpm,)),
        limits_of("key", "gpt"): Level((rpm,)),
        limits_of("other", DEFAULT_RESOURCE): Level((usd,)),
        limits_of("other", TOTAL_RESOURCE): Level((usd,)),
    }
    wider = {SYSTEM: Existing(Level((rpm, usd))), resource_defaults("claude"): Existing(Level((rpm,)))}
    changes = plan_changes(Manifest("m", wanted), situation({}, wider=wider)).changes
    replaced = {
        change.thing: [(one.limit.name, one.source, one.resource) for one in change.replaced] for change in changes
    }
    assert replaced == {
        resource_defaults("gpt"): [("rpm", "system", None), ("usd", "system", None)],
        limits_of("key", "gpt"): [("tpm", "resource", "gpt")],  # as the resource will be, not as it is
        limits_of("other", DEFAULT_RESOURCE): [
            ("rpm", "resource", "claude"),
            ("tpm", "resource", "gpt"),
            ("rpm", "system", None),
        ],
        limits_of("other", TOTAL_RESOURCE): [],  # a total holds besides
    }
