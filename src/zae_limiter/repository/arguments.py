"""What callers give, checked: each function returns the value in the form the stores use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeAlias

from zae_limiter.exceptions import ValidationError
from zae_limiter.local_share import WHOLE_SHARE
from zae_limiter.models.choices import OnUnavailable, WindowType, check_choice
from zae_limiter.models.moments import milliseconds_at
from zae_limiter.naming import (
    MAX_PAGE,
    NAMESPACE_SUBJECT,
    RESOURCE_SUBJECT,
    SYSTEM_SUBJECT,
    check_bucket_resource,
    check_delta,
    check_entity_id,
    check_limit_name,
    check_resource,
)
from zae_limiter.stores.protocol import UsageQuery

MAX_SECONDS = 10 * 366 * 86_400
MAX_MOMENT_MS = milliseconds_at(datetime(9000, 1, 1, tzinfo=UTC))
MAX_NAME_LENGTH = 256
MAX_METADATA_ENTRIES = 50
MAX_METADATA_VALUE = 1024

Moment: TypeAlias = datetime | str | int
"""A point in time: a datetime (UTC if it has no zone), its ISO form, or milliseconds since the epoch."""


def check_levels(levels: object) -> Mapping[str, int]:
    """Levels by limit: whole tokens of either sign, at least one."""
    if not isinstance(levels, Mapping) or not levels:
        raise ValidationError("levels", levels, 'must be a dict like {"tpm": 5000}')
    return {check_limit_name(name): check_delta(level, str(name)) for name, level in levels.items()}


def check_seconds(value: object, field: str, most: int = MAX_SECONDS) -> float:
    """A duration in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValidationError(field, value, f"must be a number of seconds from 0 to {most}")
    return float(value)


def check_policy(value: object) -> OnUnavailable | None:
    """What an acquire does while the store is away; ``None``: as is stored."""
    return None if value is None else check_choice(OnUnavailable, value, "on_unavailable")


def check_share(value: object) -> int | None:
    """The share of every limit that a process may grant by itself, in millionths; ``None``: it is measured."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValidationError("local_share", value, "must be a number above 0 and up to 1, like 0.25")
    return max(int(value * WHOLE_SHARE), 1)


def check_page_size(limit: object) -> int:
    """How many items a page may have."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise ValidationError("limit", limit, f"must be a whole number from 1 to {MAX_PAGE}")
    return limit


def check_cursor(cursor: object) -> str | None:
    """Where a page continues."""
    if cursor is not None and not isinstance(cursor, str):
        raise ValidationError("cursor", cursor, "must be the next_cursor of a page, or None")
    return cursor


def check_moment(moment: object, field: str) -> int | None:
    """A point in time, in milliseconds since the epoch."""
    if moment is None:
        return None
    milliseconds = moment
    with suppress(ValueError, OverflowError):
        if isinstance(moment, str):
            moment = datetime.fromisoformat(moment)
        if isinstance(moment, datetime):
            milliseconds = milliseconds_at(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if type(milliseconds) is not int or not 0 <= milliseconds <= MAX_MOMENT_MS:
        raise ValidationError(
            field,
            moment,
            "must be a datetime, an ISO 8601 string, or milliseconds since the epoch, from 1970 on",
        )
    return milliseconds


def _is_text(value: object, longest: int) -> bool:
    """Whether it can be stored as text: not too long, and no half characters."""
    if not isinstance(value, str) or len(value) > longest:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_display_name(name: object) -> str | None:
    """What an entity is called; any text."""
    if name is None:
        return None
    if not name or not _is_text(name, MAX_NAME_LENGTH):
        raise ValidationError("name", name, f"must be a string of 1 to {MAX_NAME_LENGTH} characters, or None")
    return str(name)


def check_metadata(metadata: object) -> Mapping[str, str]:
    """Notes on an entity: a few short strings by name."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or len(metadata) > MAX_METADATA_ENTRIES:
        raise ValidationError(
            "metadata", metadata, f"must be a dict of strings with at most {MAX_METADATA_ENTRIES} entries"
        )
    for key, value in metadata.items():
        for text in (key, value):
            if not _is_text(text, MAX_METADATA_VALUE):
                raise ValidationError(
                    "metadata",
                    text,
                    f"keys and values must be strings of at most {MAX_METADATA_VALUE} characters",
                )
    return dict(metadata)


def check_flag(value: object, field: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ValidationError(field, value, "must be True or False")
    return value


def check_expected_version(version: object) -> int | None:
    """The version an entity is believed to be at."""
    if version is not None and (type(version) is not int or version < 1):
        raise ValidationError("expected_version", version, "must be the version of an entity, or None")
    return version


def check_subject(subject: object) -> str | None:
    """Whose audit events: an entity's, ``$SYSTEM``'s, ``$NAMESPACE``'s or ``$RESOURCE:name``'s."""
    if subject is None or subject in (SYSTEM_SUBJECT, NAMESPACE_SUBJECT):
        return subject
    if isinstance(subject, str) and subject.startswith(RESOURCE_SUBJECT):
        check_resource(subject.removeprefix(RESOURCE_SUBJECT), "entity_id")
        return subject
    return check_entity_id(subject)


def check_limits_version(version: str | None) -> None:
    """A version of limits, as ``limits_version()`` says it."""
    if version is not None and not isinstance(version, str):
        raise ValidationError("expected_version", version, "must be what limits_version() says, or '*'")


def usage_query(
    entity_id: str | None,
    resource: str | None,
    window_type: WindowType | str | None,
    start_time: Moment | None,
    end_time: Moment | None,
) -> UsageQuery:
    """The checked form of what the usage reports are asked."""
    if entity_id is None and resource is None:
        check_entity_id(entity_id, "entity_id or resource")
    return UsageQuery(
        None if entity_id is None else check_entity_id(entity_id),
        None if resource is None else check_bucket_resource(resource),
        None if window_type is None else check_choice(WindowType, window_type, "window_type"),
        check_moment(start_time, "start_time"),
        check_moment(end_time, "end_time"),
    )
