"""What a deployment is made of, on its own: the template, and the function's package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pseudo_terminal import COMMAND, terminal

from zae_limiter.infra.lambda_builder import build_lambda_package
from zae_limiter.infra.template import code_key, template_text


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([COMMAND, *words], cwd=cwd, capture_output=True, timeout=60, check=False)


def test_the_template_is_printed(tmp_path: Path) -> None:
    ran = run("cfn-template", cwd=tmp_path)
    assert (ran.returncode, ran.stdout.decode(), ran.stderr) == (0, template_text(), b"")


def test_the_template_is_written(tmp_path: Path) -> None:
    ran = run("cfn-template", "--output", "stack.yaml", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert (tmp_path / "stack.yaml").read_text(encoding="utf-8") == template_text()


@pytest.mark.parametrize(
    ("words", "name"), [((), "zae-limiter-aggregator.zip"), (("--output", "function.zip"), "function.zip")]
)
def test_the_package_is_written_and_told(words: tuple[str, ...], name: str, tmp_path: Path) -> None:
    ran = run("lambda-export", *words, cwd=tmp_path)
    package = build_lambda_package()
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert (tmp_path / name).read_bytes() == package
    told = ran.stderr.decode()
    assert told.startswith(f"wrote {name}: {len(package):,} bytes; handler zae_limiter_aggregator.handler.handler")
    assert code_key(package) in told


def test_the_package_goes_through_a_pipe(tmp_path: Path) -> None:
    ran = run("lambda-export", "--output", "-", cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, build_lambda_package(), b"")
    assert list(tmp_path.iterdir()) == []


def test_the_package_is_not_poured_onto_a_terminal() -> None:
    with terminal(COMMAND, "lambda-export", "--output", "-") as screen:
        assert screen.end() == 2
    assert "name a file with --output" in screen.shown


@pytest.mark.parametrize("command", ["cfn-template", "lambda-export"])
def test_a_file_that_cannot_be_written_is_an_error_in_words(command: str, tmp_path: Path) -> None:
    ran = run(command, "--output", "nowhere/file", cwd=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.decode() == "Error: Could not open file 'nowhere/file': No such file or directory\n"
