"""No text of ours sends a reader to PyPI, where the name of this project belongs to another one."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from pages import ROOT, links_of

from zae_limiter.extras import install_command

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

BY_NAME = re.compile(
    r"(?:pip3?|pipx|uv|conda|poetry)(?: \w+)? (?:install|add)(?: -{1,2}[\w-]+)* ['\"`]*zae-limiter(?![\w/])"
    r"|zae-limiter\[[\w,]+\](?! @ )"
)
"""Installing by the bare name. With an address (``zae-limiter[redis] @ file:…``) no index is asked."""


def by_name(text: str) -> list[str]:
    return BY_NAME.findall(re.sub(r"\s+", " ", text))


def texts() -> list[Path]:
    """Every file of the repository that a reader may read."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    names = listed or [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if ".venv" not in path.parts]
    kinds = (".md", ".py", ".yaml", ".yml", ".toml", ".txt", ".json", "Makefile")
    return [ROOT / name for name in names if name.endswith(kinds) and Path(name).name != Path(__file__).name]


def test_no_text_installs_by_the_name_that_is_another_projects() -> None:
    paths = [path for path in texts() if path.exists()]
    assert len(paths) > 100
    found = {str(path.relative_to(ROOT)): by_name(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: sentences for path, sentences in found.items() if sentences} == {}


@pytest.mark.parametrize(
    "sentence",
    [
        "pip install zae-limiter",
        "pip install 'zae-limiter[cli]'",
        "pip install\n'zae-limiter[cli]'",
        "pip install --upgrade zae-limiter",
        "uv pip install zae-limiter",
        "uv add zae-limiter",
        "the extra `zae-limiter[cli]`",
    ],
)
def test_such_a_sentence_is_noticed(sentence: str) -> None:
    assert by_name(sentence)


@pytest.mark.parametrize(
    "sentence",
    ["pip install '.[cli]'", "zae-limiter[redis] @ file:///srv/zae_limiter.whl", "pip install . and zae-limiter demo"],
)
def test_a_clone_or_a_wheel_is_no_such_sentence(sentence: str) -> None:
    assert by_name(sentence) == []


def test_the_page_about_installing_says_why_and_has_every_extra() -> None:
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    assert "belongs to another project" in page
    assert [extra for extra in PROJECT["optional-dependencies"] if f"`{extra}`" not in page] == []


def test_messages_name_the_clone() -> None:
    assert install_command("redis") == "pip install '.[redis]' in a clone of zae-limiter"


def test_the_page_that_is_packaged_has_no_link_that_leads_nowhere() -> None:
    """An index shows it without the files beside it."""
    assert links_of(ROOT / PROJECT["readme"]) == []


def test_both_packages_tell_type_checkers_that_they_are_typed() -> None:
    assert [
        name for name in ("zae_limiter", "zae_limiter_aggregator") if not (ROOT / "src" / name / "py.typed").exists()
    ] == []


def test_every_package_that_the_project_names_is_locked() -> None:
    """``make setup`` installs by the lock; what is not in it would be another version tomorrow."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [*PROJECT["optional-dependencies"].values(), *document["dependency-groups"].values()]
    named = [*PROJECT["dependencies"], *(requirement for group in groups for requirement in group)]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    locked = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert {re.split(r"[<>=!~\[ ;]", one)[0].lower().replace("_", "-") for one in named} - locked == set()


def test_the_lock_names_no_place() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert " @ " not in text
