"""``zae-limiter limits``: the desired state of a namespace, in a file. The work itself is in ``manifests``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from zae_limiter.cli.error_messages import EXIT_ERROR
from zae_limiter.cli.options import confirm, on_existing_store, on_store, principal_option, yes_option
from zae_limiter.cli.output.progress import progress_bar
from zae_limiter.cli.session import Session, exit_with, note

if TYPE_CHECKING:
    from zae_limiter.manifests.apply import Outcome
    from zae_limiter.manifests.change_plan import ChangePlan
    from zae_limiter.manifests.model import Manifest

EXIT_CHANGES = 3
"""What ``--exit-code`` tells the shell when something would change, or has drifted."""

MOST_PROBLEMS_SHOWN = 20

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(
    "limits",
    epilog="""\b
Examples:
  zae-limiter limits export -f limits.yaml
  zae-limiter limits plan -f limits.yaml
  zae-limiter limits apply -f limits.yaml
""",
)
def command() -> None:
    """Limits as code: the desired state of a namespace, in a file.

    A manifest manages what it names. What it named before and names no longer is deleted; nothing else is touched.
    """


def file_option(command: Command) -> Command:
    """``-f``: the manifest."""
    kind = click.Path(exists=True, dir_okay=False, allow_dash=True)
    return click.option("-f", "--file", "path", type=kind, required=True, help="The manifest; - for stdin.")(command)


def exit_code_option(command: Command) -> Command:
    """``--exit-code``: an exit code of its own for changes."""
    words = f"Exit with {EXIT_CHANGES} if there is something to change."
    return click.option("--exit-code", "tell_shell", is_flag=True, help=words)(command)


def choice_options(command: Command) -> Command:
    """What a person decides where the manifest alone cannot."""
    command = click.option(
        "--keep-removed",
        is_flag=True,
        help="Leave what the manifest no longer names as it is, and no longer manage it.",
    )(command)
    return click.option("--take-over", is_flag=True, help="Manage also what another manifest manages so far.")(command)


@command.command(
    "plan",
    epilog="""\b
Examples:
  zae-limiter limits plan -f limits.yaml
  zae-limiter limits plan -f limits.yaml --exit-code --json
""",
)
@file_option
@choice_options
@exit_code_option
@on_existing_store
def show_plan(session: Session, path: str, take_over: bool, keep_removed: bool, tell_shell: bool) -> None:
    """Show what apply would change. Changes nothing.

    Exits with 1 if there are conflicts, which apply would refuse.
    """
    change_plan = planned(session, path, take_over=take_over, keep_removed=keep_removed)
    show_change_plan(session, change_plan)
    if change_plan.conflicts:
        exit_with(EXIT_ERROR)
    if tell_shell and change_plan.changes:
        exit_with(EXIT_CHANGES)


@command.command(
    "apply",
    epilog="""\b
Examples:
  zae-limiter limits apply -f limits.yaml
  zae-limiter limits apply -f limits.yaml --yes --principal ci:deploy
""",
)
@file_option
@choice_options
@principal_option
@yes_option
@on_store
def apply_plan(
    session: Session, path: str, take_over: bool, keep_removed: bool, principal: str | None, yes: bool
) -> None:
    """Make the namespace what the manifest says.

    Shows the plan and asks first. If it stops half-way, running it again finishes it. The audit trail has each
    change under manifest:NAME:PRINCIPAL.
    """
    from zae_limiter.manifests.apply import apply

    if path == "-" and not yes:
        raise click.UsageError("with the manifest on stdin there is no input for an answer; add --yes")
    change_plan = planned(session, path, take_over=take_over, keep_removed=keep_removed)
    if change_plan.conflicts or not session.as_json:
        show_change_plan(session, change_plan)
    if change_plan.conflicts:
        exit_with(EXIT_ERROR)
    if not change_plan.is_done:
        confirm(f"Apply this to namespace {session.namespace}?", yes)
    done = 0
    try:
        with progress_bar("applying") as on_progress:

            def count(finished: int, total: int) -> None:
                nonlocal done
                done = finished
                on_progress(finished, total)

            outcome = apply(session.repository, change_plan, principal=principal, on_progress=count)
    except KeyboardInterrupt:
        note(f"interrupted after {done} of {len(change_plan.changes)} changes; run it again to finish")
        raise
    show_outcome(session, change_plan, outcome)


@command.command(
    "diff",
    epilog="""\b
Examples:
  zae-limiter limits diff -f limits.yaml
  zae-limiter limits diff -f limits.yaml --all --exit-code
""",
)
@file_option
@click.option("--all", "everything", is_flag=True, help="Show also what exists and no manifest manages.")
@exit_code_option
@on_existing_store
def show_drift(session: Session, path: str, everything: bool, tell_shell: bool) -> None:
    """Show what is not as the manifest says, and who changed it."""
    from zae_limiter.cli.views.manifest_plans import drift_picture
    from zae_limiter.manifests.drift import drift

    manifest = read(session, path)
    with progress_bar("looking") as on_progress:
        found = drift(session.repository, manifest, everything=everything, on_progress=on_progress)
    document = {
        "manifest": manifest.name,
        "namespace": session.namespace,
        "drift": [item.as_dict(manifest) for item in found],
    }
    session.answer(document, lambda: drift_picture(manifest, found))
    if tell_shell and found:
        exit_with(EXIT_CHANGES)


@command.command(
    "export",
    epilog="""\b
Examples:
  zae-limiter limits export
  zae-limiter limits export -f limits.yaml --name platform
""",
)
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(dir_okay=False, allow_dash=True, writable=True),
    default="-",
    show_default="stdout",
    help="Where to write the manifest; - for stdout.",
)
@click.option("--name", default="limits", show_default=True, metavar="NAME", help="The name of the manifest.")
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME",
    help="Look for entities' own limits on this resource too; repeatable.",
)
@yes_option
@on_existing_store
def export(session: Session, path: str, name: str, resources: tuple[str, ...], yes: bool) -> None:
    """Write the manifest of what exists. Applying it changes nothing.

    Limits of entities are looked for on every resource that has defaults, that a manifest names or that the audit
    trail mentions; --resource adds others.
    """
    from zae_limiter.manifests.export import as_document, write_manifest
    from zae_limiter.manifests.inventory import take_inventory
    from zae_limiter.manifests.parser import check_manifest_name
    from zae_limiter.naming import check_config_resource

    check_manifest_name(name)
    for resource in resources:
        check_config_resource(resource)
    with session.progress("looking"):
        found = take_inventory(session.repository, resources)
    if path == "-" and session.as_json:
        session.say(as_document(name, found), "")
        return
    text = write_manifest(name, found, comment=f"What exists in namespace {session.namespace}.")
    if path == "-":
        click.echo(text, nl=False)
        return
    if Path(path).exists():
        confirm(f"Replace {path}?", yes)
    Path(path).write_text(text, encoding="utf-8")
    session.say({"file": path, "things": len(found)}, f"wrote {path}: {len(found)} things")


@command.command(
    "schema",
    epilog="""\b
Example:
  zae-limiter limits schema > limits.schema.json
""",
)
def show_schema() -> None:
    """Print the JSON Schema of manifests, for editors."""
    from importlib.resources import files

    click.echo(files("zae_limiter.manifests").joinpath("schema.json").read_text(encoding="utf-8"), nl=False)


# Reading and planning


def read(session: Session, path: str) -> Manifest:
    """The manifest of a command. What is wrong with it is told line by line, and ends the command."""
    from zae_limiter.manifests.parser import read_manifest
    from zae_limiter.manifests.problems import ManifestError
    from zae_limiter.manifests.yaml_nodes import MOST_BYTES

    try:
        with click.open_file(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        manifest = read_manifest(content, "stdin" if path == "-" else path)
    except OSError as error:
        raise click.FileError(path, error.strerror) from None
    except ManifestError as error:
        for line in error.lines[:MOST_PROBLEMS_SHOWN]:
            note(line)
        left = len(error.lines) - MOST_PROBLEMS_SHOWN
        if left > 0:
            note(f"… and {left} more")
        exit_with(EXIT_ERROR)
    given = click.get_current_context().get_parameter_source("namespace") is not ParameterSource.DEFAULT
    if manifest.namespace is not None and given and session.namespace != manifest.namespace:
        raise click.UsageError(f"{path} is for namespace {manifest.namespace!r}, not {session.namespace!r}")
    session.namespace = manifest.namespace or session.namespace
    return manifest


def planned(session: Session, path: str, *, take_over: bool, keep_removed: bool) -> ChangePlan:
    """What the manifest of a command takes."""
    from zae_limiter.manifests.change_plan import plan_changes
    from zae_limiter.manifests.inventory import read_situation

    manifest = read(session, path)
    with progress_bar("looking") as on_progress:
        situation = read_situation(session.repository, manifest, on_progress)
    return plan_changes(manifest, situation, take_over=take_over, keep_removed=keep_removed)


# Answers


def show_change_plan(session: Session, change_plan: ChangePlan) -> None:
    """A plan."""
    from zae_limiter.cli.views.manifest_plans import change_plan_picture
    from zae_limiter.manifests.description import change_plan_as_dict

    document = {"namespace": session.namespace, **change_plan_as_dict(change_plan)}
    session.answer(document, lambda: change_plan_picture(change_plan))


def show_outcome(session: Session, change_plan: ChangePlan, outcome: Outcome) -> None:
    """What was applied. What stopped it ends the command with its own code."""
    from zae_limiter.cli.error_messages import report
    from zae_limiter.cli.views.formats import plural
    from zae_limiter.manifests.description import MARKS, outcome_as_dict

    if session.as_json:
        session.say({"namespace": session.namespace, **outcome_as_dict(change_plan, outcome)}, "")
    elif outcome.error is None and not change_plan.is_done:
        done = f"Applied {plural(len(outcome.done), 'change')}." if outcome.done else "Recorded what is managed."
        session.output.show(done)
    if outcome.error is None:
        return
    code = report(outcome.error)
    note(f"{plural(len(outcome.done), 'change')} done, {len(outcome.remaining)} left; run it again to finish:")
    for change in outcome.remaining:
        note(f"{MARKS[change.action]} {change.thing.label}")
    exit_with(code)
