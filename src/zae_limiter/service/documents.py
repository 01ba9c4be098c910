"""Values of the library as JSON documents, and limits back from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from zae_limiter import (
    Access,
    AuditEvent,
    BucketStatus,
    Calendar,
    Entity,
    EntityStatus,
    LeaseInfo,
    Limit,
    Page,
    UsageSnapshot,
    UsageSummary,
    UsageTotal,
    ValidationError,
)
from zae_limiter.manifests.limit_syntax import format_limit, parse_limit

Item = TypeVar("Item")


def page_document(name: str, page: Page[Item], document: Callable[[Item], Any]) -> dict[str, Any]:
    """A part of a list."""
    return {name: [document(item) for item in page.items], "next_cursor": page.next_cursor}


def entity_document(entity: Entity) -> dict[str, Any]:
    """An entity."""
    return {
        "id": entity.id,
        "name": entity.name,
        "parent": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
        "version": entity.version,
        "created_at": _moment(entity.created_at),
    }


def lease_document(info: LeaseInfo) -> dict[str, Any]:
    """A lease that has a record."""
    return {
        "lease": info.token,
        "entity": info.entity_id,
        "resource": info.resource,
        "state": info.state,
        "granted": dict(info.granted),
        "consumed": dict(info.consumed),
        "granted_at": _moment(info.granted_at),
        "expires_at": _moment(info.expires_at),
    }


# Limits


def limit_document(limit: Limit) -> dict[str, Any]:
    """A limit in full, and in one word if one can say it."""
    return {**limit.as_dict(), "word": format_limit(limit)}


def limits_document(limits: Iterable[Limit]) -> list[dict[str, Any]]:
    """The limits of a level."""
    return [limit_document(limit) for limit in limits]


def limits_from(documents: Sequence[Any]) -> list[Limit]:
    """The limits that a client describes, each as a word or in full."""
    return [
        parse_limit(given, f"limits[{place}]") if isinstance(given, str) else _limit_in_full(given, f"limits[{place}]")
        for place, given in enumerate(documents)
    ]


def _limit_in_full(given: Mapping[str, Any], field: str) -> Limit:
    calendar = given.get("calendar")
    try:
        return Limit(
            given["name"],
            given["capacity"],
            given.get("refill_amount", 0),
            given.get("refill_period_seconds"),
            given.get("burst"),  # type: ignore[arg-type]  # what is not given follows from the capacity
            None if calendar is None else _calendar(calendar),
            given.get("hold_seconds"),
            enforce=given.get("enforce", True),
        )
    except ValidationError as error:
        raise ValidationError(f"{field}.{error.field}", error.value, error.reason) from None


def _calendar(given: Mapping[str, Any]) -> Calendar:
    try:
        start = datetime.fromisoformat(given["start"])
    except ValueError:
        raise ValidationError("calendar.start", given["start"], "must be a date and a time, without a zone") from None
    return Calendar(given["unit"], given["every"], given["tz"], start, given["carry_debt"])


# Reports


def status_document(status: EntityStatus, with_ancestors: bool = True) -> dict[str, Any]:
    """The live buckets of an entity, and the access switches that hold for it, of its ancestors too."""
    return {
        "entity": status.entity_id,
        "buckets": [bucket_document(bucket) for bucket in status.buckets],
        "access": access_document(status.access, status.entity_id, with_ancestors),
    }


def access_document(switches: Iterable[Access], entity_id: str, with_ancestors: bool) -> list[dict[str, Any]]:
    """The access switches that hold for an entity."""
    return [
        switch.as_dict() for switch in switches if with_ancestors or switch.is_wide or switch.entity_id == entity_id
    ]


def bucket_document(bucket: BucketStatus) -> dict[str, Any]:
    """One bucket."""
    return {
        "entity": bucket.entity_id,
        "resource": bucket.resource,
        "total_events": bucket.total_events,
        "limits": [
            {
                "name": level.limit_name,
                "available": level.available,
                "burst": level.limit.burst,
                "total_consumed": level.total_consumed,
                "seconds_to_full": level.seconds_to_full,
                "denials": level.denials,
                "extra": level.extra,
                "limit": limit_document(level.limit),
            }
            for level in bucket.limits
        ],
    }


def usage_document(snapshot: UsageSnapshot) -> dict[str, Any]:
    """What an entity took of a resource in one window."""
    return {
        "entity": snapshot.entity_id,
        "resource": snapshot.resource,
        "window": str(snapshot.window_type),
        "start": _moment(snapshot.window_start),
        "end": _moment(snapshot.window_end),
        "counters": dict(snapshot.counters),
        "own": dict(snapshot.own),
        "total_events": snapshot.total_events,
        "denials": dict(snapshot.denials),
        "would_refuse": dict(snapshot.would_refuse),
    }


def summary_document(summary: UsageSummary) -> dict[str, Any]:
    """Several windows added up."""
    return {
        "windows": summary.snapshot_count,
        "total": dict(summary.total),
        "average": dict(summary.average),
        "total_events": summary.total_events,
        "denials": dict(summary.denials),
        "first": _moment(summary.min_window_start),
        "last": _moment(summary.max_window_start),
    }


def total_document(total: UsageTotal) -> dict[str, Any]:
    """One line of a ranking."""
    return {
        "name": total.name,
        "total": dict(total.total),
        "total_events": total.total_events,
        "denials": dict(total.denials),
    }


def audit_document(event: AuditEvent) -> dict[str, Any]:
    """One change."""
    return {
        "id": event.event_id,
        "timestamp": _moment(event.timestamp),
        "action": event.action,
        "entity": event.entity_id,
        "resource": event.resource,
        "principal": event.principal,
        "details": dict(event.details),
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
