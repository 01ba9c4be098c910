"""``zae-limiter entity``: keys, users, projects, organisations. Their limits are in ``entity_limits.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.commands.entity_limits import delete_limits, get_limits, set_limits
from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import (
    as_usage_error,
    confirm,
    list_limit_option,
    on_existing_store,
    on_store,
    principal_option,
    yes_option,
)
from zae_limiter.cli.session import Session

if TYPE_CHECKING:
    from zae_limiter import Entity


@click.group(
    "entity",
    cls=OrderedGroup,
    epilog="""\b
Examples:
  zae-limiter entity create key-1 --parent acme --cascade
  zae-limiter entity tree
""",
)
def command() -> None:
    """Keys, users, projects, organisations, and their own limits."""


@command.command(
    "create",
    epilog="""\b
Examples:
  zae-limiter entity create acme --name "Acme Inc."
  zae-limiter entity create key-1 --parent acme --cascade --meta team=search
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@click.option("--name", metavar="TEXT", help="A display name.")
@click.option("--parent", metavar="ENTITY", shell_complete=complete_entity, help="The entity above it.")
@click.option("--cascade/--no-cascade", default=False, show_default=True, help="Also take from the parent.")
@click.option("--meta", "notes", multiple=True, metavar="KEY=VALUE", help="An entry of its metadata; repeatable.")
@principal_option
@on_store
def create(
    session: Session,
    entity_id: str,
    name: str | None,
    parent: str | None,
    cascade: bool,
    notes: tuple[str, ...],
    principal: str | None,
) -> None:
    """Create an entity.

    Entities need not be created to be limited: this gives one a parent, a name, metadata.
    """
    from zae_limiter.cli.argument_parsers import parse_notes
    from zae_limiter.cli.views.entities import entity_document

    with as_usage_error():
        metadata = parse_notes(notes)
    entity = session.limiter.create_entity(
        entity_id,
        name=name,
        parent_id=parent,
        cascade=cascade,
        metadata=metadata,
        principal=principal,
    )
    session.say(entity_document(entity), f"created {entity_id}")


@command.command(
    "show",
    epilog="""\b
Example:
  zae-limiter entity show key-1
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@on_existing_store
def show(session: Session, entity_id: str) -> None:
    """Show an entity, its ancestors, and its limits."""
    from zae_limiter.cli.views.entities import entity_picture, shown_entity_document

    limiter = session.limiter
    entity = limiter.get_entity(entity_id)
    ancestors: list[str] = []
    parent_id = entity.parent_id
    while parent_id is not None and parent_id not in ancestors:
        ancestors.append(parent_id)
        parent_id = limiter.get_entity(parent_id).parent_id
    limits = limiter.get_limits(entity_id)
    session.answer(
        shown_entity_document(entity, ancestors, limits),
        lambda: entity_picture(session.output, entity, ancestors, limits),
    )


@command.command(
    "update",
    epilog="""\b
Examples:
  zae-limiter entity update key-1 --parent acme --cascade
  zae-limiter entity update key-1 --no-name --meta team=ads --remove-meta owner
  zae-limiter entity update key-1 --name "Key of Ann" --expected-version 3
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@click.option("--name", metavar="TEXT", help="A display name.")
@click.option("--no-name", is_flag=True, help="Remove its name.")
@click.option("--parent", metavar="ENTITY", shell_complete=complete_entity, help="The entity above it.")
@click.option("--no-parent", is_flag=True, help="Remove its parent.")
@click.option("--cascade/--no-cascade", default=None, help="Also take from the parent, or not.")
@click.option(
    "--meta", "notes", multiple=True, metavar="KEY=VALUE", help="Add or replace an entry of its metadata; repeatable."
)
@click.option(
    "--remove-meta", "removed", multiple=True, metavar="KEY", help="Remove an entry of its metadata; repeatable."
)
@click.option(
    "--expected-version", type=click.IntRange(min=1), metavar="N", help="Refuse unless it is at this version."
)
@principal_option
@on_existing_store
def update(
    session: Session,
    entity_id: str,
    name: str | None,
    no_name: bool,
    parent: str | None,
    no_parent: bool,
    cascade: bool | None,
    notes: tuple[str, ...],
    removed: tuple[str, ...],
    expected_version: int | None,
    principal: str | None,
) -> None:
    """Change an entity; what is not named stays as it is."""
    from zae_limiter.cli.argument_parsers import parse_notes
    from zae_limiter.cli.views.entities import entity_document

    if (name is not None and no_name) or (parent is not None and no_parent):
        raise click.UsageError("--name and --no-name, --parent and --no-parent exclude each other")
    changes: dict[str, Any] = {}
    if name is not None or no_name:
        changes["name"] = name
    if parent is not None or no_parent:
        changes["parent_id"] = parent
    if cascade is not None:
        changes["cascade"] = cascade
    with as_usage_error():
        added = parse_notes(notes)
    if added or removed:
        before = session.limiter.get_entity(entity_id)
        kept = {key: value for key, value in before.metadata.items() if key not in removed}
        changes["metadata"] = kept | added
        expected_version = expected_version or before.version
    if not changes:
        raise click.UsageError("nothing to change; name at least one field")
    entity = session.limiter.update_entity(
        entity_id, expected_version=expected_version, principal=principal, **changes
    )
    session.say(entity_document(entity), f"updated {entity_id}, now at version {entity.version}")


@command.command(
    "list",
    epilog="""\b
Examples:
  zae-limiter entity list
  zae-limiter entity list --limit 20
  zae-limiter entity list --with-limits --resource gpt-4
  zae-limiter entity list --json | jq -r '.entities[].entity_id'
""",
)
@click.option("--with-limits", is_flag=True, help="Only those that have limits of their own, with these.")
@click.option("--resource", metavar="RESOURCE", help="With --with-limits: limits for this resource.")
@list_limit_option
@on_existing_store
def list_entities(session: Session, with_limits: bool, resource: str | None, most: int | None) -> None:
    """List the entities that were created, by id."""
    from zae_limiter.cli.pages import Pages
    from zae_limiter.cli.views.entities import COLUMNS, entity_document, entity_rows

    if with_limits:
        list_with_limits(session, resource, most)
        return
    if resource is not None:
        raise click.UsageError("--resource needs --with-limits")
    session.list(
        "entities",
        Pages(lambda size, cursor: session.limiter.list_entities(limit=size, cursor=cursor), most),
        entity_document,
        COLUMNS,
        entity_rows,
        nothing="no entities were created in this namespace",
    )


def list_with_limits(session: Session, resource: str | None, most: int | None) -> None:
    """The entities that have limits of their own."""
    from zae_limiter.cli.output.text_tables import Column, Row
    from zae_limiter.cli.pages import Pages
    from zae_limiter.cli.views.limits import COLUMNS, entity_limits_document, limit_row
    from zae_limiter.naming import DEFAULT_RESOURCE

    limiter = session.limiter
    where = DEFAULT_RESOURCE if resource is None else resource

    def rows(entity_id: str) -> list[Row]:
        limits = limiter.get_limits(entity_id, resource=where)
        return [("" if place else entity_id, *limit_row(limit)) for place, limit in enumerate(limits)]

    session.list(
        "entities",
        Pages(lambda size, cursor: limiter.list_entities_with_custom_limits(where, size, cursor), most),
        lambda entity_id: entity_limits_document(entity_id, where, limiter.get_limits(entity_id, resource=where)),
        (Column("entity"), *COLUMNS),
        rows,
        nothing="no entity has limits of its own " + (f"for {resource}" if resource else "for all resources"),
    )


@command.command(
    "tree",
    epilog="""\b
Examples:
  zae-limiter entity tree
  zae-limiter entity tree acme
""",
)
@click.argument("entity_id", metavar="[ENTITY]", required=False, shell_complete=complete_entity)
@on_existing_store
def tree(session: Session, entity_id: str | None) -> None:
    """Draw the hierarchy: all entities, or those below one.

    An arrow marks entities that also take from their parent.
    """
    from zae_limiter.cli.output.documents import streamed
    from zae_limiter.cli.pages import Pages
    from zae_limiter.cli.views.entity_tree import branch, forest, node_document, walk

    limiter = session.limiter

    def children(parent_id: str) -> list[Entity]:
        return list(Pages(lambda size, cursor: limiter.get_children(parent_id, limit=size, cursor=cursor)).items())

    if entity_id is not None:
        nodes = walk([limiter.get_entity(entity_id)], children)
    else:
        with session.progress("reading the entities"):
            nodes = forest(Pages(lambda size, cursor: limiter.list_entities(limit=size, cursor=cursor)).items())
    if session.as_json:
        for piece in streamed("entities", map(node_document, nodes), lambda: False):
            click.echo(piece, nl=False)
        return
    drawn = False
    for node in nodes:
        session.output.show(branch(node))
        drawn = True
    if not drawn:
        session.output.show("no entities were created in this namespace")


@command.command(
    "delete",
    epilog="""\b
Examples:
  zae-limiter entity delete key-1
  zae-limiter entity delete key-1 --yes --principal ann
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@yes_option
@principal_option
@on_existing_store
def delete(session: Session, entity_id: str, yes: bool, principal: str | None) -> None:
    """Delete an entity with its buckets and limits.

    Its usage and audit trail stay until they expire. An entity that has children is refused.
    """
    confirm(f"Delete {entity_id}, its buckets and its limits?", yes)
    with session.progress(f"deleting {entity_id}"):
        session.limiter.delete_entity(entity_id, principal=principal)
    session.say({"entity_id": entity_id, "deleted": True}, f"deleted {entity_id}")


for limits_command in (set_limits, get_limits, delete_limits):
    command.add_command(limits_command)
