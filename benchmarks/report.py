"""Runs every benchmark and writes one report: ``benchmarks/REPORT.md`` with the pictures in ``benchmarks/plots``.

    .venv/bin/python benchmarks/report.py               what ``make bench`` does: fifteen minutes on two idle cores
    .venv/bin/python benchmarks/report.py --write       writes the report anew from what was measured last
    .venv/bin/python benchmarks/report.py growth costs  measures only these anew, then writes the report

``report_steps.py`` says how they are run. One that cannot run, or fails, is named in the report with the reason, and
so is when each was run: figures of an earlier run are never shown as if they were of this one.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from presenting import KEPT, OUT, circumstances
from report_goals import facts
from report_pages import page
from report_pictures import draw_all
from report_steps import HERE, STEPS, Outcome, run_all

REPORT = HERE / "REPORT.md"
RUNS = OUT / "runs.json"
KEPT_FIGURES = ("soak", "coverage")
"""What ``make soak`` and ``make coverage`` have kept: they take longer than ``make bench`` has."""

PACKAGES = (
    "zae-limiter",
    "limits",
    "pyrate-limiter",
    "throttled-py",
    "token-bucket",
    "aiolimiter",
    "sqlite-utils",
    "botocore",
    "urllib3",
    "redis",
)


def read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def found(runs: Mapping[str, Any]) -> dict[str, Any]:
    """What those that ran have measured, by name; and what was measured by hand and kept."""
    names = [step.name for step in STEPS if step.name in runs and "failed" not in runs[step.name]]
    figures = {name: figures for name in names if (figures := read(OUT / f"{name}.json")) is not None}
    if "memory" in figures:
        figures["memory"]["kept"] = read(KEPT / "soaks.json")
    return figures | {name: kept for name in KEPT_FIGURES if (kept := read(KEPT / f"{name}.json")) is not None}


def write(runs: Mapping[str, Any], total: float | None) -> None:
    """The report, of what there is."""
    figures = found(runs)
    pictures = draw_all(figures)
    names = [step.name for step in STEPS]
    REPORT.write_text(page(figures, runs, names, circumstances(PACKAGES), facts(), pictures, total))


def main() -> int:
    """Measure and write; 1 if something could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="benchmarks to run: " + ", ".join(step.name for step in STEPS))
    parser.add_argument("--write", action="store_true", help="run nothing")
    chosen = parser.parse_args()
    steps = [step for step in STEPS if not chosen.only or step.name in chosen.only]
    if len(steps) < len(chosen.only):
        parser.error(f"there is no such benchmark among {', '.join(chosen.only)}")
    OUT.mkdir(exist_ok=True)
    began = time.monotonic()
    whole = not chosen.write and not chosen.only
    runs: dict[str, Any] = {} if whole else read(RUNS) or {}

    def note(name: str, outcome: Outcome) -> None:
        runs[name] = outcome
        told = f"{outcome['seconds']} s, {outcome['cpu_seconds']} s of CPU" if "seconds" in outcome else ""
        print(f"{name}: {outcome.get('failed') or told}", flush=True)
        RUNS.write_text(json.dumps(runs, indent=2, ensure_ascii=False) + "\n")

    if not chosen.write:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            run_all(steps, note)
        except KeyboardInterrupt:
            print("\nstopped; the report stays as it was. What is measured: report.py --write")
            return 130
    write(runs, time.monotonic() - began if whole else None)
    print(f"{time.monotonic() - began:.0f} s; written: {REPORT.relative_to(HERE.parent)}")
    failed = [name for name, outcome in runs.items() if "failed" in outcome]
    if failed:
        print(f"not run: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
