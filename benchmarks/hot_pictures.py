"""The picture of ``hot_entity.py``."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from hot_world import Course
from presenting import OUT

COLOURS = {
    "shards and joined writes": "#4c78a8",
    "shards only": "#f58518",
    "joined writes only": "#54a24b",
    "neither": "#b0b0b0",
}


def draw(
    loads: Mapping[str, Sequence[Course]],
    parent: Mapping[str, Course],
    alone: Sequence[Course],
    shards: Sequence[Course],
    grown: Mapping[str, Course],
    scaled: int,
) -> Path | None:
    """Write ``out/hot_entity.png``; ``None`` without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, ((admitted, latency, cost), (linear, time, family)) = pyplot.subplots(
        2, 3, figsize=(16, 9), layout="constrained"
    )
    some = next(iter(loads.values()))
    labels = [f"{course.setting.processes} p.\n{course.setting.offered // 1000}k/s" for course in some]
    places = range(len(labels))
    for name, courses in loads.items():
        colour = COLOURS[name]
        admitted.plot(places, [course.admitted_per_second for course in courses], "o-", color=colour, label=name)
        latency.plot(places, [course.quantile_ms(0.5) for course in courses], "o-", color=colour, label=name)
        latency.plot(places, [course.quantile_ms(0.99) for course in courses], "o--", color=colour)
        cost.plot(places, [course.wcu_per_acquire for course in courses], "o-", color=colour, label=name)
    asked = [course.setting.offered for course in some]
    admitted.plot(places, asked, ":", color="black", label="asked, and the limit")
    for axes in (admitted, latency, cost):
        axes.set_xticks(list(places), labels)
        axes.set_ylim(bottom=0)
    latency.set_yscale("log")
    latency.set_ylim(4, 200)
    cost.axhline(1, color="grey", linewidth=0.8)
    admitted.set_title("One entity: admitted per second")
    latency.set_title("Milliseconds per grant: median —, 99 % - -")
    cost.set_title("Write units per acquire")
    admitted.legend(fontsize=8)

    counts = [course.setting.shards for course in shards]
    linear.loglog(counts, [course.admitted_per_second for course in shards], "o-", color=COLOURS["shards only"])
    linear.loglog(counts, [count * 1_000 for count in counts], ":", color="black", label="1,000 per shard")
    linear.set_xticks(counts, [str(count) for count in counts])
    linear.set_xlabel("shards")
    linear.set_title("Admitted per second by so many shards (not joined)")
    linear.legend(fontsize=8)

    for name, course in grown.items():
        moments = [at for at, _ in course.shards]
        time.step(moments, [count for _, count in course.shards], where="post", color=COLOURS[name], label=name)
    time.set_yscale("log", base=2)
    time.set_yticks([2**power for power in range(7)], [str(2**power) for power in range(7)])
    time.set_xlabel("seconds")
    time.set_title(f"Shards over time, all but time and latency at 1/{scaled}")
    rates = time.twinx()
    for name, course in grown.items():
        tenths = sorted(course.granted_by_tenth)
        seconds = [(tenth - tenths[0]) / 10 for tenth in tenths]
        sums = [sum(course.granted_by_tenth.get(tenth - back, 0) for back in range(5)) * 2 for tenth in tenths]
        rates.plot(seconds, sums, "-", color=COLOURS[name], alpha=0.35)
    rates.set_ylim(bottom=0)
    rates.set_ylabel("admitted per second (pale)")
    time.legend(fontsize=8, loc="center right")

    names = list(parent)
    family.bar(
        names, [course.admitted_per_second for course in parent.values()], color=[COLOURS[name] for name in names]
    )
    for place, course in enumerate(parent.values()):
        text = f"{course.wcu_per_acquire:.2f} WCU\n{course.quantile_ms(0.5):.0f} / {course.quantile_ms(0.99):.0f} ms"
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
        family.text(place, course.admitted_per_second + 200, text, ha="center", va="bottom", fontsize=9, bbox=box)
    family.axhline(next(iter(parent.values())).setting.offered, linestyle=":", color="black")
    family.set_xticks(
        range(len(names)), [name.replace(" and ", "\nand ").replace(" only", "\nonly") for name in names]
    )
    family.set_ylim(0, 13_000)
    family.set_title("A parent of 1,000 children, 10,000/s asked: admitted")
    OUT.mkdir(exist_ok=True)
    path = OUT / "hot_entity.png"
    figure.savefig(path, dpi=110)
    return path
