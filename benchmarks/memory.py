"""What a client keeps in memory: bytes of each thing, the bound of every cache, and long walks past all of them.

    .venv/bin/python benchmarks/memory.py                     what the report has: two or three minutes
    .venv/bin/python benchmarks/memory.py --full              every walk over a million entities: some ten minutes
    .venv/bin/python benchmarks/memory.py --full dynamodb     only this one
    .venv/bin/python benchmarks/memory.py --quick             only to see whether it works

What ``--full`` finds is kept in ``benchmarks/kept``, walk by walk, and shown in the report with its date. Things are
weighed in ``memory_bytes.py``, walks are judged in ``memory_soaks.py``, and ``memory_bounds.py`` reads the bounds from
the code. Nothing here is timed, so it may run beside something else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from memory_bounds import bounds
from memory_bytes import bytes_of_each
from memory_soaks import FLAT, SOAKS
from presenting import KEPT, OUT, circumstances

ENTITIES = {"dynamodb": 150_000, "sqlite": 150_000, "coming": 200_000, "memory": 100_000}
FULL, QUICK = 1_000_000, 20_000
SAMPLES_KEPT = 40
AT_ONCE = 2
NOTE = (
    "Private memory above what the process had before its first acquire. Walks are counted from where all their\n"
    "bounds are reached, and their halves are compared by their peaks: flat if the second has at most "
    f"{100 * (FLAT - 1):.0f} %\nmore. Where every bucket stays alive it is the data that grows, and what is shown is "
    "what an entity weighs with\neverything that is kept for it."
)


def soak_apart(name: str, entities: int) -> dict[str, Any]:
    """In a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("memory_soaks.py")), name, str(entities)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(finished.stdout)
    print(
        f"{found['where']}: {entities:,} entities, {found['mb_first']:.0f} MB, then {found['mb_second']:.0f} MB, "
        f"{found['bytes_per_entity']} bytes per entity, {found['cpu_seconds']:.0f} s of CPU: {found['verdict']}; "
        + ", ".join(f"{what} {most:,}" for what, most in found["most"].items()),
        flush=True,
    )
    return found


def keep(name: str, soak: Mapping[str, Any]) -> None:
    """A walk over a million, with fewer samples, beside those that were kept before."""
    path = KEPT / "soaks.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    samples = soak["samples"]
    about = {which: value for which, value in circumstances(()).items() if which in ("measured_at", "commit")}
    kept[name] = {**about, **soak, "samples": samples[:: max(len(samples) // SAMPLES_KEPT, 1)]}
    write(path, {which: kept[which] for which in SOAKS if which in kept})


def write(path: Path, report: Mapping[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(f"written: {path}")


def main() -> None:
    """Weigh, walk, show, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--full", nargs="*", choices=SOAKS, help=f"walks over {FULL:,} entities, and nothing else")
    chosen.add_argument("--quick", action="store_true", help="short walks, which say little")
    options = parser.parse_args()
    if options.full is not None:
        for name in options.full or SOAKS:
            keep(name, soak_apart(name, FULL))
        return
    about, remembered = circumstances(["zae-limiter"]), bounds()
    with tempfile.TemporaryDirectory() as folder:
        weights = bytes_of_each(Path(folder))
    for row in weights:
        print(f"{row['bytes']:>8,}  {row['what']}")
    for row in remembered:
        print(f"{row['most']:>14}  {row['cache']} ({row['where']})")
    with ThreadPoolExecutor(AT_ONCE) as walking:
        soaks = list(walking.map(lambda name: soak_apart(name, QUICK if options.quick else ENTITIES[name]), SOAKS))
    report = {**about, "bytes": weights, "bounds": remembered, "soaks": soaks, "note": NOTE}
    write(OUT / "memory.json", report)


if __name__ == "__main__":
    main()
