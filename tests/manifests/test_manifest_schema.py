"""The schema for editors says what the reader says."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import yaml
from applied_manifests import plain_data
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from manifest_examples import EXAMPLE, WRONG
from manifest_strategies import JSON_VALUES, states

from zae_limiter.manifests.export import as_document, write_manifest
from zae_limiter.manifests.model import State
from zae_limiter.manifests.parser import ENTITY_KEYS, SYSTEM_KEYS, TOP_KEYS, read_manifest
from zae_limiter.manifests.problems import ManifestError, Problem
from zae_limiter.manifests.yaml_nodes import parse
from zae_limiter.models.limit import MAX_PERIOD_SECONDS, MAX_TOKENS

SCHEMA = json.loads(files("zae_limiter.manifests").joinpath("schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)

NOT_IN_A_SCHEMA = ("twice", "ancestor")
"""What no schema can say: keys and limits said twice, and circles."""


def accepted_by_schema(document: Any) -> bool:
    return bool(VALIDATOR.is_valid(document))


def accepted_by_reader(document: Any) -> bool:
    try:
        read_manifest(json.dumps(document, ensure_ascii=False))
    except ManifestError as error:
        return all(any(words in line for words in NOT_IN_A_SCHEMA) for line in error.lines)
    return True


def test_it_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_it_knows_the_keys_and_bounds_of_the_reader() -> None:
    definitions = SCHEMA["definitions"]
    full = definitions["limit"]["oneOf"][1]["properties"]
    assert set(SCHEMA["properties"]) == set(TOP_KEYS)
    assert set(SCHEMA["properties"]["system"]["properties"]) == set(SYSTEM_KEYS)
    assert set(definitions["entity"]["properties"]) == set(ENTITY_KEYS)
    assert {full[key]["maximum"] for key in ("capacity", "refill_amount", "burst")} == {MAX_TOKENS}
    assert full["refill_period_seconds"]["maximum"] == MAX_PERIOD_SECONDS


def test_the_example_is_valid_however_it_is_read() -> None:
    problems: list[Problem] = []
    ours = parse(EXAMPLE.read_bytes(), problems)
    assert ours is not None
    assert problems == []
    assert accepted_by_schema(plain_data(ours))
    assert accepted_by_schema(yaml.safe_load(EXAMPLE.read_text()))
    assert plain_data(ours) == yaml.safe_load(EXAMPLE.read_text())


@settings(max_examples=50, deadline=None)
@given(states())
def test_every_export_is_valid(state: State) -> None:
    assert accepted_by_schema(as_document("m", state))
    tree = parse(write_manifest("m", state), [])
    assert tree is not None
    assert plain_data(tree) == as_document("m", state)


REFUSED = [text for text, lines in WRONG if not all(any(word in line for word in NOT_IN_A_SCHEMA) for line in lines)]


@pytest.mark.parametrize("text", REFUSED, ids=[text.replace("\n", "; ")[:60] for text in REFUSED])
def test_what_the_reader_refuses_is_not_valid(text: str) -> None:
    tree = parse(text, [])
    assert not accepted_by_schema(None if tree is None else plain_data(tree))


@st.composite
def nearly_right(draw: st.DrawFn) -> Any:
    """A manifest in which one value or key somewhere was exchanged."""
    document = copy.deepcopy(as_document("m", draw(states())))
    target: Any = document
    for _ in range(draw(st.integers(0, 4))):
        inner = [value for value in (target.values() if isinstance(target, dict) else target) if value]
        inner = [value for value in inner if isinstance(value, dict | list)]
        if not inner:
            break
        target = draw(st.sampled_from(inner))
    value = draw(JSON_VALUES)
    if isinstance(target, dict):
        known = [*target, *ENTITY_KEYS, *SYSTEM_KEYS, "capacity", "burst", "_default_", "zael:manifest:x"]
        target[draw(st.sampled_from(known) | st.text(max_size=5))] = value
    else:
        target[draw(st.integers(0, len(target) - 1))] = value
    return document


def printable(document: Any) -> bool:
    return all(character.isprintable() for character in json.dumps(document, ensure_ascii=False))


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    phases=[Phase.generate],
)
@given(nearly_right().filter(printable))
def test_reader_and_schema_agree_on_what_is_nearly_right(document: Any) -> None:
    if accepted_by_schema(document) != accepted_by_reader(document):
        try:
            read_manifest(json.dumps(document, ensure_ascii=False))
            said = "accepted"
        except ManifestError as error:
            said = str(error)
        raise AssertionError(f"{said}\n{[e.message for e in VALIDATOR.iter_errors(document)]}\n{document}")
