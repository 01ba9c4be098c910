"""How things look in a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from zae_limiter.bucket import Balance, Bucket
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import at, milliseconds_at
from zae_limiter.models.reports import AuditEvent
from zae_limiter.stores.embedded.tables import UsageRow
from zae_limiter.stores.protocol import Config
from zae_limiter.stores.windows import Counters


def to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@lru_cache(4096)
def limits_to_text(limits: tuple[Limit, ...]) -> str:
    return to_json([[x.name, x.capacity, x.refill_amount, x.refill_period_seconds, x.burst] for x in limits])


@lru_cache(4096)
def limits_from_text(text: str) -> tuple[Limit, ...]:
    return tuple(Limit(*fields) for fields in json.loads(text))


def entity_to_row(entity: Entity) -> tuple[Any, ...]:
    created = None if entity.created_at is None else milliseconds_at(entity.created_at)
    metadata = to_json(dict(entity.metadata))
    return (entity.id, entity.name, entity.parent_id, entity.cascade, metadata, entity.version, created)


def entity_from_row(row: Sequence[Any]) -> Entity:
    id_, name, parent_id, cascade, metadata, version, created = row
    created_at = None if created is None else at(created)
    return Entity(id_, name, parent_id, bool(cascade), json.loads(metadata), version, created_at)


def config_from_row(row: Sequence[Any]) -> Config:
    limits, on_unavailable, version = row
    policy = None if on_unavailable is None else OnUnavailable(on_unavailable)
    return Config(limits_from_text(limits), policy, version)


def terms_to_text(bucket: Bucket) -> str:
    """The limits in force, then those that rest."""
    if bucket.stored_terms is not None:
        return bucket.stored_terms
    retired = tuple(balance.limit for balance in bucket.retired.values())
    if not retired:
        return limits_to_text(bucket.limits)
    return f"{limits_to_text(bucket.limits)}\n{limits_to_text(retired)}"


def tokens_to_text(bucket: Bucket) -> str:
    """The balance and counter of every limit, in the order of the terms."""
    balances: Iterable[Balance] = bucket.balances
    if bucket.retired:
        balances = (*bucket.balances, *bucket.retired.values())
    return " ".join([f"{balance.tk} {balance.tc}" for balance in balances])


def bucket_from_row(row: Sequence[Any]) -> Bucket:
    entity_id, resource, rf, events, hour, terms, tokens, carried = row
    bucket = Bucket(entity_id, resource, rf)
    bucket.events = events
    bucket.hour = hour
    in_force, _, resting = terms.partition("\n")
    numbers = [int(number) for number in tokens.split()]
    bucket.limits = limits_from_text(in_force)
    bucket.stored_terms = terms
    bucket.balances = tuple(
        Balance(limit, rf, tk=numbers[2 * place], tc=numbers[2 * place + 1])
        for place, limit in enumerate(bucket.limits)
    )
    if resting:
        offset = 2 * len(bucket.limits)
        bucket.retired = {
            limit.name: Balance(limit, rf, tk=numbers[offset + 2 * place], tc=numbers[offset + 2 * place + 1])
            for place, limit in enumerate(limits_from_text(resting))
        }
    if carried != "{}":
        bucket.carried = json.loads(carried)
    return bucket


def counters_to_text(counters: Counters) -> str:
    return to_json([counters.events, dict(counters.milli)])


def counters_from_text(text: str) -> Counters:
    events, milli = json.loads(text)
    return Counters(events, milli)


def usage_from_row(row: Sequence[Any]) -> UsageRow:
    entity_id, resource, hour, start, end = row
    return UsageRow(
        entity_id, resource, hour, counters_from_text(start), None if end is None else counters_from_text(end)
    )


def audit_from_row(row: Sequence[Any]) -> AuditEvent:
    event_id, at_ms, action, subject, resource, principal, details = row
    return AuditEvent(event_id, at(at_ms), action, subject, resource, principal, json.loads(details))
