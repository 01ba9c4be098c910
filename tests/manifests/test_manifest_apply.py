"""Applying: what is managed becomes what the manifest says, nothing else is touched, and nothing is ever lost."""

from __future__ import annotations

import threading

import pytest
from applied_manifests import (
    Crashed,
    Failing,
    applied,
    applied_through,
    contents,
    managed,
    manifest,
    meaning,
    per_minute,
    planned,
    reserved,
)

from zae_limiter import (
    OnUnavailable,
    RateLimiterUnavailable,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.manifests.apply import ConflictsError, Outcome, apply
from zae_limiter.manifests.change_plan import ChangePlan
from zae_limiter.manifests.drift import Difference, drift
from zae_limiter.manifests.record_store import AppliedConcurrently

FIRST = """
system: {limits: [rpm:60], on_unavailable: allow}
resources:
  gpt: [rpm:30, tpm:9_000]
  claude: [rpm:20]
entities:
  acme: {name: Acme, metadata: {plan: gold}, limits: [rpm:1_000]}
  search: {parent: acme, cascade: true}
  key: {parent: search, limits: {gpt: [rpm:3], _default_: [rpm:4]}}
  guest: {create: false, limits: [rpm:5]}
"""

SECOND = """
system: {limits: [tpm:60]}
resources:
  gpt: [rpm:31]
entities:
  key: {limits: {gpt: [rpm:3]}}
  search: {parent: key, name: Search}
  new: {parent: search, limits: {gpt: [rpm:9]}}
"""


def test_a_namespace_becomes_what_the_manifest_says_and_applying_again_writes_nothing(
    repository: SyncRepository,
) -> None:
    first = manifest(FIRST)
    assert len(applied(repository, first).done) == len(first.things)
    assert contents(repository) == meaning(first.things)
    assert managed(repository) == set(map(str, first.things))
    counting = Failing(repository, 10**6, Crashed())
    assert applied(counting, first).done == []  # type: ignore[arg-type]
    assert counting.writes == 0
    assert planned(repository, first).is_done


def test_what_changed_in_the_manifest_changes_and_what_left_it_is_deleted(repository: SyncRepository) -> None:
    second = manifest(SECOND)
    applied(repository, manifest(FIRST))
    applied(repository, second)
    assert contents(repository) == meaning(second.things)
    assert repository.get_system_defaults()[1] is OnUnavailable.BLOCK
    assert managed(repository) == set(map(str, second.things))


def test_an_empty_manifest_removes_all_it_made(repository: SyncRepository) -> None:
    applied(repository, manifest(FIRST))
    applied(repository, manifest(""))
    assert contents(repository) == {}
    assert managed(repository) == set()
    assert planned(repository, manifest("")).is_done


def test_what_no_manifest_manages_is_not_touched(repository: SyncRepository) -> None:
    repository.create_entity("theirs", metadata={"a": "b"})
    repository.set_limits("theirs", per_minute(rpm=7), resource="gpt")
    repository.set_limits("key", per_minute(rpm=8), resource="their-model")
    repository.set_resource_defaults("their-model", per_minute(rpm=9))
    before = contents(repository)
    for text in (FIRST, SECOND):
        applied(repository, manifest(text))
        assert before.items() <= contents(repository).items()
    repository.delete_limits("key", resource="their-model")
    applied(repository, manifest(""))
    left = {thing: value for thing, value in before.items() if str(thing) != "limits key their-model"}
    assert contents(repository) == left


def test_what_exists_already_is_adopted_as_it_is(repository: SyncRepository) -> None:
    repository.create_entity("acme", name="Acme")
    wanted = manifest("entities: {acme: {name: Acme}}")
    change_plan = planned(repository, wanted)
    assert (list(change_plan.changes), [str(thing) for thing in change_plan.adopted]) == ([], ["entity acme"])
    applied(repository, wanted)
    assert repository.get_entity("acme").version == 1
    assert managed(repository) == {"entity acme"}
    applied(repository, manifest(""))
    assert contents(repository) == {}


def test_conflicts_change_nothing_at_all(repository: SyncRepository) -> None:
    change_plan = planned(repository, manifest("resources: {gpt: [x:1]}\nentities: {a: {parent: nobody}}"))
    with pytest.raises(ConflictsError, match="nothing was changed: nobody, the parent of a, does not exist"):
        apply(repository, change_plan)
    assert contents(repository) == {}
    assert reserved(repository) == []


def test_an_entity_with_a_child_or_limits_of_others_is_not_deleted(repository: SyncRepository) -> None:
    applied(repository, manifest("entities: {a: {limits: {gpt: [x:1]}}, b: }"))
    repository.create_entity("child", parent_id="a")
    repository.set_limits("b", per_minute(y=1), resource="claude")
    found = [conflict.message for conflict in planned(repository, manifest("")).conflicts]
    assert len(found) == 2
    assert "is the parent of child" in found[0]
    assert "would delete its limits for claude" in found[1]
    applied(repository, manifest(""), keep_removed=True)
    assert managed(repository) == set()
    assert repository.get_entity("a").id == "a"
    assert repository.get_limits("a", resource="gpt") == per_minute(x=1)


def test_the_audit_trail_says_who_applied_which_manifest(repository: SyncRepository) -> None:
    applied(repository, manifest("resources: {gpt: [x:1]}\nentities: {a: {limits: [x:1]}}", "platform"), "ann")
    applied(repository, manifest("", "platform"))
    subjects = ("a", "$RESOURCE:gpt", "zael:manifest:platform")
    trails = [repository.get_audit_events(subject).items for subject in subjects]
    assert [{event.principal for event in trail} for trail in trails] == [
        {"manifest:platform:ann", "manifest:platform"}
    ] * 3
    with pytest.raises(ValidationError):
        apply(repository, planned(repository, manifest("entities: {b: }")), principal="no\nlines")
    assert contents(repository) == {}


def test_live_buckets_obey_at_once(repository: SyncRepository) -> None:
    limiter = SyncRateLimiter(repository)
    applied(repository, manifest("system: {limits: [rpm:60]}"))
    with limiter.acquire("key", "gpt", {"rpm": 10}):
        pass
    applied(repository, manifest("system: {limits: [rpm:60:5]}"))
    assert limiter.available("key", "gpt") == {"rpm": 5}


# Two manifests


def test_two_manifests_live_beside_each_other(repository: SyncRepository) -> None:
    platform = manifest("entities: {acme: {name: Acme}}\nsystem: {limits: [x:1]}", "platform")
    team = manifest("entities: {acme: {create: false, limits: {gpt: [x:2]}}, key: {parent: acme}}", "team")
    applied(repository, platform)
    applied(repository, team)
    assert contents(repository) == meaning({**platform.things, **team.things})
    assert planned(repository, platform).is_done
    assert planned(repository, team).is_done
    conflicts = planned(repository, manifest("", "platform")).conflicts
    assert [str(conflict.thing) for conflict in conflicts] == ["entity acme"] * 2
    applied(repository, manifest("", "team"))
    assert contents(repository) == meaning(platform.things)


def test_a_thing_changes_hands_without_a_gap(repository: SyncRepository) -> None:
    applied(repository, manifest("resources: {gpt: [x:1]}\nentities: {a: }", "one"))
    two = manifest("resources: {gpt: [x:2]}", "two")
    assert "is managed by manifest 'one'" in planned(repository, two).conflicts[0].message
    applied(repository, two, take_over=True)
    assert managed(repository, "one") == {"entity a"}
    assert managed(repository, "two") == {"resource gpt"}
    applied(repository, manifest("entities: {a: }", "one"))
    assert repository.get_resource_defaults("gpt") == per_minute(x=2)
    applied(repository, manifest("entities: {a: }\nresources: {gpt: [x:2]}", "two"), take_over=True)
    assert managed(repository, "one") == set()


# Failures


def writes_of(repository: SyncRepository, text: str) -> int:
    counting = Failing(repository, 10**6, Crashed())
    applied(counting, manifest(text))  # type: ignore[arg-type]
    return counting.writes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_write_is_repaired_by_running_again(after: bool) -> None:
    """On memory: the writes are the same on every store, and there are many of them."""
    with SyncRepository.open("memory://") as whole:
        applied(whole, manifest(FIRST))
        total = writes_of(whole, SECOND)
    for at in range(1, total + 1):
        for finally_wanted in (FIRST, SECOND, ""):
            with SyncRepository.open("memory://") as repository:
                applied(repository, manifest(FIRST))
                broken = Failing(repository, at, Crashed(), after=after)
                assert isinstance(applied_through(broken, manifest(SECOND)), Crashed)
                wanted = manifest(finally_wanted)
                applied(repository, wanted)
                assert contents(repository) == meaning(wanted.things)
                assert managed(repository) == set(map(str, wanted.things))
                assert planned(repository, wanted).is_done


def test_a_crash_is_seen_in_the_plan(repository: SyncRepository) -> None:
    applied_through(Failing(repository, 5, Crashed()), manifest(FIRST))
    record = planned(repository, manifest(FIRST)).record
    assert (record.finished, record.by) == (False, "manifest:test")
    applied(repository, manifest(FIRST))
    assert planned(repository, manifest(FIRST)).record.finished


def test_a_store_that_fails_half_way_leaves_what_was_done_and_says_what_remains(repository: SyncRepository) -> None:
    error = RateLimiterUnavailable("no answer")
    broken = Failing(repository, 6, error)
    outcome = applied_through(broken, manifest(FIRST))
    assert isinstance(outcome, Outcome)
    assert outcome.error is error
    assert [str(change.thing) for change in outcome.done] == ["entity acme", "entity search", "entity key"]
    assert [str(change.thing) for change in outcome.remaining][:2] == ["system", "resource gpt"]
    again = applied(repository, manifest(FIRST))
    assert [change.thing for change in again.done] == [change.thing for change in outcome.remaining]


def test_progress_is_told(repository: SyncRepository) -> None:
    told: list[tuple[int, int]] = []
    change_plan = planned(repository, manifest("entities: {a: , b: }"))
    apply(repository, change_plan, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2), (2, 2)]


# At the same time


def test_a_plan_that_is_out_of_date_is_refused_before_anything_changes(repository: SyncRepository) -> None:
    stale = planned(repository, manifest("entities: {a: }"))
    applied(repository, manifest("entities: {b: }"))
    with pytest.raises(AppliedConcurrently):
        apply(repository, stale)
    assert set(map(str, contents(repository))) == {"entity b"}


def test_another_operator_who_applies_meanwhile_makes_nothing_unmanaged(repository: SyncRepository) -> None:
    change_plan = planned(repository, manifest("entities: {a: , b: }"))

    def interfere(done: int, total: int) -> None:
        if done == 1:
            applied(repository, manifest("entities: {c: }"))

    outcome = apply(repository, change_plan, on_progress=interfere)
    assert isinstance(outcome.error, AppliedConcurrently)
    there = set(map(str, contents(repository)))
    assert there <= managed(repository)
    final = manifest("entities: {d: }")
    applied(repository, final)
    assert contents(repository) == meaning(final.things)


def test_what_a_process_made_that_crashed_after_it_was_looked_for_stays_recorded(repository: SyncRepository) -> None:
    seen: list[ChangePlan] = []

    def crash_after_two(done: int, total: int) -> None:
        if done == 1:
            seen.append(planned(repository, manifest("")))
        if done == 2:
            raise Crashed

    with pytest.raises(Crashed):
        apply(repository, planned(repository, manifest("entities: {a: , b: , c: }")), on_progress=crash_after_two)
    outcome = apply(repository, seen[0])
    assert isinstance(outcome.error, AppliedConcurrently)
    assert set(map(str, contents(repository))) == {"entity b"}
    assert "entity b" in managed(repository)
    applied(repository, manifest(""))
    assert contents(repository) == {}


def test_many_operators_who_apply_different_manifests_at_once_lose_track_of_nothing(
    repository: SyncRepository,
) -> None:
    texts = [f"entities: {{shared: , e{n}: {{parent: shared, limits: {{gpt: [x:{n + 1}]}}}}}}" for n in range(4)]

    def run(text: str) -> None:
        for _ in range(3):
            applied_through(repository, manifest(text))

    threads = [threading.Thread(target=run, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(map(str, contents(repository, "gpt"))) <= managed(repository)
    applied(repository, manifest(texts[0]))
    assert contents(repository, "gpt") == meaning(manifest(texts[0]).things)


# Drift


def test_drift_is_found_with_who_caused_it(repository: SyncRepository) -> None:
    wanted = manifest(FIRST)
    applied(repository, wanted)
    assert list(drift(repository, wanted)) == []
    repository.set_resource_defaults("gpt", per_minute(rpm=99), principal="bob")
    repository.delete_limits("key", resource="gpt", principal="eve")
    repository.update_entity("acme", name="Umbrella", principal="mal")
    repository.create_entity("extra")
    found = {str(item.thing): (item.difference, item.by) for item in drift(repository, wanted, everything=True)}
    assert found == {
        "resource gpt": (Difference.CHANGED, "bob"),
        "limits key gpt": (Difference.MISSING, "eve"),
        "entity acme": (Difference.CHANGED, "mal"),
        "entity extra": (Difference.UNMANAGED, None),
    }
    left = list(drift(repository, manifest("")))
    assert {item.difference for item in left} == {Difference.LEFT_OVER}
