"""``zae-limiter explain``: which limits hold, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.options import on_existing_store
from zae_limiter.cli.session import Session
from zae_limiter.naming import TOTAL_RESOURCE

if TYPE_CHECKING:
    from zae_limiter import Limit, SyncRateLimiter
    from zae_limiter.cli.views.explanation import Explanation, Leg

MOST_LEGS = 1_000
"""Where the walk up the hierarchy ends, even if it changes on the way."""


@click.command(
    "explain",
    epilog="""\b
Examples:
  zae-limiter explain key-1 gpt-4
  zae-limiter explain key-1 gpt-4 --json | jq '.legs[].source'
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@click.argument("resource")
@on_existing_store
def command(session: Session, entity_id: str, resource: str) -> None:
    """Say which limits an entity has on a resource, and why.

    All four levels with what each says and which one wins, then every entity that an acquire takes from by cascade,
    with the limits that hold there, and its total over all resources if it has one. If an access switch decides before
    any limit, that comes first.
    """
    from zae_limiter.cli.views.explanation import explanation_document, explanation_picture

    with session.progress(f"explaining {entity_id}"):
        explanation = explain(session.limiter, entity_id, resource)
    session.answer(explanation_document(explanation), lambda: explanation_picture(session.output, explanation))


def explain(limiter: SyncRateLimiter, entity_id: str, resource: str) -> Explanation:
    """Read what decides an acquire."""
    from zae_limiter import EntityNotFoundError
    from zae_limiter.cli.views.explanation import Explanation

    system, on_unavailable = limiter.get_system_defaults()
    legs: list[Leg] = []
    end = "The cascade goes no further."
    current: str | None = entity_id
    while current is not None and len(legs) < MOST_LEGS:
        legs.append(_leg(limiter, current, resource, system))
        try:
            entity = limiter.get_entity(current)
        except EntityNotFoundError:
            end = f"The cascade ends here: {current} was never created, so nothing is above it."
            break
        if entity.parent_id is None:
            end = f"The cascade ends here: {current} has no parent."
        elif not entity.cascade:
            end = f"The cascade ends here: {current} does not cascade to its parent {entity.parent_id}."
        current = entity.parent_id if entity.cascade else None
    return Explanation(resource, legs, end, on_unavailable, limiter.resolve_access(entity_id, resource))


def _leg(limiter: SyncRateLimiter, entity_id: str, resource: str, system: list[Limit]) -> Leg:
    from zae_limiter.cli.views.explanation import Leg, Level

    return Leg(
        entity_id,
        [
            Level("entity", limiter.get_limits(entity_id, resource=resource)),
            Level("entity_default", limiter.get_limits(entity_id)),
            Level("resource", limiter.get_resource_defaults(resource)),
            Level("system", system),
        ],
        limiter.get_limits(entity_id, resource=TOTAL_RESOURCE),
    )
