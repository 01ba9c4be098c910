"""``zae-limiter delete``: a deployment removed, with its data or without."""

from __future__ import annotations

import click

from zae_limiter.cli.cloud_session import CloudSession, name_option, on_cloud
from zae_limiter.cli.options import confirm, yes_option


@click.command(
    "delete",
    epilog="""\b
Examples:
  zae-limiter delete --name my-app
  zae-limiter delete --name my-app --keep-table --keep-archive
  zae-limiter delete --name my-app --lift-protection --delete-archive --yes
""",
)
@name_option
@click.option("--keep-table", is_flag=True, help="Leave the table with everything in it.")
@click.option("--keep-archive", is_flag=True, help="Leave the bucket with archived audit events.")
@click.option("--delete-archive", is_flag=True, help="Delete archived audit events too.")
@click.option("--lift-protection", is_flag=True, help="Delete the table although it is protected from deletion.")
@yes_option
@on_cloud
def command(
    session: CloudSession,
    name: str,
    keep_table: bool,
    keep_archive: bool,
    delete_archive: bool,
    lift_protection: bool,
    yes: bool,
) -> None:
    """Delete a deployment, and everything in its table.

    Refused while the table is protected from deletion, which is the default: --lift-protection deletes it anyway. Also
    refused while the bucket holds archived audit events, unless --keep-archive or --delete-archive is given. Deleting
    what does not exist is no error; an interrupted deletion can be repeated.
    """
    from zae_limiter.cli.rollout_screen import rollout_screen

    if keep_archive and delete_archive:
        raise click.UsageError("the archive can be kept or deleted, not both")
    if keep_table and lift_protection:
        raise click.UsageError("a table that is kept stays protected; leave out --lift-protection")
    what = "but its table" if keep_table else "and everything in its table, for good"
    although = ", although the table is protected from deletion" if lift_protection else ""
    confirm(f"Delete the deployment {name} {what}{although}?", yes)
    with rollout_screen(f"deleting {name}") as listener:
        removed = session.stacks.delete(
            name,
            keep_table=keep_table,
            keep_archive=keep_archive,
            delete_archive=delete_archive,
            lift_protection=lift_protection,
            on_event=listener,
        )
    kept = [{"kind": kind, "name": what} for kind, what in removed.kept]
    if not removed.existed:
        words = f"there is no deployment {name} in this region"
    elif kept:
        words = f"deleted {name}; still there: " + ", ".join(f"{each['name']} ({each['kind']})" for each in kept)
    else:
        words = f"deleted {name}; nothing is left of it"
    session.say({"name": name, "existed": removed.existed, "kept": kept}, words)
