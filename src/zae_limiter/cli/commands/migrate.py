"""``zae-limiter migrate``: a table of an older layout, brought to this one."""

from __future__ import annotations

import click

from zae_limiter.cli.options import confirm, on_store, yes_option
from zae_limiter.cli.session import Session


@click.command(
    "migrate",
    epilog="""\b
Examples:
  zae-limiter migrate --url dynamodb://limits --dry-run
  zae-limiter migrate --url dynamodb://limits --yes    # its clients are stopped
  zae-limiter migrate --url dynamodb://limits --yes --replace-indexes
""",
)
@click.option("--dry-run", is_flag=True, help="Count what there is, and change nothing.")
@click.option(
    "--from-layout",
    type=click.IntRange(min=1),
    metavar="N",
    help="Look for data of layout N and later, whatever the table's version record says.",
)
@click.option(
    "--replace-indexes",
    is_flag=True,
    help="Make the indexes anew that hold more than keys, which every write pays for.",
)
@yes_option
@on_store
def command(session: Session, dry_run: bool, from_layout: int | None, replace_indexes: bool, yes: bool) -> None:
    """Bring a DynamoDB table of an older layout to this one.

    Buckets keep their balances and counters; entities, limits and usage come along. An index that is missing is made.
    Stop all clients of the table
    first. It may be ended at any time: the next run continues. Everything is counted before and compared afterwards,
    and only if it adds up is the table used.
    """
    from zae_limiter.cli.migration_screen import migration_document, migration_screen, report_in_words
    from zae_limiter.migrations import is_migratable, migrate_store

    if not is_migratable(session.store):
        raise click.UsageError("only dynamodb:// tables are migrated; other stores migrate themselves")
    if not dry_run:
        confirm("Migrate this table? All its clients must be stopped.", yes)
    with migration_screen() as on_progress:
        report = migrate_store(
            session.store,
            dry_run=dry_run,
            on_progress=on_progress,
            clock=session.now_ms,
            from_layout=from_layout,
            replace_indexes=replace_indexes,
        )
    session.say(migration_document(report, dry_run=dry_run), report_in_words(report, dry_run=dry_run))
