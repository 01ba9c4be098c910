"""Why an entity has the limits it has on a resource: the four levels, the one that wins, and the cascade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import Access, Limit, OnUnavailable
from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, table
from zae_limiter.cli.views.access import access_document, access_words
from zae_limiter.cli.views.formats import NOTHING, limits_in_words
from zae_limiter.cli.views.limits import limits_document

if TYPE_CHECKING:
    from zae_limiter.models.choices import ConfigSource

RULE = "The first level that has limits gives all of them."


class Level(NamedTuple):
    """The limits that one level has."""

    source: ConfigSource
    limits: Sequence[Limit]


class Leg(NamedTuple):
    """One entity that an acquire takes from, or skips because no level has limits for it.

    ``total`` has its limits over all resources together, which hold besides.
    """

    entity_id: str
    levels: Sequence[Level]
    total: Sequence[Limit] = ()

    @property
    def winner(self) -> Level | None:
        """The level whose limits hold."""
        return next((level for level in self.levels if level.limits), None)

    def replaced(self, level: Level) -> list[str]:
        """The names of limits that a level has and that do not hold, because the one that wins lacks them."""
        winner = self.winner
        if winner is None or level is winner:
            return []
        names = {limit.name for limit in winner.limits}
        return [limit.name for limit in level.limits if limit.name not in names]


class Explanation(NamedTuple):
    """What decides an acquire. ``end`` says why the cascade goes no further, ``access`` which switches hold."""

    resource: str
    legs: Sequence[Leg]
    end: str
    on_unavailable: OnUnavailable | None
    access: Sequence[Access] = ()


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """An explanation for programs."""
    first = explanation.legs[0]
    return {
        "entity_id": first.entity_id,
        "resource": explanation.resource,
        "source": first.winner.source if first.winner else None,
        "limits": limits_document(first.winner.limits if first.winner else ()),
        "on_unavailable": None if explanation.on_unavailable is None else str(explanation.on_unavailable),
        "legs": [
            {
                "entity_id": leg.entity_id,
                "source": leg.winner.source if leg.winner else None,
                "levels": [
                    {
                        "level": level.source,
                        "limits": limits_document(level.limits),
                        "wins": level is leg.winner,
                        "replaced": leg.replaced(level),
                    }
                    for level in leg.levels
                ],
                "total": limits_document(leg.total),
            }
            for leg in explanation.legs
        ],
        "cascade_ends": explanation.end,
        "access": [access_document(access) for access in explanation.access],
    }


def explanation_picture(output: Output, explanation: Explanation) -> RenderableType:
    """An explanation for people."""
    first = explanation.legs[0]
    resource = explanation.resource
    pictures: list[RenderableType] = [
        Text.assemble((first.entity_id, "bold"), " on ", (resource, "bold")),
        *(Text(access_words(access), style="red") for access in explanation.access),
        Text(),
        _levels(output, first, resource),
        Text(),
        Text(_verdict(first, resource)),
        Text(),
        Text("An acquire takes from", style="bold"),
        _legs(output, explanation),
        Text(explanation.end, style="dim"),
    ]
    policy = explanation.on_unavailable
    if policy is not None:
        pictures += [Text(), Text(f"While the store is unavailable: {policy}, as the system says.")]
    return Group(*pictures)


def _levels(output: Output, leg: Leg, resource: str) -> RenderableType:
    rows = []
    for level in leg.levels:
        wins = level is leg.winner
        style = "bold" if wins else "" if level.limits else "dim"
        rows.append(
            (
                Text("▶" if wins else "", style="green"),
                Text(called(level.source, leg.entity_id, resource), style=style),
                Text(limits_in_words(level.limits), style=style),
            )
        )
    return table(output, (Column("", rigid=True), Column("level"), Column("says")), rows)


def _legs(output: Output, explanation: Explanation) -> RenderableType:
    rows = []
    for place, leg in enumerate(explanation.legs):
        arrow = "↑ " if place else ""
        if leg.winner is None:
            said = "skipped: no level has limits for it" if place else "nothing: no level has limits for it"
            rows.append((Text(f"{arrow}{leg.entity_id}"), Text(said, style="dim"), Text(NOTHING, style="dim")))
        else:
            origin = called(leg.winner.source, leg.entity_id, explanation.resource)
            rows.append((Text(f"{arrow}{leg.entity_id}"), Text(limits_in_words(leg.winner.limits)), Text(origin)))
        if leg.total:
            origin = called("total", leg.entity_id, explanation.resource)
            rows.append((Text(f"{arrow}{leg.entity_id}"), Text(limits_in_words(leg.total)), Text(origin)))
    return table(output, (Column("entity"), Column("limits"), Column("of")), rows)


def _verdict(leg: Leg, resource: str) -> str:
    if leg.winner is None and leg.total:
        return "No level has limits; the total over all resources holds."
    if leg.winner is None:
        return "No level has limits for it: what its ancestors have holds, and without any an acquire is refused."
    verdict = f"{RULE} Here that is {called(leg.winner.source, leg.entity_id, resource)}."
    lacking = list(dict.fromkeys(name for level in leg.levels for name in leg.replaced(level)))
    if not lacking:
        return verdict
    return f"{verdict} It has no {' and no '.join(lacking)}: a call may name it, and is not limited by it here."


def called(source: ConfigSource, entity_id: str, resource: str) -> str:
    """A level in words."""
    return {
        "entity": f"{entity_id} on {resource}",
        "entity_default": f"{entity_id} on all resources",
        "total": f"{entity_id} on all resources together",
        "resource": f"all entities on {resource}",
        "system": "all entities on all resources",
        "call": "the call itself",
    }[source]
