"""``zae-limiter local``: a cloud on this machine, with the same deployment in it."""

from __future__ import annotations

from pathlib import Path

import click

from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import as_usage_error, without_store
from zae_limiter.cli.session import Session, exit_with, note
from zae_limiter.naming import check_stack_name


@click.group(
    "local",
    cls=OrderedGroup,
    epilog="""\b
Examples:
  zae-limiter local up --name my-app
  zae-limiter local down
""",
)
def command() -> None:
    """A cloud on this machine, without Docker.

    It is MiniStack, in the background, with the deployment that zae-limiter deploy makes on AWS.
    """


@command.command(
    "up",
    epilog="""\b
Examples:
  zae-limiter local up
  zae-limiter local up --name my-app --port 4567 --fresh
""",
)
@click.option("--name", default="my-app", show_default=True, metavar="STACK", help="The deployment to make in it.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    show_default="4566",
    metavar="N",
    help="Where it answers, on this machine only; 0 for any that is free.",
)
@click.option(
    "--keep/--fresh",
    default=True,
    show_default=True,
    help="Continue with the data of the last run, or discard it first.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="in your data folder",
    metavar="FOLDER",
    help="Where its data is kept: a new folder, or one of an earlier local cloud.",
)
@click.option(
    "--ministack",
    envvar="ZAEL_MINISTACK",
    show_envvar=True,
    metavar="PROGRAM",
    help="An installed ministack command to use, instead of installing one.",
)
@without_store
def up(
    session: Session, name: str, port: int | None, keep: bool, data_dir: Path | None, ministack: str | None
) -> None:
    """Start it, and deploy into it.

    The first time MiniStack is installed, into an environment of its own in your data folder. If it runs already,
    only the deployment is made or brought up to date.
    """
    from zae_limiter.cli.local_screen import local_screen, up_in_words
    from zae_limiter.infra.local_cloud import LocalCloud, as_document

    with as_usage_error():
        check_stack_name(name)
    cloud = LocalCloud()
    with local_screen(f"bringing {name} up") as on_event:
        done = cloud.up(name, port=port, fresh=not keep, data=data_dir, program=ministack, say=note, on_event=on_event)
    session.say(as_document(done, cloud.home.log), up_in_words(done))


@command.command(
    "status",
    epilog="""\b
Examples:
  zae-limiter local status
  zae-limiter local status --json | jq -r '.deployments[0].url'
""",
)
@without_store
def status(session: Session) -> None:
    """Whether it runs, where, and what is in it.

    Exits with 1 if it does not run, or does not answer.
    """
    from zae_limiter.cli.error_messages import EXIT_ERROR
    from zae_limiter.cli.local_screen import status_document, status_in_words
    from zae_limiter.infra.local_cloud import LocalCloud

    cloud = LocalCloud()
    found = cloud.status()
    session.say(status_document(found, cloud.home.log), status_in_words(found, cloud.home.log))
    if not found.healthy:
        exit_with(EXIT_ERROR)


@command.command(
    "logs",
    epilog="""\b
Examples:
  zae-limiter local logs --lines 50
  zae-limiter local logs -f
""",
)
@click.option("-f", "--follow", is_flag=True, help="Continue until Ctrl-C, or until it ends.")
@click.option(
    "--lines", type=click.IntRange(min=0), default=100, show_default=True, metavar="N", help="Show the last N lines."
)
def logs(follow: bool, lines: int) -> None:
    """What it printed, its functions' output included."""
    from zae_limiter.infra.local_cloud import LocalCloud

    cloud = LocalCloud()
    if not cloud.home.log.exists():
        note("there is no local cloud yet; start one: zae-limiter local up")
        return
    shown = cloud.log(lines)
    if shown:
        click.echo(shown)
    if follow:
        for printed in cloud.follow():
            click.echo(printed, nl=False)


@command.command(
    "down",
    epilog="""\b
Examples:
  zae-limiter local down
  zae-limiter local down --discard    # and forget everything in it
""",
)
@click.option("--discard", is_flag=True, help="Delete its data; otherwise the next one continues with it.")
@without_store
def down(session: Session, discard: bool) -> None:
    """Stop it. Its data stays for the next time."""
    from zae_limiter.infra.local_cloud import LocalCloud

    ended = LocalCloud().down(discard=discard)
    words = "no local cloud was running" if ended is None else "the local cloud is stopped"
    session.say(
        {"ended": ended is not None, "pid": None if ended is None else ended.pid, "discarded": discard},
        f"{words}; its data is gone" if discard else words,
    )
