"""What an acquire costs here, and with the other project that has this name on PyPI: CPU of the client, calls, units.

    .venv/bin/python benchmarks/namesake.py [--quick]

Both import as ``zae_limiter``, so each runs in a process and an environment of its own (``.engines/namesake`` has the
other one), and does the same on one dynoxide: two limits that never run out, one bucket, one acquire after the other.
The processes take turns, round by round; each counts its own CPU. Then each is asked what its calls consumed, with the
capacity that the engine reports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from comparing import Comparison, find
from measuring import Contender, Costs, Pace
from presenting import circumstances, show, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines.servers import ROOT, Engine, dynoxide_engine

HERE = Path(__file__).parent
THEIR_PYTHON = Path(os.environ.get("ZAEL_NAMESAKE") or ROOT / "namesake" / "bin" / "python")
THEIR_NAME = "the other zae-limiter"
SITUATIONS = ("acquire", "acquire and settle", "two levels", "denied")
COUNTED = 20
QUICK, THOROUGH = Pace(rounds=2, seconds=0.02), Pace(rounds=7, seconds=0.03)
SECONDS_EACH = {"ours": 0.0004, "theirs": 0.002}
"""About what one acquire takes, to choose how many a round has."""


class Client:
    """One of the two, in its process: a line of JSON each way."""

    def __init__(self, python: str, script: str, engine: Engine) -> None:
        self._process = subprocess.Popen(
            [python, str(HERE / script), engine.endpoint_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "AWS_ACCESS_KEY_ID": "AKIDBENCHMARK", "AWS_SECRET_ACCESS_KEY": "s" * 40},
        )

    def ask(self, what: str, situation: str, times: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, situation, times]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the client ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(20)


@contextmanager
def clients(engine: Engine) -> Iterator[dict[str, Client]]:
    both = {
        "ours": Client(sys.executable, "namesake_ours.py", engine),
        "theirs": Client(str(THEIR_PYTHON), "namesake_theirs.py", engine),
    }
    try:
        yield both
    finally:
        for client in both.values():
            client.close()


def contender(side: str, situation: str) -> Contender:
    """A name and nothing to run: the processes run it."""
    name = "zae-limiter" if side == "ours" else THEIR_NAME
    return Contender(f"{name}, {situation}", "two limits, one bucket, one after the other", lambda times: None)


def in_turns(both: dict[str, Client], situations: Sequence[str], pace: Pace) -> Costs:
    """CPU seconds per operation, of all in every round."""
    seconds: dict[str, list[float]] = {}
    for number in range(pace.rounds + 1):  # the first one warms up
        for situation in situations:
            for side, client in both.items():
                times = max(5, round(pace.seconds / SECONDS_EACH[side]))
                spent = client.ask("run", situation, times)["cpu_seconds"] / times
                if number:
                    seconds.setdefault(contender(side, situation).name, []).append(spent)
    return Costs(seconds)


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few short rounds: for trying out, not for quoting")
    pace = QUICK if parser.parse_args().quick else THOROUGH
    if not THEIR_PYTHON.exists():
        raise SystemExit("the other project is not installed: make bench does that")
    about = circumstances(["zae-limiter", "botocore"])
    with dynoxide_engine() as engine, clients(engine) as both:
        about["their_version"] = both["theirs"].ask("version", "", 0)["version"]
        costs = in_turns(both, SITUATIONS, pace)
        counted = [
            {
                "situation": situation,
                **{
                    side: {what: total / COUNTED for what, total in client.ask("count", situation, COUNTED).items()}
                    for side, client in both.items()
                },
            }
            for situation in SITUATIONS
        ]
    rows = [
        Comparison(situation, contender("ours", situation), contender("theirs", situation), cost_ratio=True)
        for situation in SITUATIONS
    ]
    findings = [find(row, costs) for row in rows]
    show(findings, about, counted="CPU of the client's process")
    for row in counted:
        print(json.dumps(row))
    path = write("namesake", findings, about | {"costs": counted})
    print(f"written: {path}")


if __name__ == "__main__":
    main()
