"""Every command, as people and as programs see it, is the same on every store.

What people see is in ``golden``, one transcript for each story and width; ``UPDATE_GOLDEN=1`` writes them anew.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from cli_runner import CommandRunner, Ran
from command_scripts import STORIES, Step, steps_of
from jsonschema import Draft202012Validator

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = json.loads(files("zae_limiter.cli").joinpath("schemas/documents.json").read_text(encoding="utf-8"))

OF_THE_DAY = re.compile(r"(?!2026-01-0)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
"""A moment of the machine's clock: that of the namespace that is there from the beginning."""

THINGS = re.compile(r"\d+ things removed")
"""A store counts its own rows or items."""

EVENT_ID = re.compile(r"\b(01KD[0-9A-Z]{6})[0-9A-Z]{16}\b")
"""After its moment, an event's id is each store's own."""


def play(runner: CommandRunner, step: Step, *more: str, width: int = 80) -> Ran:
    runner.clock.advance(step.seconds)
    words = list(step.words)
    end = words.index("--") if "--" in words else len(words)
    return runner.run(*words[:end], *more, *words[end:], width=width)


def transcript(step: Step, ran: Ran) -> str:
    """What a terminal shows: the command, its answer, its complaint, and how it ended if not well."""
    lines = [f"$ zae-limiter {shlex.join(step.words)}", *ran.out.splitlines()]
    lines += [f"! {line}".rstrip() for line in ran.err.splitlines()]
    if ran.code:
        lines.append(f"= {ran.code}")
    text = OF_THE_DAY.sub("....-..-.. ..:..:..", "\n".join(lines) + "\n")
    return EVENT_ID.sub(r"\1................", THINGS.sub("... things removed", text))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("story", STORIES)
def test_people_see_the_golden_transcript(story: str, width: int, any_runner: CommandRunner) -> None:
    played = []
    for step in steps_of(story):
        ran = play(any_runner, step, width=width)
        assert bool(ran.code) == step.fails, ran
        assert "Traceback" not in ran.err
        assert max((len(line) for line in ran.out.splitlines()), default=0) <= width
        played.append(transcript(step, ran))
    golden = GOLDEN / f"{story}-{width}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text("\n".join(played), encoding="utf-8")
    assert "\n".join(played).splitlines() == golden.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("story", STORIES)
def test_programs_get_one_valid_document(story: str, any_runner: CommandRunner) -> None:
    for step in steps_of(story):
        ran = play(any_runner, step, "--json")
        assert bool(ran.code) == step.fails, ran
        if step.document is None:
            assert not ran.out, step
        else:
            for document in documents(step, ran.out):
                validator(step.document).validate(document)


def documents(step: Step, out: str) -> list[Any]:
    if step.words[0] == "watch":
        return [json.loads(line) for line in out.splitlines()]
    return [json.loads(out)]


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"})


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", SCHEMA["$defs"])
def test_every_document_of_the_schema_is_answered_or_part_of_one(name: str) -> None:
    answered = {step.document for story in STORIES for step in steps_of(story)}
    assert name in answered or f'"#/$defs/{name}"' in json.dumps(SCHEMA)


def test_no_golden_transcript_is_left_over() -> None:
    stories = {f"{story}-{width}.txt" for story in STORIES for width in (80, 120)}
    assert {path.name for path in GOLDEN.iterdir()} == stories
