"""``zae-limiter demo``: the options; the show itself is in ``cli/demo``."""

from __future__ import annotations

import click


@click.command(
    "demo",
    epilog="""\b
Examples:
  zae-limiter demo
  zae-limiter demo --seconds 30 --workers 8
  zae-limiter demo --url memory:// --seed 1
""",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=3600),
    default=10,
    show_default=True,
    help="How long the callers call.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="What the callers' choices are drawn from.")
@click.option(
    "--url",
    show_default="embedded, temporary",
    help="The store to run on, in a namespace of its own that is removed afterwards.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 32),
    default=4,
    show_default=True,
    help="Processes that share the callers; on memory://, groups of tasks.",
)
def command(seconds: float, seed: int, url: str | None, workers: int) -> None:
    """Watch callers share limits, then see proof that they held.

    An organisation, its projects and their keys each have limits on requests and tokens; one key has a monthly budget
    and so many calls in flight besides, where the store keeps such limits. Dozens of simulated LLM callers take from
    all three levels at once, settle the real cost afterwards, fail, wait in the queue and are denied. Ctrl-C ends it
    early, with the summary. Exits 1 if a single limit was exceeded or miscounted.
    """
    from zae_limiter.cli.demo.run import Settings, run

    if not run(Settings(url=url, seconds=seconds, seed=seed, workers=workers)):
        raise SystemExit(1)
