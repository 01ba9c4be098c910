"""JSON on stdout: one document, however long the list in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


def whole(document: Mapping[str, Any]) -> str:
    """A document for reading and for programs."""
    return escaped(json.dumps(document, indent=2, ensure_ascii=False))


def on_one_line(document: Mapping[str, Any]) -> str:
    """A document that is one of many, each on a line of its own."""
    return escaped(json.dumps(document, ensure_ascii=False))


def escaped(text: str) -> str:
    """The same JSON with every character escaped that is not printable: control characters, marks that change the
    direction of a line, separators, invisible characters and lone surrogates.

    They stand in strings only, where JSON may escape any character; the line feeds between its parts stay.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)


def streamed(name: str, items: Iterable[Mapping[str, Any]], more: Callable[[], bool]) -> Iterator[str]:
    """The document of a list in pieces: its items under ``name`` as they come, then whether there are more.

    It begins with the first item, so that a list that cannot be read prints nothing.
    """
    begun = False
    for item in items:
        yield ("," if begun else f'{{\n  "{name}": [') + "\n    " + on_one_line(item)
        begun = True
    yield "\n  ]" if begun else f'{{\n  "{name}": []'
    yield f',\n  "more": {json.dumps(more())}\n}}\n'
