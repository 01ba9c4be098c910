"""When MiniStack is installed, and what is said if that fails. Nothing is installed here."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from zae_limiter import StackOperationError
from zae_limiter.exceptions import MissingExtra
from zae_limiter.infra import local_engine
from zae_limiter.infra.local_cloud import LocalCloud
from zae_limiter.infra.local_engine import PROGRAM_VARIABLE, REQUIREMENT, find_engine, install_engine
from zae_limiter.infra.local_home import Home

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv(PROGRAM_VARIABLE, raising=False)
    return Home(tmp_path)


@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_that_it_did_not_make_is_not_replaced_by_an_installation(
    home: Home, tmp_path: Path, linked: bool
) -> None:
    engine = tmp_path / "elsewhere" if linked else home.engine
    (engine / "parts").mkdir(parents=True)
    (engine / "parts" / "piston.txt").write_text("irreplaceable")
    if linked:
        home.engine.symlink_to(engine)
    pip = Pip(home)
    with pytest.raises(StackOperationError, match="zae-limiter did not make it"):
        install_engine(home, lambda words: None, pip)
    assert (engine / "parts" / "piston.txt").read_text() == "irreplaceable"
    assert pip.ran == []


class Pip:
    """Does as if it installed."""

    def __init__(self, home: Home, *, fails: bool = False) -> None:
        self.home = home
        self.fails = fails
        self.ran: list[Sequence[str]] = []

    def __call__(self, words: Sequence[str]) -> None:
        self.ran.append(words)
        program = self.home.engine / "bin" / "ministack"
        if "venv" in words:
            program.parent.mkdir(parents=True)
        elif self.fails:
            raise StackOperationError("no network")
        else:
            program.touch(mode=0o755)


def test_it_is_the_one_that_the_makefile_tests_with() -> None:
    assert re.findall(r"^MINISTACK := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE) == [REQUIREMENT]


def test_it_is_installed_once_with_a_word_before(home: Home) -> None:
    assert not find_engine(home).installed
    said: list[str] = []
    pip = Pip(home)
    install_engine(home, said.append, pip)
    assert said == [f"installing {REQUIREMENT}, a local AWS, into {home.engine}; only this once"]
    assert [words[1:3] for words in pip.ran] == [["-m", "venv"], ["-m", "pip"]]
    assert pip.ran[0][0] == sys.executable
    assert pip.ran[1][0] == str(home.engine / "bin" / "python")
    assert pip.ran[1][-1] == REQUIREMENT
    assert find_engine(home) == (home.engine / "bin" / "ministack", True)


def test_an_installation_that_was_cut_short_is_done_again(home: Home) -> None:
    with pytest.raises(StackOperationError, match="no network"):
        install_engine(home, lambda words: None, Pip(home, fails=True))
    (home.engine / "bin" / "ministack").touch(mode=0o755)
    assert not find_engine(home).installed
    leftover = home.engine / "leftover"
    leftover.touch()
    install_engine(home, lambda words: None, Pip(home))
    assert find_engine(home).installed
    assert not leftover.exists()


def test_another_requirement_is_another_installation(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    install_engine(home, lambda words: None, Pip(home))
    monkeypatch.setattr(local_engine, "REQUIREMENT", "ministack>=9")
    assert not find_engine(home).installed


def test_one_that_is_there_is_used(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.touch(mode=0o755)
    assert find_engine(home, str(mine)) == (mine, True)
    monkeypatch.setenv(PROGRAM_VARIABLE, str(mine))
    assert find_engine(home).program == mine
    mine.chmod(0o644)
    with pytest.raises(StackOperationError, match="not a program that can be run"):
        find_engine(home)


def test_what_pip_said_is_told_with_another_way(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-c", "import sys; sys.exit('Could not find a version\\nNo matching distribution')"]
    with pytest.raises(StackOperationError) as caught:
        local_engine._run(words)
    assert str(caught.value).splitlines() == [
        "MiniStack could not be installed:",
        "  Could not find a version",
        "  No matching distribution",
        f"If this machine cannot reach PyPI, install '{REQUIREMENT}' by other means, and name its command "
        "with --ministack or ZAEL_MINISTACK",
    ]
    with pytest.raises(StackOperationError, match="could not be installed"):
        local_engine._run([str(home.folder / "no-python")])


def test_without_the_extra_nothing_is_installed_or_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(words: Sequence[str]) -> None:
        raise AssertionError(f"ran {words}")

    monkeypatch.delenv(PROGRAM_VARIABLE, raising=False)
    monkeypatch.setattr(local_engine, "_run", refuse)
    monkeypatch.setitem(sys.modules, "botocore", None)
    said: list[str] = []
    cloud = LocalCloud(tmp_path / "home")
    with pytest.raises(MissingExtra, match=r"needs botocore: pip install '\.\[dynamodb\]' in a clone"):
        cloud.up("my-app", port=0, say=said.append)
    assert said == []
    assert not cloud.home.folder.exists()
