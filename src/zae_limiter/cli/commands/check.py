"""``zae-limiter check``: whether a deployment fits this version, or Redis servers are fit to keep limits."""

from __future__ import annotations

import click

from zae_limiter.cli.cloud_session import CloudSession, check_name, on_cloud
from zae_limiter.cli.error_messages import EXIT_ERROR
from zae_limiter.cli.session import exit_with


@click.command(
    "check",
    epilog="""\b
Examples:
  zae-limiter check --name my-app
  zae-limiter check --name my-app && ./start-workers
  zae-limiter check --url redis://localhost
""",
)
@click.option("--name", callback=check_name, metavar="STACK", help="The name of the deployment.")
@click.option("--url", metavar="URL", help="Redis or Valkey servers, instead of a deployment.")
@on_cloud
def command(session: CloudSession, name: str | None, url: str | None) -> None:
    """Say whether a deployment or a Redis server is fit.

    A deployment is compared with this version.

    Of a Redis or Valkey server: its version, whether it is the master, whether it evicts (noeviction), whether a
    restart forgets (append-only file), its memory, and what its ACL allows. Exits with 1 if something is to be done.
    """
    if (name is None) == (url is None):
        raise click.UsageError("Missing option '--name' (of a deployment), or '--url' (of Redis servers).")
    to_do = _deployment_checked(session, name) if name is not None else _servers_checked(session, str(url))
    if to_do:
        exit_with(EXIT_ERROR)


def _deployment_checked(session: CloudSession, name: str) -> bool:
    from zae_limiter.cli.views.deployments import compatibility_document, compatibility_picture

    compatibility = session.stacks.compatibility(name)
    session.answer(compatibility_document(compatibility), lambda: compatibility_picture(session.output, compatibility))
    return bool(compatibility.advice)


def _servers_checked(session: CloudSession, url: str) -> bool:
    from zae_limiter.cli.views.redis_servers import servers_document, servers_picture
    from zae_limiter.infra.redis_check import check_servers

    reports = check_servers(url)
    session.answer(servers_document(reports), lambda: servers_picture(session.output, reports))
    return any(report.advice for report in reports)
