"""Ids that no other lease has: random numbers, made outside of plans."""

from __future__ import annotations

from secrets import token_urlsafe

from zae_limiter.stores.lease_records import DETACHED


def new_writer() -> str:
    """What a lease signs its record with."""
    return token_urlsafe(9)


def new_record_id() -> str:
    """The id of a lease that is detached: 128 random bits, so that it cannot be guessed."""
    return DETACHED + token_urlsafe(16)
