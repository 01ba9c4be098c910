"""Whatever is typed, the answer is an answer: never a traceback, always an exit code of ours."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest
from cli_runner import CommandRunner
from command_tree import COMMANDS, ON_A_CLOUD, Names
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manifest_shell import CHANGED, MANIFEST

from zae_limiter.stores.sqlite.store import SqliteStore

EXIT_CODES = {0, 1, 2, 69, 75, 78}

NOT_HERE = {
    ("demo",),
    ("watch",),
    ("serve",),
    ("dashboard",),
    ("cfn-template",),
    ("lambda-export",),
    ("local", "up"),
    ("local", "logs"),
    *ON_A_CLOUD,
}
"""What takes its time by design, leaves this machine, starts a server, or writes files."""

WORDS = st.one_of(
    st.sampled_from(
        [
            "key-1",
            "acme",
            "gpt-4",
            "rpm=1",
            "tpm=0",
            "rpm:10",
            "tpm:1/2day:3",
            "_default_",
            "$SYSTEM",
            "default",
            "staging",
            "2026-01-01",
            "24hours",
            "hourly",
            "allow",
            "bash",
            "a=b",
            "0",
            "-1",
            "1",
            "--",
            "-",
            "",
            "#",
            "01KDVDNA00",
            "9999-12-31T23:59:59+00:00",
            "0001-01-01T00:00:00+14:00",
            "999999weeks",
            "rpm=" + "9" * 30,
            "x:" + "9" * 5_000,
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    st.text(string.printable, max_size=12),
)

SHARED = {"--url", "--png", "--svg", "--file", "--help", "--json"}
"""Options that leave the stage, or end the command before it begins."""


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command that exists, with its options and any words."""
    names: Names = draw(st.sampled_from([names for names in COMMANDS if names not in NOT_HERE]))
    line = list(names)
    options = [
        parameter
        for parameter in COMMANDS[names].params
        if isinstance(parameter, click.Option)
        and not SHARED & set(parameter.opts)
        and (names, parameter.name) != (("status",), "name")
    ]
    for _ in range(draw(st.integers(0, 6))):
        if options and draw(st.booleans()):
            option = draw(st.sampled_from(options))
            line.append(draw(st.sampled_from([*option.opts, *option.secondary_opts])))
            if option.is_flag:
                continue
        line.append(draw(WORDS))
    if draw(st.booleans()):
        line.append("--json")
    return line


@pytest.fixture(scope="module")
def played() -> Iterator[CommandRunner]:
    """A store in which something happened."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", folder)  # a local cloud that runs on this machine is none of its business
        runner = CommandRunner(lambda: SqliteStore(str(Path(folder) / "limits.db")))
        for line in (
            "system set-defaults -l rpm:10 -l tpm:100",
            "entity create acme",
            "entity create key-1 --parent acme --cascade",
            "acquire key-1 gpt-4 rpm=1",
            "namespace register staging",
        ):
            assert runner.run(*line.split()).code == 0
        yield runner


def harmless(line: list[str]) -> bool:
    """Whether it runs no other program: what stands after -- would be one."""
    return line[0] != "acquire" or "--" not in line


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=command_lines().filter(harmless), width=st.sampled_from([None, 20, 80, 200]))
def test_no_line_brings_a_traceback(line: list[str], width: int | None, played: CommandRunner) -> None:
    ran = played.run(*line, width=width)
    assert ran.code in EXIT_CODES
    if ran.code:
        assert ran.err or ran.out
        assert "Traceback" not in ran.err


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.lists(WORDS, max_size=5).filter(lambda line: not line or harmless(line)))
def test_no_words_bring_a_traceback(line: list[str], played: CommandRunner) -> None:
    assert played.run(*line).code in EXIT_CODES


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=256),
    notes=st.dictionaries(
        st.sampled_from(["owner", "team", "x"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60),
        max_size=3,
    ),
)
def test_any_name_and_note_can_be_shown(name: str, notes: dict[str, str], runner: CommandRunner) -> None:
    runner.run("entity", "create", "acme")
    options = [word for key, value in notes.items() for word in ("--meta", f"{key}={value}")]
    changed = runner.run("entity", "update", "acme", f"--name={name}", *options)
    assert changed.code == 0, changed
    for words in (["show", "acme"], ["list"], ["tree"]):
        shown = runner.run("entity", *words, width=40)
        assert shown.code == 0
        assert all(letter.isprintable() or letter == "\n" for letter in shown.out)


PIECES = [
    "{",
    "}",
    "[",
    "]",
    ":",
    "-",
    ",",
    "\n",
    "  ",
    "\t",
    "#",
    "&a",
    "*a",
    "<<",
    "!!x",
    "|",
    ">",
    '"',
    "'",
    "?",
    "\0",
]
VALUES = [
    "null",
    "1e999",
    "0x1f",
    "~",
    "acme",
    "rpm:1",
    "tpm:0",
    "limits",
    "parent",
    "zael:manifests",
    "search",
    "9" * 40,
]


@st.composite
def nearly_manifests(draw: st.DrawFn) -> bytes:
    """A manifest in which some stretches were replaced, removed or repeated, in any encoding; or anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=60))
    text = draw(st.sampled_from([MANIFEST, CHANGED]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(start + draw(st.integers(0, 12)), len(text))
        put = draw(st.one_of(st.sampled_from([*PIECES, *VALUES, text[start:end] * 2]), st.text(max_size=6)))
        text = text[:start] + put + text[end:]
    return text.encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-16", "latin-1"])), "replace")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=nearly_manifests(), as_json=st.booleans(), width=st.sampled_from([None, 20, 80]))
def test_no_manifest_brings_a_traceback(
    content: bytes, as_json: bool, width: int | None, played: CommandRunner, tmp_path: Path
) -> None:
    file = tmp_path / "limits.yaml"
    file.write_bytes(content)
    for words in (["plan"], ["diff"], ["apply", "--yes"]):
        line = ["limits", *words, "-f", str(file), *(["--json"] if as_json else [])]
        ran = played.run(*line, width=width)
        assert ran.code in EXIT_CODES
        assert "Traceback" not in ran.err
        if ran.code:
            assert ran.err or ran.out
