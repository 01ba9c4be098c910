"""``zae-limiter limits`` when it is stopped, asked on a terminal, or given nonsense; and on DynamoDB."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manifest_shell import COMMAND, EXPORT, MANIFEST, PLAN, Answer, rewrite, shell

from engines.servers import Engine
from zae_limiter import RateLimiterUnavailable, SyncRepository, ZAELimiterError
from zae_limiter.cli.commands.limits import command
from zae_limiter.cli.entry import main
from zae_limiter.manifests import apply
from zae_limiter.manifests.change_plan import Change

__all__ = ["shell"]

SUBCOMMANDS = ["plan", "apply", "diff", "export", "schema"]
ANY_OPTION = st.sampled_from(["--json", "--yes", "--take-over", "--all", "--exit-code", "", "nowhere", "-f"])


# Half-way


def run_here(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["zae-limiter", *arguments])
    return main()


def test_a_failure_half_way_says_what_remains_and_running_again_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(tmp_path, MANIFEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZAEL_URL", "sqlite:///limits.db")
    make = apply._apply_change

    def failing(repository: SyncRepository, change: Change, by: str) -> None:
        if str(change.thing) == "resource gpt-4":
            raise RateLimiterUnavailable("no answer")
        make(repository, change, by)

    with monkeypatch.context() as patch:
        patch.setattr(apply, "_apply_change", failing)
        assert run_here(patch, "limits", "apply", "-f", "limits.yaml", "--yes") == 69
        assert capsys.readouterr().err.splitlines() == [
            "Error: no answer",
            "3 changes done, 3 left; run it again to finish:",
            "+ resource gpt-4",
            "+ limits of acme",
            "+ limits of search on gpt-4",
        ]
        assert run_here(patch, "limits", "apply", "-f", "limits.yaml", "--yes", "--json") == 69
        assert json.loads(capsys.readouterr().out)["error"] == "no answer"
    run_here(monkeypatch, "limits", "plan", "-f", "limits.yaml")
    assert "did not finish; apply again to finish it." in capsys.readouterr().out
    assert run_here(monkeypatch, "limits", "apply", "-f", "limits.yaml", "--yes") == 0
    assert "Applied 3 changes." in capsys.readouterr().out


def test_an_interrupt_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(tmp_path, MANIFEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZAEL_URL", "sqlite:///limits.db")
    make = apply._apply_change

    def interrupted(repository: SyncRepository, change: Change, by: str) -> None:
        if str(change.thing) == "system":
            raise KeyboardInterrupt
        make(repository, change, by)

    with monkeypatch.context() as patch:
        patch.setattr(apply, "_apply_change", interrupted)
        assert run_here(patch, "limits", "apply", "-f", "limits.yaml", "--yes") == 130
    assert "interrupted after 2 of 6 changes; run it again to finish" in capsys.readouterr().err
    assert run_here(monkeypatch, "limits", "apply", "-f", "limits.yaml", "--yes") == 0


def changes_in(folder: Path) -> int:
    """How many changes the file has seen; none if it is not there yet."""
    with (
        suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"file:{folder}/limits.db?mode=ro", uri=True)) as file,
    ):
        (changes,) = file.execute("SELECT count(*) FROM audit").fetchone()
        return int(changes)
    return 0


def test_a_killed_process_is_repaired_by_running_again(shell: Callable[..., Answer], tmp_path: Path) -> None:
    first = [f"  e{number}: {{parent: top, limits: {{gpt: [x:{number + 1}]}}}}\n" for number in range(400)]
    second = [f"  e{number}: {{limits: [y:7]}}\n" for number in range(200, 600)]
    environment = {**os.environ, "ZAEL_URL": "sqlite:///limits.db"}
    for entities in (first, second):
        rewrite(tmp_path, "manifest: m\nentities:\n  top:\n" + "".join(entities))
        arguments = [COMMAND, "limits", "apply", "-f", "limits.yaml", "--yes"]
        before, give_up_at = changes_in(tmp_path), time.monotonic() + 60
        with subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
            while changes_in(tmp_path) < before + 20:
                assert process.poll() is None
                assert time.monotonic() < give_up_at
                time.sleep(0.001)
            process.kill()
        assert changes_in(tmp_path) < before + 400, "it was done already"
    assert shell("limits", "apply", "-f", "limits.yaml", "--yes").returncode == 0
    assert shell("limits", "plan", "-f", "limits.yaml", "--exit-code").returncode == 0
    exported = shell("limits", "export", "--resource", "gpt", "--name", "m").stdout
    assert exported.count("\n  e") == 400
    assert "gpt" not in exported


# On a terminal


def on_terminal(folder: Path, typed: str, *arguments: str) -> tuple[int, str]:
    """Run the command on a terminal of its own; its exit code and what was seen."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "ZAEL_URL": "sqlite:///limits.db", "TERM": "xterm-256color", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        code = process.wait(30)
    os.close(ours)
    return code, seen.decode()


def test_it_asks_before_it_applies(tmp_path: Path) -> None:
    rewrite(tmp_path, MANIFEST)
    code, seen = on_terminal(tmp_path, "n\n", "limits", "apply", "-f", "limits.yaml")
    assert code == 1
    assert "Apply this to namespace default? [y/N]" in seen
    assert "\x1b[32m+ entity acme" in seen
    code, seen = on_terminal(tmp_path, "y\n", "limits", "apply", "-f", "limits.yaml")
    assert (code, "Applied 6 changes." in seen) == (0, True)


# Everywhere, and whatever is given


def test_it_works_on_dynamodb(shell: Callable[..., Answer], dynoxide: Engine) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nobody"}
    url = f"dynamodb://limits-{os.getpid()}?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        with SyncRepository.open(url, create=True, deadline=20.0) as repository:
            here = {**keys, "ZAEL_URL": url}
            assert shell("limits", "plan", "-f", "limits.yaml", **here).stdout == PLAN
            done = shell("limits", "apply", "-f", "limits.yaml", "--yes", **here)
            assert (done.returncode, done.stderr) == (0, "")
            assert shell("limits", "plan", "-f", "limits.yaml", "--exit-code", **here).returncode == 0
            assert shell("limits", "diff", "-f", "limits.yaml", "--exit-code", **here).returncode == 0
            assert shell("limits", "export", **here).stdout == EXPORT
            repository.delete_table()


def test_a_store_that_does_not_answer_is_69(shell: Callable[..., Answer]) -> None:
    url = "dynamodb://nowhere?region=us-east-1&endpoint_url=http://127.0.0.1:9"
    answer = shell(
        "limits", "plan", "-f", "limits.yaml", ZAEL_URL=url, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x"
    )
    assert (answer.returncode, "Traceback" in answer.stderr) == (69, False)


@pytest.mark.parametrize("name", ["", *SUBCOMMANDS])
def test_every_help_has_an_example(shell: Callable[..., Answer], name: str) -> None:
    answer = shell("limits", *filter(None, [name]), "--help")
    assert answer.returncode == 0
    assert f"  zae-limiter limits {name}".rstrip() in answer.stdout


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    content=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f"manifest: m\n{text}".encode()),
    name=st.sampled_from(["plan", "apply", "diff"]),
    options=st.lists(
        st.sampled_from(["--json", "--yes", "--take-over", "--all", "--exit-code", "", "nowhere", "-f"]), max_size=3
    ),
)
def test_nothing_that_is_given_ends_in_a_traceback(content: bytes, name: str, options: list[str]) -> None:
    arguments = [name, "-f", "-", "--url", "memory://", *options]
    result = CliRunner().invoke(command, arguments, input=content)
    assert result.exit_code in (0, 1, 2, 3)
    assert result.exception is None or isinstance(result.exception, SystemExit | ZAELimiterError)
