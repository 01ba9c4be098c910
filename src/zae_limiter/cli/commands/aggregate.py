"""``zae-limiter aggregate``: count the usage of a DynamoDB table, where no Lambda does it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import click

from zae_limiter.cli.audit_archive import archive_at, archive_option
from zae_limiter.cli.options import on_store
from zae_limiter.cli.session import Session, note

if TYPE_CHECKING:
    from zae_limiter.cli.aggregation_screen import AggregationScreen
    from zae_limiter_aggregator.aggregation import StoreAggregator


@click.command(
    "aggregate",
    epilog="""\b
Examples:
  zae-limiter aggregate --url dynamodb://limits
  zae-limiter aggregate --url dynamodb://limits --once    # from a timer
  zae-limiter aggregate --url dynamodb://limits --archive s3://my-archive
""",
)
@click.option("--once", is_flag=True, help="End when everything in the stream is counted.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.05, max=3_600),
    default=1,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two reads of the stream.",
)
@archive_option("Keep audit events there when they expire: a folder, or s3://BUCKET.")
@on_store
def command(session: Session, once: bool, interval: float, archive_url: str | None) -> None:
    """Count the usage of a DynamoDB table. Ctrl-C ends it.

    It reads the table's stream into usage windows, of all namespaces, and keeps in the table how far it came. It may
    be ended at any time, and run several times at once: nothing is lost, and nothing counted twice. Needed where the
    aggregator's Lambda is not deployed; embedded stores count by themselves.
    """
    from zae_limiter.cli.aggregation_screen import aggregation_screen, sigterm_as_interrupt
    from zae_limiter_aggregator.aggregation import StoreAggregator, needs_aggregator

    if not needs_aggregator(session.store):
        raise click.UsageError(
            "this store counts usage by itself, with every acquire; only dynamodb:// tables need an aggregator"
        )
    archive = None if archive_url is None else archive_at(archive_url)
    with sigterm_as_interrupt():
        with aggregation_screen(session, once=once) as screen:
            aggregator = StoreAggregator(session.store, archive=archive, on_page=screen.page, sharing=not once)
            with checkpoints_written(aggregator):
                aggregator.begin()
                if once:
                    aggregator.count_available()
                    screen.caught_up(aggregator.tally)
                else:
                    count_forever(aggregator, screen, interval)
        screen.end(aggregator.tally)


def count_forever(aggregator: StoreAggregator, screen: AggregationScreen, interval: float) -> NoReturn:
    """Count what is in the stream every ``interval`` seconds. A table that does not answer is tried again."""
    from zae_limiter import ConfigurationError, RateLimiterUnavailable

    pause = threading.Event()
    while True:
        try:
            aggregator.count_available()
            screen.caught_up(aggregator.tally)
        except (RateLimiterUnavailable, ConfigurationError) as error:  # it could be read when this began
            note(f"trying again: {error}")
        pause.wait(interval)


@contextmanager
def checkpoints_written(aggregator: StoreAggregator) -> Iterator[None]:
    """Write the checkpoints at the end: after Ctrl-C too, and if possible after the table stopped answering."""
    from zae_limiter import ConfigurationError, RateLimiterUnavailable

    try:
        yield
    except KeyboardInterrupt:
        note("ending")
    except (RateLimiterUnavailable, ConfigurationError):
        with suppress(RateLimiterUnavailable, ConfigurationError):
            aggregator.end()
        raise
    aggregator.end()
