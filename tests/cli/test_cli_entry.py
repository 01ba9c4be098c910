"""The installed command, as a shell sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import CommandRunner, sqlite_url

from engines.servers import Engine
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.cli.group import COMMANDS, SECTIONS
from zae_limiter.stores.open_store import default_url
from zae_limiter.version import __version__

COMMAND = str(Path(sys.executable).parent / "zae-limiter")


def shell(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ZAEL_")}
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
        env=kept | environment,
    )


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


def modules_after(*words: str) -> set[str]:
    program = f"""
import json, sys
from zae_limiter.cli.entry import main
main({list(words)!r})
print(json.dumps(sorted(sys.modules)))
"""
    return set(json.loads(python(program).stdout.splitlines()[-1]))


HEAVY = {"rich", "asyncio", "sqlite3", "yaml", "zae_limiter.limiter", "zae_limiter.stores", "zae_limiter.cli.demo"}


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_the_version_is_one_line(argument: str) -> None:
    answer = shell(argument)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"zae-limiter {__version__}\n", "")


@pytest.mark.parametrize(
    "words", [["--version"], ["version"], ["--help"], ["entity", "--help"], ["completion", "fish"]]
)
def test_what_needs_no_store_imports_nothing_heavy(words: list[str]) -> None:
    loaded = modules_after(*words)
    assert "click" in loaded
    assert not loaded & HEAVY


def test_the_version_imports_no_other_command() -> None:
    assert not [name for name in modules_after("--version") if name.startswith("zae_limiter.cli.commands.")]


@pytest.mark.parametrize(
    "arguments", [["--nope"], ["nope"], ["demo", "--nope"], ["demo", "--seconds", "0"], ["entity"]]
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    answer = shell(*arguments)
    assert answer.returncode == 2
    assert "Usage:" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_extra_is_named(missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from zae_limiter.cli.entry import main
sys.argv = ["zae-limiter", "demo", "--seconds", "0.1", "--url", "memory://"]
sys.exit(main())
"""
    answer = python(program)
    assert answer.returncode == 1
    assert answer.stderr == "the command line needs: pip install '.[cli]' in a clone of zae-limiter\n"


def test_any_other_missing_module_is_a_bug_and_shows_itself() -> None:
    program = """
import sys
sys.modules["zae_limiter.version"] = None
sys.argv = ["zae-limiter", "--version"]
from zae_limiter.cli.entry import main
sys.exit(main())
"""
    assert "Traceback" in python(program).stderr


# Where the store is


def test_without_a_url_it_is_the_file_that_the_library_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ZAEL_URL", raising=False)
    assert shell("system", "set-defaults", "-l", "rpm:7", **home).returncode == 0
    with SyncRateLimiter.open() as limiter:
        assert limiter.get_system_defaults()[0] == [Limit.per_minute("rpm", 7)]
    assert Path(default_url().removeprefix("sqlite:///")).exists()


def test_the_environment_names_store_and_namespace(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    assert shell("namespace", "register", "staging", ZAEL_URL=url).returncode == 0
    assert shell("entity", "create", "key-1", ZAEL_URL=url, ZAEL_NAMESPACE="staging").returncode == 0
    listed = shell("entity", "list", "--json", "--namespace", "staging", "--url", url)
    assert [entity["entity_id"] for entity in json.loads(listed.stdout)["entities"]] == ["key-1"]
    assert json.loads(shell("entity", "list", "--json", ZAEL_URL=url).stdout)["entities"] == []


def test_empty_variables_are_as_good_as_none(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    assert shell("entity", "create", "key-1", ZAEL_URL="", ZAEL_NAMESPACE="", **home).returncode == 0


def test_a_table_that_is_not_there_is_not_made(dynoxide: Engine) -> None:
    url = f"dynamodb://nobody-made-this?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    for _ in range(2):
        answer = shell("entity", "list", "--url", url)
        assert answer.returncode == 78
        assert answer.stdout == ""
        (line,) = answer.stderr.splitlines()
        assert line.startswith("Error: DynamoDB refused: ")
        assert "zae-limiter deploy --name STACK" in line


def test_the_same_words_work_on_a_table(dynoxide: Engine) -> None:
    url = f"dynamodb://cli-installed-{os.getpid()}?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    with SyncRepository.open(url, create=True) as repository:
        try:
            assert shell("system", "set-defaults", "-l", "rpm:5", "--url", url).returncode == 0
            assert shell("acquire", "key-1", "gpt-4", "rpm=4", "--url", url).returncode == 0
            denied = shell("acquire", "key-1", "gpt-4", "rpm=4", "--url", url)
            assert (denied.returncode, denied.stdout) == (75, "")
            assert (
                shell("acquire", "key-1", "gpt-4", "rpm=1", "--url", url, "--", "sh", "-c", "exit 5").returncode == 5
            )
            status = json.loads(shell("status", "key-1", "--json", "--url", url).stdout)
            assert status["buckets"][0]["limits"][0]["total_consumed"] == 4
        finally:
            repository.delete_table()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nowhere://x", "url: must begin with one of"),
        ("sqlite:////proc/nope/limits.db", "/proc/nope/limits.db"),
        ("dynamodb://xyz?region=us-east-1&endpoint_url=http://127.0.0.1:9", "DynamoDB did not answer"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line(url: str, said: str) -> None:
    answer = shell("entity", "list", "--url", url)
    assert answer.returncode in (1, 69)
    assert answer.stdout == ""
    assert len(answer.stderr.splitlines()) == 1
    assert said in answer.stderr


# Where the answer goes


def test_a_reader_that_has_gone_is_no_error_to_talk_about(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    with SyncRateLimiter.open(url) as limiter:
        for number in range(1_500):
            limiter.create_entity(f"key-{number:04}", name="a name of some length to fill the pipe" * 3)
    listed = subprocess.run(
        f"{COMMAND} entity list --url {url} | head -n 3",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert listed.stderr == ""
    assert len(listed.stdout.splitlines()) == 3


def test_watching_ends_with_its_reader(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpm", 10)])
        with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    words = ["bash", "-o", "pipefail", "-c", f"{COMMAND} watch key --interval 0.05 --url {url} | head -n 1"]
    watched = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (watched.returncode, watched.stderr, len(watched.stdout.splitlines())) == (0, "", 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        answer = subprocess.run(
            [COMMAND, "version"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False
        )
    assert answer.returncode == 1
    assert len(answer.stderr.splitlines()) == 1
    assert answer.stderr.startswith("Error: ")


def test_an_output_without_our_characters_still_gets_the_words(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    shell("system", "set-defaults", "-l", "rpm:5", "--url", url)
    shell("acquire", "key-1", "gpt-4", "rpm=4", "--url", url)
    answer = shell("status", "key-1", "--url", url, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "gpt-4" in answer.stdout


# Completion


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(name: str) -> None:
    answer = shell("completion", name)
    assert answer.returncode == 0
    assert "_ZAE_LIMITER_COMPLETE" in answer.stdout
    assert "zae-limiter" in answer.stdout


def test_the_script_finds_commands_and_options() -> None:
    asked = {"_ZAE_LIMITER_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    words = shell(COMP_WORDS="zae-limiter entity se", **asked).stdout
    assert words.split() == ["plain,set-limits"]
    options = shell(COMP_WORDS="zae-limiter status --", **asked).stdout.split()
    assert {"plain,--url", "plain,--namespace", "plain,--json"} <= set(options)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["statsu", "key-1"], "Did you mean 'status'?"),
        (["--url", "memory://", "status", "key-1"], "--url comes after the command"),
        (["--json", "entity", "list"], "--json comes after the command"),
    ],
    ids=["a slip of the finger", "an option too early", "a flag too early"],
)
def test_what_is_nearly_right_is_told_how_to_be_right(words: list[str], advice: str, runner: CommandRunner) -> None:
    ran = runner.run(*words)
    assert ran.code == 2
    assert advice in ran.err


def test_help_lists_every_command_once_by_what_it_is_for(runner: CommandRunner) -> None:
    shown = runner.run("--help").out
    listed = [line.split()[0] for line in shown.splitlines() if re.match(r"  [a-z][a-z-]+  ", line)]
    assert tuple(listed) == COMMANDS
    assert [title for title in SECTIONS if f"\n{title}:\n" not in shown] == []
