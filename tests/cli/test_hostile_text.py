"""Text from elsewhere in answers: it neither commands the terminal nor turns the line around, in no form."""

from __future__ import annotations

import io
import json
import sqlite3
import unicodedata
from pathlib import Path

import pytest
from cli_runner import CommandRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Group
from rich.text import Text

from zae_limiter import Limit
from zae_limiter.cli.output.console import Output, SafeConsole
from zae_limiter.cli.output.documents import on_one_line, streamed, whole
from zae_limiter.cli.session import note
from zae_limiter.stores.sqlite.store import SqliteStore

CONTROLS = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0))))
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
SEPARATORS = "\u2028\u2029"
INVISIBLE = "\u00ad\u200b\u2060\ufeff\ufff9\U000e0001"
ALONE = "\ud800"
"""Half of a character, which no encoding has: JSON can carry it escaped only."""

HOSTILE = f"a\x1b[2Jb\x9b31mc\x7f{DIRECTIONS}{SEPARATORS}{INVISIBLE}d"
PLAIN = "Zoë 漢字 🙂"
COMMANDING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def commanding(text: str) -> set[str]:
    """What of a text a terminal or a reader would obey rather than show; lines may end."""
    return {letter for letter in text if letter != "\n" and unicodedata.category(letter) in COMMANDING}


# Documents


@pytest.mark.parametrize("letter", CONTROLS + DIRECTIONS + SEPARATORS + INVISIBLE + ALONE, ids=ascii)
def test_a_document_shows_no_character_that_commands_and_has_the_same_value(letter: str) -> None:
    document = {f"key{letter}": [f"value{letter}", PLAIN]}
    for text in (whole(document), on_one_line(document)):
        assert commanding(text) == set()
        assert json.loads(text) == document
        assert PLAIN in text, "what people read stays readable"
    assert "\n" not in on_one_line(document)


@given(
    st.recursive(st.text(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
)
def test_whatever_is_in_a_document_its_value_stays(value: object) -> None:
    document = {"value": value}
    for text in (whole(document), on_one_line(document), "".join(streamed("items", [document], lambda: False))):
        assert commanding(text) == set()
    assert json.loads(whole(document)) == json.loads(on_one_line(document)) == document


# Pictures


@pytest.mark.parametrize("terminal", [False, True])
def test_a_picture_shows_no_character_that_commands_wherever_it_is_in_it(terminal: bool) -> None:
    out = io.StringIO()
    output = Output(SafeConsole(file=out, width=200, force_terminal=terminal, no_color=True, highlight=False))
    output.show(HOSTILE)
    output.show(Text(HOSTILE))
    output.show(Group(Text(HOSTILE, style="bold"), Group(Text.assemble(HOSTILE, (HOSTILE, "red")))))
    written = out.getvalue()
    for styling in ("\x1b[1m", "\x1b[0m"):
        written = written.replace(styling, "")
    assert commanding(written) == set()
    assert written.count("a�[2Jb�31mc�") == 5


def test_a_note_shows_no_character_that_commands(capsys: pytest.CaptureFixture[str]) -> None:
    note(f"passed over: {HOSTILE}")
    said = capsys.readouterr().err
    assert commanding(said) == set()
    assert said.startswith("passed over: a�[2Jb")


# Commands


@pytest.fixture
def store_with_hostile_text(runner: CommandRunner) -> CommandRunner:
    """Names and metadata as the library takes them."""
    with runner.limiter() as limiter:
        limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
        limiter.create_entity("acme", name=f"org{HOSTILE}", metadata={f"note{HOSTILE}": f"text{HOSTILE}"})
        limiter.create_entity("key-1", name=f"key{HOSTILE}", parent_id="acme", cascade=True)
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass
    return runner


READING = (
    "entity show acme",
    "entity list",
    "entity tree acme",
    "entity tree",
    "audit list",
    "status key-1",
    "explain key-1 gpt-4",
    "usage list --entity key-1",
    "resource capacity gpt-4",
    "limits export",
)


@pytest.mark.parametrize("line", READING)
def test_what_is_kept_about_entities_does_not_command_the_terminal(
    store_with_hostile_text: CommandRunner, line: str
) -> None:
    shown = store_with_hostile_text.run(*line.split())
    assert shown.code == 0, shown.err
    assert commanding(shown.out + shown.err) == set()
    ran = store_with_hostile_text.run(*line.split(), "--json")
    assert ran.code == 0, ran.err
    assert commanding(ran.out + ran.err) == set()
    json.loads(ran.out)


def test_a_document_has_the_very_text_that_was_stored(store_with_hostile_text: CommandRunner) -> None:
    found = json.loads(store_with_hostile_text.run("entity", "show", "acme", "--json").out)
    assert found["name"] == f"org{HOSTILE}"
    assert found["metadata"] == {f"note{HOSTILE}": f"text{HOSTILE}"}


def test_ids_that_no_library_wrote_do_not_command_the_terminal_either(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    runner = CommandRunner(lambda: SqliteStore(str(path)))
    with runner.limiter() as limiter:
        limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
        limiter.create_entity("key-1", name="one")
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass
    with sqlite3.connect(path) as forged:
        tables = [name for (name,) in forged.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        changed = 0
        for table in tables:
            for _, column, *_ in forged.execute(f"PRAGMA table_info({table})").fetchall():
                for old in ("key-1", "gpt-4"):
                    forging = f"UPDATE {table} SET {column} = ? WHERE {column} = ?"
                    changed += forged.execute(forging, (f"{old}{HOSTILE}", old)).rowcount
    assert changed > 3, "it was forged"
    forged.close()
    for words in (
        ["entity", "list"],
        ["entity", "tree"],
        ["audit", "list"],
        ["status", f"key-1{HOSTILE}"],
        ["explain", f"key-1{HOSTILE}", f"gpt-4{HOSTILE}"],
        ["usage", "list", "--entity", f"key-1{HOSTILE}"],
        ["resource", "capacity", f"gpt-4{HOSTILE}"],
        ["limits", "export"],
    ):
        for more in ([], ["--json"]):
            ran = runner.run(*words, *more)
            assert commanding(ran.out + ran.err) == set(), words
