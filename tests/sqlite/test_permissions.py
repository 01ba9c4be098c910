"""Who may read the files, and what happens to those who may not write them."""

from __future__ import annotations

import os
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.sqlite_files import SIDE_FILES
from zae_limiter import ConfigurationError, Limit, SyncRateLimiter
from zae_limiter.stores.sqlite.connections import Connections

NOBODY = 65_534
LIMITS = [Limit.per_day("rpd", 10)]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no users and modes as on Unix")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of an ordinary user, where that user can get to."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
        yield Path(name)


def as_an_ordinary_user(work: Callable[[], object]) -> None:
    """Do it in a child that is not root, whom no permission would stop."""
    warm_up()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def warm_up() -> None:
    """Import everything that is needed, while this process may still read it."""
    with tempfile.TemporaryDirectory() as name:
        use(Path(name) / "limits.db")


def use(path: Path) -> None:
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        with limiter.acquire("key", "gpt", {"rpd": 1}, limits=LIMITS) as lease:
            lease.adjust(rpd=1)
        limiter.list_entities()


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_every_file_is_for_its_owner_only_whatever_the_umask(folder: Path) -> None:
    def work() -> None:
        os.umask(0)
        with SyncRateLimiter.open(f"sqlite:///{folder}/limits.db") as limiter:
            limiter.set_system_defaults(LIMITS)
            limiter.get_status("key")
            names = ("limits.db", *(f"limits.db{end}" for end in SIDE_FILES))
            assert modes_in(folder) == dict.fromkeys(names, 0o600)

    as_an_ordinary_user(work)


@pytest.mark.parametrize("target", ["there/limits.db", "{folder}/there/limits.db", "first", "missing/limits.db"])
def test_a_file_at_the_end_of_a_link_is_for_its_owner_only(folder: Path, target: str) -> None:
    """The link points to nothing yet, by a relative or an absolute path, or over another link."""

    def work() -> None:
        os.umask(0)
        there = folder / "there"
        there.mkdir(0o700)
        (folder / "first").symlink_to("there/limits.db")
        link = folder / "limits.db"
        link.symlink_to(target.format(folder=folder))
        if target.startswith("missing"):
            refused(link, "its folder does not exist")
            assert not (folder / "missing").exists(), "folders are made for the path that was given, not for a link's"
            return
        with SyncRateLimiter.open(f"sqlite:///{link}") as limiter:
            limiter.set_system_defaults(LIMITS)
            limiter.get_status("key")
            names = ("limits.db", *(f"limits.db{end}" for end in SIDE_FILES))
            assert modes_in(there) == dict.fromkeys(names, 0o600)
            assert sorted(path.name for path in folder.iterdir()) == ["first", "limits.db", "there"]
            assert link.is_symlink()

    as_an_ordinary_user(work)


def test_the_log_of_a_file_behind_a_link_is_found(folder: Path) -> None:
    """SQLite keeps it beside the file, not beside the link; unseen it would never be moved, and grow for ever."""
    (folder / "there").mkdir()
    (folder / "limits.db").symlink_to("there/limits.db")
    connections = Connections(str(folder / "limits.db"))
    connection = connections.get("write", lambda: 1)
    connection.execute("CREATE TABLE something (n)")
    assert connections.wal_size() == (folder / "there" / "limits.db-wal").stat().st_size > 0
    connections.close("write")


def test_a_link_that_comes_to_point_elsewhere_is_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zae_limiter.stores.sqlite.connections.LOOK_AFTER_FILE_S", 0.0)
    link = folder / "limits.db"
    link.symlink_to("first.db")
    first = f"sqlite:///{folder}/first.db"
    with SyncRateLimiter.open(f"sqlite:///{link}") as limiter, SyncRateLimiter.open(first) as other:
        for each in (limiter, other):
            each.acquire("key", "gpt", {"rpd": 1}, limits=LIMITS).__enter__()
        log = (folder / "first.db-wal").stat().st_ino
        link.unlink()
        link.symlink_to("second.db")
        limiter.acquire("key", "gpt", {"rpd": 4}, limits=LIMITS).__enter__()
        assert limiter.available("key", "gpt", limits=LIMITS) == {"rpd": 6}
        assert modes_in(folder)["second.db"] == 0o600
        assert (folder / "first.db-wal").stat().st_ino == log, "others still use that file, and its log with it"
        assert other.available("key", "gpt", limits=LIMITS) == {"rpd": 8}


def test_folders_that_are_made_for_the_file_are_for_their_owner_only(folder: Path) -> None:
    def work() -> None:
        os.umask(0)
        limiter = SyncRateLimiter.open(f"sqlite:///{folder}/new/limits.db")
        limiter.get_status("key")
        assert modes_in(folder) == {"new": 0o700}

    as_an_ordinary_user(work)


def test_the_mode_of_a_file_that_is_there_stays_as_its_owner_set_it(folder: Path) -> None:
    def work() -> None:
        path = folder / "limits.db"
        path.touch(0o600)
        path.chmod(0o660)
        use(path)
        assert modes_in(folder)["limits.db"] == 0o660

    as_an_ordinary_user(work)


def refused(path: Path, hint: str) -> None:
    limiter = SyncRateLimiter.open(f"sqlite:///{path}")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=hint) as caught:
            limiter.acquire("key", "gpt", {"rpd": 1}, limits=LIMITS).__enter__()
        assert str(path) in str(caught.value)
        assert caught.value.__cause__ is not None
    allowed = limiter.acquire("key", "gpt", {"rpd": 1}, limits=LIMITS, on_unavailable="allow")
    with pytest.raises(ConfigurationError, match=hint):
        allowed.__enter__()
    assert not allowed.degraded


def test_a_read_only_folder_without_the_file_is_a_named_error(folder: Path) -> None:
    def work() -> None:
        folder.chmod(0o500)
        refused(folder / "limits.db", "writable for this user")
        refused(folder / "new" / "limits.db", "writable for this user")
        assert list(folder.iterdir()) == []

    as_an_ordinary_user(work)


def test_a_read_only_folder_with_the_file_is_a_named_error_until_it_is_writable(folder: Path) -> None:
    def work() -> None:
        path = folder / "limits.db"
        use(path)
        for end in SIDE_FILES:
            Path(f"{path}{end}").unlink(missing_ok=True)
        before = path.read_bytes()
        folder.chmod(0o500)
        refused(path, "writable for this user")
        assert path.read_bytes() == before
        folder.chmod(0o700)
        use(path)

    as_an_ordinary_user(work)


def test_a_read_only_file_is_a_named_error_until_it_is_writable(folder: Path) -> None:
    def work() -> None:
        path = folder / "limits.db"
        use(path)
        path.chmod(0o400)
        refused(path, "writable for this user")
        path.chmod(0o600)
        with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
            assert limiter.available("key", "gpt", limits=LIMITS) == {"rpd": 8}

    as_an_ordinary_user(work)


def test_a_file_that_may_not_be_read_is_a_named_error(folder: Path) -> None:
    def work() -> None:
        path = folder / "limits.db"
        use(path)
        path.chmod(0o000)
        refused(path, "writable for this user")

    as_an_ordinary_user(work)
