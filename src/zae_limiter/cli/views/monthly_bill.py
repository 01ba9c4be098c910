"""A month's bill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, table
from zae_limiter.infra.costs import MILLION, SECONDS_PER_MONTH, Load, Prices, monthly_bill

COLUMNS = (Column("a month of"), Column("amount", numbers=True), Column("unit"), Column("USD", numbers=True))


def load_of(asked: Mapping[str, Any]) -> Load:
    """The load that the options describe."""
    return Load(
        acquires_per_second=asked["rate"],
        legs=asked["legs"],
        settled=asked["settled"],
        denied=asked["denied"],
        buckets=asked["buckets"],
        clients=asked["clients"],
        window_seconds=asked["window"],
        aggregator=asked["aggregator"],
    )


def prices_of(given: Mapping[str, str]) -> Prices:
    """The usual prices, but for those that are given."""
    try:
        return Prices()._replace(**{name: float(value) for name, value in given.items()})
    except (TypeError, ValueError):
        raise click.UsageError(f"--price takes NAME=USD with one of {', '.join(Prices._fields)}") from None


def bill_document(load: Load, prices: Prices) -> dict[str, Any]:
    """A bill for programs."""
    bill = monthly_bill(load, prices)
    return {
        "load": load._asdict(),
        "prices": prices._asdict(),
        "items": [item._asdict() for item in bill.items],
        "dollars": bill.dollars,
    }


def bill_picture(output: Output, load: Load, prices: Prices) -> RenderableType:
    """A bill for people."""
    bill = monthly_bill(load, prices)
    rows = [(item.what, _amount(item.amount), item.unit, f"{item.dollars:,.2f}") for item in bill.items]
    rows.append(("together", "", "", f"{bill.dollars:,.2f}"))
    drawn = table(output, COLUMNS, rows)
    millions = load.acquires_per_second * SECONDS_PER_MONTH / MILLION
    if not millions:
        return drawn
    return Group(drawn, Text(), Text(f"${bill.dollars / millions:,.2f} for a million acquires"))


def _amount(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:,.2f}"
