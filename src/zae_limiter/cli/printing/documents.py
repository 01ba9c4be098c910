"""JSON on stdout: one document, however long the list in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


def whole(document: Mapping[str, Any]) -> str:
    """A document for reading and for programs."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def on_one_line(document: Mapping[str, Any]) -> str:
    """A document that is one of many, each on a line of its own."""
    return json.dumps(document, ensure_ascii=False)


def streamed(name: str, items: Iterable[Mapping[str, Any]], more: Callable[[], bool]) -> Iterator[str]:
    """The document of a list in pieces: its items under ``name`` as they come, then whether there are more."""
    yield f'{{\n  "{name}": ['
    separator = "\n    "
    for item in items:
        yield separator + on_one_line(item)
        separator = ",\n    "
    end = "" if separator == "\n    " else "\n  "
    yield f'{end}],\n  "more": {json.dumps(more())}\n}}\n'
