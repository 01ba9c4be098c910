"""``zae-limiter unblock``: limits are enforced again, and nothing else refuses."""

from __future__ import annotations

import click

from zae_limiter.cli.commands.block import check_target
from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.options import on_existing_store, principal_option
from zae_limiter.cli.session import Session


@click.command(
    "unblock",
    epilog="""\b
Examples:
  zae-limiter unblock key-1
  zae-limiter unblock key-1 --resource gpt-4
  zae-limiter unblock --all
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity, required=False)
@click.option("--resource", metavar="RESOURCE", help="The switch for this resource.")
@click.option("--all", "everything", is_flag=True, help="The switch of every entity on every resource.")
@principal_option
@on_existing_store
def command(
    session: Session, entity_id: str | None, resource: str | None, everything: bool, principal: str | None
) -> None:
    """Undo block, with or without --observe.

    Of an entity, of a resource, or of all. It turns the switch of that level only. If another level still blocks the
    entity, the answer says which.
    """
    from zae_limiter.cli.views.access import access_document, access_words

    check_target(entity_id, resource, everything)
    session.limiter.set_access("enforce", entity_id=entity_id, resource=resource, principal=principal)
    access = session.limiter.get_access(entity_id=entity_id, resource=resource)
    left = [] if entity_id is None else session.limiter.resolve_access(entity_id, resource)
    document = access_document(access) | {"still": [access_document(one) for one in left]}
    session.say(document, "\n".join([access_words(access), *(f"still: {access_words(one)}" for one in left)]))
