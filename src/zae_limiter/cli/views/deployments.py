"""Deployments: one, several, their health, and how they compare with this version of the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, Row, table
from zae_limiter.cli.views.formats import NOTHING, duration, iso, moment
from zae_limiter.infra.change_sets import Change
from zae_limiter.infra.compatibility import Compatibility
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
    Grade.WATCH: "it works, but something needs attention",
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


def deployments_picture(output: Output, deployments: Sequence[Deployment]) -> RenderableType | str:
    """All deployments of a region."""
    if not deployments:
        return "there are no deployments in this region"
    return table(output, COLUMNS, [deployment_row(each) for each in deployments])


def health_document(health: Health, url: str) -> dict[str, Any]:
    """The health of a deployment, for programs."""
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


def health_picture(output: Output, health: Health, url: str) -> RenderableType:
    """The health of a deployment, for people."""
    rows = [
        (part.what, part.name, Text(part.state, style=STYLES[part.grade]), part.detail or "") for part in health.parts
    ]
    lag = "nothing was counted recently" if health.lag_seconds is None else f"{duration(health.lag_seconds)} late"
    return Group(
        Text(f"{health.deployment.name}: {VERDICTS[health.grade]}", style=STYLES[health.grade]),
        Text(url, style="dim"),
        Text(),
        table(output, PART_COLUMNS, rows),
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


def changes_picture(output: Output, name: str, changes: Sequence[Change]) -> RenderableType | str:
    """What deploying would change, for people."""
    if not changes:
        return f"{name} is up to date: deploying would change nothing"
    rows = [
        (f"{each.action}, replaced" if each.replaces else each.action, each.resource, each.kind) for each in changes
    ]
    return table(output, CHANGE_COLUMNS, rows)


COMPATIBILITY_COLUMNS = (Column(""), Column("there"), Column("here"))


def compatibility_document(compatibility: Compatibility) -> dict[str, Any]:
    """The comparison for programs."""
    return {
        "name": compatibility.deployment.name,
        "deployed_version": compatibility.deployment.version,
        "own_version": compatibility.own_version,
        "layout": compatibility.layout,
        "own_layout": compatibility.own_layout,
        "code": compatibility.code.value,
        "usable": compatibility.usable,
        "advice": list(compatibility.advice),
    }


def compatibility_picture(output: Output, compatibility: Compatibility) -> RenderableType:
    """The comparison for people."""
    layout = NOTHING if compatibility.layout is None else str(compatibility.layout)
    rows = [
        ("version", compatibility.deployment.version or NOTHING, compatibility.own_version),
        ("layout of the table", layout, str(compatibility.own_layout)),
        ("code of the function", compatibility.code.value, "current"),
    ]
    advice = [Text(words, style="yellow") for words in compatibility.advice]
    fits = Text(f"{compatibility.deployment.name} and this version fit together", style="green")
    return Group(table(output, COMPATIBILITY_COLUMNS, rows), Text(), *(advice or [fits]))
