"""``zae-limiter serve``: the limiter as a service for every language."""

from __future__ import annotations

from pathlib import Path

import click

from zae_limiter.cli.options import as_usage_error, on_store
from zae_limiter.cli.session import Session, note

SERVICE_EXTRA = ("httptools", "prometheus_client", "starlette", "uvicorn", "uvloop")
"""What the extra ``service`` brings."""


@click.command(
    "serve",
    epilog="""\b
Examples:
  zae-limiter serve --url sqlite:///limits.db
  zae-limiter serve --url redis://cache --bind 0.0.0.0:8080 --token-file tokens.json
  curl localhost:8080/v1/take -H content-type:application/json \\
    -d '{"entity": "key-1", "resource": "gpt-4", "consume": {"rpm": 1}}'
""",
)
@click.option(
    "--bind",
    envvar="ZAEL_BIND",
    show_envvar=True,
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 is any free one.",
)
@click.option(
    "--token-file",
    envvar="ZAEL_TOKEN_FILE",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The tokens of clients; needed if others than this machine can connect.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0, 300),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="After SIGTERM, go on for so long while /readyz says no.",
)
@on_store
def command(session: Session, bind: str, token_file: Path | None, drain: float) -> None:
    """Serve the limiter over HTTP, for every language.

    Leases, limits, entities and reports as JSON; GET /openapi.json describes it. It listens on this machine only,
    unless clients need tokens. SIGTERM and Ctrl-C end it when everything under way is answered.
    """
    try:
        import uvloop

        from zae_limiter.service.process import run
        from zae_limiter.service.server import parse_bind
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SERVICE_EXTRA:
            raise
        from zae_limiter.extras import install_command

        raise click.ClickException(f"the service needs: {install_command('cli,service')}") from None
    with as_usage_error():
        where = parse_bind(bind)

    def tell(address: str) -> None:
        session.say({"address": address}, f"listening on {address}")

    uvloop.run(run(session.url, session.namespace, where, token_file, drain_seconds=drain, on_start=tell))
    if not session.as_json:
        note("ended")
