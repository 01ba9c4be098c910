"""``zae-limiter acquire``: take tokens from a shell, or run a command under a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.error_messages import exit_code, print_error
from zae_limiter.cli.options import as_usage_error, on_store, parse_limits
from zae_limiter.cli.session import Session, exit_with, note

if TYPE_CHECKING:
    from zae_limiter import Limit, SyncLease

COMMAND = "zae_limiter.command"


class WithCommand(click.Command):
    """A command line whose arguments after ``--`` are another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the arguments after ``--`` aside."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)


@click.command(
    "acquire",
    cls=WithCommand,
    epilog="""\b
Examples:
  zae-limiter acquire key-1 gpt-4 rpm=1 tpm=500
  zae-limiter acquire key-1 gpt-4 rpm=1 --timeout 30 -- curl -sS https://example.com/
  zae-limiter acquire key-1 gpt-4 tpm=500 -- sh -c 'ask-model; echo tpm=420 >> "$ZAEL_SETTLE"'
  zae-limiter acquire key-1 backups runs=1 -l runs:4/day -- ./backup.sh
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@click.argument("resource")
@click.argument("amounts", metavar="NAME=AMOUNT... [-- COMMAND...]", nargs=-1)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=0,
    show_default="do not wait",
    metavar="SECONDS",
    help="How long to wait in the queue.",
)
@click.option(
    "-l",
    "--limit",
    "limits",
    callback=parse_limits,
    multiple=True,
    metavar="NAME:RATE[/PERIOD][:BURST]",
    help="Use this limit instead of the stored ones; repeatable.",
)
@click.option(
    "--on-unavailable",
    type=click.Choice(["allow", "block", "local"]),
    show_default="as the system says",
    help="What to do while the store does not answer.",
)
@click.option(
    "--on-error",
    type=click.Choice(["refund", "keep"]),
    default="refund",
    show_default=True,
    help="What happens to the tokens if the command fails.",
)
@click.option("--request-id", metavar="ID", help="Repeated under the same id, it is granted and charged once.")
@click.option("--detach", is_flag=True, help="Print a token, with which the lease is settled later: see lease.")
@on_store
def command(
    session: Session,
    entity_id: str,
    resource: str,
    amounts: tuple[str, ...],
    detach: bool,
    **options: Any,
) -> None:
    """Take tokens, all or none; exits 75 if a limit lacks them.

    It exits 65 if a limit can never hold so many: trying again cannot help then.

    With a command after --, run it only if they are granted, and exit as it does. If it fails, the tokens are given
    back; if it is interrupted too. It may say what it really used by writing lines like tpm=420 to the file that
    $ZAEL_SETTLE names.
    """
    from zae_limiter import RateLimitExceeded
    from zae_limiter.cli.argument_parsers import parse_amounts

    with as_usage_error():
        wanted = parse_amounts(amounts)
    if not wanted:
        raise click.UsageError("name at least one amount to take, like rpm=1")
    words: list[str] | None = click.get_current_context().meta.get(COMMAND)
    if words is not None and not words:
        raise click.UsageError("there is no command after --")
    if words is not None and detach:
        raise click.UsageError("--detach ends without a command: settle the lease when the work is done")
    lease = lease_for(session, entity_id, resource, wanted, **options)
    try:
        if words is None:
            take(session, entity_id, resource, lease, detach)
        else:
            run_under(lease, words)
    except RateLimitExceeded as error:
        if not session.as_json:
            raise
        from zae_limiter.cli.views.grants import denied_document

        session.say(denied_document(entity_id, resource, error), "")
        exit_with(exit_code(error))


def lease_for(
    session: Session,
    entity_id: str,
    resource: str,
    wanted: dict[str, int],
    *,
    timeout: float,
    limits: tuple[Limit, ...],
    on_unavailable: str | None,
    on_error: str,
    request_id: str | None,
) -> SyncLease:
    """The lease, not yet entered."""
    return session.limiter.acquire(
        entity_id,
        resource,
        wanted,
        limits=limits or None,
        timeout=timeout,
        on_unavailable=on_unavailable,
        on_error=on_error,
        request_id=request_id,
    )


_UNASKED = {False: "without being counted", True: "from the share of this process"}
"""What became of a caller that the store was not asked about, by whether it was granted locally."""


def take(session: Session, entity_id: str, resource: str, lease: SyncLease, detach: bool) -> None:
    """Take the tokens and show what is left, or the token of the lease."""
    from zae_limiter.cli.views.grants import granted_document, granted_picture

    token = None
    with lease:
        if detach:
            token = lease.detach()
    if lease.degraded:
        note(f"the store is unavailable: granted {_UNASKED[lease.local]}")
    if lease.already_settled:
        note("this request was granted and settled before")
    document = granted_document(entity_id, resource, lease)
    if token is not None:
        session.say({**document, "token": token}, token)
        return
    session.answer(document, lambda: granted_picture(session.output, lease.statuses))


def run_under(lease: SyncLease, words: list[str]) -> None:
    """Run a command while the lease is held, and end as it does."""
    from zae_limiter.cli.leased_command import CommandFailed, LeasedCommand

    command_run = LeasedCommand(words)
    with command_run.signals():
        try:
            with lease:
                _run_and_settle(lease, command_run)
        except CommandFailed as failure:
            if failure.reason is not None:
                print_error(failure.reason)
            exit_with(failure.code)


def _run_and_settle(lease: SyncLease, command_run: Any) -> None:
    from zae_limiter import ZAELimiterError
    from zae_limiter.cli.leased_command import SETTLE_VARIABLE, settle_file, settled_amounts

    if lease.degraded:
        note(f"the store is unavailable: running {_UNASKED[lease.local]}")
    with settle_file() as path:
        try:
            command_run.run({SETTLE_VARIABLE: str(path)})
        finally:
            try:
                used = settled_amounts(path)
                if used:
                    lease.settle(**used)
            except ZAELimiterError as error:
                note(f"Warning: not settled: {error}")
