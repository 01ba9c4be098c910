"""``zae-limiter lower``: a bucket that holds less."""

from __future__ import annotations

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.options import as_usage_error, on_existing_store, principal_option
from zae_limiter.cli.session import Session


@click.command(
    "lower",
    epilog="""\b
Examples:
  zae-limiter lower key-1 gpt-4 tpm=5000
  zae-limiter lower key-1 gpt-4 rpm=0 tpm=10k --principal ann
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@click.argument("resource")
@click.argument("amounts", metavar="NAME=AMOUNT...", nargs=-1, required=True)
@principal_option
@on_existing_store
def command(session: Session, entity_id: str, resource: str, amounts: tuple[str, ...], principal: str | None) -> None:
    """Let an entity's bucket on a resource hold no more than this.

    A level that is lower already stays, and refills as before. Usage counts nothing. The audit trail says who did it.
    """
    from zae_limiter.cli.argument_parsers import parse_amounts

    with as_usage_error():
        levels = parse_amounts(amounts)
    session.limiter.lower(entity_id, resource, levels, principal=principal)
    available = session.limiter.available(entity_id, resource)
    session.say(
        {"entity_id": entity_id, "resource": resource, "available": available},
        f"{entity_id} on {resource}: " + ", ".join(f"{name} {available[name]:,}" for name in levels),
    )
