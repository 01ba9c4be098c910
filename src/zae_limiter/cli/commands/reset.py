"""``zae-limiter reset``: full buckets again."""

from __future__ import annotations

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.options import confirm, on_existing_store, principal_option, yes_option
from zae_limiter.cli.session import Session


@click.command(
    "reset",
    epilog="""\b
Examples:
  zae-limiter reset key-1
  zae-limiter reset key-1 --resource gpt-4 --yes --principal ann
  zae-limiter reset key-1 --resource gpt-4 --limit tpm --key night-shift --yes
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@click.option("--resource", metavar="RESOURCE", help="Its bucket on this resource only.")
@click.option("--limit", "limits", metavar="NAME", multiple=True, help="Only this limit; repeatable.")
@click.option("--key", metavar="KEY", help="Repeated under the same key, it is done once.")
@yes_option
@principal_option
@on_existing_store
def command(
    session: Session,
    entity_id: str,
    resource: str | None,
    limits: tuple[str, ...],
    key: str | None,
    yes: bool,
    principal: str | None,
) -> None:
    """Fill an entity's buckets again, on one resource or on all.

    Levels and debts of the moment are lost; what was used stays counted. The audit trail says who did it.
    """
    from zae_limiter.cli.views.formats import plural

    where = f"on {resource}" if resource else "on every resource"
    confirm(f"Fill the buckets of {entity_id} {where} again?", yes)
    count = session.limiter.reset(entity_id, resource, limits=limits or None, key=key, principal=principal)
    session.say(
        {"entity_id": entity_id, "resource": resource, "buckets": count},
        f"{entity_id}: {plural(count, 'bucket')} full again",
    )
