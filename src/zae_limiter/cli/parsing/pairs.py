"""``key=value`` pairs that are given once for each."""

from __future__ import annotations

from collections.abc import Iterable

import click

from zae_limiter.exceptions import ValidationError


def parse_notes(pairs: Iterable[str]) -> dict[str, str]:
    """The notes on an entity."""
    return _by_key("meta", pairs, "key=value, like team=search")


def parse_pairs(context: click.Context, option: click.Parameter, pairs: Iterable[str]) -> dict[str, str]:
    """What an option names, for click."""
    try:
        return _by_key(str(option.name), pairs, "KEY=VALUE")
    except ValidationError as error:
        raise click.BadParameter(f"{error.value!r} {error.reason}", context, option) from None


def _by_key(field: str, pairs: Iterable[str], form: str) -> dict[str, str]:
    """The values by key; a value may itself contain ``=``."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise ValidationError(field, pair, f"must be {form}")
        if key in found:
            raise ValidationError(field, pair, f"names {key!r} twice")
        found[key] = value
    return found
