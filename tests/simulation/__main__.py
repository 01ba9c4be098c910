"""Runs the simulator by hand.

python tests/simulation replay everything 1234     one schedule again, with what it does ("slots: divided" 7 too)
python tests/simulation soak --minutes 60          schedules for so long; prints every one that fails, and the seeds
python tests/simulation table                      calls per grant for crowds at one bucket
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """The exit code."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from simulation import crowds, soak

    parser = argparse.ArgumentParser(prog="python tests/simulation", description="Fleets over a model of DynamoDB")
    commands = parser.add_subparsers(dest="command", required=True)
    replay = commands.add_parser("replay", help="run one schedule again")
    replay.add_argument("profile", choices=soak.NAMES)
    replay.add_argument("seed", type=int)
    soaking = commands.add_parser("soak", help="run schedules for as long as you like")
    soaking.add_argument("--minutes", type=float, default=10.0)
    soaking.add_argument("--seed", type=int, default=None, help="the first one; random unless given")
    soaking.add_argument("--profile", choices=soak.NAMES, action="append", help="only this one; may be repeated")
    soaking.add_argument("--schedules", type=int, default=None, help="end after so many")
    soaking.add_argument("--processes", type=int, default=1)
    soaking.add_argument("--keep", action="store_true", help="keep what was run for the report of the benchmarks")
    tabling = commands.add_parser("table", help="what a grant costs")
    tabling.add_argument("--runs", type=int, default=crowds.RUNS, help="so many runs, each with another seed")
    tabling.add_argument("--seconds", type=int, default=crowds.SECONDS)
    tabling.add_argument("--rate", type=int, default=200)
    chosen = parser.parse_args()
    if chosen.command == "replay":
        return soak.replay(chosen.profile, chosen.seed)
    if chosen.command == "soak":
        return soak.soak(
            chosen.minutes,
            chosen.seed,
            chosen.profile,
            schedules=chosen.schedules,
            processes=chosen.processes,
            keep=chosen.keep,
        )
    print(crowds.table(runs=chosen.runs, seconds=chosen.seconds, rate=chosen.rate))
    return 0


if __name__ == "__main__":
    sys.exit(main())
