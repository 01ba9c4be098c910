"""``zae-limiter deploy``: a deployment on AWS, made or changed."""

from __future__ import annotations

from typing import Any

import click

from zae_limiter.cli.argument_parsers import parse_pairs
from zae_limiter.cli.cloud_session import CloudSession, name_option, on_cloud
from zae_limiter.cli.template_options import template_options, template_parameters


@click.command(
    "deploy",
    epilog="""\b
Examples:
  zae-limiter deploy --name my-app --region eu-central-1
  zae-limiter deploy --name my-app --alarm-email ops@example.com
  zae-limiter deploy --name my-app --trust-acquire arn:aws:iam::123456789012:role/app
  zae-limiter deploy --name my-app --max-write 2000 --dry-run
  zae-limiter deploy --name my-app --no-iam --aggregator-role arn:aws:iam::123456789012:role/counting
""",
)
@name_option
@template_options
@click.option(
    "--parameter",
    "more",
    multiple=True,
    callback=parse_pairs,
    metavar="KEY=VALUE",
    help="Any parameter of the template, by its own name; repeatable.",
)
@click.option(
    "--tag", "tags", multiple=True, callback=parse_pairs, metavar="KEY=VALUE", help="A tag for everything; repeatable."
)
@click.option("--adopt-table", is_flag=True, help="Make the stack around an existing table of this name.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Follow it to the end, or only start it.")
@on_cloud
def command(
    session: CloudSession,
    name: str,
    more: dict[str, str],
    tags: dict[str, str],
    role_name_format: str | None,
    policy_name_format: str | None,
    adopt_table: bool,
    dry_run: bool,
    wait: bool,
    **given: Any,
) -> None:
    """Make or change a deployment on AWS, with one command.

    Table, function, archive, alarms and policies. What is not named stays as it is; a new deployment has the defaults
    of the template. Deploying again changes only what differs, and continues what was interrupted.
    """
    from zae_limiter.cli.rollout_screen import rollout_screen
    from zae_limiter.cli.views.deployments import changes_document, changes_picture, deployment_document

    parameters = template_parameters(name, given, role_name_format, policy_name_format, more)
    if dry_run:
        changes = session.stacks.preview(name, parameters, tags)
        session.answer(changes_document(name, changes), lambda: changes_picture(session.output, name, changes))
        return
    with rollout_screen(f"deploying {name}") as listener:
        done = session.stacks.deploy(name, parameters, tags, listener, wait=wait, adopt_table=adopt_table)
    document = {
        **deployment_document(done.deployment),
        "url": done.url,
        "changed": done.changed,
        "complete": done.complete,
    }
    if not done.complete:
        words = f"{name} is being deployed; deploy again to follow it to the end"
    elif done.changed:
        words = f"{name} is deployed: {done.url}"
    else:
        words = f"{name} is up to date, nothing changed: {done.url}"
    session.say(document, words)
