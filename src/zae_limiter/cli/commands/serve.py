"""``zae-limiter serve``: the limiter as a service for every language."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.options import Command, as_usage_error, on_store
from zae_limiter.cli.session import Session, note
from zae_limiter.extras import install_command

if TYPE_CHECKING:
    from zae_limiter.service.backend import Backend
    from zae_limiter.service.envoy.companion import EnvoyCompanion, EnvoyOptions
    from zae_limiter.service.guard import Guard

SERVICE_EXTRA = ("httptools", "prometheus_client", "starlette", "uvicorn", "uvloop")
"""What the extra ``service`` brings."""

ENVOY_EXTRA = ("google", "grpc")
"""What the extra ``envoy`` brings."""


def envoy_options(command: Command) -> Command:
    """``--envoy-bind`` and what belongs to it."""
    file = click.Path(dir_okay=False, path_type=Path)
    options = [
        click.option(
            "--envoy-bind",
            envvar="ZAEL_ENVOY_BIND",
            show_envvar=True,
            metavar="HOST:PORT",
            help="Where to answer Envoy's rate limit service, too.",
        ),
        click.option(
            "--rls-map",
            multiple=True,
            metavar="KEY=ROLE",
            help="A key of Envoy's descriptors that names the entity, resource or limit; repeatable.",
        ),
        click.option("--allow-overrides", is_flag=True, help="Let Envoy's descriptors bring limits of their own."),
        click.option("--envoy-cert", type=file, help="The certificate to show Envoy."),
        click.option("--envoy-key", type=file, help="Its key."),
        click.option("--envoy-client-ca", type=file, help="Who signs Envoy's certificate; then it needs no token."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def envoy_options_of(
    envoy_bind: str | None,
    rls_map: tuple[str, ...],
    allow_overrides: bool,
    envoy_cert: Path | None,
    envoy_key: Path | None,
    envoy_client_ca: Path | None,
) -> EnvoyOptions | None:
    """What the options say; ``None`` if Envoy is not to be answered."""
    files = (envoy_cert, envoy_key, envoy_client_ca)
    if envoy_bind is None:
        if rls_map or allow_overrides or any(files):
            raise click.UsageError("these options are about Envoy: say --envoy-bind, too")
        return None
    if any(files) and (envoy_cert is None or envoy_key is None):
        raise click.UsageError("--envoy-cert and --envoy-key belong together, and to --envoy-client-ca")
    try:
        from zae_limiter.service.envoy.companion import EnvoyOptions
        from zae_limiter.service.envoy.descriptors import DescriptorRules
        from zae_limiter.service.envoy.grpc_server import TlsFiles
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ENVOY_EXTRA:
            raise
        raise click.ClickException(f"answering Envoy needs: {install_command('cli,service,envoy')}") from None
    tls = None if envoy_cert is None or envoy_key is None else TlsFiles(envoy_cert, envoy_key, envoy_client_ca)
    with as_usage_error():
        return EnvoyOptions(envoy_bind, DescriptorRules.of(rls_map, allow_overrides=allow_overrides), tls)


@click.command(
    "serve",
    epilog="""\b
Examples:
  zae-limiter serve --url sqlite:///limits.db
  zae-limiter serve --url redis://cache --bind 0.0.0.0:8080 --token-file tokens.json
  zae-limiter serve --url redis://cache --envoy-bind 127.0.0.1:8081
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
@envoy_options
@on_store
def command(session: Session, bind: str, token_file: Path | None, drain: float, **envoy_given: Any) -> None:
    """Serve the limiter over HTTP, for every language.

    Leases, limits, entities and reports as JSON; GET /openapi.json describes it, and / is the dashboard. It listens on
    this machine only, unless clients need tokens. SIGTERM and Ctrl-C end it when everything under way is answered.
    """
    try:
        import uvloop

        from zae_limiter.dashboard.process import with_dashboard
        from zae_limiter.service.process import run
        from zae_limiter.service.server import parse_bind
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SERVICE_EXTRA:
            raise
        raise click.ClickException(f"the service needs: {install_command('cli,service')}") from None
    with as_usage_error():
        where = parse_bind(bind)
    envoy = envoy_options_of(**envoy_given)
    started: list[EnvoyCompanion] = []

    def companions(backend: Backend, guard: Guard) -> list[EnvoyCompanion]:
        if envoy is not None:
            from zae_limiter.service.envoy.companion import EnvoyCompanion

            started.append(EnvoyCompanion(backend, guard, envoy))
        return started

    def tell(address: str) -> None:
        document, words = {"address": address}, f"listening on {address}"
        for companion in started:
            document["envoy"] = companion.address
            words += f", and for Envoy on {companion.address}"
        session.say(document, words)

    serving = run(
        session.url,
        session.namespace,
        where,
        token_file,
        drain_seconds=drain,
        on_start=tell,
        companions=companions,
        extend=with_dashboard,
    )
    uvloop.run(serving)
    if not session.as_json:
        note("ended")
