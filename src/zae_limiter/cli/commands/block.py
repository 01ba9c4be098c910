"""``zae-limiter block``: shut out an entity, a resource or everything, or let limits only watch."""

from __future__ import annotations

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.options import as_usage_error, confirm, on_existing_store, principal_option, yes_option
from zae_limiter.cli.session import Session


@click.command(
    "block",
    epilog="""\b
Examples:
  zae-limiter block key-1
  zae-limiter block key-1 --resource gpt-4 --until 2h
  zae-limiter block --resource gpt-4 --yes
  zae-limiter block --all --observe --yes
  zae-limiter block --list
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity, required=False)
@click.option("--resource", metavar="RESOURCE", help="On this resource only; without an ENTITY, for everyone on it.")
@click.option("--all", "everything", is_flag=True, help="Every entity on every resource.")
@click.option("--observe", is_flag=True, help="Refuse nothing, but count what the limits would refuse.")
@click.option("--until", metavar="TIME", help="The end: 2026-01-31T12:00 (UTC), or from now: 90m, 24h, 7d.")
@click.option("--list", "listing", is_flag=True, help="List every switch that holds.")
@yes_option
@principal_option
@on_existing_store
def command(
    session: Session,
    entity_id: str | None,
    resource: str | None,
    everything: bool,
    observe: bool,
    until: str | None,
    listing: bool,
    yes: bool,
    principal: str | None,
) -> None:
    """Refuse every acquire, until it is unblocked.

    Of an entity, on a resource, or of all. Blocked callers get an error that says so; none of their limits is touched.
    An entity's block holds at once, and for acquires of its descendants that cascade to it; one of a resource or of
    all within five seconds everywhere.
    """
    from zae_limiter.cli.argument_parsers import parse_end
    from zae_limiter.cli.pages import Pages
    from zae_limiter.cli.views.access import COLUMNS, access_document, access_row, access_words

    if listing:
        limiter = session.limiter
        session.list(
            "switches",
            Pages(lambda size, cursor: limiter.list_access(limit=size, cursor=cursor)),
            access_document,
            COLUMNS,
            lambda access: [access_row(access)],
            nothing="no switch is turned: limits are enforced everywhere",
        )
        return
    check_target(entity_id, resource, everything)
    with as_usage_error():
        end = None if until is None else parse_end(until, session.now_ms(), "until")
    mode = "observe" if observe else "block"
    if entity_id is None:
        whom = f"every entity on {resource}" if resource else "every entity on every resource"
        confirm(f"{mode.capitalize()} {whom}?", yes)
    session.limiter.set_access(mode, entity_id=entity_id, resource=resource, principal=principal, until=end)
    access = session.limiter.get_access(entity_id=entity_id, resource=resource)
    session.say(access_document(access), access_words(access))


def check_target(entity_id: str | None, resource: str | None, everything: bool) -> None:
    """Exactly one level must be named, and everything by a word of its own."""
    if everything and (entity_id is not None or resource is not None):
        raise click.UsageError("--all goes without an ENTITY and without --resource")
    if not everything and entity_id is None and resource is None:
        raise click.UsageError("name an ENTITY, a --resource, or --all")
