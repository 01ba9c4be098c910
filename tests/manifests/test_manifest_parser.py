"""From a file to a manifest: what is right is understood, what is wrong is said at its place."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from manifest_examples import EXAMPLE, WRONG

from zae_limiter import Limit, OnUnavailable
from zae_limiter.manifests import yaml_nodes
from zae_limiter.manifests.model import SYSTEM, Level, Place, Profile, entity_thing, limits_of, resource_defaults
from zae_limiter.manifests.parser import read_manifest
from zae_limiter.manifests.problems import ManifestError

PARSERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


@pytest.fixture(params=PARSERS, ids=lambda parser: parser.__name__)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of PyYAML: the one in C is not on every platform."""
    monkeypatch.setattr(yaml_nodes, "Parser", request.param)


def problems_of(content: bytes | str) -> list[str]:
    """What is wrong, as ``line:column: what``."""
    with pytest.raises(ManifestError) as caught:
        read_manifest(content, "f")
    assert str(caught.value).splitlines() == caught.value.lines
    return [line.removeprefix("f:") for line in caught.value.lines]


# What is right


@pytest.mark.usefixtures("parser")
def test_the_example_is_understood() -> None:
    manifest = read_manifest(EXAMPLE.read_bytes(), "limits.yaml")
    rpm, tpm = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 10_000)
    images = Limit.custom("images", 4, 1, 15)
    assert manifest.name == "platform"
    assert manifest.namespace is None
    assert manifest.things[SYSTEM] == Level((rpm, tpm), OnUnavailable.BLOCK)
    assert manifest.things[resource_defaults("embeddings")] == Level(
        (Limit.per_second("rps", 20, 40), Limit.per_day("tpd", 1_000_000))
    )
    assert manifest.things[entity_thing("acme")] == Profile(
        "Acme Inc.", metadata={"plan": "gold", "contact": "ops@acme.example"}
    )
    assert manifest.things[entity_thing("acme-search")] == Profile(parent_id="acme", cascade=True)
    gpt = manifest.things[limits_of("acme-search", "gpt-4")]
    assert gpt == Level((Limit.per_minute("tpm", 20_000, 30_000), images))
    assert entity_thing("trial-user") not in manifest.things
    assert limits_of("trial-user", "_default_") in manifest.things
    assert manifest.places[SYSTEM] == Place(7, 1)
    assert manifest.places[limits_of("acme-search", "gpt-4")] == Place(28, 7)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "things"),
    [
        ("", {}),
        ("entities:\nresources: ~\n", {}),
        ("entities: {a: , b: {}, c: null}", {entity_thing(name): Profile() for name in "abc"}),
        ("entities: {12: , 1e3: , true: , no: }", {entity_thing(n): Profile() for n in ("12", "1e3", "true", "no")}),
        ('{"entities": {"a": {"name": "x", "limits": {}}}}'[1:-1], {entity_thing("a"): Profile("x")}),
        ("entities:\n  a:\n    name: |\n      two\n      lines\n", {entity_thing("a"): Profile("two\nlines\n")}),
        ("entities: {a: {create: true, cascade: false}}", {entity_thing("a"): Profile()}),
        ("entities: {a: {name: ~, parent: , metadata: }}", {entity_thing("a"): Profile()}),
        (
            "entities: {a: {create: false, limits: [x:1]}}",
            {limits_of("a", "_default_"): Level((Limit.per_minute("x", 1),))},
        ),
        (
            "resources:\n  r:\n  - {name: x, capacity: 4, refill_amount: 1, refill_period_seconds: 9, burst: 2}",
            {resource_defaults("r"): Level((Limit.custom("x", 4, 1, 9, 2),))},
        ),
        ("system: {limits: [x:1]}", {SYSTEM: Level((Limit.per_minute("x", 1),), OnUnavailable.BLOCK)}),
        (
            "system: {limits: [x:1], on_unavailable: allow}",
            {SYSTEM: Level((Limit.per_minute("x", 1),), OnUnavailable.ALLOW)},
        ),
    ],
)
def test_every_form_is_understood(text: str, things: object) -> None:
    text = f"manifest: m\n{text}" if not text.startswith('"') else f'{{"manifest": "m", {text}}}'
    assert read_manifest(text).things == things


def test_a_mark_at_the_beginning_and_other_line_ends_are_fine() -> None:
    assert read_manifest("\ufeffmanifest: m\r\nnamespace: n\r\n".encode()).namespace == "n"


# What is wrong


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("text", "expected"), WRONG, ids=[text.replace("\n", "; ")[:60] for text, _ in WRONG])
def test_a_mistake_is_said_at_its_place(text: str, expected: list[str]) -> None:
    found = problems_of(text)
    assert len(found) == len(expected), found
    for line, beginning in zip(found, expected, strict=True):
        assert line.startswith(beginning)


@pytest.mark.usefixtures("parser")
def test_all_mistakes_are_said_at_once_in_order() -> None:
    found = problems_of("manifest: m\nsystem: {limit: [x:1]}\nresources: {r: [x]}\nentities: {a: {cascade: 1}}\n")
    assert [line.split(": ")[0] for line in found] == ["2:1", "2:10", "3:17", "4:25"]


# What is hostile

BOMB = "manifest: m\na: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

HOSTILE: list[tuple[str | bytes, str]] = [
    (BOMB, "2:4: anchors (&a) are not allowed"),
    ("manifest: m\nentities: &a {b: *a}", "2:11: anchors (&a) are not allowed"),
    ("manifest: *nobody", "1:11: aliases (*nobody) are not allowed"),
    ("manifest: m\nentities: {a: &x {}, b: {<<: *x}}", "2:15: anchors (&x) are not allowed"),
    ("manifest: !!python/object/apply:os.system ['true']", "1:11: tags ('tag:yaml.org,2002:python/object"),
    ("!!set {manifest: m}", "1:1: tags ('tag:yaml.org,2002:set') are not allowed"),
    ("manifest: ! m", "1:11: tags"),
    ("manifest: m\n---\nmanifest: n", "2:1: begins a second document; a file has one manifest"),
    ("manifest: m\nentities: " + "[" * 100_000, "2:2"),
    ("manifest: m\nentities: " + "{a: " * 1_000, "2:"),
    ("? [manifest]\n: m\nmanifest: m", "1:3: a key must be a word, not a list or a mapping"),
    ("manifest: m\n" + "#" * yaml_nodes.MOST_BYTES, "1:1: is larger than 4,000,000 bytes; split it"),
    ("manifest: m\nx: \x00", "2:4: the character U+0000 must not be in a file"),
    ("manifest: m\nx: \ud800", "2:4: the character U+D800 must not be in a file"),
    ("manifest: m\nx: ä\x1b", "2:5: the character U+001B must not be in a file"),
    (b"manifest: m\nx: \xff", "2:4: is not UTF-8; save the file in that encoding"),
    ("manifest: m\n\tx: 1", "2:1: is not YAML: found"),
    ("manifest: m\nx: @y", "2:4: is not YAML: found character"),
    ("manifest: m\nx: a: b", "2:5: is not YAML: mapping values are not allowed"),
    ("manifest: 'm", "1:13: is not YAML: found unexpected end of stream"),
    ('manifest: "\\U99999999"', "1:"),
    ('manifest: "\\uD800"', "1:"),
    ("%TAG ! tag:x,2000:\n--- !y\nmanifest: m", "2:5: tags"),
]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("content", "expected"), HOSTILE, ids=[expected for _, expected in HOSTILE])
def test_what_is_hostile_is_refused(content: str | bytes, expected: str) -> None:
    assert any(line.startswith(expected) for line in problems_of(content)), problems_of(content)[:5]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("manifest: m\n\tx: 1", "indent with spaces, not with tabs"),
        ("manifest: m\nx: @y", "a text that begins with @ needs quotes"),
        ("manifest: m\nx: a: b", "a text with a colon and a space in it needs quotes"),
    ],
)
def test_the_usual_causes_of_broken_yaml_are_named(text: str, advice: str) -> None:
    assert problems_of(text)[0].endswith(advice)


# Whatever there is

PIECES = st.sampled_from(
    [
        "manifest: m\n", "system:\n", "  limits: [x:1]\n", "entities:\n", "  a:\n", "    parent: b\n", "    limits:\n",
        "      gpt: [rpm:1, tpm:2/hour]\n", "&a ", "*a", "!!int ", "- ", ": ", "? ", "|\n", ">-\n", "'", '"', "[", "]",
        "{", "}", ",", "\t", "\\", "%YAML 1.1\n", "---\n", "...\n", "<<: ", "\u2028", "\x85", "\ufeff", "0x", "~", "#",
    ]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.lists(PIECES, max_size=25).map("".join)))
@example('a: "\\U99999999"')
@example("\ud800")
def test_any_text_is_a_manifest_or_a_list_of_problems(content: str | bytes) -> None:
    for parser in PARSERS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml_nodes, "Parser", parser)
            try:
                manifest = read_manifest(content)
            except ManifestError as error:
                places = [(problem.place.line, problem.place.column) for problem in error.problems]
            else:
                places = [(1, 1)]
                assert manifest.name
            assert min(min(place) for place in places) >= 1


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1200), st.integers(0, 12), st.text(max_size=6) | PIECES)
def test_a_damaged_example_is_never_a_traceback(start: int, length: int, inserted: str) -> None:
    text = EXAMPLE.read_text()
    with suppress(ManifestError):
        read_manifest(text[:start] + inserted + text[start + length :])
