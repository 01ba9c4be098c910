"""The local cloud comes up with a deployment in it, keeps its data or not, and ends only what it started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from guarded_ministack import guarded_ministack

from zae_limiter import Limit, StackOperationError, SyncRateLimiter
from zae_limiter.infra.local_cloud import LocalCloud
from zae_limiter.infra.local_data import MARKER, claim_data
from zae_limiter.infra.local_home import HOME_VARIABLE, Running, home
from zae_limiter.infra.local_process import any_free_port, is_same_process, start, start_time_of

PATIENCE_S = 20.0


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    cloud = LocalCloud(tmp_path / "home")
    yield cloud
    cloud.down(discard=True)


def ministack_for(cloud: LocalCloud) -> str:
    return guarded_ministack(cloud.home.folder.parent / "bin")


def up(cloud: LocalCloud, name: str = "my-app", **options: object) -> str:
    settings = {"port": 0, "program": ministack_for(cloud), **options}
    return cloud.up(name, **settings).url  # type: ignore[arg-type]


def take(url: str, times: int) -> None:
    with SyncRateLimiter.open(url, deadline=PATIENCE_S) as limiter:
        for _ in range(times):
            with limiter.acquire("key", "gpt-4", {"rpd": 1}):
                pass


def counted(url: str, events: int) -> int:
    """How many grants the function of the deployment has counted, when it has counted so many or time is up."""
    give_up_at = time.monotonic() + PATIENCE_S
    with SyncRateLimiter.open(url, deadline=PATIENCE_S) as limiter:
        while True:
            found = limiter.get_usage_summary("key").total_events
            if found >= events or time.monotonic() > give_up_at:
                return found
            time.sleep(0.1)


@pytest.mark.usefixtures("ministack")
def test_it_comes_up_with_a_deployment_and_goes_on_with_its_data(cloud: LocalCloud) -> None:
    url = up(cloud)
    with SyncRateLimiter.open(url, deadline=PATIENCE_S) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 100)])
    take(url, 3)
    assert counted(url, 3) == 3
    found = cloud.status()
    assert found.running is not None
    assert (found.healthy, [(deployment.name, where) for deployment, where in found.deployments]) == (
        True,
        [("my-app", url)],
    )
    pid = found.running.pid

    assert cloud.down() == found.running
    assert start_time_of(pid) is None
    assert cloud.status().running is None
    assert cloud.down() is None

    again = up(cloud)
    take(again, 2)
    assert counted(again, 5) == 5
    with SyncRateLimiter.open(again, deadline=PATIENCE_S) as limiter:
        assert limiter.available("key", "gpt-4") == {"rpd": 95}
    cloud.down()

    fresh = up(cloud, fresh=True)
    with SyncRateLimiter.open(fresh, deadline=PATIENCE_S) as limiter:
        assert limiter.get_system_defaults() == ([], None)
    with pytest.raises(StackOperationError, match=r"runs already.*local down"):
        up(cloud, fresh=True)
    with pytest.raises(StackOperationError, match="runs already"):
        up(cloud, port=any_free_port())
    assert cloud.down(discard=True) is not None
    assert not any(cloud.home.data.iterdir())


BOTH = """
import sys
from pathlib import Path
from zae_limiter.infra.local_cloud import LocalCloud
up = LocalCloud(Path(sys.argv[1])).up("my-app", port=0, program=sys.argv[2])
print(up.started, up.running.pid, up.url)
"""


@pytest.mark.usefixtures("ministack")
def test_two_at_once_start_one(cloud: LocalCloud) -> None:
    words = [sys.executable, "-c", BOTH, str(cloud.home.folder), ministack_for(cloud)]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=90)[0].split() for process in both]
    assert sorted(answer[0] for answer in answers) == ["False", "True"]
    assert len({tuple(answer[1:]) for answer in answers}) == 1


@pytest.mark.usefixtures("ministack")
def test_one_that_was_killed_is_started_again(cloud: LocalCloud) -> None:
    program = Path(ministack_for(cloud))
    with cloud.home.locked():
        running = start(cloud.home, program, any_free_port(), "us-east-1", cloud.home.data)
    assert cloud.status() == (running, True, [])
    os.kill(running.pid, signal.SIGKILL)
    give_up_at = time.monotonic() + PATIENCE_S
    while is_same_process(running) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    assert cloud.status().running is None
    with cloud.home.locked():
        start(cloud.home, program, running.port, "us-east-1", cloud.home.data)
    assert cloud.status().healthy


# What it does not touch


def test_a_process_that_is_not_ours_is_not_ended(cloud: LocalCloud) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with cloud.home.locked():
            cloud.home.write(Running(sleeper.pid, "another time", 4566, "us-east-1", str(cloud.home.data)))
        assert cloud.status().running is None
        assert cloud.down() is None
        assert sleeper.poll() is None
        assert cloud.home.read() is None
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": "x"}'])
def test_a_state_file_that_makes_no_sense_is_as_good_as_none(cloud: LocalCloud, text: str) -> None:
    with cloud.home.locked():
        (cloud.home.folder / "state.json").write_text(text)
    assert cloud.status().running is None
    assert cloud.down() is None


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def project_of_a_user(tmp_path: Path) -> Path:
    """A folder that has what a local cloud would call its own, and was there before."""
    project = tmp_path / "project"
    for name in ("state/terraform.tfstate", "s3/photos/cat.jpg", "mine/notes.txt"):
        path = project / name
        path.parent.mkdir(parents=True)
        path.write_text("irreplaceable")
    return project


def data_of_a_cloud(data: Path) -> None:
    """What is there after a local cloud has run with its data in this folder."""
    claim_data(data)
    for part in ("state/lambda.json", "s3/bucket/object"):
        path = data / part
        path.parent.mkdir(parents=True)
        path.write_text("{}")


def test_only_its_own_data_is_thrown_away(cloud: LocalCloud) -> None:
    mine = cloud.home.data / "mine"
    mine.mkdir(parents=True)
    data_of_a_cloud(cloud.home.data)
    cloud.down(discard=True)
    assert list(cloud.home.data.iterdir()) == [mine]


@pytest.mark.parametrize("fresh", [True, False])
def test_a_folder_with_data_that_it_did_not_make_is_neither_emptied_nor_written_to(
    cloud: LocalCloud, tmp_path: Path, fresh: bool
) -> None:
    project = project_of_a_user(tmp_path)
    before = files_in(project)
    with pytest.raises(StackOperationError, match=r"state.*zae-limiter did not make.*--data-dir"):
        up(cloud, fresh=fresh, data=project, program=program(tmp_path, "exit 1"))
    assert files_in(project) == before


def test_data_that_it_did_not_make_is_not_discarded_and_nothing_is_ended(cloud: LocalCloud, tmp_path: Path) -> None:
    project = project_of_a_user(tmp_path)
    before = files_in(project)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with cloud.home.locked():
            birth = start_time_of(sleeper.pid)
            assert birth is not None
            cloud.home.write(Running(sleeper.pid, birth, 4566, "us-east-1", str(project)))
        with pytest.raises(StackOperationError, match="zae-limiter did not make"):
            cloud.down(discard=True)
        assert sleeper.poll() is None
        assert files_in(project) == before
        cloud.home.forget()
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("marker", ["folder", "link"])
def test_only_a_file_is_a_mark(cloud: LocalCloud, tmp_path: Path, marker: str) -> None:
    project = project_of_a_user(tmp_path)
    if marker == "folder":
        (project / MARKER).mkdir()
    else:
        (project / MARKER).symlink_to(project / "mine" / "notes.txt")
    before = files_in(project)
    with pytest.raises(StackOperationError, match="zae-limiter did not make"):
        up(cloud, fresh=True, data=project, program=program(tmp_path, "exit 1"))
    assert files_in(project) == before


@pytest.mark.parametrize("part", ["state", "s3"])
def test_a_link_is_not_followed_when_data_is_thrown_away(cloud: LocalCloud, tmp_path: Path, part: str) -> None:
    project = project_of_a_user(tmp_path)
    before = files_in(project)
    data = tmp_path / "data"
    data_of_a_cloud(data)
    shutil.rmtree(data / part)
    (data / part).symlink_to(project)
    kept = files_in(data)
    with pytest.raises(StackOperationError, match=rf"{part} is a link"):
        up(cloud, fresh=True, data=data, program=program(tmp_path, "exit 1"))
    assert (files_in(project), files_in(data)) == (before, kept)


def test_an_empty_folder_or_one_with_other_things_is_taken_and_marked(cloud: LocalCloud, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "mine").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(StackOperationError, match="ended at once"):
            up(cloud, fresh=True, data=data, program=program(tmp_path, "mkdir -p $STATE_DIR; exit 1"))
        assert files_in(data) == {MARKER, "mine", "state"}


def test_what_cannot_be_thrown_away_is_said(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    data_of_a_cloud(cloud.home.data)

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        with pytest.raises(StackOperationError, match=r"could not be deleted.*Permission denied"):
            cloud.down(discard=True)
    assert (cloud.home.data / MARKER).exists(), "so that the next try goes on"


def test_a_port_that_is_taken_is_said_before_anything_is_done(cloud: LocalCloud) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(StackOperationError, match=r"port \d+ of this machine is taken.*--port 0"):
            up(cloud, port=holder.getsockname()[1])
    assert not cloud.home.engine.exists()


# What goes wrong


def program(folder: Path, text: str) -> str:
    path = folder / "ministack"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_one_that_ends_at_once_shows_what_it_printed(cloud: LocalCloud, tmp_path: Path) -> None:
    with pytest.raises(StackOperationError, match=r"(?s)ended at once. It printed:.*no disk"):
        up(cloud, program=program(tmp_path, "echo no disk; exit 7"))
    assert cloud.home.read() is None


def test_a_port_that_is_lost_while_it_starts_is_said(cloud: LocalCloud, tmp_path: Path) -> None:
    with pytest.raises(StackOperationError, match="is taken by another program"):
        up(cloud, program=program(tmp_path, "echo $GATEWAY_PORT is already in use; exit 1"))


def test_one_that_never_answers_is_ended(cloud: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zae_limiter.infra.local_process.START_SECONDS", 0.3)
    with pytest.raises(StackOperationError, match=r"(?s)does not answer.*my pid"):
        up(cloud, program=program(tmp_path, "echo my pid $$; exec sleep 60"))
    pid = int(cloud.log(1).rpartition(" ")[2])
    assert start_time_of(pid) is None
    assert cloud.home.read() is None


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StackOperationError, match=HOME_VARIABLE):
        LocalCloud(tmp_path / "file" / "home").down()


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    assert home().folder == tmp_path
    monkeypatch.delenv(HOME_VARIABLE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert home().folder.name == "local-cloud"


def test_it_is_told_to_stay_on_this_machine(cloud: LocalCloud, tmp_path: Path) -> None:
    listing = tmp_path / "told"
    with pytest.raises(StackOperationError):
        up(cloud, program=program(tmp_path, f"env > {listing}; exit 1"))
    told = dict(line.split("=", 1) for line in listing.read_text().splitlines())
    assert (told["BIND_HOST"], told["DOCKER_HOST"], told["PERSIST_STATE"]) == ("127.0.0.1", "unix:///nowhere", "1")
    assert told["STATE_DIR"] == str(cloud.home.data / "state")
    assert not [name for name in told if name.startswith("AWS_")]


def test_streams_are_read_from_their_beginning_after_a_start(cloud: LocalCloud, tmp_path: Path) -> None:
    data_of_a_cloud(cloud.home.data)
    kept = cloud.home.data / "state" / "lambda.json"
    kept.write_text(json.dumps({"payload": {"dynamodb_stream_positions": {"a": 10}, "esms": {"b": 1}}}))
    with pytest.raises(StackOperationError):
        up(cloud, program=program(tmp_path, "exit 1"))
    assert json.loads(kept.read_text()) == {"payload": {"dynamodb_stream_positions": {}, "esms": {"b": 1}}}
