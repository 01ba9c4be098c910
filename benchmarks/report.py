"""Runs every benchmark and writes one report: ``benchmarks/REPORT.md`` with the pictures in ``benchmarks/plots``.

    .venv/bin/python benchmarks/report.py               what ``make bench`` does: under ten minutes on two cores
    .venv/bin/python benchmarks/report.py --write       writes the report anew from what was measured last
    .venv/bin/python benchmarks/report.py growth costs  measures only these anew, then writes the report

Benchmarks run one after the other, each in a process of its own. One that cannot run, or fails, is named in the report
with the reason, and so is when each was run: figures of an earlier run are never shown as if they were of this one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from presenting import OUT, circumstances
from report_goals import facts
from report_pages import page
from report_pictures import draw_all

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines.servers import dynoxide_engine

HERE = Path(__file__).parent
REPORT = HERE / "REPORT.md"
RUNS = OUT / "runs.json"
LONGEST_S = 300
PACKAGES = (
    "zae-limiter",
    "limits",
    "pyrate-limiter",
    "throttled-py",
    "token-bucket",
    "aiolimiter",
    "sqlite-utils",
    "botocore",
    "aiobotocore",
    "aiohttp",
    "urllib3",
)


class Step(NamedTuple):
    """One benchmark, as it is run for the report."""

    name: str
    options: tuple[str, ...] = ()
    on_dynoxide: bool = False


STEPS = (
    Step("startup", ("--quick",)),
    Step("embedded"),
    Step("dynamodb", ("--quick",), on_dynoxide=True),
    Step("costs", ("--quick",), on_dynoxide=True),
    Step("growth"),
    Step("memory", ("--quick",)),
    Step("aggregator", ("--quick",), on_dynoxide=True),
    Step("hot_entity", ("--quick",)),
)


def run(step: Step) -> dict[str, Any]:
    """How it went."""
    outcome: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "options": list(step.options)}
    missing = dynoxide_engine().why_not_here() if step.on_dynoxide else None
    if missing is not None:
        return {**outcome, "failed": missing}
    began = time.monotonic()
    command = [sys.executable, str(HERE / f"{step.name}.py"), *step.options]
    try:
        finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return {**outcome, "failed": f"it took longer than {LONGEST_S} s"}
    outcome["seconds"] = round(time.monotonic() - began, 1)
    if finished.returncode != 0:
        lines = finished.stdout.decode(errors="replace").strip().splitlines()
        print("\n".join(lines[-30:]), file=sys.stderr)
        outcome["failed"] = lines[-1] if lines else f"exit code {finished.returncode}"
    return outcome


def run_all(steps: Sequence[Step], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """All of them, told while they go."""
    runs = dict(earlier)
    for number, step in enumerate(steps, 1):
        print(f"{number}/{len(steps)} {step.name} … ", end="", flush=True)
        runs[step.name] = outcome = run(step)
        print(f"not run: {outcome['failed']}" if "failed" in outcome else f"{outcome['seconds']} s", flush=True)
        RUNS.write_text(json.dumps(runs, indent=2, ensure_ascii=False) + "\n")
    return runs


def read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def found(runs: Mapping[str, Any]) -> dict[str, Any]:
    """What those that ran have measured, by name."""
    names = [step.name for step in STEPS if step.name in runs and "failed" not in runs[step.name]]
    return {name: figures for name in names if (figures := read(OUT / f"{name}.json")) is not None}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="benchmarks to run: " + ", ".join(step.name for step in STEPS))
    parser.add_argument("--write", action="store_true", help="run nothing")
    chosen = parser.parse_args()
    steps = [step for step in STEPS if not chosen.only or step.name in chosen.only]
    if len(steps) < len(chosen.only):
        parser.error(f"there is no such benchmark among {', '.join(chosen.only)}")
    OUT.mkdir(exist_ok=True)
    began = time.monotonic()
    runs = (read(RUNS) or {}) if chosen.write or chosen.only else {}
    if not chosen.write:
        runs = run_all(steps, runs)
    about = circumstances(PACKAGES)
    figures = found(runs)
    pictures = draw_all(figures)
    REPORT.write_text(page(figures, runs, [step.name for step in STEPS], about, facts(), pictures))
    print(f"{time.monotonic() - began:.0f} s; written: {REPORT.relative_to(HERE.parent)}")
    failed = [name for name, outcome in runs.items() if "failed" in outcome]
    if failed:
        print(f"not run: {', '.join(failed)}")


if __name__ == "__main__":
    main()
