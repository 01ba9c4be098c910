"""``zae-limiter audit``: who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.audit_archive import archive_option
from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import as_usage_error, list_limit_option, on_existing_store, parse_period, period_options
from zae_limiter.cli.session import Session

if TYPE_CHECKING:
    from zae_limiter import AuditEvent, Page


@click.group(
    "audit",
    cls=OrderedGroup,
    epilog="""\b
Example:
  zae-limiter audit list --since 7d
""",
)
def command() -> None:
    """Who changed what. Kept for 90 days, and then in an archive if there is one."""


@command.command(
    "list",
    epilog="""\b
Examples:
  zae-limiter audit list --limit 20
  zae-limiter audit list --subject key-1 --since 24h
  zae-limiter audit list --subject '$SYSTEM' --json
  zae-limiter audit list --archived --archive s3://my-archive
""",
)
@click.option(
    "--subject",
    metavar="SUBJECT",
    shell_complete=complete_entity,
    help="Only changes of this one: an entity, $SYSTEM, $NAMESPACE or $RESOURCE:name.",
)
@click.option("--archived", is_flag=True, help="Also list changes that have moved to the archive.")
@archive_option("Where the archive is: a folder, or s3://BUCKET.")
@period_options
@list_limit_option
@on_existing_store
def list_events(
    session: Session,
    subject: str | None,
    archived: bool,
    archive_url: str | None,
    since: str | None,
    until: str | None,
    most: int | None,
) -> None:
    """List changes, newest first."""
    from zae_limiter.cli.pages import Pages
    from zae_limiter.cli.views.audit import COLUMNS, event_document, event_rows

    start, end = parse_period(session, since, until)

    def fetch(size: int, cursor: str | None) -> Page[AuditEvent]:
        return session.limiter.get_audit_events(subject, start_time=start, end_time=end, limit=size, cursor=cursor)

    pages: Pages[AuditEvent]
    if archived:
        from zae_limiter.cli.audit_archive import MergedPages, archived_events

        pages = MergedPages(Pages(fetch), archived_events(session, archive_url, subject, start, end), most)
    else:
        pages = Pages(fetch, most)
    session.list("events", pages, event_document, COLUMNS, event_rows, nothing="nothing was changed")


@command.command(
    "show",
    epilog="""\b
Example:
  zae-limiter audit show 01KDVDFA00
""",
)
@click.argument("event_id", metavar="EVENT")
@on_existing_store
def show(session: Session, event_id: str) -> None:
    """Show one change with all its details.

    EVENT is its id as listed. If several changes were made in the same millisecond, all of them are shown.
    """
    from zae_limiter.cli.output.console import spaced
    from zae_limiter.cli.views.audit import event_document, event_picture

    events = find(session, event_id)
    if not events:
        raise click.ClickException(f"no event {event_id} in this namespace; events are kept for 90 days")
    session.answer(
        {"events": [event_document(event) for event in events], "more": False},
        lambda: spaced([event_picture(event) for event in events]),
    )


def find(session: Session, event_id: str) -> list[AuditEvent]:
    """The events of an id or of the beginning of one, which tells when they happened."""
    from zae_limiter.cli.argument_parsers import parse_event_id
    from zae_limiter.cli.pages import Pages

    with as_usage_error():
        start = parse_event_id(event_id)
    pages = Pages(
        lambda size, cursor: session.limiter.get_audit_events(
            start_time=start, end_time=start + 1, limit=size, cursor=cursor
        )
    )
    return [event for event in pages.items() if event.event_id.startswith(event_id.upper())]
