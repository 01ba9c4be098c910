"""``zae-limiter watch``: live buckets, again and again."""

from __future__ import annotations

import threading

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.options import on_existing_store
from zae_limiter.cli.session import Session


@click.command(
    "watch",
    epilog="""\b
Examples:
  zae-limiter watch
  zae-limiter watch key-1
  zae-limiter watch key-1 acme --resource gpt-4 --interval 0.5
  zae-limiter watch key-1 --count 10 --interval 60 >> levels.log
""",
)
@click.argument("entity_ids", metavar="[ENTITY]...", shell_complete=complete_entity, nargs=-1)
@click.option("--resource", metavar="RESOURCE", help="Buckets on this resource only.")
@click.option(
    "--limit",
    "most",
    type=click.IntRange(1, 100),
    default=15,
    show_default=True,
    metavar="N",
    help="Without names: watch the N tightest buckets.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.05, max=86_400),
    default=1,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two readings.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N readings.")
@on_existing_store
def command(
    session: Session,
    entity_ids: tuple[str, ...],
    resource: str | None,
    most: int,
    interval: float,
    count: int | None,
) -> None:
    """Watch the buckets of entities live, or the tightest ones.

    Ctrl-C ends it. Which buckets are the tightest is looked up every half minute, for which every live bucket is
    read. Without a terminal it prints a line per bucket and reading; with --json, one document per line.
    """
    from zae_limiter.cli.tightest_reader import TightestReader
    from zae_limiter.cli.watch_screen import named, tightest, watch_screen

    reading = named(session, entity_ids, resource)
    if not entity_ids:
        reading = tightest(TightestReader(session.limiter, resource, most))
    readings = 0
    pause = threading.Event()
    try:
        with watch_screen(session, interval) as show:
            while readings != count:
                if readings:
                    pause.wait(interval)
                now = session.now_ms()
                show(reading(now), now)
                readings += 1
    except KeyboardInterrupt:
        return
