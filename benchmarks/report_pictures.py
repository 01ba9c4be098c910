"""The pictures of the report, drawn from what was measured."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PLOTS = Path(__file__).parent / "plots"
BLUE, ORANGE, GREEN, RED, GREY = "#4c78a8", "#f58518", "#54a24b", "#e45756", "#b0b0b0"
FEATURES = {
    "shards and joined writes": BLUE,
    "shards only": ORANGE,
    "joined writes only": GREEN,
    "neither": GREY,
}
STORES = {"memory": BLUE, "SQLite": ORANGE, "DynamoDB": GREEN}
DPI = 80


def draw_all(figures: Mapping[str, Any]) -> dict[str, str]:
    """Where each picture is, as the report names it; none without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return {}
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    PLOTS.mkdir(exist_ok=True)
    drawn = {}
    for name, draw in PICTURES.items():
        if name in figures:
            try:
                figure = draw(pyplot, figures[name])
            except (KeyError, IndexError, TypeError, ValueError) as error:
                print(f"no picture of {name}: {error!r}")
                continue
            figure.savefig(PLOTS / f"{name}.png", dpi=DPI, metadata={"Software": None})
            pyplot.close(figure)
            drawn[name] = f"plots/{name}.png"
    return drawn


def _bars(axes: Any, rows: Sequence[Mapping[str, Any]], goal_of: Callable[[str], float]) -> None:
    """A bar per ratio with its middle half, and a red mark at its goal."""
    ratios = [row["ratio"] for row in rows]
    errors = [[r["median"] - r["low"] for r in ratios], [r["high"] - r["median"] for r in ratios]]
    places = list(range(len(rows)))
    axes.barh(places, [r["median"] for r in ratios], xerr=errors, color=BLUE, ecolor="black")
    for place, row in zip(places, rows, strict=True):
        if row["goal"] is not None:
            axes.plot([goal_of(row["goal"])] * 2, [place - 0.4, place + 0.4], color=RED, linewidth=2)
    labels = [f"{row['title']}\nagainst {row['theirs']['name']}" for row in rows]
    axes.set_yticks(places, labels, fontsize=8)
    axes.invert_yaxis()


def _goal(text: str) -> float:
    return float(text.split()[1].rstrip("x"))


def _embedded(pyplot: Any, figures: Mapping[str, Any]) -> Any:
    rows = [row for row in figures["rows"] if row["ratio_means"] == "times faster"]
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(rows) + 1), layout="constrained")
    _bars(axes, rows, _goal)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times faster than theirs (logarithmic); red: the goal")
    return figure


def _dynamodb(pyplot: Any, figures: Mapping[str, Any]) -> Any:
    rows = figures["rows"]
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(rows) + 1), layout="constrained")
    _bars(axes, rows, _goal)
    axes.set_xlabel("our cost in botocore's; red: the goal")
    return figure


def _costs(pyplot: Any, figures: Mapping[str, Any]) -> Any:
    rows = figures["rows"]
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(rows) + 1), layout="constrained")
    places = range(len(rows))
    axes.barh([place - 0.2 for place in places], [row["round_trips"] for row in rows], 0.4, label="round trips")
    axes.barh(
        [place + 0.2 for place in places], [row["write_units"] for row in rows], 0.4, color=ORANGE, label="write units"
    )
    axes.set_yticks(list(places), [row["situation"] for row in rows], fontsize=8)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("per acquire")
    axes.legend()
    return figure


def _growth(pyplot: Any, figures: Mapping[str, Any]) -> Any:
    kinds = list(dict.fromkeys(row["what"] for row in figures["rows"]))
    figure, panels = pyplot.subplots(1, len(kinds), figsize=(4 * len(kinds), 3.6), layout="constrained")
    for axes, what in zip(panels, kinds, strict=True):
        for row in figures["rows"]:
            if row["what"] != what:
                continue
            sizes = [point["size"] for point in row["points"]]
            ratios = [point["ratio"] for point in row["points"]]
            colour = next(colour for store, colour in STORES.items() if row["where"].startswith(store))
            style = "o--" if row["where"].endswith("each") else "o-"
            axes.plot(sizes, [r["median"] for r in ratios], style, color=colour, label=row["where"])
            axes.fill_between(sizes, [r["low"] for r in ratios], [r["high"] for r in ratios], color=colour, alpha=0.2)
        if what == "entities":
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_title(what)
        axes.legend(fontsize=7)
    panels[0].set_ylabel("cost per acquire, of the smallest")
    return figure


def _memory(pyplot: Any, figures: Mapping[str, Any]) -> Any:
    soaks = figures["soaks"]
    figure, panels = pyplot.subplots(1, len(soaks), figsize=(4.5 * len(soaks), 3.6), layout="constrained")
    for axes, soak in zip(panels, soaks, strict=True):
        entities = [sample["entities"] / 1000 for sample in soak["samples"]]
        colour = next(colour for store, colour in STORES.items() if soak["where"].startswith(store))
        axes.plot(entities, [sample["mb"] for sample in soak["samples"]], color=colour)
        if soak["bound"] is not None:
            axes.axvline(soak["bound"] / 1000, color=RED, linewidth=0.8, label="its bounds are reached")
            axes.legend(fontsize=8)
        axes.set_ylim(bottom=0)
        axes.set_title(soak["where"], fontsize=10)
        axes.set_xlabel("thousand entities seen")
    panels[0].set_ylabel("private MB above the start")
    return figure


def _hot_entity(pyplot: Any, figures: Mapping[str, Any]) -> Any:
    figure, ((admitted, latency, cost), (linear, growing, family)) = pyplot.subplots(
        2, 3, figsize=(14, 7.5), layout="constrained"
    )
    _by_load(admitted, latency, cost, figures["one_entity"])
    counts = [course["shards"] for course in figures["by_shards"]]
    linear.loglog(counts, [c["admitted_per_second"] for c in figures["by_shards"]], "o-", color=ORANGE)
    linear.loglog(counts, [1_000 * count for count in counts], ":", color="black", label="1,000 per shard")
    linear.set_xticks(counts, [str(count) for count in counts])
    linear.set_xlabel("shards")
    linear.set_title("admitted per second by so many shards")
    linear.legend(fontsize=8)
    for name, course in figures["over_time"].items():
        moments = [moment for moment, _ in course["shards_over_time"]]
        growing.step(moments, [count for _, count in course["shards_over_time"]], color=FEATURES[name], label=name)
    growing.set_yscale("log", base=2)
    growing.set_xlabel(f"seconds, from one shard on; all but time and latency at 1/{figures['scaled']}")
    growing.set_title("shards over time")
    growing.legend(fontsize=8)
    _of_parent(family, figures["one_parent"])
    return figure


def _by_load(admitted: Any, latency: Any, cost: Any, loads: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    some = next(iter(loads.values()))
    places = list(range(len(some)))
    labels = [f"{course['processes']} p.\n{course['offered_per_second'] // 1000}k/s" for course in some]
    for name, courses in loads.items():
        colour = FEATURES[name]
        admitted.plot(places, [c["admitted_per_second"] for c in courses], "o-", color=colour, label=name)
        latency.plot(places, [c["p50_ms"] for c in courses], "o-", color=colour)
        latency.plot(places, [c["p99_ms"] for c in courses], "o--", color=colour)
        cost.plot(places, [c["wcu_per_acquire"] for c in courses], "o-", color=colour)
    admitted.plot(places, [c["offered_per_second"] for c in some], ":", color="black", label="asked")
    for axes in (admitted, latency, cost):
        axes.set_xticks(places, labels, fontsize=8)
    for axes in (admitted, cost):
        axes.set_ylim(bottom=0)
    latency.set_yscale("log")
    latency.set_yticks([5, 10, 20, 40], ["5", "10", "20", "40"])
    latency.minorticks_off()
    admitted.set_title("admitted per second")
    latency.set_title("ms per grant: median —, 99 % - -")
    cost.set_title("write units per acquire")
    admitted.legend(fontsize=8)


def _of_parent(axes: Any, courses: Mapping[str, Mapping[str, Any]]) -> None:
    places = list(range(len(courses)))
    rates = [course["admitted_per_second"] for course in courses.values()]
    axes.bar(places, rates, color=[FEATURES[name] for name in courses])
    for place, course in zip(places, courses.values(), strict=True):
        text = f"{course['wcu_per_acquire']:.2f} WCU\n{course['p50_ms']:.0f} / {course['p99_ms']:.0f} ms"
        axes.text(place, course["admitted_per_second"], text, ha="center", va="bottom", fontsize=8)
    axes.set_ylim(0, 1.25 * max(rates))
    axes.set_xticks(
        places, [name.replace(" and ", "\nand ").replace(" only", "\nonly") for name in courses], fontsize=8
    )
    axes.set_title("a parent of 1,000 children: admitted of 10,000/s")


PICTURES: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "embedded": _embedded,
    "dynamodb": _dynamodb,
    "costs": _costs,
    "growth": _growth,
    "memory": _memory,
    "hot_entity": _hot_entity,
}
