"""``zae-limiter status``: the live buckets of an entity."""

from __future__ import annotations

import click

from zae_limiter.cli.options import on_store
from zae_limiter.cli.session import Session


@click.command(
    "status",
    epilog="""\b
Examples:
  zae-limiter status key-1
  zae-limiter status key-1 gpt-4
  zae-limiter status key-1 --json | jq '.buckets[].limits[].available'
""",
)
@click.argument("entity_id", metavar="ENTITY")
@click.argument("resource", required=False)
@on_store
def command(session: Session, entity_id: str, resource: str | None) -> None:
    """Show the levels of an entity's buckets as bars.

    Debt is red and grows from the right. A bucket lives from its first acquire until some time after it is full.
    """
    from zae_limiter.cli.views.buckets import status_document, status_picture

    status = session.limiter.get_status(entity_id, resource)
    session.answer(status_document(status), lambda: status_picture([status], session.paper.width))
