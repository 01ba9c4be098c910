"""``zae-limiter system``: the limits of entities and resources that have none of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import (
    confirm,
    limits_option,
    on_existing_store,
    on_store,
    principal_option,
    propagate_option,
    yes_option,
)
from zae_limiter.cli.session import Session

if TYPE_CHECKING:
    from zae_limiter import Limit


@click.group(
    "system",
    cls=OrderedGroup,
    epilog="""\b
Example:
  zae-limiter system get-defaults
""",
)
def command() -> None:
    """The limits that hold where no nearer level has any."""


@command.command(
    "set-defaults",
    epilog="""\b
Examples:
  zae-limiter system set-defaults -l rpm:100 -l tpm:10_000/min:15_000
  zae-limiter system set-defaults -l rpm:100 --on-unavailable allow
""",
)
@limits_option
@click.option(
    "--on-unavailable",
    type=click.Choice(["allow", "block", "local"]),
    show_default="as it is",
    help="What an acquire does while the store does not answer.",
)
@propagate_option
@principal_option
@on_store
def set_defaults(
    session: Session,
    limits: tuple[Limit, ...],
    on_unavailable: str | None,
    propagate: bool,
    principal: str | None,
) -> None:
    """Replace the limits of the system."""
    with session.progress("setting the limits of the system"):
        session.limiter.set_system_defaults(
            limits, on_unavailable=on_unavailable, principal=principal, propagate=propagate
        )
    show(session)


@command.command(
    "get-defaults",
    epilog="""\b
Example:
  zae-limiter system get-defaults --json
""",
)
@on_existing_store
def get_defaults(session: Session) -> None:
    """Show the limits of the system as they were set.

    With them, its policy while the store is unavailable."""
    show(session)


@command.command(
    "delete-defaults",
    epilog="""\b
Example:
  zae-limiter system delete-defaults --yes
""",
)
@yes_option
@propagate_option
@principal_option
@on_existing_store
def delete_defaults(session: Session, yes: bool, propagate: bool, principal: str | None) -> None:
    """Remove the limits and the policy of the system."""
    confirm("Remove the limits of the system?", yes)
    with session.progress("removing the limits of the system"):
        session.limiter.delete_system_defaults(principal=principal, propagate=propagate)
    session.say({"limits": [], "on_unavailable": None}, "the system has no limits now")


def show(session: Session) -> None:
    """The system's limits as they are now."""
    from rich.console import Group
    from rich.text import Text

    from zae_limiter.cli.views.limits import limits_table, system_limits_document

    limits, policy = session.limiter.get_system_defaults()
    session.answer(
        system_limits_document(limits, policy),
        lambda: (
            Group(
                Text.assemble(("all entities on all resources", "bold")),
                limits_table(session.output, limits),
                Text(f"while the store is unavailable: {policy or 'block (the default)'}", style="dim"),
            )
            if limits
            else "the system has no limits"
        ),
    )
