"""One hot entity: what a fleet gets from it, how long that takes, and what it costs; with and without each feature.

    .venv/bin/python benchmarks/hot_entity.py [--quick]

Nothing here is timed on a machine. The real plans of up to 200 processes run over the model of DynamoDB that the tests
have, in simulated time: partitions of 1,000 write units a second that refuse more, and 4 to 8 ms per call
(``hot_world.py``). Buckets are divided beforehand into as many shards as they would have after some seconds, so that
short spans show the steady state. How they get there is shown by itself, from one shard on, with everything but time
and latency at a fifth: partitions of 200 write units, 10,000 acquires a second, 40 processes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hot_world import Course, Setting, course_of
from presenting import OUT, circumstances

FEATURES: Mapping[str, Mapping[str, bool]] = {
    "shards and joined writes": {"divide": True, "coalesce": True},
    "shards only": {"divide": True, "coalesce": False},
    "joined writes only": {"divide": False, "coalesce": True},
    "neither": {"divide": False, "coalesce": False},
}
LOADS = ((1, 2_000), (5, 10_000), (25, 25_000), (25, 50_000), (200, 50_000))
"""Processes, and what they ask for per second."""
SHARDS_THEN: Mapping[tuple[bool, int, int], int] = {
    (True, 1, 2_000): 1,
    (True, 5, 10_000): 2,
    (True, 25, 25_000): 8,
    (True, 25, 50_000): 8,
    (True, 200, 50_000): 64,
    (False, 1, 2_000): 4,
    (False, 5, 10_000): 16,
    (False, 25, 25_000): 32,
    (False, 25, 50_000): 64,
    (False, 200, 50_000): 64,
}
"""How many a bucket under such a load has after some seconds, with joined writes and without."""
SCALED = 5


class Goal(NamedTuple):
    """What was hoped for, and what is."""

    what: str
    goal: str
    measured: str
    reached: bool


def by_load(share: float) -> dict[str, list[Course]]:
    """One entity under more and more load."""
    courses: dict[str, list[Course]] = {}
    for name, features in FEATURES.items():
        for processes, offered in LOADS:
            joined = features["coalesce"]
            setting = Setting(
                processes,
                offered,
                limit=max(offered, 5_000),
                seconds=share * (1.0 if offered <= 10_000 else 0.25),
                warm_up=0.1,
                shards=SHARDS_THEN[joined, processes, offered] if features["divide"] else 1,
                **features,
            )
            courses.setdefault(name, []).append(told(f"{name}, {processes} processes, {offered}/s", setting))
    return courses


def of_parent(share: float) -> dict[str, Course]:
    """One parent of a thousand children."""
    return {
        name: told(
            f"a parent, {name}",
            Setting(
                25,
                10_000,
                limit=10_000,
                seconds=0.4 * share,
                shards=(8 if features["coalesce"] else 16) if features["divide"] else 1,
                children=1_000,
                **features,
            ),
        )
        for name, features in FEATURES.items()
    }


def by_shards(share: float, counts: Sequence[int]) -> list[Course]:
    """More than so many shards can take, without joining, from a bucket that is neither full nor empty."""
    return [
        told(
            f"{count} shards",
            Setting(
                200,
                count * 1_100,
                limit=count * 1_000,
                seconds=share * min(max(0.3, 8 / count), 2.0),
                warm_up=0.1,
                saved=0.0,
                shards=count,
                coalesce=False,
                divide=False,
            ),
        )
        for count in counts
    ]


def at_the_limit(share: float) -> list[Course]:
    """Half as much again is demanded as there is."""
    return [
        told(
            f"limit {limit}/s",
            Setting(25, limit * 3 // 2, limit=limit, seconds=seconds * share, warm_up=0.2, shards=shards, filled=0.05),
        )
        for limit, shards, seconds in ((1_000, 2, 2.0), (5_000, 8, 1.0), (20_000, 16, 0.4))
    ]


def one_process(share: float) -> list[Course]:
    """One process that asks more and more."""
    return [
        told(f"one process, {offered}/s", Setting(1, offered, limit=10_000, seconds=max(share, 0.5)))
        for offered in (100, 500, 1_000, 2_000, 5_000)
    ]


def over_time(seconds: float) -> dict[str, Course]:
    """From one shard on, at a fifth."""
    return {
        name: told(
            f"growing, {name}",
            Setting(
                200 // SCALED,
                50_000 // SCALED,
                limit=50_000 // SCALED,
                seconds=seconds,
                warm_up=0.0,
                wcu=1_000 // SCALED,
                **FEATURES[name],
            ),
        )
        for name in ("shards and joined writes", "shards only")
    }


def told(what: str, setting: Setting) -> Course:
    """What became of it; and say so meanwhile."""
    began = time.process_time()
    course = course_of(setting)
    print(f"{what}: {course.admitted_per_second:,.0f}/s, {time.process_time() - began:.1f} s of CPU", file=sys.stderr)
    return course


def goals(shards: Sequence[Course], alone: Sequence[Course], limited: Sequence[Course]) -> list[Goal]:
    """Whether they are reached."""
    linear = {course.setting.shards: course.admitted_per_second / (course.setting.shards * 1_000) for course in shards}
    cost = next(course.wcu_per_acquire for course in alone if course.setting.offered == 2_000)
    given = min(course.admitted_per_second / course.setting.limit for course in limited)
    return [
        Goal(
            f"admitted by up to {max(linear)} shards, of 1,000 per shard",
            ">= 90 %",
            f"{100 * min(linear.values()):.1f} %",
            min(linear.values()) >= 0.9,
        ),
        Goal("WCU per acquire, one process at 2,000/s", "<= 0.1", f"{cost:.3f}", cost <= 0.1),
        Goal("admitted of a limit that is demanded", ">= 99 %", f"{100 * given:.2f} %", given >= 0.99),
    ]


COLUMNS = (
    "",
    "processes",
    "asked/s",
    "admitted/s",
    "p50 ms",
    "p99 ms",
    "WCU per acquire",
    "reads per acquire",
    "shards",
)


def row(name: str, course: Course) -> tuple[str, ...]:
    """A line of the table."""
    figures = course.as_dict()
    return (
        name,
        str(course.setting.processes),
        f"{course.setting.offered:,}",
        f"{figures['admitted_per_second']:,}",
        f"{figures['p50_ms']:.1f}",
        f"{figures['p99_ms']:.1f}",
        f"{figures['wcu_per_acquire']:.3f}",
        f"{figures['reads_per_acquire']:.2f}",
        str(figures["shards"]),
    )


def show(rows: Sequence[Sequence[str]], found: Sequence[Goal]) -> None:
    """Print it, as Markdown."""
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for cells in rows:
        print(f"| {' | '.join(cells)} |")
    print("\n| goal | | measured | |\n|---|---|---|---|")
    for goal in found:
        print(f"| {goal.what} | {goal.goal} | {goal.measured} | {'reached' if goal.reached else 'not reached'} |")


def main() -> None:
    """Simulate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter spans and fewer of them: about a minute")
    quick = parser.parse_args().quick
    share = 0.3 if quick else 1.0
    began = time.process_time()
    alone = one_process(share)
    limited = at_the_limit(1.0 if not quick else 0.5)
    shards = by_shards(share, (1, 4, 16, 64) if quick else (1, 2, 4, 8, 16, 32, 64))
    loads = by_load(share)
    parent = of_parent(share)
    grown = over_time(3.0 if quick else 8.0)
    found = goals(shards, alone, limited)
    rows = [row(f"one entity, {name}", course) for name, courses in loads.items() for course in courses]
    rows += [row(f"one parent of 1,000, {name}", course) for name, course in parent.items()]
    rows += [row("one process", course) for course in alone]
    rows += [row(f"limit {course.setting.limit:,}/s", course) for course in limited]
    rows += [row(f"{course.setting.shards} shards", course) for course in shards]
    rows += [row(f"growing at 1/{SCALED}, {name}", course) for name, course in grown.items()]
    show(rows, found)
    report: dict[str, Any] = circumstances(()) | {
        "simulated": True,
        "scaled": SCALED,
        "cpu_seconds": round(time.process_time() - began, 1),
        "goals": [goal._asdict() for goal in found],
        "one_entity": {name: [course.as_dict() for course in courses] for name, courses in loads.items()},
        "one_parent": {name: course.as_dict() for name, course in parent.items()},
        "one_process": [course.as_dict() for course in alone],
        "at_the_limit": [course.as_dict() for course in limited],
        "by_shards": [course.as_dict() for course in shards],
        "over_time": {name: course.as_dict() for name, course in grown.items()},
    }
    OUT.mkdir(exist_ok=True)
    path = OUT / "hot_entity.json"
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(f"\nwritten: {path}")


if __name__ == "__main__":
    main()
