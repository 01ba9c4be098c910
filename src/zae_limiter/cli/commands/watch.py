"""``zae-limiter watch``: live buckets, again and again."""

from __future__ import annotations

import threading

import click

from zae_limiter.cli.options import on_existing_store
from zae_limiter.cli.session import Session


@click.command(
    "watch",
    epilog="""\b
Examples:
  zae-limiter watch key-1
  zae-limiter watch key-1 acme --resource gpt-4 --interval 0.5
  zae-limiter watch key-1 --count 10 --interval 60 >> levels.log
""",
)
@click.argument("entity_ids", metavar="ENTITY...", nargs=-1, required=True)
@click.option("--resource", metavar="RESOURCE", help="Their buckets on this resource only.")
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
    session: Session, entity_ids: tuple[str, ...], resource: str | None, interval: float, count: int | None
) -> None:
    """Watch the buckets of entities, live. Ctrl-C ends it.

    Without a terminal it prints a line per bucket and reading; with --json, one document per line.
    """
    from zae_limiter.cli.watch_screen import watch_screen

    readings = 0
    pause = threading.Event()
    try:
        with watch_screen(session, interval) as show:
            while readings != count:
                if readings:
                    pause.wait(interval)
                now = session.now_ms()
                show([session.limiter.get_status(entity_id, resource) for entity_id in entity_ids], now)
                readings += 1
    except KeyboardInterrupt:
        return
