"""``zae-limiter usage``: what was taken, as a table, added up, plotted, or proven."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from zae_limiter import ZAELimiterError
from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.group import OrderedGroup
from zae_limiter.cli.options import list_limit_option, on_existing_store, parse_period, period_options
from zae_limiter.cli.session import Session, exit_with, note

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter import UsageSnapshot
    from zae_limiter.cli.pages import Pages

Command = TypeVar("Command", bound=Callable[..., Any])

WINDOWS = ("hourly", "daily", "monthly")


def entity_option(command: Command, show_default: str | bool = False) -> Command:
    """``--entity``: whose usage."""
    return click.option(
        "--entity",
        "entity_id",
        show_default=show_default,
        metavar="ENTITY",
        shell_complete=complete_entity,
        help="Of this entity.",
    )(command)


def subject_options(command: Command) -> Command:
    """``--entity`` and ``--resource``: at least one of them."""
    command = click.option("--resource", metavar="RESOURCE", help="On this resource.")(command)
    return entity_option(command)


@click.group(
    "usage",
    cls=OrderedGroup,
    epilog="""\b
Examples:
  zae-limiter usage plot --entity key-1 --since 24h
  zae-limiter usage summary --resource gpt-4 --window daily
""",
)
def command() -> None:
    """What was taken, in windows of hours, days and months (UTC)."""


@command.command(
    "list",
    epilog="""\b
Examples:
  zae-limiter usage list --entity key-1
  zae-limiter usage list --entity key-1 --resource gpt-4 --window daily --since 7d
  zae-limiter usage list --resource gpt-4 --window monthly --json
""",
)
@subject_options
@click.option("--window", type=click.Choice(WINDOWS), show_default="all three", help="Windows of one length.")
@period_options
@list_limit_option
@on_existing_store
def list_windows(
    session: Session,
    entity_id: str | None,
    resource: str | None,
    window: str | None,
    since: str | None,
    until: str | None,
    most: int | None,
) -> None:
    """List usage windows.

    What was taken, by how many grants, and how many calls each limit denied.
    """
    from zae_limiter.cli.views.usage import COLUMNS, snapshot_document, snapshot_rows

    check_subject(entity_id, resource)
    pages = windows_between(session, entity_id, resource, window, parse_period(session, since, until), most)
    session.list("snapshots", pages, snapshot_document, COLUMNS, snapshot_rows, nothing="no usage in this period")
    if not pages.seen:
        hint_at_aggregator(session, entity_id, resource)


@command.command(
    "summary",
    epilog="""\b
Examples:
  zae-limiter usage summary --entity key-1
  zae-limiter usage summary --resource gpt-4 --window daily --since 2026-01-01
  zae-limiter usage summary --all --window monthly
""",
)
@subject_options
@click.option("--all", "of_all", is_flag=True, help="Of all entities on all resources.")
@click.option("--window", type=click.Choice(WINDOWS), default="hourly", show_default=True, help="Averages per window.")
@period_options
@on_existing_store
def summary(
    session: Session,
    entity_id: str | None,
    resource: str | None,
    of_all: bool,
    window: str,
    since: str | None,
    until: str | None,
) -> None:
    """Add usage up: totals, averages per window, and denials.

    Each call counts once, also where it took from its caller's ancestors too.
    """
    from zae_limiter import WindowType
    from zae_limiter.cli.views.usage import summary_document, summary_picture

    if of_all and (entity_id is not None or resource is not None):
        raise click.UsageError("--all is for everything: it goes without --entity and --resource")
    if not of_all:
        check_subject(entity_id, resource)
    start, end = parse_period(session, since, until)
    kind = WindowType(window)
    with session.progress("adding up"):
        found = session.limiter.get_usage_summary(entity_id, resource, kind, start, end)
    session.answer(
        summary_document(entity_id, resource, kind, found),
        lambda: summary_picture(session.output, subject_in_words(entity_id, resource), kind, found),
    )
    if not found.snapshot_count:
        hint_at_aggregator(session, entity_id, resource)


@command.command(
    "top",
    epilog="""\b
Examples:
  zae-limiter usage top
  zae-limiter usage top --limit-name tpm --since 24h
  zae-limiter usage top --by resource --window daily --json
""",
)
@click.option("--by", type=click.Choice(["entity", "resource"]), default="entity", show_default=True, help="Whose.")
@click.option("--limit-name", metavar="NAME", show_default="grants", help="Rank by what was taken of this limit.")
@click.option("--resource", metavar="RESOURCE", help="On this resource.")
@click.option("--window", type=click.Choice(WINDOWS), default="hourly", show_default=True, help="Windows to add up.")
@click.option(
    "--limit",
    "most",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Show at most N.",
)
@period_options
@on_existing_store
def top(
    session: Session,
    by: Literal["entity", "resource"],
    limit_name: str | None,
    resource: str | None,
    window: str,
    most: int,
    since: str | None,
    until: str | None,
) -> None:
    """Rank entities or resources by what they used.

    Each call counts once, for the entity that made it, so that the rows add up to what was taken. Denials are those by
    an entity's limits.
    """
    from zae_limiter import WindowType
    from zae_limiter.cli.views.usage import top_document, top_picture

    start, end = parse_period(session, since, until)
    kind = WindowType(window)
    with session.progress("adding up"):
        used = session.limiter.get_top_usage(
            by,
            limit_name=limit_name,
            resource=resource,
            window_type=kind,
            start_time=start,
            end_time=end,
            limit=most,
        )
    session.answer(top_document(by, resource, kind, used), lambda: top_picture(session.output, by, used))
    if not used:
        hint_at_aggregator(session, None, resource)


@command.command(
    "plot",
    epilog="""\b
Examples:
  zae-limiter usage plot --entity key-1 --since 24h
  zae-limiter usage plot --resource gpt-4 --window daily --style lines
  zae-limiter usage plot --entity key-1 --limit-name tpm --png usage.png
""",
)
@subject_options
@click.option("--window", type=click.Choice(WINDOWS), default="hourly", show_default=True, help="One bar for each.")
@click.option("--limit-name", "names", multiple=True, metavar="NAME", help="Only this limit; repeatable.")
@click.option("--style", type=click.Choice(["bars", "lines"]), default="bars", show_default=True, help="What to draw.")
@click.option("--height", type=click.IntRange(2, 50), default=8, show_default=True, help="Rows of each plot.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Write a figure instead.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a figure instead.")
@period_options
@on_existing_store
def plot(
    session: Session,
    entity_id: str | None,
    resource: str | None,
    window: str,
    names: tuple[str, ...],
    style: str,
    height: int,
    png: Path | None,
    svg: Path | None,
    since: str | None,
    until: str | None,
) -> None:
    """Plot usage over time, each limit on its own scale.

    On the terminal, or with --png and --svg as a figure for reports (the extra `plots`).
    """
    from zae_limiter import WindowType
    from zae_limiter.cli.views.plots import plots_picture, series_document
    from zae_limiter.visualization.series import series_of
    from zae_limiter.visualization.terminal import Style

    check_subject(entity_id, resource)
    kind = WindowType(window)
    pages = windows_between(session, entity_id, resource, window, parse_period(session, since, until), None)
    with session.progress("reading usage"):
        series = series_of(pages.items(), kind, names or None, of_entity=entity_id is not None)
    title = subject_in_words(entity_id, resource)
    figures = [(path, form) for path, form in ((png, "png"), (svg, "svg")) if path is not None]
    if figures and series:
        from zae_limiter.visualization.figures import save

        for path, form in figures:
            try:
                save(series, title, Style(style), path, form)
            except OSError as error:
                raise click.FileError(str(path), error.strerror or str(error)) from error
    document = series_document(entity_id, resource, kind, series)
    if figures and series and not session.as_json:
        session.output.show("\n".join(f"wrote {path}" for path, _ in figures))
    else:
        session.answer(document, lambda: plots_picture(title, series, Style(style), session.output.width, height))
    if not pages.seen:
        hint_at_aggregator(session, entity_id, resource)


@command.command(
    "verify",
    epilog="""\b
Examples:
  zae-limiter usage verify --entity key-1
  zae-limiter usage verify --entity key-1 --resource gpt-4 --json
  zae-limiter usage verify
""",
)
@partial(entity_option, show_default="all that used anything")
@click.option("--resource", metavar="RESOURCE", help="On this resource.")
@on_existing_store
def verify(session: Session, entity_id: str | None, resource: str | None) -> None:
    """Prove that usage is what was taken from the buckets.

    Every hour must begin where the one before ended, and the last must end where the bucket is. Exits with 1 if that
    is not so, and says where. Of all entities it shows those that do not hold.
    """
    if entity_id is None:
        verify_all(session, resource)
        return
    from zae_limiter.cli.error_messages import EXIT_ERROR
    from zae_limiter.cli.views.usage_proof import proof_document, proof_picture

    with session.progress("comparing"):
        proof = session.limiter.verify_usage(entity_id, resource)
    session.answer(proof_document(proof), lambda: proof_picture(session.output, proof))
    if not proof.holds:
        exit_with(EXIT_ERROR)


def verify_all(session: Session, resource: str | None) -> None:
    """Prove the usage of every entity that used anything."""
    from zae_limiter.cli.error_messages import EXIT_ERROR
    from zae_limiter.cli.views.usage_proof import Proofs, proofs_document, proofs_picture

    proofs = Proofs(resource)
    with session.progress("comparing"):
        for entity_id in session.limiter.list_active_entities():
            proofs.add(session.limiter.verify_usage(entity_id, resource))
    session.answer(proofs_document(proofs), lambda: proofs_picture(session.output, proofs))
    if proofs.broken:
        exit_with(EXIT_ERROR)


def check_subject(entity_id: str | None, resource: str | None) -> None:
    """At least one of the two must be named."""
    if entity_id is None and resource is None:
        raise click.UsageError("name --entity, --resource, or both")


def subject_in_words(entity_id: str | None, resource: str | None) -> str:
    """Whose usage is meant, in words."""
    if resource is None:
        return f"{entity_id or 'all entities'} on all resources"
    return f"{entity_id or 'all entities'} on {resource}"


def windows_between(
    session: Session,
    entity_id: str | None,
    resource: str | None,
    window: str | None,
    period: tuple[datetime | None, datetime | None],
    most: int | None,
) -> Pages[UsageSnapshot]:
    """The windows that begin in a period."""
    from zae_limiter.cli.pages import Pages

    start, end = period
    return Pages(
        lambda size, cursor: session.limiter.get_usage_snapshots(
            entity_id, resource, window, start, end, size, cursor
        ),
        most,
    )


AGGREGATOR_HINT = "an aggregator counts it: the stack's Lambda, or 'zae-limiter aggregate'"


def hint_at_aggregator(session: Session, entity_id: str | None, resource: str | None) -> None:
    """After no usage was found, tell a person that an aggregator has to count it, if none has.

    The buckets of an entity tell whether something is not counted yet; of a resource that is not known. If the buckets
    cannot be read there is no hint: the command has answered already.
    """
    from zae_limiter_aggregator.aggregation import needs_aggregator

    if session.as_json or not needs_aggregator(session.store):
        return
    if entity_id is None:
        note(f"usage of a DynamoDB table is counted later than it is taken; {AGGREGATOR_HINT}")
        return
    try:
        with session.progress("comparing"):
            proof = session.limiter.verify_usage(entity_id, resource)
    except ZAELimiterError:
        return
    if any(chain.behind for chain in proof.chains):
        note(f"{entity_id} has used something that is not counted yet; {AGGREGATOR_HINT}")
