"""``zae-limiter cost``: what a deployment would cost in a month."""

from __future__ import annotations

from typing import Any

import click

from zae_limiter.cli.argument_parsers import parse_pairs
from zae_limiter.cli.options import without_store
from zae_limiter.cli.session import Session

PART = click.FloatRange(0, 1)


@click.command(
    "cost",
    epilog="""\b
Examples:
  zae-limiter cost --rate 50
  zae-limiter cost --rate 50 --legs 2 --denied 0.05 --buckets 400 --clients 20
  zae-limiter cost --rate 50 --price million_writes=0.7 --json
""",
)
@click.option(
    "--rate", type=click.FloatRange(0, 10**7), required=True, metavar="N", help="Acquires per second, on average."
)
@click.option("--legs", type=click.IntRange(1, 20), default=1, show_default=True, help="Entities each takes from.")
@click.option("--settled", type=PART, default=1.0, show_default=True, help="Share of the grants that are settled.")
@click.option("--denied", type=PART, default=0.0, show_default=True, help="Share of the acquires that are denied.")
@click.option(
    "--buckets",
    type=click.IntRange(1, 10**9),
    default=100,
    show_default=True,
    help="Pairs of entity and resource, of all levels.",
)
@click.option(
    "--clients", type=click.IntRange(1, 10**6), default=1, show_default=True, help="Processes that take tokens."
)
@click.option(
    "--window",
    type=click.FloatRange(0, 300),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long usage may wait to be counted.",
)
@click.option("--aggregator/--no-aggregator", default=True, show_default=True, help="Whether a Lambda counts usage.")
@click.option(
    "--price",
    "prices",
    multiple=True,
    callback=parse_pairs,
    metavar="NAME=USD",
    help="A price of your region or contract; --json lists their names.",
)
@without_store
def command(session: Session, prices: dict[str, str], **load: Any) -> None:
    """Compute what a load on DynamoDB costs in a month.

    Request units are measured, prices are those of us-east-1 unless given, and how load spreads over buckets is a
    guess. Nothing is asked over the network.
    """
    from zae_limiter.cli.views.monthly_bill import bill_document, bill_picture, load_of, prices_of

    asked, price = load_of(load), prices_of(prices)
    session.answer(bill_document(asked, price), lambda: bill_picture(session.output, asked, price))
