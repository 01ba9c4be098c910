"""``key=value`` pairs that are given once for each."""

from __future__ import annotations

from collections.abc import Iterable

import click


def parse_pairs(context: click.Context, option: click.Parameter, pairs: Iterable[str]) -> dict[str, str]:
    """The values by key; a value may itself contain ``=``."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{pair!r} must be KEY=VALUE", context, option)
        if key in found:
            raise click.BadParameter(f"{key!r} is given twice", context, option)
        found[key] = value
    return found
