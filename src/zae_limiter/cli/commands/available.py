"""``zae-limiter available``: what a bucket holds, and whether a request would fit."""

from __future__ import annotations

from math import isinf

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.error_messages import EXIT_DENIED, EXIT_NEVER_FITS
from zae_limiter.cli.options import as_usage_error, on_existing_store
from zae_limiter.cli.session import Session, exit_with


@click.command(
    "available",
    epilog="""\b
Examples:
  zae-limiter available key-1 gpt-4
  zae-limiter available key-1 gpt-4 rpm=1 tpm=500
  zae-limiter available key-1 gpt-4 tpm=500 --json && run-it
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@click.argument("resource")
@click.argument("amounts", metavar="[NAME=AMOUNT]...", nargs=-1)
@on_existing_store
def command(session: Session, entity_id: str, resource: str, amounts: tuple[str, ...]) -> None:
    """Show what an entity has left on a resource; take nothing.

    With amounts it also says when they would be granted, ancestors included, and exits 75 if that is not now, 65 if
    never.
    """
    from zae_limiter.cli.argument_parsers import parse_amounts
    from zae_limiter.cli.views import grants

    with as_usage_error():
        needed = parse_amounts(amounts)
    available = session.limiter.available(entity_id, resource)
    wait = session.limiter.time_until_available(entity_id, resource, needed) if needed else None
    session.answer(
        grants.available_document(entity_id, resource, available, needed, wait),
        lambda: grants.available_picture(session.output, available, needed, wait),
    )
    if wait:
        exit_with(EXIT_NEVER_FITS if isinf(wait) else EXIT_DENIED)
