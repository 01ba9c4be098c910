"""A soak says what it has run, so that it can be run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulation import real_leases, slots, soak
from simulation.profiles import PROFILES

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


def test_a_soak_runs_every_profile_unless_it_is_told_which(capfd: pytest.CaptureFixture[str]) -> None:
    families = [
        [f"{soak.SLOTS}{name}" for name in slots.PROFILES],
        [f"{soak.LEASES}{name}" for name in real_leases.PROFILES],
        list(PROFILES),
    ]
    assert set(soak.NAMES) == {name for names in families for name in names}
    chosen = [names[0] for names in families]
    assert soak.soak(ENOUGH_MINUTES, 3, chosen, schedules=3) == 0
    assert "3 schedules of 3 profiles, seeds 3 to 3" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["slots: plain", "leases: memory"])
def test_a_broken_promise_of_real_leases_is_a_schedule_that_fails(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: slots.SlotWorld | real_leases.World) -> None:
        self.loop.close()
        raise AssertionError("broken on purpose")

    for world in (slots.SlotWorld, real_leases.World):
        monkeypatch.setattr(world, "play", broken)
    assert soak.replay(name, 5) == 1
    told = capsys.readouterr().out
    assert "broken on purpose" in told
    assert f"replay '{name}' 5" in told


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
