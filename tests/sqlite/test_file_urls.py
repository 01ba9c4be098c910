"""Which file a URL means, and which one is used when none is named."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from zae_limiter import Limit, SyncRateLimiter, ValidationError

LIMITS = [Limit.per_day("rpd", 10)]

FIRST_USE = """
import asyncio, json, sys
from zae_limiter import Limit, RateLimiter, SyncRateLimiter

async def first_use():
    async with await RateLimiter.open() as limiter:
        await limiter.set_system_defaults([Limit.per_day("rpd", 10)])
        async with limiter.acquire("key", "gpt", {"rpd": 4}):
            pass

asyncio.run(first_use())
with SyncRateLimiter.open() as limiter:
    print(json.dumps([limiter._core.store._path, limiter.available("key", "gpt")]))
"""


def first_use(folder: Path, **environment: str) -> tuple[Path, dict[str, int]]:
    """In an interpreter whose home is ``folder``: which file it used, and what is left in it."""
    given = {name: value for name, value in os.environ.items() if name not in ("ZAEL_URL", "XDG_DATA_HOME")}
    given |= {"HOME": str(folder)} | environment
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE], env=given, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    path, left = json.loads(done.stdout)
    return Path(path), left


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms keep their data elsewhere")
@pytest.mark.parametrize("there_already", [False, True])
def test_the_default_is_a_private_file_in_the_users_data_folder(tmp_path: Path, there_already: bool) -> None:
    data = tmp_path / "data"
    if there_already:
        (data / "zae-limiter").mkdir(parents=True, mode=0o700)
    path, left = first_use(tmp_path, XDG_DATA_HOME=str(data))
    assert path == data / "zae-limiter" / "limits.db"
    assert left == {"rpd": 6}
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms keep their data elsewhere")
def test_a_data_folder_with_a_strange_name_is_no_trouble(tmp_path: Path) -> None:
    data = tmp_path / "100% müde? #1 & co"
    data.mkdir()
    path, left = first_use(tmp_path, XDG_DATA_HOME=str(data))
    assert path == data / "zae-limiter" / "limits.db"
    assert path.exists()
    assert left == {"rpd": 6}


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    path, left = first_use(tmp_path, ZAEL_URL=f"sqlite:///{tmp_path}/here.db", XDG_DATA_HOME=str(tmp_path / "data"))
    assert path == tmp_path / "here.db"
    assert left == {"rpd": 6}
    assert not (tmp_path / "data").exists()


def test_an_empty_environment_variable_names_nothing(tmp_path: Path) -> None:
    path, _ = first_use(tmp_path, ZAEL_URL="", XDG_DATA_HOME=str(tmp_path / "data"))
    assert path.is_relative_to(tmp_path)
    assert path.name == "limits.db"


def test_an_argument_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{tmp_path}/environment.db")
    with SyncRateLimiter.open(f"sqlite:///{tmp_path}/argument.db", create=True):
        pass
    assert [file.name for file in tmp_path.glob("*.db")] == ["argument.db"]


FILES = {
    "sqlite:///limits.db": "limits.db",
    "sqlite:///./limits.db": "limits.db",
    "sqlite:///below/limits.db": "below/limits.db",
    "sqlite://localhost/limits.db": "limits.db",
    "sqlite:///with%20space.db": "with space.db",
    "sqlite:///with space.db": "with space.db",
    "sqlite:///50%25.db": "50%.db",
    "sqlite:///a%3Fb%23c.db": "a?b#c.db",
    "sqlite:///m%C3%BCde.db": "müde.db",
    "sqlite:///no-suffix": "no-suffix",
}


@pytest.mark.parametrize("url", FILES)
def test_three_slashes_name_a_file_from_where_the_program_runs(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    with SyncRateLimiter.open(url, create=True) as limiter:
        assert (tmp_path / FILES[url]).is_file()
        monkeypatch.chdir("/")
        with limiter.acquire("key", "gpt", {"rpd": 1}, limits=LIMITS):
            pass
        assert limiter.available("key", "gpt", limits=LIMITS) == {"rpd": 9}


def test_four_slashes_name_a_file_from_the_root(tmp_path: Path) -> None:
    with SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", create=True):
        assert f"sqlite:///{tmp_path}".startswith("sqlite:////")
        assert (tmp_path / "limits.db").is_file()


BAD_URLS = [
    "sqlite:",
    "sqlite://",
    "sqlite:///",
    "sqlite:////",
    "sqlite:/limits.db",
    "sqlite:limits.db",
    "sqlite://limits.db",
    "sqlite://host/limits.db",
    "sqlite:///limits.db?mode=ro",
    "sqlite:///limits.db#part",
    "sqlite3:///limits.db",
    "SQLITE//limits.db",
    "limits.db",
    "/limits.db",
    "",
    "sqlite:///nul%00.db",
]


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_url_is_refused_before_anything_is_made(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("ZAEL_URL", raising=False)
    with pytest.raises(ValidationError) as caught:
        SyncRateLimiter.open(url)
    assert caught.value.field == "url"
    assert list(tmp_path.iterdir()) == []


def test_opening_makes_no_file_until_it_is_used(tmp_path: Path) -> None:
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db")
    assert list(tmp_path.iterdir()) == []
    limiter.close()
    assert list(tmp_path.iterdir()) == []


def test_options_of_other_stores_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="is not an option of this store"):
        SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", region="eu-west-1")
