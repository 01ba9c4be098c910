"""Showing findings: a table, and a JSON file from which the report is written and drawn."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from comparing import Finding, Waits
from measuring import Spread

OUT = Path(__file__).parent / "out"
KEPT = Path(__file__).parent / "kept"
"""What was measured by hand and is committed with the report."""

WAITS_COLUMNS = ("what", "who", "longest wait", "99 % within", "least served / best served", "goal", "")
COLUMNS = ("what", "ours", "theirs", "ratio (middle half)", "goal", "")


def circumstances(packages: Sequence[str]) -> dict[str, Any]:
    """Everything one needs to know to read the figures: when, where, which versions."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "versions": {package: _version(package) for package in packages},
    }


def show(findings: Sequence[Finding], about: dict[str, Any], *, counted: str = "CPU") -> None:
    """Print the ratios. ``counted`` says what time it is that they compare."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    caption = (
        f"{counted} per operation, median of interleaved rounds. {about['python']}, {about['processor']}, "
        f"{about['cores']} cores, load {about['load'][0]}. {versions}. Commit {about['commit']}."
    )
    _print_table(COLUMNS, [_cells(finding) for finding in findings], caption)


def show_waits(waits: Sequence[Waits]) -> None:
    """Print who waited how long."""
    rows = [
        (
            wait.title,
            wait.contender,
            f"{wait.worst_ms:.1f} ms",
            f"{wait.p99_ms:.2f} ms",
            f"{wait.fairness:.2f}",
            "" if wait.goal_ms is None else f"< {wait.goal_ms:g} ms",
            wait.verdict,
        )
        for wait in waits
    ]
    _print_table(WAITS_COLUMNS, rows, "Waits for single operations, several processes at once.")


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
    """With rich if it is there, plainly if not. The last column is a verdict."""
    if importlib.util.find_spec("rich") is None:
        widths = [max(len(row[column]) for row in [columns, *rows]) for column in range(len(columns))]
        for row in [columns, *rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        print(caption)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(caption=caption, show_lines=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    colours = {"reached": "green", "first step reached": "yellow", "not reached": "red", "": "default"}
    for row in rows:
        table.add_row(*row[:-1], f"[{colours[row[-1]]}]{row[-1]}[/]")
    Console(width=None if os.isatty(1) else 150).print(table)


def write(name: str, findings: Sequence[Finding], about: dict[str, Any], waits: Sequence[Waits] = ()) -> Path:
    """Write ``out/name.json``; returns where."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    report = about | {
        "rows": [finding.as_dict() for finding in findings],
        "waits": [wait.as_dict() for wait in waits],
    }
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return path


def _cells(finding: Finding) -> tuple[str, ...]:
    row, ratio = finding.comparison, finding.ratio
    return (
        row.title,
        f"{row.ours.name}\n{_time(finding.ours)}",
        f"{row.theirs.name}\n{_time(finding.theirs)}",
        f"{ratio.median:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})",
        "" if row.goal is None else str(row.goal),
        finding.verdict,
    )


def _time(seconds: Spread) -> str:
    micros = seconds.median * 1e6
    return f"{micros:.2f} µs" if micros < 1000 else f"{micros / 1000:.2f} ms"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
