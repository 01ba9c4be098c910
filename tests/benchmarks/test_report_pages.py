"""The report has a place for what takes longer than ``make bench`` has, and for benchmarks that are not there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODULES = ("report_pages", "report_goals", "coverage_figures")
ABOUT = {
    "versions": {},
    "python": "CPython 3.11",
    "system": "Linux",
    "processor": "one",
    "cores": 2,
    "commit": "abc",
    "measured_at": "today",
}
SOAK = {
    "measured_at": "today",
    "commit": "abc",
    "python": "3.11.7",
    "schedules": 1_200_000,
    "first_seed": 7,
    "last_seed": 30_007,
    "profiles": 40,
    "granted": 9,
    "denied": 8,
    "failed": 0,
    "minutes": 60.0,
    "processes": 2,
}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield {name: __import__(name) for name in MODULES}
    for name in MODULES:
        del sys.modules[name]


def summary(statements: int, covered: int, branches: int, taken: int) -> dict[str, Any]:
    counts = zip(
        ("num_statements", "covered_lines", "num_branches", "covered_branches"),
        (statements, covered, branches, taken),
        strict=True,
    )
    return {"summary": dict(counts)}


def test_coverage_is_summed_by_package(modules: dict[str, Any]) -> None:
    found = {
        "files": {
            "src/zae_limiter/bucket.py": summary(10, 10, 4, 4),
            "src/zae_limiter/stores/redis/store.py": summary(10, 5, 4, 1),
            "src/zae_limiter/stores/redis/lua/keys.py": summary(10, 10, 0, 0),
            "src/zae_limiter_aggregator/handler.py": summary(2, 1, 0, 0),
        }
    }
    figures = modules["coverage_figures"].figures(found)
    assert list(figures["packages"]) == ["zae_limiter", "zae_limiter/stores/redis", "zae_limiter_aggregator"]
    assert figures["packages"]["zae_limiter/stores/redis"]["lines_percent"] == 75.0
    assert figures["total"] == {"statements": 32, "lines_percent": 81.25, "branches": 8, "branches_percent": 62.5}


def test_what_a_soak_ran_is_in_the_report_and_its_goal_too(modules: dict[str, Any]) -> None:
    facts = {"loaded": [], "zip_bytes": 1, "zip_foreign": [], "crossed": {}}
    page = modules["report_pages"].page({"soak": SOAK}, {}, ["embedded"], ABOUT, facts, {})
    assert "1,200,000 schedules of 40 profiles, seeds 7 to 30007" in page
    assert "| schedules of the last soak |  | ≥ 1,000,000, none failed | 1,200,000, 0 failed | reached |" in page
    assert "`make coverage` keeps its figures" in page
    assert "## Behind Envoy" not in page  # no such benchmark was asked for


def test_a_soak_that_failed_misses_its_goal(modules: dict[str, Any]) -> None:
    (goal,) = modules["report_goals"]._soak({**SOAK, "failed": 1})
    assert goal.verdict == "not reached"


def test_every_step_of_the_report_has_a_section(modules: dict[str, Any]) -> None:
    import report_steps

    names = [step.name for step in report_steps.STEPS]
    pages = modules["report_pages"]
    assert [name for name in names if name not in pages.BENCHMARKS or name not in pages.SECTIONS] == []
    del sys.modules["report_steps"]
