"""``zae-limiter top``: the buckets that are closest to their limits."""

from __future__ import annotations

import click

from zae_limiter.cli.options import on_existing_store
from zae_limiter.cli.session import Session


@click.command(
    "top",
    epilog="""\b
Examples:
  zae-limiter top
  zae-limiter top --resource gpt-4 --limit 50
  zae-limiter top --json | jq -r '.buckets[].entity_id'
""",
)
@click.option("--resource", metavar="RESOURCE", help="Buckets on this resource only.")
@click.option(
    "--limit",
    "most",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Show at most N.",
)
@on_existing_store
def command(session: Session, resource: str | None, most: int) -> None:
    """Show whose buckets have the least left, debts first.

    It reads every live bucket, and shows the tightest limit of each; 'watch' without names does it again and again.
    """
    from zae_limiter.cli.tightest_reader import entities_of
    from zae_limiter.cli.views.tightest import tightest_document, tightest_picture

    with session.progress("reading buckets"):
        buckets = session.limiter.get_tightest_buckets(resource, limit=most)
    session.answer(
        tightest_document(buckets),
        lambda: tightest_picture(buckets, entities_of(session.limiter, buckets), session.output.width),
    )
