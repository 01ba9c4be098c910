"""``zae-limiter entity set-limits``, ``get-limits`` and ``delete-limits``: an entity's own limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.options import (
    confirm,
    limits_option,
    merge_option,
    on_existing_store,
    on_store,
    principal_option,
    propagate_option,
    yes_option,
)
from zae_limiter.cli.session import Session
from zae_limiter.naming import DEFAULT_RESOURCE, TOTAL_RESOURCE

if TYPE_CHECKING:
    from zae_limiter import Limit, LimitsSet

resource_option = click.option(
    "-r",
    "--resource",
    default=DEFAULT_RESOURCE,
    show_default="every resource without own ones",
    metavar="RESOURCE",
    help="The resource they are for; '*' for a total over all resources together.",
)


@click.command(
    "set-limits",
    epilog="""\b
Examples:
  zae-limiter entity set-limits key-1 -l rpm:10 -l tpm:5_000
  zae-limiter entity set-limits key-1 --resource gpt-4 -l tpm:1_000/sec:20_000
  zae-limiter entity set-limits acme -r '*' -l usd:500/day
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@limits_option
@resource_option
@merge_option
@propagate_option
@principal_option
@on_store
def set_limits(
    session: Session,
    entity_id: str,
    limits: tuple[Limit, ...],
    resource: str,
    merge: bool,
    propagate: bool,
    principal: str | None,
) -> None:
    """Replace an entity's own limits.

    They replace all limits of the wider levels (a total, '*', holds besides): it says which of those no longer hold,
    and --merge keeps them. Live buckets follow: a lower burst clamps, a higher one mints nothing.
    """
    with session.progress(f"setting the limits of {entity_id}"):
        changed = session.limiter.set_limits(
            entity_id, limits, resource=resource, merge=merge, principal=principal, propagate=propagate
        )
    show(session, entity_id, resource, changed, merge_hint=not merge)


@click.command(
    "get-limits",
    epilog="""\b
Examples:
  zae-limiter entity get-limits key-1
  zae-limiter entity get-limits key-1 --resource gpt-4 --json
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@resource_option
@on_existing_store
def get_limits(session: Session, entity_id: str, resource: str) -> None:
    """Show an entity's own limits as they were set."""
    show(session, entity_id, resource)


@click.command(
    "delete-limits",
    epilog="""\b
Example:
  zae-limiter entity delete-limits key-1 --resource gpt-4 --yes
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@resource_option
@yes_option
@propagate_option
@principal_option
@on_existing_store
def delete_limits(
    session: Session, entity_id: str, resource: str, yes: bool, propagate: bool, principal: str | None
) -> None:
    """Remove an entity's own limits: the next level holds again."""
    confirm(f"Remove the limits of {entity_id} {meant_for(resource)}?", yes)
    with session.progress(f"removing the limits of {entity_id}"):
        session.limiter.delete_limits(entity_id, resource=resource, principal=principal, propagate=propagate)
    session.say(
        {"entity_id": entity_id, "resource": resource, "limits": []},
        f"{entity_id} has no limits of its own {meant_for(resource)} now",
    )


def show(
    session: Session,
    entity_id: str,
    resource: str,
    changed: LimitsSet | None = None,
    *,
    merge_hint: bool = False,
) -> None:
    """The limits as they are now, and what they have ``changed``."""
    from rich.console import Group
    from rich.text import Text

    from zae_limiter.cli.views.limits import entity_limits_document, limits_table, replaced_document, replaced_lines

    limits = session.limiter.get_limits(entity_id, resource=resource)
    session.answer(
        entity_limits_document(entity_id, resource, limits) | replaced_document(changed),
        lambda: (
            Group(
                Text.assemble((entity_id, "bold"), f" {on(resource)}"),
                limits_table(session.output, limits),
                *replaced_lines(() if changed is None else changed.replaced, merge_hint=merge_hint),
            )
            if limits
            else f"{entity_id} has no limits of its own {meant_for(resource)}"
        ),
    )


def on(resource: str) -> str:
    """Where limits hold, as a title says it."""
    if resource == TOTAL_RESOURCE:
        return "on all resources together"
    return "on everything" if resource == DEFAULT_RESOURCE else f"on {resource}"


def meant_for(resource: str) -> str:
    """What limits are for, as a sentence says it."""
    if resource == TOTAL_RESOURCE:
        return "for all resources together"
    return "for all resources" if resource == DEFAULT_RESOURCE else f"for {resource}"
