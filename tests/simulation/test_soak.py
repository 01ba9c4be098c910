"""A soak says what it has run, so that it can be run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulation import soak

PROFILE = "lone"
ENOUGH_MINUTES = 2


@pytest.mark.parametrize("processes", [1, 2])
def test_a_soak_runs_as_many_schedules_as_it_is_asked_for_and_names_their_seeds(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "KEPT", tmp_path / "soak.json")
    monkeypatch.setattr(soak, "ROOT", tmp_path)
    assert soak.soak(ENOUGH_MINUTES, 7, [PROFILE], schedules=5, processes=processes, keep=True) == 0
    kept = json.loads((tmp_path / "soak.json").read_text())
    assert (kept["schedules"], kept["first_seed"], kept["last_seed"], kept["failed"]) == (5, 7, 11, 0)
    assert kept["granted"] > 0
    assert "5 schedules of 1 profiles, seeds 7 to 11" in capfd.readouterr().out


def test_a_schedule_that_fails_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(self: soak.Schedule, summary: soak.Summary | None = None) -> soak.Summary:
        raise soak.FailedSchedule(self.profile.name, self.seed, ValueError("broken on purpose"), "")

    monkeypatch.setattr(soak.Schedule, "run", broken)
    assert soak.soak(ENOUGH_MINUTES, 7, [PROFILE], schedules=2) == 1
    printed = capfd.readouterr().out
    assert printed.count("broken on purpose") >= 2
    assert "2 failed" in printed
