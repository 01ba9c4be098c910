"""``zae-limiter namespace``: tenants and environments within one store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import (
    confirm,
    confirm_by_name,
    list_limit_option,
    on_existing_store,
    on_store,
    principal_option,
    yes_option,
)
from zae_limiter.cli.session import Session
from zae_limiter.naming import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from zae_limiter import NamespaceInfo


@click.group(
    "namespace",
    cls=OrderedGroup,
    epilog="""\b
Examples:
  zae-limiter namespace register staging
  zae-limiter entity list --namespace staging
""",
)
def command() -> None:
    """Tenants and environments, kept apart in one store."""


@command.command(
    "register",
    epilog="""\b
Example:
  zae-limiter namespace register staging
""",
)
@click.argument("name")
@principal_option
@on_store
def register(session: Session, name: str, principal: str | None) -> None:
    """Make a namespace usable. Registering one that exists changes nothing."""
    show_one(session, session.repository.register_namespace(name, principal=principal))


@command.command(
    "list",
    epilog="""\b
Example:
  zae-limiter namespace list
""",
)
@list_limit_option
@on_existing_store
def list_namespaces(session: Session, most: int | None) -> None:
    """List all namespaces by name, deleted ones too."""
    from zae_limiter.cli.pages import Pages
    from zae_limiter.cli.views.entities import NAMESPACE_COLUMNS, namespace_document, namespace_rows

    session.list(
        "namespaces",
        Pages(lambda size, cursor: session.repository.list_namespaces(limit=size, cursor=cursor), most),
        namespace_document,
        NAMESPACE_COLUMNS,
        namespace_rows,
        nothing="no namespaces are registered",
    )


@command.command(
    "show",
    epilog="""\b
Example:
  zae-limiter namespace show staging
""",
)
@click.argument("name")
@on_existing_store
def show(session: Session, name: str) -> None:
    """Show a namespace, deleted or not."""
    show_one(session, session.repository.get_namespace(name))


@command.command(
    "delete",
    epilog="""\b
Examples:
  zae-limiter namespace delete staging --yes
  zae-limiter namespace delete default --confirm default
""",
)
@click.argument("name")
@yes_option
@click.option("--confirm", "typed", metavar="NAME", help="For default: its name, instead of being asked for it.")
@principal_option
@on_existing_store
def delete(session: Session, name: str, yes: bool, typed: str | None, principal: str | None) -> None:
    """Refuse every use of a namespace from now on. Its data stays; recover undoes it.

    The namespace default is that of every program which names none: it asks for the name, also with --yes.
    """
    question = f"Refuse every use of namespace {name} from now on?"
    if name == DEFAULT_NAMESPACE:
        confirm_by_name(f"{question} Every program that names no namespace is using it.", name, typed)
    else:
        confirm(question, yes)
    with session.progress(f"deleting {name}"):
        session.repository.delete_namespace(name, principal=principal)
    session.say({"name": name, "deleted": True}, f"deleted {name}; its data stays until it is purged")


@command.command(
    "recover",
    epilog="""\b
Example:
  zae-limiter namespace recover staging
""",
)
@click.argument("name")
@principal_option
@on_existing_store
def recover(session: Session, name: str, principal: str | None) -> None:
    """Bring a deleted namespace back as it was."""
    show_one(session, session.repository.recover_namespace(name, principal=principal))


@command.command(
    "purge",
    epilog="""\b
Example:
  zae-limiter namespace purge staging --yes
""",
)
@click.argument("name")
@yes_option
@on_existing_store
def purge(session: Session, name: str, yes: bool) -> None:
    """Remove a deleted namespace and everything in it, for good.

    On a terminal it shows how it goes on. If it is interrupted, repeat it.
    """
    from zae_limiter.cli.views.formats import plural

    confirm(f"Remove namespace {name} and everything in it, for good?", yes)
    with session.progress(f"purging {name}"):
        removed = session.repository.purge_namespace(name)
    session.say({"name": name, "removed": removed}, f"purged {name}: {plural(removed, 'thing')} removed")


def show_one(session: Session, info: NamespaceInfo) -> None:
    """One namespace."""
    from zae_limiter.cli.output.text_tables import table
    from zae_limiter.cli.views.entities import NAMESPACE_COLUMNS, namespace_document, namespace_rows

    session.answer(namespace_document(info), lambda: table(session.output, NAMESPACE_COLUMNS, namespace_rows(info)))
