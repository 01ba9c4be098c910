"""Measuring several contenders in one run, so that only their ratios matter.

A machine is busy with other things, and its speed changes from minute to minute: an absolute time means little
and a comparison between two runs means nothing. Therefore:

- all contenders are measured in every *round*, one after the other, each round in another order; rounds are short,
  because a machine keeps its speed for a moment only;
- a ratio is taken within a round, and the answer is the median of the rounds' ratios, with its quartiles;
- where the work is in one process, CPU time is counted, not time on the wall.

Nothing here knows any limiter, and nothing here passes or fails: a goal is printed beside its ratio.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Run = Callable[[int], object]
"""Does the work that many times."""

Timer = Callable[[], float]
"""Counts seconds."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that is measured: its name, what one operation of it does, and how to do it."""

    name: str
    does: str
    run: Run


class Spread(NamedTuple):
    """The middle of some figures, and between what half of them lie."""

    median: float
    low: float
    high: float


def spread_of(figures: Sequence[float]) -> Spread:
    """Median and quartiles."""
    if len(figures) < 2:
        return Spread(figures[0], figures[0], figures[0])
    low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
    return Spread(median, low, high)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to measure: rounds, and seconds of CPU for each contender in a round."""

    rounds: int
    seconds: float


QUICK = Pace(rounds=15, seconds=0.005)
THOROUGH = Pace(rounds=61, seconds=0.015)


class Costs:
    """Seconds per operation of every contender, in every round."""

    def __init__(self, seconds: dict[str, list[float]]) -> None:
        self._seconds = seconds

    def of(self, contender: Contender) -> Spread:
        """What one operation costs."""
        return spread_of(self._seconds[contender.name])

    def ratio(self, numerator: Contender, denominator: Contender) -> Spread:
        """How many times the cost of one the other is, round by round."""
        pairs = zip(self._seconds[numerator.name], self._seconds[denominator.name], strict=True)
        return spread_of([above / below for above, below in pairs])


def measure(
    contenders: Sequence[Contender],
    pace: Pace,
    tell: Callable[[str], None] = lambda text: None,
    timer: Timer = time.process_time,
) -> Costs:
    """Seconds per operation, of all contenders in turns: of this process's CPU, or whatever ``timer`` counts."""
    gc.collect()
    gc.freeze()  # what the contenders have made so far is not looked at again in every round
    times = {contender.name: operations_for(contender.run, pace.seconds, timer) for contender in contenders}
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(pace.rounds):
        tell(f"round {number + 1} of {pace.rounds}")
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            count = times[contender.name]
            seconds[contender.name].append(seconds_of(contender.run, count, timer) / count)
    return Costs(seconds)


def operations_for(run: Run, seconds: float, timer: Timer) -> int:
    """How often to run to be busy for about that long. Also warms up."""
    count = 50
    while True:
        spent = seconds_of(run, count, timer)
        if spent > seconds / 4:
            return max(round(count * seconds / spent), 1)
        count *= 4


def seconds_of(run: Run, count: int, timer: Timer) -> float:
    """What it takes: by default CPU time of the whole process, for helper threads are part of what a library costs."""
    gc.collect()
    started = timer()
    run(count)
    return timer() - started


# Imports

_IMPORT = "import time; started = time.process_time(); {}; print(time.process_time() - started)"


@dataclass(frozen=True, slots=True)
class Import:
    """An import statement, timed in a fresh interpreter from just before it to just after it."""

    statement: str
    contender: Contender = field(init=False)

    def __post_init__(self) -> None:
        contender = Contender(self.statement, "in a fresh interpreter, without the interpreter's own start", self._run)
        object.__setattr__(self, "contender", contender)

    def _run(self, count: int) -> None:
        raise AssertionError("imports are measured by measure_imports")

    def cpu_seconds(self) -> float:
        finished = subprocess.run(
            [sys.executable, "-I", "-c", _IMPORT.format(self.statement)],
            capture_output=True,
            text=True,
            check=True,
        )
        return float(finished.stdout)


def measure_imports(imports: Iterable[Import], rounds: int, tell: Callable[[str], None] = lambda text: None) -> Costs:
    """CPU seconds of each import, in turns. The first time of each is not counted: it may compile."""
    imports = list(imports)
    seconds: dict[str, list[float]] = {each.statement: [] for each in imports}
    for number in range(rounds + 1):
        tell(f"imports, round {number} of {rounds}")
        for each in imports:
            spent = each.cpu_seconds()
            if number:
                seconds[each.statement].append(spent)
    return Costs(seconds)
