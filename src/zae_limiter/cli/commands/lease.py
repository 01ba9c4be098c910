"""``zae-limiter lease``: leases that are settled elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import as_usage_error, list_limit_option, on_existing_store
from zae_limiter.cli.session import Session, note

if TYPE_CHECKING:
    from zae_limiter import LeaseInfo, Page


@click.group(
    "lease",
    cls=OrderedGroup,
    epilog="""\b
Examples:
  TOKEN=$(zae-limiter acquire key-1 gpt-4 tpm=500 --detach)
  zae-limiter lease settle "$TOKEN" tpm=420
""",
)
def command() -> None:
    """Leases with a record.

    Those are leases that were detached, or have a request id.
    """


@command.command(
    "list",
    epilog="""\b
Example:
  zae-limiter lease list --entity key-1
""",
)
@click.option(
    "--entity", "entity_id", metavar="ENTITY", shell_complete=complete_entity, help="Only those of this one."
)
@list_limit_option
@on_existing_store
def list_leases(session: Session, entity_id: str | None, most: int | None) -> None:
    """List leases, open and ended, until they expire."""
    from zae_limiter.cli.pages import Pages
    from zae_limiter.cli.views.leases import COLUMNS, lease_document, lease_rows

    def fetch(size: int, cursor: str | None) -> Page[LeaseInfo]:
        return session.limiter.list_leases(entity_id, limit=size, cursor=cursor)

    session.list("leases", Pages(fetch, most), lease_document, COLUMNS, lease_rows, nothing="no leases")


@command.command(
    "show",
    epilog="""\b
Example:
  zae-limiter lease show "$TOKEN"
""",
)
@click.argument("token")
@on_existing_store
def show(session: Session, token: str) -> None:
    """Show one lease: whose, what it took, whether it is open."""
    from zae_limiter.cli.views.leases import lease_document, lease_picture

    lease = session.limiter.get_lease(token)
    session.answer(lease_document(lease), lambda: lease_picture(lease))


@command.command(
    "settle",
    epilog="""\b
Examples:
  zae-limiter lease settle "$TOKEN" tpm=420
  zae-limiter lease settle "$TOKEN"
""",
)
@click.argument("token")
@click.argument("amounts", metavar="[NAME=AMOUNT...]", nargs=-1)
@on_existing_store
def settle(session: Session, token: str, amounts: tuple[str, ...]) -> None:
    """Say what was used in all, and end the lease. What is not named stays as it was taken."""
    from zae_limiter.cli.argument_parsers import parse_amounts

    with as_usage_error():
        used = parse_amounts(amounts)
    with session.limiter.resume(token) as lease:
        lease.settle(used)
    _tell(session, token, lease.already_settled)


@command.command(
    "release",
    epilog="""\b
Example:
  zae-limiter lease release "$TOKEN"
""",
)
@click.argument("token")
@on_existing_store
def release(session: Session, token: str) -> None:
    """Give back what the lease took, and end it."""
    with session.limiter.resume(token) as lease:
        lease.release(lease.consumed)
    _tell(session, token, lease.already_settled)


def _tell(session: Session, token: str, already_settled: bool) -> None:
    from zae_limiter.cli.views.leases import lease_document, lease_picture

    if already_settled:
        note("this lease had ended before: nothing was booked")
    lease = session.limiter.get_lease(token)
    session.answer({**lease_document(lease), "already_settled": already_settled}, lambda: lease_picture(lease))
