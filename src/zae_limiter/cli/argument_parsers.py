"""Parsers of what people type: amounts, ``key=value`` pairs, moments, ids of audit events.

They are pure, and every error shows the right form. Limits have a parser of their own, in ``manifests.limit_syntax``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import click

from zae_limiter import ValidationError
from zae_limiter.manifests.limit_syntax import parse_amount
from zae_limiter.models.moments import at, milliseconds_at
from zae_limiter.naming import check_amount, check_limit_name


def parse_amounts(pairs: Iterable[str]) -> dict[str, int]:
    """The amounts by limit. Raises ``ValidationError``, which shows the right form."""
    amounts: dict[str, int] = {}
    for pair in pairs:
        name, sign, typed = pair.partition("=")
        if not sign:
            raise ValidationError("amount", pair, "must be name=amount, like rpm=1 or tpm=10k")
        if check_limit_name(name, "amount") in amounts:
            raise ValidationError("amount", pair, f"names {name} twice")
        try:
            amount = parse_amount(typed)
        except ValueError as error:
            raise ValidationError("amount", pair, str(error)) from None
        amounts[name] = check_amount(amount, name)
    return amounts


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


AGE_FORMS = "1h, 90m, 2d, or in words 24hours"

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"([0-9]{1,6}) ?(?:([smhdw])|(sec|min|hour|day|week)s?)(?: ago)?")


def parse_moment(text: str, now_ms: int, field: str) -> datetime:
    """The moment, in UTC. Raises ``ValidationError``, which shows the right forms."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            unit = ago[2] or ago[3][0]
            return at(max(now_ms - int(ago[1]) * _SECONDS[unit] * 1_000, 0))
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if milliseconds_at(moment) < 0:
            raise ValueError("before 1970")
        return moment
    except (ValueError, OverflowError):
        reason = f"must be a date (2026-01-31), a time in UTC (2026-01-31T12:00), or how long ago ({AGE_FORMS})"
        raise ValidationError(field, text, reason) from None


def parse_end(text: str, now_ms: int, field: str) -> datetime:
    """A moment that is to come: a date, a time in UTC, or how long from now. Raises ``ValidationError``."""
    ahead = _AGO.fullmatch(text)
    if ahead is not None and not text.endswith("ago"):
        return at(now_ms + int(ahead[1]) * _SECONDS[ahead[2] or ahead[3][0]] * 1_000)
    try:
        return parse_moment(text, now_ms, field)
    except ValidationError:
        reason = "must be a date (2026-01-31), a time in UTC (2026-01-31T12:00), or how long from now (90m, 24h, 7d)"
        raise ValidationError(field, text, reason) from None


_EVENT_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{9,25}")
"""The beginning of a ULID in capitals: its moment is the first ten characters."""


def parse_event_id(event_id: str) -> int:
    """When an event happened, in milliseconds since the epoch, from its id or the beginning of it, in either case.

    Raises ``ValidationError``.
    """
    from zae_limiter.stores.audit_events import moment_of

    digits = event_id.upper()
    if not _EVENT_ID.fullmatch(digits):
        raise ValidationError("event", event_id, "must be the letters and digits that 'audit list' shows")
    return moment_of(digits)
