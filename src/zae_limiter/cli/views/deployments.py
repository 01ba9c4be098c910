"""Deployments: one, several, their health, and how they compare with this version of the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter.cli.output.console import Paper
from zae_limiter.cli.output.text_tables import Column, Row, table
from zae_limiter.cli.views.formats import NOTHING, duration, iso, moment
from zae_limiter.infra.change_sets import Change
from zae_limiter.infra.compatibility import Standing
from zae_limiter.infra.deployments import Deployment
from zae_limiter.infra.health import Grade, Health, Part

COLUMNS = (
    Column("deployment"),
    Column("state"),
    Column("version"),
    Column("created (UTC)", rigid=True),
    Column("updated (UTC)", rigid=True),
)
PART_COLUMNS = (Column("part"), Column("name"), Column("state"), Column("", style="dim"))
CHANGE_COLUMNS = (Column("change"), Column("resource"), Column("kind"))

STYLES = {Grade.FINE: "green", Grade.WATCH: "yellow", Grade.BROKEN: "red"}
VERDICTS = {
    Grade.FINE: "everything is fine",
    Grade.WATCH: "it works, and something wants a look",
    Grade.BROKEN: "something is broken",
}


def deployment_document(deployment: Deployment) -> dict[str, Any]:
    """A deployment for programs."""
    return {
        "name": deployment.name,
        "table": deployment.table,
        "state": deployment.state,
        "version": deployment.version,
        "created_at": iso(deployment.created_at),
        "updated_at": iso(deployment.updated_at),
        "parameters": dict(deployment.parameters),
        "outputs": dict(deployment.outputs),
        "tags": dict(deployment.tags),
    }


def deployment_row(deployment: Deployment) -> Row:
    """A deployment in a list."""
    return (
        deployment.name,
        deployment.state,
        deployment.version or NOTHING,
        moment(deployment.created_at),
        moment(deployment.updated_at),
    )


def deployments_picture(paper: Paper, deployments: Sequence[Deployment]) -> RenderableType | str:
    """All deployments of a region."""
    if not deployments:
        return "there are no deployments in this region"
    return table(paper, COLUMNS, [deployment_row(each) for each in deployments])


def health_document(health: Health, url: str) -> dict[str, Any]:
    """How a deployment does, for programs."""
    return {
        "deployment": deployment_document(health.deployment),
        "url": url,
        "grade": health.grade.value,
        "lag_seconds": health.lag_seconds,
        "parts": [_part_document(part) for part in health.parts],
    }


def _part_document(part: Part) -> dict[str, Any]:
    return {
        "part": part.what,
        "name": part.name,
        "state": part.state,
        "grade": part.grade.value,
        "detail": part.detail,
    }


def health_picture(paper: Paper, health: Health, url: str) -> RenderableType:
    """How a deployment does, for people."""
    rows = [
        (part.what, part.name, Text(part.state, style=STYLES[part.grade]), part.detail or "") for part in health.parts
    ]
    lag = "nothing was counted lately" if health.lag_seconds is None else f"{duration(health.lag_seconds)} late"
    return Group(
        Text(f"{health.deployment.name}: {VERDICTS[health.grade]}", style=STYLES[health.grade]),
        Text(url, style="dim"),
        Text(),
        table(paper, PART_COLUMNS, rows),
        Text(f"usage: {lag}"),
    )


def changes_document(name: str, changes: Sequence[Change]) -> dict[str, Any]:
    """What deploying would change, for programs."""
    return {
        "name": name,
        "changes": [
            {"action": each.action, "resource": each.resource, "kind": each.kind, "replaces": each.replaces}
            for each in changes
        ],
    }


def changes_picture(paper: Paper, name: str, changes: Sequence[Change]) -> RenderableType | str:
    """What deploying would change, for people."""
    if not changes:
        return f"{name} is as it should be: deploying would change nothing"
    rows = [
        (f"{each.action}, replaced" if each.replaces else each.action, each.resource, each.kind) for each in changes
    ]
    return table(paper, CHANGE_COLUMNS, rows)


COMPATIBILITY_COLUMNS = (Column(""), Column("there"), Column("here"))


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
    return Group(table(paper, COMPATIBILITY_COLUMNS, rows), Text(), *(advice or [fits]))
