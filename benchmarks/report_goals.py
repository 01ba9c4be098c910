"""The goals this project has set itself, and that memory has bounds, held against what was measured."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from comparing import Goal
from path_length import crossed_on

from zae_limiter.infra.lambda_builder import LARGEST, build_lambda_package

NOT_RUN = "not run"
KEPT_OUT = ("asyncio", "sqlite3", "botocore", "click", "rich")
"""What ``import zae_limiter`` must not load."""

FLEET = 200
FLEET_GOALS = {"5": 1.78, "50": 1.59, "100": 1.27, "300": 1.13}
"""Calls per grant of 200 clients at one bucket, by the percentage of the limit that they ask for."""

GROWTH = Goal(2.5, at_most=True)
BEYOND_THE_CACHE = 100_000
"""What an acquire by one of so many entities or more may cost on SQLite, against one of few."""

PATH_GOALS = {
    ("memory", "grant and settle"): (15, 6),
    ("dynamodb", "grant"): (60, 20),
    ("dynamodb", "grant and settle"): (100, 25),
}
"""So many functions, in so many files, a warm operation may cross: what a reader has to follow."""

ONE_CALL = (
    "grant",
    "grant with a calendar limit",
    "grant with a limit that watches",
    "grant that a limit which watches would have refused",
    "sharded, 4 shards",
    "contended: 8 clients in turns",
)
"""Situations in which no two requests overlap."""

TWO_CALLS = ("grant with a call in flight, and its end",)
"""The same, with the end of the lease, which gives back."""

OVERLAPPING_NONE = 1.05
"""What they may cost."""

SCHEDULES = 1_000_000
"""So many a soak should run."""


class Held(NamedTuple):
    """A goal, and where it stands."""

    what: str
    against: str
    goal: str
    measured: str
    verdict: str


def facts() -> dict[str, Any]:
    """What takes no measuring: what an import loads, what the aggregator's package weighs, what a call crosses."""
    asked = f"import sys, zae_limiter; print(*(name for name in {KEPT_OUT!r} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-I", "-c", asked], capture_output=True, text=True, check=True)
    package = build_lambda_package()
    with zipfile.ZipFile(BytesIO(package)) as archive:
        others = sorted({name.partition("/")[0] for name in archive.namelist()})
    foreign = [name for name in others if not name.startswith("zae_limiter")]
    crossed = {path: crossed_on(*path) for path in PATH_GOALS}
    return {
        "loaded": loaded.stdout.split(),
        "zip_bytes": len(package),
        "zip_foreign": foreign,
        "crossed": {path: (len(one.functions), one.files) for path, one in crossed.items()},
    }


def spread(ratio: Mapping[str, float], digits: int = 2) -> str:
    """A median, and between what half of the rounds lie."""
    return f"{ratio['median']:.{digits}f}x ({ratio['low']:.{digits}f} to {ratio['high']:.{digits}f})"


def said(reached: bool) -> str:
    return "reached" if reached else "not reached"


def held(figures: Mapping[str, Any], found: Mapping[str, Any]) -> list[Held]:
    """Every goal. What cannot be read of a benchmark is a goal that was not measured, and loses no other."""
    goals: list[Held] = []
    for part in (
        lambda: _embedded(figures.get("embedded")),
        lambda: _growth(figures.get("growth")),
        lambda: _dynamodb(figures.get("dynamodb")),
        lambda: _redis_store(figures.get("redis_store")),
        lambda: _costs(figures.get("costs")),
        lambda: _hot_entity(figures.get("hot_entity")),
        lambda: _memory(figures.get("memory")),
        lambda: _imports(figures.get("embedded"), found),
        lambda: _startup(figures.get("startup")),
        lambda: _integrations(figures.get("integrations")),
        lambda: _rows_of(figures.get("service"), "the service against an empty endpoint", Goal(2.2, at_most=True)),
        lambda: _dashboard(figures.get("dashboard")),
        lambda: _rows_of(figures.get("envoy"), "Envoy with us against Envoy with a trivial answer", Goal(0.75)),
        lambda: _soak(figures.get("soak")),
        lambda: [_zip(found)],
        lambda: _paths(found),
    ):
        try:
            goals += part()
        except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
            goals.append(Held(f"cannot be read: {error!r}", "", "", "", NOT_RUN))
    return goals


def _compared(row: Mapping[str, Any]) -> Held:
    digits = 3 if row["ratio_means"] == "our cost in theirs" else 2
    measured = spread(row["ratio"], digits)
    return Held(row["title"], row["theirs"]["name"], row["goal"], measured, row["verdict"])


def _with_goals(rows: Sequence[Mapping[str, Any]], *, imports: bool = False) -> Iterator[Held]:
    for row in rows:
        if row["goal"] is not None and row["title"].startswith("import") == imports:
            yield _compared(row)


def _missing(what: str, goal: str) -> Held:
    return Held(what, "", goal, "", NOT_RUN)


def _embedded(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    if figures is None:
        yield _missing("memory, sync and async; SQLite", str(Goal(6, 3)))
        return
    yield from _with_goals(figures["rows"])
    for wait in figures["waits"]:
        if wait["goal_ms"] is not None:
            measured = f"{wait['worst_ms']:.1f} ms (99 % within {wait['p99_ms']:.1f} ms)"
            goal = f"< {wait['goal_ms']:g} ms"
            yield Held(f"{wait['title']}: longest wait", "", goal, measured, wait["verdict"])


def _growth(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    if figures is None:
        yield _missing("SQLite, very many entities at random", str(GROWTH))
        return
    for row in figures["rows"]:
        if (row["what"], row["where"]) == ("entities", "SQLite"):
            few, *more = row["points"]
            for point in more:
                if point["size"] >= BEYOND_THE_CACHE:
                    title = f"SQLite, {point['size']:,} entities at random"
                    against = f"{few['size']} entities"
                    verdict = GROWTH.verdict(point["ratio"]["median"])
                    yield Held(title, against, str(GROWTH), spread(point["ratio"]), verdict)


def _dynamodb(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    if figures is None:
        yield _missing("DynamoDB client CPU per acquire", str(Goal(1 / 8, 1 / 4, at_most=True)))
        return
    for row in _with_goals(figures["rows"]):
        yield row._replace(what=f"DynamoDB client CPU: {row.what}")


def _redis_store(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    if figures is None:
        yield _missing("Redis, client's and server's CPU", str(Goal(0.33, 0.45, at_most=True)))
        return
    yield from _with_goals(figures["rows"])


def _costs(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    if figures is None:
        yield _missing("DynamoDB round trips and WCU per acquire", f"≤ {OVERLAPPING_NONE}")
        return
    for row in figures["rows"]:
        measured = f"{row['round_trips']:.2f} and {row['write_units']:.2f}"
        worst = max(row["round_trips"], row["write_units"])
        title = f"DynamoDB round trips and WCU: {row['situation']}"
        if row["situation"] in ONE_CALL:
            yield Held(title, "1 and 1", f"≤ {OVERLAPPING_NONE}", measured, said(worst <= OVERLAPPING_NONE))
        elif row["situation"] in TWO_CALLS:
            goal = 2 * OVERLAPPING_NONE
            yield Held(title, "2 and 2", f"≤ {goal}", measured, said(worst <= goal))
        elif row["situation"].startswith("denial, asked again"):
            yield Held(title, "", "0", measured, said(worst == 0))
    fleet = next(row for row in figures["crowds"] if row["clients"] == FLEET)
    for load, goal in FLEET_GOALS.items():
        calls = fleet["calls_per_grant"][load]
        title = f"calls per grant, {FLEET} clients on one bucket, {load} % of the limit asked (simulated)"
        yield Held(title, "simulated before it was built", f"≤ {goal}", f"{calls:.2f}", said(calls <= goal))


def _hot_entity(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    if figures is None:
        yield _missing("hot entity, linear in shards", "≥ 90 % of linear")
        return
    for goal in figures["goals"]:
        title = f"hot entity (simulated): {goal['what']}"
        yield Held(title, "", goal["goal"], goal["measured"], said(goal["reached"]))


def _memory(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    """That long walks stay flat."""
    if figures is None:
        yield _missing("memory of long walks", "flat after its bounds")
        return
    for soak in figures["soaks"]:
        if soak["bound"] is not None:
            title = f"memory of {soak['entities']:,} entities, {soak['where']}"
            measured = f"{soak['mb_first']:.0f} MB, then {soak['mb_second']:.0f} MB"
            yield Held(title, "", "flat after its bounds", measured, said(soak["verdict"] == "flat"))


def _imports(figures: Mapping[str, Any] | None, found: Mapping[str, Any]) -> Iterator[Held]:
    if figures is None:
        yield _missing("import zae_limiter", str(Goal(0.25, at_most=True)))
    else:
        for row in _with_goals(figures["rows"], imports=True):
            yield row._replace(what="`import zae_limiter`")
    loaded = found["loaded"]
    goal = f"without {', '.join(KEPT_OUT)}"
    yield Held("`import zae_limiter` loads", "", goal, ", ".join(loaded) or "none of them", said(not loaded))


def _startup(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    if figures is None:
        yield _missing("zae-limiter --version", str(Goal(0.75, at_most=True)))
        return
    for row in _with_goals(figures["rows"]):
        yield row._replace(what="`zae-limiter --version`")


def _integrations(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    if figures is None:
        yield _missing("OpenAI's client, limited", str(Goal(1.15, at_most=True)))
        return
    yield from _with_goals(figures["rows"])


def _rows_of(figures: Mapping[str, Any] | None, title: str, goal: Goal) -> Iterator[Held]:
    if figures is None:
        yield _missing(title, str(goal))
        return
    yield from _with_goals(figures["rows"])


def _dashboard(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    """Its cost does not depend on how many keys there are."""
    if figures is None:
        yield _missing("the dashboard's first view, 100,000 keys", str(Goal(1.25, at_most=True)))
        return
    yield from _with_goals(figures["rows"])
    for row in figures["calls"]:
        title = f"calls of the store for that view, {row['where']}"
        goal = f"the {row['calls_with_few']} of few keys"
        yield Held(title, "", goal, str(row["calls"]), said(row["calls"] == row["calls_with_few"]))


def _soak(figures: Mapping[str, Any] | None) -> Iterator[Held]:
    title, goal = "schedules of the last soak", f"≥ {SCHEDULES:,}, none failed"
    if figures is None:
        yield _missing(title, goal)
        return
    measured = f"{figures['schedules']:,}, {figures['failed']} failed"
    yield Held(title, "", goal, measured, said(figures["schedules"] >= SCHEDULES and not figures["failed"]))


def _paths(found: Mapping[str, Any]) -> Iterator[Held]:
    for path, goal in PATH_GOALS.items():
        crossed = found["crossed"][path]
        reached = all(one <= most for one, most in zip(crossed, goal, strict=True))
        texts = [f"{functions} functions in {files} files" for functions, files in (goal, crossed)]
        yield Held(f"{', '.join(path)}: crosses", "", f"≤ {texts[0]}", texts[1], said(reached))


def _zip(found: Mapping[str, Any]) -> Held:
    size, foreign = found["zip_bytes"], found["zip_foreign"]
    measured = f"{size / 1024:.0f} KB, {'third-party: ' + ', '.join(foreign) if foreign else 'only ours'}"
    goal = f"≤ {LARGEST // 1024} KB, no third-party code"
    return Held("aggregator zip", "", goal, measured, said(size <= LARGEST and not foreign))
