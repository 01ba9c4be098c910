"""``zae-limiter upgrade``: a deployment brought to this version."""

from __future__ import annotations

import click

from zae_limiter import VersionError
from zae_limiter.cli.cloud_session import CloudSession, name_option, on_cloud
from zae_limiter.cli.options import confirm, yes_option


@click.command(
    "upgrade",
    epilog="""\b
Examples:
  zae-limiter upgrade --name my-app
  zae-limiter upgrade --name my-app --yes    # its clients are stopped
""",
)
@name_option
@yes_option
@on_cloud
def command(session: CloudSession, name: str, yes: bool) -> None:
    """Bring a deployment to this version.

    That is its stack, its function and its data. Its parameters stay as they are, and its function is updated in
    place. If the table has an older layout it is migrated, and you are asked first: clients of that layout must be
    stopped before. It may be run again at any time.
    """
    from zae_limiter.cli.migration_screen import migration_screen
    from zae_limiter.cli.rollout_screen import rollout_screen
    from zae_limiter.cli.views.deployments import deployment_document

    compatibility = session.stacks.compatibility(name)
    if compatibility.layout is not None and compatibility.layout > compatibility.own_layout:
        raise VersionError(compatibility.advice[0])
    if compatibility.layout is not None and not compatibility.usable:
        confirm(f"Migrate the table of {name}? All its clients must be stopped.", yes)
    with rollout_screen(f"upgrading {name}") as listener:
        done = session.stacks.upgrade_stack(name, listener)
    with migration_screen() as on_progress:
        migrated = session.stacks.upgrade_table(done.deployment.table, on_progress)
    changed = done.changed or migrated
    words = f"{name} is at version {compatibility.own_version}"
    session.say(
        {**deployment_document(done.deployment), "url": done.url, "changed": changed, "complete": done.complete},
        words if changed else f"{words} already, nothing changed",
    )
