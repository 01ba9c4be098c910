"""The text of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report_goals import Held, held, spread

BENCHMARKS = {
    "embedded": "Embedded stores against other libraries",
    "dynamodb": "CPU of the DynamoDB client",
    "redis_store": "Redis against other libraries on the same server",
    "costs": "Round trips and write units on DynamoDB",
    "growth": "How the cost grows as the work grows",
    "memory": "Memory",
    "hot_entity": "One hot entity",
    "aggregator": "The aggregator",
    "startup": "Starting",
    "integrations": "What the integrations add",
    "service": "The service over HTTP",
    "dashboard": "The dashboard, and how many keys there are",
    "envoy": "Behind Envoy",
    "namesake": "Against the other zae-limiter",
    "soak": "Schedules of the last soak",
    "coverage": "What the tests run",
}
"""Sections, in order. Those that no benchmark is there for are left out."""

KEPT = {"soak": "make soak", "coverage": "make coverage"}
"""Sections whose figures are not of ``make bench``, and where they come from."""


def page(
    figures: Mapping[str, Any],
    runs: Mapping[str, Any],
    names: Sequence[str],
    about: Mapping[str, Any],
    facts: Mapping[str, Any],
    pictures: Mapping[str, str],
    total: float | None = None,
) -> str:
    """All of it. ``total``: seconds, if all was measured in one go."""
    parts = [_head(runs, names, about, total), _goals(held(figures, facts))]
    for name, title in BENCHMARKS.items():
        if name not in figures and name not in names and name not in KEPT:
            continue
        parts.append(f"## {title}\n")
        if name in figures:
            parts.append(_kept(name, figures[name]) if name in KEPT else _how(name, figures[name], runs.get(name, {})))
            if name in pictures:
                parts.append(f"![{title}]({pictures[name]})\n")
            parts.append(_section(name, figures[name]))
        else:
            reason = f"`{KEPT[name]}` keeps its figures" if name in KEPT else "it was not asked for"
            parts.append(f"Not run: {runs.get(name, {}).get('failed', reason)}.\n")
    return "\n".join(parts)


def _section(name: str, figures: Mapping[str, Any]) -> str:
    """One that cannot be written says so, and loses no other."""
    try:
        return "\n".join(SECTIONS[name](figures)) + "\n"
    except (KeyError, IndexError, TypeError, ValueError) as error:
        return f"Cannot be shown: {error!r}. Its figures are of another version of the benchmark.\n"


def table(columns: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(lines) + "\n"


def _head(runs: Mapping[str, Any], names: Sequence[str], about: Mapping[str, Any], total: float | None) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    ran = [name for name in names if name in runs and "failed" not in runs[name]]
    took = f"{total:.0f} s" if total else f"{sum(runs[name]['seconds'] for name in ran):.0f} s, not all in one go"
    missing = [f"{name} ({runs[name]['failed']})" for name in names if "failed" in runs.get(name, {})]
    missing += [f"{name} (it was not asked for)" for name in names if name not in runs]
    return (
        "# What it costs, measured\n\n"
        "Written by `benchmarks/report.py`, which `make bench` runs; do not edit. Sections say when they were\n"
        "measured. Only ratios mean something: both sides of each were measured in the\n"
        "same run, in turns, and what is shown is the median of the rounds with the middle half of them in brackets.\n"
        "What is simulated says so. One part again: `.venv/bin/python benchmarks/report.py growth`.\n\n"
        f"{about['python']} on {about['system']}; {about['processor']}, {about['cores']} cores. "
        f"Written at commit {about['commit']}, {about['measured_at']}.\n{versions}.\n\n"
        f"The benchmarks took {took}. Not run: {', '.join(missing) or 'none'}.\n"
    )


def _goals(goals: Sequence[Held]) -> str:
    rows = [(goal.what, goal.against, goal.goal, goal.measured, _shown(goal.verdict)) for goal in goals]
    missed = [goal for goal in goals if goal.verdict != "reached"]
    summary = f"{len(goals) - len(missed)} of {len(goals)} reached."
    return f"## Goals\n\n{summary}\n\n" + table(("what", "against", "goal", "measured", ""), rows)


def _shown(verdict: str) -> str:
    return verdict if verdict == "reached" else f"**{verdict}**"


def _how(name: str, figures: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
    command = " ".join([f"benchmarks/{name}.py", *outcome.get("options", ())])
    load = figures.get("load", ["?"])[0]
    took = f"{outcome.get('at', '')}, {outcome.get('seconds', 0):.0f} s"
    if "cpu_seconds" in outcome:
        took += f" ({outcome['cpu_seconds']:.0f} s of CPU)"
    return f"`{command}`, commit {figures['commit']}, {took}; load when that was noted: {load}.\n"


def _kept(name: str, figures: Mapping[str, Any]) -> str:
    return f"`{KEPT[name]}`, commit {figures['commit']}, {figures['measured_at']}, Python {figures['python']}.\n"


def _time(seconds: float) -> str:
    micros = seconds * 1e6
    return f"{micros:.1f} µs" if micros < 1000 else f"{micros / 1000:.2f} ms"


def _comparisons(figures: Mapping[str, Any]) -> Iterator[str]:
    def cells(row: Mapping[str, Any]) -> Sequence[str]:
        ours, theirs = row["ours"], row["theirs"]
        digits = 3 if row["ratio_means"] == "our cost in theirs" else 2
        return (
            row["title"],
            f"{ours['name']}: {_time(ours['seconds']['median'])}",
            f"{theirs['name']}: {_time(theirs['seconds']['median'])}",
            spread(row["ratio"], digits),
            row["goal"] or "",
            _shown(row["verdict"]) if row["verdict"] else "",
        )

    faster = [row for row in figures["rows"] if row["ratio_means"] == "times faster"]
    cheaper = [row for row in figures["rows"] if row["ratio_means"] != "times faster"]
    for rows, ratio in ((faster, "times faster"), (cheaper, "our cost in theirs")):
        if rows:
            yield table(("what", "ours", "theirs", ratio, "goal", ""), [cells(row) for row in rows])


def _embedded(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "One call of ours takes from two limits, all or nothing, and counts usage; the others know one limit per\n"
        "call and are called once per limit. CPU in memory, time on the wall on SQLite.\n"
    )
    yield from _comparisons(figures)
    rows = [
        (
            wait["title"],
            wait["contender"],
            f"{wait['worst_ms']:.1f} ms",
            f"{wait['p99_ms']:.1f} ms",
            f"{wait['fairness']:.2f}",
        )
        for wait in figures["waits"]
    ]
    yield table(("waits", "who", "longest", "99 % within", "least served / best served"), rows)


def _dynamodb(figures: Mapping[str, Any]) -> Iterator[str]:
    yield "CPU of the client alone; dynoxide, or a server that always says the same, is another process.\n"
    yield from _comparisons(figures)


def _redis_store(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"All on one server ({figures['server']}). One acquire of ours is one round trip that takes from two limits,\n"
        "all or nothing; a hit of theirs is one limit and one round trip. What a call costs the server is there too:\n"
        "a script of ours does more than a fixed window. The server's CPU is of calls one after the other, reading\n"
        "and writing of the socket included; pipelined, of the same commands, many in one write.\n"
    )
    yield from _comparisons(figures)


def _costs(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Per acquire, on average; units as dynoxide reports them, indexes included, and one for a refused condition,\n"
        "which DynamoDB charges. Calls that are sent at the same time are one round trip.\n"
    )
    columns = ("situation", "acquires", "round trips", "calls", "write units", "read units")
    rows = [
        (
            row["situation"],
            str(row["acquires"]),
            *(f"{row[name]:.2f}" for name in ("round_trips", "calls", "write_units", "read_units")),
        )
        for row in figures["rows"]
    ]
    yield table(columns, rows)
    loads = list(figures["crowds"][0]["calls_per_grant"])
    yield "Calls per grant of a fleet at one bucket, by how much of the limit it asks for (simulated):\n"
    columns = ("clients", *(f"{load} %" for load in loads), f"per denial at {loads[-1]} %", "given of the limit")
    rows = [
        (
            str(row["clients"]),
            *(f"{row['calls_per_grant'][load]:.2f}" for load in loads),
            f"{row['calls_per_denial']:.2f}",
            f"{100 * row['share_given']:.2f} %",
        )
        for row in figures["crowds"]
    ]
    yield table(columns, rows)


def _growth(figures: Mapping[str, Any]) -> Iterator[str]:
    yield figures["note"] + "\n"
    for what in dict.fromkeys(row["what"] for row in figures["rows"]):
        rows = [row for row in figures["rows"] if row["what"] == what]
        sizes = list(dict.fromkeys(point["size"] for row in rows for point in row["points"]))
        cells = []
        for row in rows:
            points = {point["size"]: point for point in row["points"]}
            first = row["points"][0]["seconds"]["median"]
            ratios = [spread(points[size]["ratio"]) if size in points else "" for size in sizes]
            cells.append((row["where"], _time(first), *ratios[1:]))
        yield table((what, f"{sizes[0]:,}", *(f"{size:,}" for size in sizes[1:])), cells)


def _memory(figures: Mapping[str, Any]) -> Iterator[str]:
    yield table(("bytes of", "bytes"), [(row["what"], f"{row['bytes']:,}") for row in figures["bytes"]])
    yield "What is remembered, and how much of it at most (read from the code):\n"
    yield table(
        ("cache", "at most", "where", "when it is full"),
        [(row["cache"], row["most"], f"`{row['where']}`", row["full"]) for row in figures["bounds"]],
    )
    yield f"{figures['note']}\n"
    yield _soaks(figures["soaks"])
    kept = figures.get("kept")
    if kept:
        commits = dict.fromkeys(f"{soak['commit']}, {soak['measured_at']}" for soak in kept.values())
        yield (
            "Over a million entities each, which takes longer than `make bench` has (`benchmarks/memory.py --full`;\n"
            f"commit {'; '.join(commits)}):\n"
        )
        yield _soaks(list(kept.values()))


def _soaks(soaks: Sequence[Mapping[str, Any]]) -> str:
    columns = ("walk", "entities", "MB, first half", "MB, second half", "bytes per entity", "at most there were", "")
    rows = [
        (
            row["where"],
            f"{row['entities']:,}",
            f"{row['mb_first']:,.0f}" if row["bound"] else "",
            f"{row['mb_second']:,.0f}",
            f"{row['bytes_per_entity']:,.0f}",
            ", ".join(f"{count:,} {what}" for what, count in row["most"].items()),
            row["verdict"],
        )
        for row in soaks
    ]
    return table(columns, rows)


def _hot_entity(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Simulated: the real plans over the model of DynamoDB, partitions of 1,000 write units a second, 4 to 8 ms\n"
        "a call.\n"
    )
    columns = ("one entity", "processes", "asked/s", "admitted/s", "p50 ms", "p99 ms", "WCU per acquire", "shards")

    def cells(name: str, course: Mapping[str, Any]) -> Sequence[str]:
        return (
            name,
            str(course["processes"]),
            f"{course['offered_per_second']:,}",
            f"{course['admitted_per_second']:,}",
            f"{course['p50_ms']:.1f}",
            f"{course['p99_ms']:.1f}",
            f"{course['wcu_per_acquire']:.3f}",
            str(course["shards"]),
        )

    rows = [cells(name, course) for name, courses in figures["one_entity"].items() for course in courses]
    rows += [cells(f"parent of 1,000, {name}", course) for name, course in figures["one_parent"].items()]
    rows += [cells("every shard asked for more than it takes", course) for course in figures["by_shards"]]
    yield table(columns, rows)


def _aggregator(figures: Mapping[str, Any]) -> Iterator[str]:
    yield "Records of the stream that one core counts in a second; dynoxide is another process.\n"
    columns = ("entities", "in a batch", "snapshot writes per 1,000 acquires", "records/s and core", "deciding alone")
    rows = []
    for row in figures["rows"]:
        alone = row["records_per_second_and_core_deciding_alone"]
        rows.append(
            (
                f"{row['entities']:,}",
                f"{row['batch']:,}",
                f"{row['snapshot_writes_per_thousand_acquires']:,.1f}",
                f"{row['records_per_second_and_core']:,}",
                f"{alone['median']:,.0f} ({alone['low']:,.0f} to {alone['high']:,.0f})",
            )
        )
    yield table(columns, rows)


def _dashboard(figures: Mapping[str, Any]) -> Iterator[str]:
    yield "CPU of reading what the first view shows. It is made of pulses, and scans nothing.\n"
    yield from _comparisons(figures)
    columns = ("calls of the store for a view", "keys", "calls", "with few keys")
    yield table(
        columns,
        [
            (row["where"], f"{row['keys']:,}", str(row["calls"]), str(row["calls_with_few"]))
            for row in figures["calls"]
        ],
    )


def _soak(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{figures['schedules']:,} schedules of {figures['profiles']} profiles, seeds {figures['first_seed']} to "
        f"{figures['last_seed']}, in {figures['minutes']} minutes on {figures['processes']} processes: "
        f"{figures['granted']:,} grants, {figures['denied']:,} denials, {figures['failed']} schedules that failed.\n"
        "The same again: `.venv/bin/python tests/simulation soak --minutes 1000 "
        f"--seed {figures['first_seed']} --schedules {figures['schedules']}`.\n"
    )


def _coverage(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Of `src`, by all tests, with the processes that they start. No test is written for these numbers: they show\n"
        "where none looks.\n"
    )
    rows = [*figures["packages"].items(), ("**all**", figures["total"])]
    yield table(
        ("package", "statements", "run", "branches", "run"),
        [
            (
                name if name.startswith("*") else f"`{name}`",
                f"{one['statements']:,}",
                f"{one['lines_percent']:.1f} %",
                f"{one['branches']:,}",
                f"{one['branches_percent']:.1f} %",
            )
            for name, one in rows
        ],
    )


def _namesake(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"The project that has this name on PyPI, version {figures['their_version']}, in an environment of its own.\n"
        "Both clients take from two limits of one bucket on the same dynoxide; CPU of the client's process, and what\n"
        "the engine was asked for per acquire.\n"
    )
    yield from _comparisons(figures)
    columns = ("per acquire", "calls, ours", "theirs", "write units, ours", "theirs", "read units, ours", "theirs")
    rows = [
        (
            row["situation"],
            *(
                f"{row[side][what]:.2f}"
                for what in ("calls", "write_units", "read_units")
                for side in ("ours", "theirs")
            ),
        )
        for row in figures["costs"]
    ]
    yield table(columns, rows)


SECTIONS = {
    "embedded": _embedded,
    "dynamodb": _dynamodb,
    "redis_store": _redis_store,
    "costs": _costs,
    "growth": _growth,
    "memory": _memory,
    "hot_entity": _hot_entity,
    "aggregator": _aggregator,
    "startup": _comparisons,
    "integrations": _comparisons,
    "service": _comparisons,
    "dashboard": _dashboard,
    "envoy": _comparisons,
    "namesake": _namesake,
    "soak": _soak,
    "coverage": _coverage,
}
