"""The installed command, as a shell sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zae_limiter.cli.group import COMMANDS
from zae_limiter.version import __version__

COMMAND = str(Path(sys.executable).parent / "zae-limiter")


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=30, check=False)


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_the_version_is_one_line(argument: str) -> None:
    answer = shell(argument)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"zae-limiter {__version__}\n", "")


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_the_version_imports_nothing_heavy(argument: str) -> None:
    program = f"""
import json, sys
from zae_limiter.cli.entry import main
sys.argv = ["zae-limiter", {argument!r}]
try:
    main()
except SystemExit:
    print(json.dumps(sorted(sys.modules)))
"""
    loaded = set(json.loads(python(program).stdout.splitlines()[-1]))
    assert "click" in loaded
    heavy = {"rich", "asyncio", "sqlite3", "zae_limiter.limiter", "zae_limiter.stores", "zae_limiter.cli.demo"}
    assert not loaded & heavy


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=lambda words: " ".join(words) or "-")
def test_every_help_has_an_example(command: list[str]) -> None:
    answer = shell(*command, "--help")
    assert answer.returncode == 0
    assert "Example" in answer.stdout
    assert f"  zae-limiter {' '.join(command)}".rstrip() in answer.stdout


@pytest.mark.parametrize("arguments", [["--nope"], ["nope"], ["demo", "--nope"], ["demo", "--seconds", "0"]])
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
    assert answer.stderr == "the command line needs: pip install 'zae-limiter[cli]'\n"


def test_any_other_missing_module_is_a_bug_and_shows_itself() -> None:
    program = """
import sys
sys.modules["zae_limiter.version"] = None
sys.argv = ["zae-limiter", "--version"]
from zae_limiter.cli.entry import main
sys.exit(main())
"""
    assert "Traceback" in python(program).stderr
