"""Access switches, for people and programs."""

from __future__ import annotations

from typing import Any

from zae_limiter import Access, AccessMode
from zae_limiter.cli.output.text_tables import Column, Row
from zae_limiter.cli.views.formats import NOTHING

COLUMNS = (Column("mode", rigid=True), Column("whose"), Column("until", rigid=True))

WORDS = {
    AccessMode.BLOCK: "every acquire is refused",
    AccessMode.OBSERVE: "limits only watch: nothing is refused",
    AccessMode.ENFORCE: "limits are enforced",
}


def access_document(access: Access) -> dict[str, Any]:
    """A switch for programs."""
    return access.as_dict()


def access_row(access: Access) -> Row:
    """A switch in a list."""
    return str(access.mode), access.label, NOTHING if access.until is None else _moment(access)


def access_words(access: Access) -> str:
    """What a switch says, in a line."""
    until = "" if access.until is None else f" until {_moment(access)}"
    return f"{access.label}: {WORDS[access.mode]}{until}"


def _moment(access: Access) -> str:
    assert access.until is not None
    return f"{access.until:%Y-%m-%d %H:%M:%S}"
