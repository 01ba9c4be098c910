"""``zae-limiter status``: the live buckets of an entity, or the health of a deployment."""

from __future__ import annotations

import click

from zae_limiter.cli.cloud_session import CloudSession, check_name, region_options
from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.error_messages import EXIT_ERROR
from zae_limiter.cli.options import on_existing_store
from zae_limiter.cli.session import Session, exit_with


@click.command(
    "status",
    epilog="""\b
Examples:
  zae-limiter status key-1
  zae-limiter status key-1 gpt-4
  zae-limiter status key-1 --json | jq '.buckets[].limits[].available'
  zae-limiter status --name my-app --region eu-central-1
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity, required=False)
@click.argument("resource", required=False)
@click.option(
    "--name", callback=check_name, metavar="STACK", help="The health of this deployment, instead of an entity."
)
@region_options
@on_existing_store
@click.pass_context
def command(
    context: click.Context,
    session: Session,
    entity_id: str | None,
    resource: str | None,
    name: str | None,
    region: str | None,
    endpoint_url: str | None,
    profile: str | None,
) -> None:
    """Show an entity's buckets as bars, or a deployment's health.

    Debt is red and grows from the right. A bucket lives from its first acquire until some time after it is full.
    With --name: stack, table, function, stream and alarms of a deployment; exits with 1 if one of them is broken.
    """
    if (entity_id is None) == (name is None):
        raise click.UsageError("name an ENTITY, or a deployment with --name")
    if name is not None:
        cloud = CloudSession(
            region, endpoint_url, profile, as_json=session.as_json, dependencies=context.find_root().obj
        )
        context.call_on_close(cloud.close)
        show_deployment(cloud, name)
        return
    from zae_limiter.cli.views.buckets import status_document, status_picture

    assert entity_id is not None
    status = session.limiter.get_status(entity_id, resource)
    session.answer(status_document(status), lambda: status_picture([status], session.output.width))


def show_deployment(cloud: CloudSession, name: str) -> None:
    """The health of a deployment."""
    from zae_limiter.cli.views.deployments import health_document, health_picture
    from zae_limiter.infra.health import Grade

    health = cloud.stacks.health(name)
    url = cloud.stacks.url(health.deployment.table)
    cloud.answer(health_document(health, url), lambda: health_picture(cloud.output, health, url))
    if health.grade is Grade.BROKEN:
        exit_with(EXIT_ERROR)
