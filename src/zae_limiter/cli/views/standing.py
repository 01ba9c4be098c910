"""A deployment beside this version of the library."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter.cli.printing.paper import Paper
from zae_limiter.cli.printing.tables import Column, table
from zae_limiter.cli.views.words import NOTHING
from zae_limiter.infra.standing import Standing

COLUMNS = (Column(""), Column("there"), Column("here"))


def standing_document(standing: Standing) -> dict[str, Any]:
    """The comparison for programs."""
    return {
        "name": standing.deployment.name,
        "deployed_version": standing.deployment.version,
        "own_version": standing.own_version,
        "layout": standing.layout,
        "own_layout": standing.own_layout,
        "code": standing.code.value,
        "usable": standing.usable,
        "advice": list(standing.advice),
    }


def standing_picture(paper: Paper, standing: Standing) -> RenderableType:
    """The comparison for people."""
    layout = NOTHING if standing.layout is None else str(standing.layout)
    rows = [
        ("version", standing.deployment.version or NOTHING, standing.own_version),
        ("layout of the table", layout, str(standing.own_layout)),
        ("code of the function", standing.code.value, "current"),
    ]
    advice = [Text(words, style="yellow") for words in standing.advice]
    fits = Text(f"{standing.deployment.name} and this version fit together", style="green")
    return Group(table(paper, COLUMNS, rows), Text(), *(advice or [fits]))
