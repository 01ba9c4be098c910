"""``zae-limiter token``: the tokens of clients of the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import as_usage_error, confirm, without_store, yes_option
from zae_limiter.cli.session import Session, note

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_FILE = "tokens.json"
ROLES = ("take", "read", "write")


def token_file_option(command: Command) -> Command:
    """``--token-file``: where tokens are."""
    return click.option(
        "--token-file",
        "path",
        envvar="ZAEL_TOKEN_FILE",
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        default=DEFAULT_FILE,
        show_default=True,
        help="The file of the service.",
    )(command)


@click.group(
    "token",
    cls=OrderedGroup,
    epilog="""\b
Examples:
  zae-limiter token create gateway --role take
  zae-limiter token list
  zae-limiter token revoke gateway --yes
""",
)
def command() -> None:
    """Tokens of clients of the service.

    They are kept in a file that has only their SHA-256 digests. All replicas of a service need the same file; they see
    a change within a second.
    """


@command.command(
    "create",
    epilog="""\b
Examples:
  zae-limiter token create gateway --role take
  zae-limiter token create acme --role take --role read --entity-prefix acme/
  TOKEN=$(zae-limiter token create ops --role read --role write)
""",
)
@click.argument("name")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    required=True,
    help="What it may do; repeatable.",
)
@click.option("--for-namespace", "bound_to", metavar="NAME", help="It may act in this namespace only.")
@click.option("--entity-prefix", metavar="TEXT", help="It may name only entities that begin so.")
@token_file_option
@without_store
def create(
    session: Session,
    name: str,
    roles: tuple[str, ...],
    bound_to: str | None,
    entity_prefix: str | None,
    path: Path,
) -> None:
    """Make a token, and print it.

    It is shown this once, and stored nowhere. Its NAME is the principal of the client's changes in the audit trail.
    """
    from zae_limiter.service.tokens import new_token, read_tokens, write_tokens

    known = read_tokens(path) if path.exists() else []
    if any(token.name == name for token in known):
        raise click.ClickException(f"there is a token {name!r} in {path}; revoke it first, or choose another name")
    with as_usage_error():
        text, token = new_token(name, roles, namespace=bound_to, entity_prefix=entity_prefix)
    write_tokens(path, [*known, token])
    session.say({"token": text, **_document(token)}, text)


@command.command(
    "list",
    epilog="""\b
Example:
  zae-limiter token list --token-file /etc/zae-limiter/tokens.json
""",
)
@token_file_option
@without_store
def list_tokens(session: Session, path: Path) -> None:
    """List tokens by name, and what each may do."""
    from zae_limiter.cli.output.text_tables import Column, table
    from zae_limiter.service.tokens import read_tokens

    tokens = read_tokens(path)
    columns = (Column("token"), Column("roles"), Column("namespace"), Column("entities"), Column("created (UTC)"))
    rows = [
        (
            token.name,
            ", ".join(sorted(token.roles)),
            token.namespace or "all",
            "all" if token.entity_prefix is None else f"{token.entity_prefix}…",
            (token.created_at or "")[:19].replace("T", " "),
        )
        for token in tokens
    ]
    session.answer(
        {"tokens": [_document(token) for token in tokens]},
        lambda: table(session.output, columns, rows) if rows else "no tokens",
    )


@command.command(
    "revoke",
    epilog="""\b
Example:
  zae-limiter token revoke gateway --yes
""",
)
@click.argument("name")
@token_file_option
@yes_option
@without_store
def revoke(session: Session, name: str, path: Path, yes: bool) -> None:
    """Remove a token.

    Services refuse it within a second of the change of their file.
    """
    from zae_limiter.service.tokens import read_tokens, write_tokens

    tokens = read_tokens(path)
    left = [token for token in tokens if token.name != name]
    if len(left) == len(tokens):
        raise click.ClickException(
            f"there is no token {name!r} in {path}; zae-limiter token list shows those there are"
        )
    confirm(f"Revoke token {name}? Clients that use it are refused from then on.", yes)
    write_tokens(path, left)
    if not left:
        note("no tokens are left: every request that needs one is refused")
    session.say({"name": name, "revoked": True}, f"revoked {name}")


def _document(token: Any) -> dict[str, Any]:
    """A token for programs, without its digest."""
    return {key: value for key, value in token.as_dict().items() if key != "sha256"}
