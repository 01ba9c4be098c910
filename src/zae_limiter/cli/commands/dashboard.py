"""``zae-limiter dashboard``: the dashboard, in the browser of this machine."""

from __future__ import annotations

import getpass
import webbrowser

import click

from zae_limiter.cli.commands.serve import SERVICE_EXTRA
from zae_limiter.cli.options import on_existing_store
from zae_limiter.cli.session import Session, note
from zae_limiter.extras import install_command


@click.command(
    "dashboard",
    epilog="""\b
Examples:
  zae-limiter dashboard
  zae-limiter dashboard --url redis://cache --namespace prod --read-only
  zae-limiter dashboard --no-open --port 8090
""",
)
@click.option("--read-only", is_flag=True, help="Show, and let nothing be changed.")
@click.option("--no-open", is_flag=True, help="Print the address; open no browser.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="PORT",
    help="Listen there, on 127.0.0.1; any free port if not given.",
)
@on_existing_store
def command(session: Session, read_only: bool, no_open: bool, port: int) -> None:
    """Show who is refused and change limits, in a browser.

    It listens on this machine only. The address works once, for the browser that opens it first. What needs attention
    is told by processes that were opened with pulse=True, 'zae-limiter serve' among them. Ctrl-C ends it.
    """
    try:
        import uvloop

        from zae_limiter.dashboard.process import run
        from zae_limiter.dashboard.session import Session as DashboardSession
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SERVICE_EXTRA:
            raise
        raise click.ClickException(f"the dashboard needs: {install_command('service')}") from None

    def tell(address: str) -> None:
        session.say({"address": address}, f"the dashboard is at {address}")
        if not no_open and not session.as_json:
            webbrowser.open(address)

    session.store.close()  # looked at, so that a file that is not there is told
    entrance = DashboardSession(_user(), read_only=read_only, namespace=session.namespace)
    uvloop.run(run(session.url, session.namespace, entrance, port=port, on_start=tell))
    if not session.as_json:
        note("ended")


def _user() -> str:
    """The principal of changes: who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "dashboard"
