"""``zae-limiter aggregate``: count the usage of a DynamoDB table, where no Lambda does it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import NoReturn

import click

from zae_limiter.cli.audit_archive import archive_option, opened
from zae_limiter.cli.options import on_store
from zae_limiter.cli.session import Session, note


@click.command(
    "aggregate",
    epilog="""\b
Examples:
  zae-limiter aggregate --url dynamodb://limits
  zae-limiter aggregate --url dynamodb://limits --once    # from a timer
  zae-limiter aggregate --url dynamodb://limits --archive s3://my-archive
""",
)
@click.option("--once", is_flag=True, help="End when everything that is there is counted.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.05, max=3_600),
    default=1,
    show_default=True,
    metavar="SECONDS",
    help="Between one look at the stream and the next.",
)
@archive_option("Keep audit events there when they expire: a folder, or s3://BUCKET.")
@on_store
def command(session: Session, once: bool, interval: float, archive_url: str | None) -> None:
    """Count the usage of a DynamoDB table. Ctrl-C ends it.

    It reads the table's stream into usage windows, of all namespaces, and keeps in the table how far it came. It may
    be ended at any time, and run several times at once: nothing is lost, and nothing counted twice. Needed where the
    aggregator's Lambda is not deployed; embedded stores count by themselves.
    """
    from zae_limiter.cli.aggregation_screen import ended_by_sigterm, screen_for
    from zae_limiter.exceptions import RateLimiterUnavailable
    from zae_limiter.running.clocks import machine_clock
    from zae_limiter.running.sync_driver import SyncDriver
    from zae_limiter.stores.dynamodb.errors import asking_of
    from zae_limiter_aggregator.aggregation import Aggregation
    from zae_limiter_aggregator.archives import with_archive

    store = session.store
    asking = asking_of(store)
    if asking is None:
        counts_by_itself()
    archive = None if archive_url is None else opened(archive_url)
    perform = store.perform if archive is None else with_archive(store.perform, archive)
    driver = SyncDriver(machine_clock, perform)
    pause = threading.Event()
    with ended_by_sigterm():
        with screen_for(session, once=once) as screen:
            aggregation = Aggregation(asking, told=screen.page, archiving=archive is not None, sharing=not once)
            try:
                driver.run(aggregation.begin())
                while True:
                    try:
                        driver.run(aggregation.go_on())
                        screen.caught_up(aggregation.tally)
                    except RateLimiterUnavailable as error:
                        if once:
                            raise
                        note(f"trying again: {error}")
                    if once:
                        break
                    pause.wait(interval)
            except KeyboardInterrupt:
                note("ending")
            except RateLimiterUnavailable:
                with suppress(RateLimiterUnavailable):
                    driver.run(aggregation.end())
                raise
            driver.run(aggregation.end())
        screen.end(aggregation.tally)


def counts_by_itself() -> NoReturn:
    """What to tell whoever means another store."""
    raise click.UsageError(
        "this store counts usage by itself, with every acquire; only dynamodb:// tables need an aggregator"
    )
