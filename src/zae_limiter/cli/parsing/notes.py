"""``key=value`` pairs: the notes on an entity."""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter.exceptions import ValidationError


def parse_notes(pairs: Iterable[str]) -> dict[str, str]:
    """The notes by key; a value may itself contain ``=``."""
    notes: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise ValidationError("meta", pair, "must be key=value, like team=search")
        if key in notes:
            raise ValidationError("meta", pair, f"names {key!r} twice")
        notes[key] = value
    return notes
