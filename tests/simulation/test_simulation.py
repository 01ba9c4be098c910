"""Fleets of real clients over a model of DynamoDB: thousands of short schedules, judged at every step.

More of them: ``ZAEL_SIM_SCHEDULES=2000`` (per profile), from another seed: ``ZAEL_SIM_SEED=7``; for hours: ``python
tests/simulation soak --minutes 60``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.crowds import lone_share, measured
from simulation.profiles import PROFILES
from simulation.schedule import Schedule, Summary, run_schedules

SEED = int(os.environ.get("ZAEL_SIM_SEED", "20000"))
EACH = int(os.environ.get("ZAEL_SIM_SCHEDULES", "0"))

SCHEDULES = {
    "calendars": 50,
    "calendars and losses": 50,
    "calendars over shards": 50,
    "lone": 50,
    "lone up a tree": 60,
    "speeds": 50,
    "contention": 75,
    "cascade": 75,
    "overrides": 75,
    "changes": 75,
    "families": 75,
    "names": 60,
    "lone with totals": 50,
    "totals": 60,
    "totals over shards": 40,
    "losses": 100,
    "storm": 60,
    "losses up a tree": 100,
    "load": 75,
    "overload": 50,
    "crush": 25,
    "interrupts": 100,
    "crashes": 50,
    "expiry": 75,
    "skew": 75,
    "hours": 50,
    "given clocks": 50,
    "given clocks over shards": 25,
    "lone over shards": 75,
    "patient": 50,
    "overrides over shards": 50,
    "spread": 50,
    "shards": 50,
    "shards up a tree": 25,
    "operators": 40,
    "namespaces": 40,
    "sweeps": 50,
    "lone watching": 40,
    "watching": 40,
    "watching and losses": 40,
    "watching over shards": 30,
    "joined": 75,
    "crowded": 75,
    "everything": 75,
}
"""How many of each fit into two minutes."""

DIVIDED = {
    "calendars over shards",
    "watching over shards",
    "lone over shards",
    "overrides over shards",
    "spread",
    "crush",
    "shards",
    "shards up a tree",
    "load",
    "operators",
    "everything",
}
JOINED = {"joined", "crowded", "shards", "everything"}
"""Profiles in which buckets must really be split, and writes really be joined."""

AT_ONCE = 50
"""How many of them are one test."""

KEPT_SEEDS = [
    # A denial by load looked for a limit that refuses, where all of them only watch.
    ("watching and losses", 0),
    ("watching over shards", 4),
    # By an old snapshot a watching limit had counted no refusal, and the refusal of a leg that was undone stayed.
    ("watching", 112),
    # What a watching limit refused was counted as if it had been taken there, and not by the leg that took it.
    ("lone watching", 142124088),
    # A refusal that was undone leaves a counter of 0, and the limit could not be taken away any more.
    ("watching", 114),
    # A denial was recomputed after giving back, found nothing lacking, and raised StopIteration.
    ("losses", 8),
    ("overrides", 19),
    ("families", 18),
    # The first try of a credit arrived long after its repetition, when others had written since: given back twice.
    ("losses up a tree", 4),
    # A write that voids another was taken for the other itself: what was never taken was given back.
    ("losses", 40),
    # An interrupt while giving back: the rest of it was forgotten.
    ("interrupts", 16),
    # A transaction's answer, heard together with an interrupt, was not believed.
    ("interrupts", 90),
    # An interrupt while giving back after a failure: it was not caught.
    ("everything", 68),
    # A giving back that moves no tokens, only the count of grants, was repeated.
    ("everything", 1001),
    # After a transaction without an answer, replies to other calls were taken for its answer: given back twice.
    ("everything", 31),
    ("everything", 1151),
    # A transaction that conflicted with its own first try was repeated as another: the entity exists, it said.
    ("everything", 2115),
    ("everything", 2417),
    ("everything", 3733),
    # A late try pushed its id into the recent writers again, which seemed not to have moved on: given back twice.
    ("storm", 1664),
    ("storm", 1736),
    ("storm", 1892),
    # What was charged twice, because no client could tell whether it was done, was not counted as unresolved.
    ("losses", 20009),
    ("losses up a tree", 20084),
    ("everything", 20074),
    # Nothing was voided by a client whose now was not later than the baseline: the voided write arrived and was done.
    ("interrupts", 20211),
    ("everything", 700025),
    # What a transaction took from a bucket that was there was not remembered: the next denial named too short a wait.
    ("lone up a tree", 40170),
    ("lone up a tree", 40171),
    # An earlier try of a transaction was unanswered, a later one met a conflict: the client did not doubt it any more.
    ("losses up a tree", 20199),
    ("losses up a tree", 20492),
    # A draw of a limit that its shard did not have yet took more than the shard's share.
    ("shards up a tree", 8),
    # Shard 0 was gone, and a client looked for the shard it comes from.
    ("shards up a tree", 5),
    # A throttled draw moved on to a shard that obeyed newer terms, and took it back to the old ones.
    ("shards up a tree", 44),
    # A caller that wrote alone after a batch had a write id by the moment of all, not by its own.
    ("shards up a tree", 179),
    ("shards up a tree", 226),
    # Several shards paid, and a bucket above had to be created: given back, and drawn again, for ever.
    ("shards up a tree", 28),
    # A bucket that others created while our creation was throttled was neither written to nor looked at again.
    ("shards", 20037),
    # Conditions that had failed over many seconds were charged at once: an idle bucket was split.
    ("patient", 20062),
    # A bucket was split while a setter rewrote it: its new shard went on by the old terms.
    ("shards up a tree", 3080),
    # A shard was gone after giving back, and an unsplit bucket was created in its place.
    ("shards", 21071),
    # All shards were gone by the time they were to pay together.
    ("shards", 21296),
    # An entity was deleted while its bucket was split: the new shard stayed, beside a new first one.
    ("shards", 21157),
    ("shards up a tree", 3226),
    # A joint write was refused because the limits had changed: those who wanted one that is gone broke it for all.
    ("shards", 20119),
    # One shard kept the terms of a call that brought its own: the whole burst was refused for ever.
    ("everything", 770000451),
    # A batch was repeated alone by the write id of all: the others took it for theirs, and gave back what none took.
    ("crowded", 881000961),
    ("crowded", 770000234),
    ("shards up a tree", 770000130),
    # A call with limits of its own met a bucket that was created by an old config, before its creator looked again.
    ("shards up a tree", 770000181),
    ("shards", 5280),
    # A bucket was deleted and began anew while it was split: it got a shard that its new first one knew nothing of.
    ("shards up a tree", 6565),
    # What came back to a shard that others had drawn from since was refused until the deadline.
    ("spread", 882000722),
    ("spread", 882000794),
    # What came back to a bucket in debt was more than it can hold.
    ("shards up a tree", 882000226),
    # A debt that was to be written to all shards was written, by its id, to the unsplit bucket that came after.
    ("shards up a tree", 883000355),
    # The share that lost shards would owe was all owed by one of those that are left.
    ("shards up a tree", 883000391),
    # A limit reached one shard while another one of the bucket was in debt of it already.
    ("everything", 883000039),
    # A settlement took the moment of a wrong clock from one shard, and what that seemed to owe to all of them.
    ("given clocks over shards", 2026111804),
    ("given clocks over shards", 2026111814),
    # A client whose clock is ahead filled it up to the ceiling of its moment, right before expiry: the oracle.
    ("expiry", 2026112016),
    # A settlement at a shard that its client did not know of yet.
    ("shards", 4026111686),
    # What was raised is filled from what it was, which takes longer than what was lowered: an imprecise oracle.
    ("given clocks", 2026111759),
    # A limit that had ended on its shard was settled into a debt that the other shards knew nothing of.
    ("shards up a tree", 3026111697),
    # A debt was written to all shards but one, which did not have the limit yet.
    ("shards", 2026112091),
    # No client could tell whether a settlement was done, then time ran out: the error said that nothing was done.
    ("operators", 4026111631),
    # One copy of a reset met a conflict, the other was done; five writes later the repetition filled again.
    ("operators", 9026111978),
    # A client died after it had counted a try as unresolved: the judge did not know that it had.
    ("crowded", 12026112508),
    # A clock still further ahead drew while the bucket was brought back from an earlier moment.
    ("given clocks", 9026112033),
    # A draw gave back in order to create a bucket above, and took a change of limits that came first back with it.
    ("shards", 10026111799),
    # Keys were left unread until the last answer was missing: the draw took that for an outage.
    ("overload", 11026111630),
    # A bucket was brought back by a time read long before, to a baseline it had had: another client did it again.
    ("given clocks over shards", 11026111783),
    # A shard that a wrong clock had written granted a draw in the write that put it into debt.
    ("given clocks over shards", 10026111966),
    # A debt was written while one shard still refilled by the old limits, and was out of it first: the oracle.
    ("operators", 10026112272),
    # A shard was made while a setter rewrote its ancestor, which had looked for it before: it kept the old limits.
    ("shards up a tree", 11026112383),
    # A limit came and went to rest within a millisecond: who knew nothing of it moved the baseline without it.
    ("shards", 500086),
    # More came back than a shard can hold: it was filled, although it was in debt with all others by then.
    ("shards up a tree", 700025),
    # What was settled on a limit that rests, together with a draw, was taken for a grant of it.
    ("shards", 990000133),
    # A namespace was deleted, recovered and deleted again while an acquire was under way, which lifted the second
    # fence for the first.
    ("namespaces", 2026112158),
    ("namespaces", 3026111702),
    ("namespaces", 3026111782),
    # Two shards had paid, one of them was drained, and a third bore its part: the judge blamed the other one.
    ("lone over shards", 1003),
    # A write whose id had been pushed out was voided, and the denials it had counted were counted again.
    ("losses", 12180348012),
    # A bucket that was gone was created again to count a denial, without the denial.
    ("families", 13180355096),
    # The look at the wide switches beside a write was unanswered: the draw failed, and what it had taken stayed taken.
    ("losses up a tree", 880000056),
    # A limit came back in another hour than it had left: the judge let its counter go on.
    ("given clocks", 880000009),
    # A shard was swept: a client that remembered it tried to draw from it, with all others, to the end of its time.
    ("sweeps", 900000356),
    # A limit that had watched left a counter of 0 behind when it was taken away, and no client could read the bucket.
    ("watching", 1811000137),
]
"""Profiles and seeds of schedules that failed once, and why."""


@pytest.mark.parametrize(
    ("profile", "first", "count"),
    [
        pytest.param(profile, SEED + start, min(AT_ONCE, count - start), id=f"{profile} {SEED + start}")
        for profile, count in ((profile, EACH or SCHEDULES[profile]) for profile in PROFILES)
        for start in range(0, count, AT_ONCE)
    ],
)
def test_every_invariant_holds_after_every_step(profile: str, first: int, count: int) -> None:
    summary = run_schedules(profile, range(first, first + count))
    assert summary.schedules == count
    assert summary.granted > count
    least = count // 25
    assert summary.split >= least or profile not in DIVIDED
    assert summary.joined >= least or profile not in JOINED


def test_a_bucket_with_room_is_never_divided() -> None:
    summary = run_schedules("patient", range(SEED, SEED + 20))
    assert summary.calls["UpdateItem"] > 20 * 10
    assert summary.splits == 0


@pytest.mark.parametrize(("profile", "seed"), KEPT_SEEDS)
def test_what_failed_once_holds(profile: str, seed: int) -> None:
    Schedule(PROFILES[profile], seed).run()


def test_idle_buckets_are_really_swept() -> None:
    summary = run_schedules("sweeps", range(SEED, SEED + 20))
    assert summary.swept > 0


def test_faults_really_happen() -> None:
    summary = run_schedules("everything", range(SEED, SEED + 20))
    assert {"lost", "unanswered", "late", "slow", "throttled", "conflict"} <= summary.fates.keys()
    assert min(summary.granted, summary.denied, summary.unavailable, summary.unresolved) > 0
    assert {"UpdateItem", "PutItem", "GetItem", "BatchGetItem", "TransactWriteItems", "Query"} <= summary.calls.keys()


def fingerprint(profile: str, seed: int) -> str:
    """A run in a line: what it did, and what is left in the table."""
    schedule = Schedule(PROFILES[profile], seed)
    summary = schedule.run(Summary())
    items = sorted((place, sorted(item)) for place, item in schedule.fleet.items.items())
    return f"{summary.steps} {summary.granted} {summary.denied} {sorted(summary.calls.items())} {items}"


def test_a_seed_is_a_run_whatever_the_hash_seed() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from simulation.test_simulation import fingerprint;"
        "print(fingerprint('everything', 20001)); print(fingerprint('changes', 20002))"
    )
    tests = str(Path(__file__).resolve().parent.parent)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script, tests],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs == {f"{fingerprint('everything', 20001)}\n{fingerprint('changes', 20002)}\n"}


@pytest.mark.parametrize(("rate", "amount"), [(5, 1), (50, 1), (50, 7), (1000, 20)])
def test_a_lone_client_gets_all_of_its_rate(rate: int, amount: int) -> None:
    seconds = max(30, 2000 // rate)
    not_yet_enough_for_one = amount / (rate + rate * seconds)
    assert lone_share(rate=rate, seconds=seconds, amount=amount) >= 0.999 - not_yet_enough_for_one


@pytest.mark.parametrize("percent", [100, 300])
def test_no_caller_of_two_hundred_runs_out_of_tries(percent: int) -> None:
    crowd = measured(200, percent, seconds=5)
    assert crowd.share > 0.99
    assert crowd.worst <= 6
    assert crowd.writes_per_grant < 1.27


@pytest.mark.parametrize(("percent", "most"), [(75, 1.5), (90, 1.3)])
def test_a_busy_bucket_is_not_taken_for_a_full_one(percent: int, most: float) -> None:
    """More accrues than is taken, yet it is rarely full: a fleet that thought so would often need two writes."""
    crowd = measured(50, percent, rate=20, seconds=30)
    assert crowd.share == 1
    assert crowd.writes_per_grant < most


def test_a_bucket_that_is_hardly_used_is_taken_for_full() -> None:
    crowd = measured(50, 10, rate=20, seconds=60)
    assert crowd.share == 1
    assert crowd.writes_per_grant < 1.15


def test_a_request_that_meets_no_other_is_one_call() -> None:
    crowd = measured(1, 2, seconds=60)
    assert crowd.denied == 0
    assert crowd.writes_per_grant <= 1.05
    assert crowd.looks_granted <= 1
