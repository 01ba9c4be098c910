"""How long the command takes to begin, against sqlite-utils: CPU of whole processes, from start to end.

Run it with ``python benchmarks/startup.py``, after ``make bench`` has installed what it is compared with. Every round
starts each command once, in turns; the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from comparing import Comparison, Goal, find
from measuring import Contender, Costs
from presenting import circumstances, show, write

BIN = Path(sys.executable).parent
ROUNDS, QUICK_ROUNDS = 15, 5
PACKAGES = ("zae-limiter", "click", "sqlite-utils")


def started(*words: str) -> Contender:
    """A command of this environment, as a shell starts it."""

    def run(times: int) -> None:
        for _ in range(times):
            subprocess.run([BIN / words[0], *words[1:]], stdout=subprocess.DEVNULL, check=True)

    return Contender(" ".join(words), "one process, from start to end", run)


def cpu_of_children() -> float:
    """Seconds of CPU that ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_starts(contenders: Sequence[Contender], rounds: int) -> Costs:
    """CPU seconds of each, in turns, each round in another order. The first round only warms up."""
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(rounds + 1):
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            before = cpu_of_children()
            contender.run(1)
            if number:
                seconds[contender.name].append(cpu_of_children() - before)
    return Costs(seconds)


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds: for trying out, not for quoting")
    rounds = QUICK_ROUNDS if parser.parse_args().quick else ROUNDS
    version, usage = started("zae-limiter", "--version"), started("zae-limiter", "--help")
    theirs, their_usage = started("sqlite-utils", "--version"), started("sqlite-utils", "--help")
    about = circumstances(PACKAGES)
    costs = measure_starts([version, theirs, usage, their_usage], rounds)
    rows = [
        Comparison("what says its version", version, theirs, Goal(0.75, at_most=True), cost_ratio=True),
        Comparison("what lists its commands", usage, their_usage, cost_ratio=True),
    ]
    findings = [find(row, costs) for row in rows]
    show(findings, about, counted="CPU of the whole process")
    print(f"written: {write('startup', findings, about)}")


if __name__ == "__main__":
    main()
