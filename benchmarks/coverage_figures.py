"""What ``make coverage`` found: which part of the lines and branches of ``src`` the tests have run, by package.

It reads ``build/coverage.json`` and prints a table. With ``--keep`` the figures go into ``benchmarks/kept``, from
where the report shows them: only a run of all tests may do that.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from presenting import KEPT, circumstances

FOUND = Path(__file__).parents[1] / "build" / "coverage.json"
KEPT_FILE = KEPT / "coverage.json"
COUNTED = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def package_of(path: str) -> str:
    """``zae_limiter/stores/redis``: two folders below the package at most, so that a table is readable."""
    folders = Path(path).parent.parts
    start = next(index for index, name in enumerate(folders) if name.startswith("zae_limiter"))
    depth = 3 if "stores" in folders else 2
    return "/".join(folders[start : start + depth])


def percent(done: int, of: int) -> float:
    return round(100 * done / of, 2) if of else 100.0


def row(counts: Mapping[str, int]) -> dict[str, Any]:
    lines, branches = counts["num_statements"], counts["num_branches"]
    return {
        "statements": lines,
        "lines_percent": percent(counts["covered_lines"], lines),
        "branches": branches,
        "branches_percent": percent(counts["covered_branches"], branches),
    }


def figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """Totals, and a row for each package."""
    packages: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for path, facts in found["files"].items():
        counts = Counter({name: facts["summary"][name] for name in COUNTED})
        packages.setdefault(package_of(path), Counter()).update(counts)
        total.update(counts)
    return {"total": row(total), "packages": {name: row(packages[name]) for name in sorted(packages)}}


def main() -> None:
    """Show, and keep if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="these are the figures of all tests")
    shown = figures(json.loads(FOUND.read_text()))
    print(f"{'':40} statements   lines  branches  branches")
    for name, one in [*shown["packages"].items(), ("all", shown["total"])]:
        print(
            f"{name:40} {one['statements']:10,} {one['lines_percent']:6.1f}% {one['branches']:9,}"
            f" {one['branches_percent']:8.1f}%"
        )
    if parser.parse_args().keep:
        about = circumstances(["coverage"])
        kept = {name: about[name] for name in ("measured_at", "commit", "python")}
        KEPT_FILE.write_text(json.dumps(kept | shown, indent=2) + "\n")
        print(f"kept: {KEPT_FILE.name}")


if __name__ == "__main__":
    main()
