"""The example manifest of the documentation, and manifests with one mistake each."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "limits.yaml"

WRONG: list[tuple[str, list[str]]] = [
    ("", ["1:1: is empty; a manifest begins with a line like manifest: NAME"]),
    ("# nothing", ["1:1: is empty; a manifest begins with a line like manifest: NAME"]),
    ("- a", ["1:1: a manifest must be a mapping with the keys manifest, version, namespace, system, resources, "]),
    ("system:\n  limits: [x:1]", ["1:1: has no name; begin it with a line like manifest: NAME"]),
    ("manifest: a b", ["1:11: manifest must be letters, digits and _ . -, beginning with a letter or digit"]),
    ("manifest: 12", ["1:11: manifest must be a text, but YAML takes this for a whole number; write '12'"]),
    ("manifest: m\nversion: 2", ["2:10: version must be 1, the only one there is so far"]),
    ("manifest: m\nversion: one", ["2:10: version must be a whole number in plain digits, not 'one'"]),
    ("manifest: m\nnamespace: a b", ["2:12: namespace must be letters, digits and _ . - : @"]),
    ("manifest: m\nentites:\n  a:", ["2:1: 'entites' is not a key of a manifest; did you mean 'entities'?"]),
    ("manifest: m\nzzz: 1", ["2:1: 'zzz' is not a key of a manifest; known here: manifest, version"]),
    ("manifest: m\nmanifest: n", ["2:1: 'manifest' is here twice; the first is on line 1"]),
    ("manifest: m\nsystem: [x:1]", ["2:9: system must be a mapping with the keys limits, on_unavailable, not a list"]),
    ("manifest: m\nsystem: {}", ["2:1: system needs limits, a list like [rpm:100, tpm:10000]"]),
    (
        "manifest: m\nsystem: {limits: x:1}",
        ["2:18: system limits must be a list like [rpm:100, tpm:10000], not 'x:1'"],
    ),
    ("manifest: m\nsystem: {limits: []}", ["2:18: system limits must have at least one limit; to have none, leave"]),
    (
        "manifest: m\nsystem: {limits: [x:1], on_unavailable: open}",
        ["2:41: on_unavailable must be allow, block or local, not 'open'"],
    ),
    (
        "manifest: m\nresources: {r: {limits: [x:1]}}",
        ["2:16: write the limits of r as a list, without the word limits"],
    ),
    (
        "manifest: m\nresources: {_default_: [x:1]}",
        ["2:13: _default_ is for entities; limits of every resource belong"],
    ),
    ("manifest: m\nresources: {a#b: [x:1]}", ["2:13: resource must be letters, digits and other characters, without"]),
    ("manifest: m\nresources: {r: [x:1, y:2, x:3]}", ["2:27: limits of r name x twice"]),
    (
        f"manifest: m\nresources: {{r: [{', '.join(f'x{number}:1' for number in range(21))}]}}",
        ["2:16: limits of r must be at most 20 limits"],
    ),
    ("manifest: m\nresources: {r: [x:1/fortnight]}", ["2:17: limit 'x:1/fortnight' has an unknown unit 'fortnight'"]),
    ("manifest: m\nresources: {r: [x: 1]}", ["2:17: a space made this a mapping; write x:1"]),
    ("manifest: m\nresources: {r: [[x:1]]}", ["2:17: a limit must be like rpm:100"]),
    (
        "manifest: m\nresources: {r: [{name: x, capacity: 1}]}",
        ["2:17: a limit in full needs name, capacity, refill_amount, refill_period_seconds; no refill_amount, "],
    ),
    (
        "manifest: m\nresources: {r: [{name: x, capacity: 0, refill_amount: 1, refill_period_seconds: 1}]}",
        ["2:37: capacity must be a whole number of tokens from 1 to"],
    ),
    (
        "manifest: m\nresources: {r: [{name: wcu, capacity: 1, refill_amount: 1, refill_period_seconds: 1}]}",
        ["2:24: limit name 'wcu' is reserved; choose another name"],
    ),
    (
        "manifest: m\nresources: {r: [{name: x, capacity: 10_000, refill_amount: 010, refill_period_seconds: 0x1}]}",
        [
            "2:37: capacity must be a whole number in plain digits, not '10_000'; write 10000",
            "2:60: refill_amount must be a whole number in plain digits, not '010'; write 10",
            "2:88: refill_period_seconds must be a whole number in plain digits, not '0x1'",
        ],
    ),
    ("manifest: m\nentities: {$a: }", ["2:12: entity_id must be letters, digits and other characters, without '#', "]),
    ("manifest: m\nentities: {'': }", ["2:12: entity_id must not be empty"]),
    ("manifest: m\nentities: {zael:manifest:m: }", ["2:12: 'zael:manifest:m' is reserved for the records"]),
    ("manifest: m\nentities: {a: {parent: zael:manifests}}", ["2:24: zael:manifests keeps a record; it cannot be"]),
    ("manifest: m\nentities: {a: x}", ["2:15: entity a must be a mapping with the keys name, parent"]),
    ("manifest: m\nentities: {a: {parnt: b}}", ["2:16: 'parnt' is not a key of entity a; did you mean 'parent'?"]),
    ("manifest: m\nentities: {a: {cascade: yes}}", ["2:25: cascade must be true or false, not 'yes'"]),
    ("manifest: m\nentities: {a: {name: 007}}", ["2:22: name must be a text, but YAML takes this for a whole number"]),
    ("manifest: m\nentities: {a: {name: ''}}", ["2:22: name must be a string of 1 to 256 characters"]),
    (
        "manifest: m\nentities: {a: {metadata: {x: 1, y: [z]}}}",
        ["2:30: metadata 'x' must be a text", "2:36: metadata"],
    ),
    ("manifest: m\nentities: {a: {limits: x:1}}", ["2:24: limits of a must be a list, or a mapping of resources"]),
    ("manifest: m\nentities: {a: {limits: {a#b: [x:1]}}}", ["2:25: resource must be letters, digits and"]),
    ("manifest: m\nentities: {a: {create: false}}", ["2:12: a has create: false and no limits"]),
    ("manifest: m\nentities: {a: {create: false, limits: {}}}", ["2:12: a has create: false and no limits"]),
    (
        "manifest: m\nentities: {a: {create: false, parent: b, limits: [x:1]}}",
        ["2:31: parent cannot be managed with create: false, which leaves the entity to others; remove one"],
    ),
    ("manifest: m\nentities: {a: {parent: a}}", ["2:24: a would be its own ancestor: a → a"]),
    (
        "manifest: m\nentities:\n  a: {parent: b}\n  b: {parent: c}\n  c: {parent: b}\n",
        ["4:15: b would be its own ancestor: b → c → b"],
    ),
]
