"""``zae-limiter resource``: the limits of a resource, and how much of it is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import (
    confirm,
    limits_option,
    list_limit_option,
    merge_option,
    on_existing_store,
    on_store,
    principal_option,
    propagate_option,
    yes_option,
)
from zae_limiter.cli.session import Session
from zae_limiter.naming import MAX_PAGE

if TYPE_CHECKING:
    from zae_limiter import EntityCapacity, Limit, LimitsSet, ResourceCapacity
    from zae_limiter.cli.output.text_tables import Row


@click.group(
    "resource",
    cls=OrderedGroup,
    epilog="""\b
Example:
  zae-limiter resource list
""",
)
def command() -> None:
    """The limits of a resource, for entities without their own."""


@command.command(
    "set-defaults",
    epilog="""\b
Examples:
  zae-limiter resource set-defaults gpt-4 -l rpm:60 -l tpm:20_000
  zae-limiter resource set-defaults gpt-4 -l tpd:1_000_000/day --no-propagate
""",
)
@click.argument("resource")
@limits_option
@merge_option
@propagate_option
@principal_option
@on_store
def set_defaults(
    session: Session, resource: str, limits: tuple[Limit, ...], merge: bool, propagate: bool, principal: str | None
) -> None:
    """Replace the limits of a resource.

    They replace those of the system there: it says which of these no longer hold, and --merge keeps them.
    """
    with session.progress(f"setting the limits of {resource}"):
        changed = session.limiter.set_resource_defaults(
            resource, limits, merge=merge, principal=principal, propagate=propagate
        )
    show(session, resource, changed, merge_hint=not merge)


@command.command(
    "get-defaults",
    epilog="""\b
Example:
  zae-limiter resource get-defaults gpt-4
""",
)
@click.argument("resource")
@on_existing_store
def get_defaults(session: Session, resource: str) -> None:
    """Show the limits of a resource as they were set."""
    show(session, resource)


@command.command(
    "list",
    epilog="""\b
Examples:
  zae-limiter resource list
  zae-limiter resource list --limit 20 --json
""",
)
@list_limit_option
@on_existing_store
def list_resources(session: Session, most: int | None) -> None:
    """List the resources that have limits, with these."""
    from zae_limiter.cli.output.text_tables import Column
    from zae_limiter.cli.pages import Pages
    from zae_limiter.cli.views.limits import COLUMNS, limit_row, resource_limits_document

    limiter = session.limiter

    def rows(resource: str) -> list[Row]:
        limits = limiter.get_resource_defaults(resource)
        return [("" if place else resource, *limit_row(limit)) for place, limit in enumerate(limits)]

    session.list(
        "resources",
        Pages(lambda size, cursor: limiter.list_resources_with_defaults(limit=size, cursor=cursor), most),
        lambda resource: resource_limits_document(resource, limiter.get_resource_defaults(resource)),
        (Column("resource"), *COLUMNS),
        rows,
        nothing="no resource has limits of its own",
    )


@command.command(
    "delete-defaults",
    epilog="""\b
Example:
  zae-limiter resource delete-defaults gpt-4 --yes
""",
)
@click.argument("resource")
@yes_option
@propagate_option
@principal_option
@on_existing_store
def delete_defaults(session: Session, resource: str, yes: bool, propagate: bool, principal: str | None) -> None:
    """Remove the limits of a resource: the system's hold again."""
    confirm(f"Remove the limits of {resource}?", yes)
    with session.progress(f"removing the limits of {resource}"):
        session.limiter.delete_resource_defaults(resource, principal=principal, propagate=propagate)
    session.say({"resource": resource, "limits": []}, f"{resource} has no limits of its own now")


@command.command(
    "capacity",
    epilog="""\b
Examples:
  zae-limiter resource capacity gpt-4
  zae-limiter resource capacity gpt-4 tpm --limit 20
""",
)
@click.argument("resource")
@click.argument("limit_names", metavar="[LIMIT]...", nargs=-1)
@list_limit_option
@on_existing_store
def capacity(session: Session, resource: str, limit_names: tuple[str, ...], most: int | None) -> None:
    """Show what the live buckets of a resource hold together.

    And what each of them holds. Without LIMIT: every limit that the resource, or else the system, has.
    """
    from zae_limiter.cli.output.console import spaced
    from zae_limiter.cli.views.capacity import capacity_document, capacity_picture

    limiter = session.limiter
    names = list(limit_names) or [limit.name for limit in limiter.get_resource_defaults(resource)]
    names = names or [limit.name for limit in limiter.get_system_defaults()[0]]
    if not names:
        raise click.UsageError(f"neither {resource} nor the system has limits; name the one you mean")
    with session.progress(f"adding up {resource}"):
        found = [_capacity(session, resource, name, most) for name in names]
    session.answer(
        {"resource": resource, "limits": [capacity_document(*one) for one in found]},
        lambda: spaced([capacity_picture(session.output, total, entities) for total, entities, _ in found]),
    )


def _capacity(
    session: Session, resource: str, name: str, most: int | None
) -> tuple[ResourceCapacity, list[EntityCapacity], bool]:
    """The sums, the buckets behind them, and whether there are more of these."""
    from zae_limiter import Page
    from zae_limiter.cli.pages import Pages

    found: list[ResourceCapacity] = []

    def fetch(size: int, cursor: str | None) -> Page[EntityCapacity]:
        found.append(session.limiter.get_resource_capacity(resource, name, limit=size, cursor=cursor))
        return found[-1].entities

    pages = Pages(fetch, most, page=MAX_PAGE)  # a sum needs all buckets: as many as one call returns
    entities = list(pages.items())
    return found[0], entities, pages.more


def show(session: Session, resource: str, changed: LimitsSet | None = None, *, merge_hint: bool = False) -> None:
    """A resource's limits as they are now, and what they have ``changed``."""
    from rich.console import Group
    from rich.text import Text

    from zae_limiter.cli.views.limits import limits_table, replaced_document, replaced_lines, resource_limits_document

    limits = session.limiter.get_resource_defaults(resource)
    session.answer(
        resource_limits_document(resource, limits) | replaced_document(changed),
        lambda: (
            Group(
                Text.assemble(("all entities on ", ""), (resource, "bold")),
                limits_table(session.output, limits),
                *replaced_lines(() if changed is None else changed.replaced, merge_hint=merge_hint),
            )
            if limits
            else f"{resource} has no limits of its own"
        ),
    )
