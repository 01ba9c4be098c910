"""``zae-limiter usage plot``: figures for reports, and the terminal without matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_runner import CommandRunner


@pytest.fixture
def used(runner: CommandRunner) -> CommandRunner:
    runner.run("system", "set-defaults", "-l", "rpm:60", "-l", "tpm:6_000", "-l", "tpd:9/day")
    for hours in range(3):
        runner.run("acquire", "key-1", "gpt-4", "rpm=1", f"tpm={100 * hours}")
        runner.clock.advance(3_600)
    return runner


@pytest.mark.parametrize("style", ["bars", "lines"])
def test_a_figure_is_written_for_reports(used: CommandRunner, tmp_path: Path, style: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra plots")
    png, svg = tmp_path / "usage.png", tmp_path / "usage.svg"
    words = ["usage", "plot", "--entity", "key-1", "--style", style, "--png", str(png), "--svg", str(svg)]
    ran = used.run(*words)
    assert (ran.code, ran.out) == (0, f"wrote {png}\nwrote {svg}\n")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")


def test_a_figure_and_a_document_are_from_the_same_data(used: CommandRunner, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plots")
    ran = used.run("usage", "plot", "--entity", "key-1", "--png", str(tmp_path / "usage.png"), "--json")
    assert ran.out == used.run("usage", "plot", "--entity", "key-1", "--json").out


def test_without_matplotlib_the_extra_is_named(
    used: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.dates", None)
    ran = used.run("usage", "plot", "--entity", "key-1", "--png", str(tmp_path / "usage.png"))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "Error: figures need matplotlib: pip install '.[plots]' in a clone of zae-limiter\n"


def test_the_terminal_needs_no_matplotlib(used: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert used.run("usage", "plot", "--entity", "key-1").code == 0


def test_a_figure_that_cannot_be_written_is_one_line(used: CommandRunner, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plots")
    ran = used.run("usage", "plot", "--entity", "key-1", "--png", str(tmp_path / "nowhere" / "usage.png"))
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
