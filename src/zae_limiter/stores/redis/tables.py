"""A namespace's entities, limits, audit and usage as the shared verbs see them: reads that may be missing, writes that
wait.

See ``replay.py`` for how a function on these tables is run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from zae_limiter.bucket import Bucket
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.moments import at, milliseconds_at
from zae_limiter.models.reports import AuditEvent
from zae_limiter.stores.audit_events import ulid
from zae_limiter.stores.embedded.routes import LevelLimits, Routes
from zae_limiter.stores.embedded.tables import AUDIT_RETENTION_MS, LeaseSlot, UsageRow
from zae_limiter.stores.lease_records import LeaseRecord
from zae_limiter.stores.protocol import Config, Scope, access_from_text, access_to_text
from zae_limiter.stores.redis.keys import audit_key, entity_key, lease_key, namespace_key
from zae_limiter.stores.redis.lease_texts import record_in, text_of
from zae_limiter.stores.redis.scripts import SHOW, USAGE
from zae_limiter.stores.redis.terms import LETTERS, buckets_in, limit_of, terms_of, values_of
from zae_limiter.stores.redis.usage_rows import usage_in
from zae_limiter.stores.redis.wire import Part
from zae_limiter.stores.windows import DAY_MS, Counters

Command = tuple[Part, ...]

SPARE_RECORDS = 16
"""How many more records are read than asked for: some may be gone since they were listed."""

PREFETCHED = 32
"""How many buckets' usage is read at once."""

ULID_LENGTH = 26


class Missing(Exception):
    """A read that is not at hand: these commands have to be answered first."""

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__(commands)
        self.commands = commands


class RedisTables:
    """One namespace's data, inside one transaction. ``seen`` has the replies by command."""

    def __init__(
        self,
        prefix: str,
        now: str,
        seen: Mapping[Command, Any],
        told_periods: Callable[[], str],
        periods_are_missing: Callable[[Sequence[Any]], bool],
    ) -> None:
        """``now`` as the scripts are told it: nothing for the server's own time."""
        self.prefix = prefix
        self.routes = Routes()
        self.writes: list[list[Any]] = []
        self.changed_at = 0
        self._now = now
        self._seen = seen
        self._told_periods = told_periods
        self._periods_are_missing = periods_are_missing
        self._events = 0
        self._next_pairs: list[tuple[str, str]] = []
        self.state, self.read_epoch = self._one("HMGET", namespace_key(prefix), "state", "epoch")

    def _one(self, *command: Part) -> Any:
        return self._all([command])[0]

    def _all(self, commands: Sequence[Command]) -> list[Any]:
        missing = [command for command in commands if command not in self._seen]
        if missing:
            raise Missing(missing)
        return [self._seen[command] for command in commands]

    def _write(self, *command: str) -> None:
        self.writes.append(list(command))

    def epoch(self) -> int:
        return int(self.read_epoch or 0)

    def advance_epoch(self) -> None:
        """Every commit does."""

    # Entities

    def entity(self, entity_id: str) -> Entity | None:
        return _entity(entity_id, self._one("HGET", entity_key(self.prefix, entity_id), "meta"))

    def put_entity(self, entity: Entity) -> None:
        before = self.entity(entity.id)
        key = entity_key(self.prefix, entity.id)
        self._write("HSET", key, "meta", _entity_text(entity))
        if entity.cascade and entity.parent_id is not None:
            self._write("HSET", key, "p", entity.parent_id)
        else:
            self._write("HDEL", key, "p")
        self._write("ZADD", self.prefix + "ids", "0", entity.id)
        self._move(entity.id, None if before is None else before.parent_id, entity.parent_id)

    def _move(self, entity_id: str, old: str | None, new: str | None) -> None:
        if old == new:
            return
        if old is not None:
            self._write("ZREM", f"{self.prefix}kids#{old}", entity_id)
        if new is not None:
            self._write("ZADD", f"{self.prefix}kids#{new}", "0", entity_id)

    def drop_entity(self, entity_id: str) -> None:
        before = self.entity(entity_id)
        self._write("HDEL", entity_key(self.prefix, entity_id), "meta", "p")
        self._write("ZREM", self.prefix + "ids", entity_id)
        self._move(entity_id, None if before is None else before.parent_id, None)

    def entities(self, after: str | None, count: int) -> list[Entity]:
        return self._entities(self._page("ids", after, count))

    def children(self, parent_id: str, after: str | None, count: int) -> list[Entity]:
        return self._entities(self._page(f"kids#{parent_id}", after, count))

    def _entities(self, names: Sequence[str]) -> list[Entity]:
        texts = self._all([("HGET", entity_key(self.prefix, name), "meta") for name in names])
        found = (_entity(name, text) for name, text in zip(names, texts, strict=True))
        return [entity for entity in found if entity is not None]  # it may have been deleted between the two reads

    def _page(self, index: str, after: str | None, count: int) -> list[str]:
        low = "-" if after is None else f"({after}"
        return [
            name.decode() for name in self._one("ZRANGEBYLEX", self.prefix + index, low, "+", "LIMIT", "0", str(count))
        ]

    # Limits

    def _place(self, scope: Scope) -> tuple[str, str]:
        """Key and end of the field's name of what one level says."""
        if scope.entity_id is not None:
            return entity_key(self.prefix, scope.entity_id), f"/{scope.resource}"
        return namespace_key(self.prefix), "" if scope.resource is None else f"/{scope.resource}"

    def config(self, scope: Scope) -> Config | None:
        key, suffix = self._place(scope)
        said, switch = self._all([("HGET", key, "l" + suffix), ("HGET", key, "a" + suffix)])
        config = _config(said)
        if config is None or switch is None:
            return config
        return replace(config, access=access_from_text(scope, switch.decode()))

    def limits_in(self, scopes: Sequence[Scope]) -> LevelLimits:
        texts = self._all([("HGET", key, "l" + suffix) for key, suffix in map(self._place, scopes)])
        configs = zip(scopes, map(_config, texts), strict=True)
        return tuple((scope, config.limits) for scope, config in configs if config is not None and config.limits)

    def put_config(self, scope: Scope, config: Config) -> None:
        key, suffix = self._place(scope)
        self._write("HSET", key, "l" + suffix, _config_text(config))
        if config.limits:
            self._write("HSET", key, "v" + suffix, f"{LETTERS[scope.level]}{self.epoch() + 1}")
        else:
            self._write("HDEL", key, "v" + suffix)
        self._put_access(scope, config.access)
        if scope == Scope() and config.on_unavailable is not None:
            self._write("HSET", key, "policy", config.on_unavailable)
        if config.limits:
            self._list_scope(scope, "ZADD", "0")
        else:
            self._list_scope(scope, "ZREM")

    def _put_access(self, scope: Scope, access: Access | None) -> None:
        """The switch of a level stands beside its limits, where a draw reads it, and in a list of all."""
        key, suffix = self._place(scope)
        listed = f"{scope.entity_id or ''} {scope.resource or ''}"
        if access is None:
            self._write("HDEL", key, "a" + suffix)
            self._write("ZREM", self.prefix + "access", listed)
        else:
            self._write("HSET", key, "a" + suffix, access_to_text(access))
            self._write("ZADD", self.prefix + "access", "0", listed)

    def switches(self, after: tuple[str, str] | None, count: int) -> list[Access]:
        names = self._page("access", None if after is None else " ".join(after), count)
        scopes = [Scope(*(part or None for part in name.split(" "))) for name in names]
        configs = [self.config(scope) for scope in scopes]
        return [config.access for config in configs if config is not None and config.access is not None]

    def drop_config(self, scope: Scope) -> None:
        key, suffix = self._place(scope)
        self._put_access(scope, None)
        self._write("HDEL", key, "l" + suffix, "v" + suffix, *(["policy"] if scope == Scope() else []))
        self._list_scope(scope, "ZREM")

    def _list_scope(self, scope: Scope, verb: str, *score: str) -> None:
        if scope.entity_id is not None:
            self._write(verb, f"{self.prefix}own#{scope.resource}", *score, scope.entity_id)
        elif scope.resource is not None:
            self._write(verb, self.prefix + "rdef", *score, scope.resource)

    def scopes_of(self, entity_id: str) -> list[Scope]:
        fields = self._one("HKEYS", entity_key(self.prefix, entity_id))
        return [Scope(entity_id, name[2:].decode()) for name in sorted(fields) if name.startswith(b"l/")]

    def resources_with_limits(self, after: str | None, count: int) -> list[str]:
        return self._page("rdef", after, count)

    def entities_with_limits(self, resource: str, after: str | None, count: int) -> list[str]:
        return self._page(f"own#{resource}", after, count)

    # Buckets: read as the next draw will find them, changed by scripts

    def _show(self, entity_id: str, resource: str, after: str, count: str) -> list[Bucket]:
        key = namespace_key(self.prefix)
        parts = (self.prefix, self._now, resource, entity_id, after, count)
        told = self._told_periods()
        reply = self._one("EVALSHA", SHOW.sha, 1, key, *parts, told, "")
        if self._periods_are_missing(reply):
            raise Missing([("EVALSHA", SHOW.sha, 1, key, *parts, self._told_periods(), "")])
        return buckets_in(reply)

    def bucket(self, entity_id: str, resource: str) -> Bucket | None:
        found = self._show(entity_id, resource, "", "")
        return found[0] if found else None

    def reset_buckets(self, entity_id: str, resource: str | None, limits: Sequence[str] | None = None) -> None:
        """Fill them; only these limits, if they are named."""
        self.writes.append(
            ["@reset", entity_id, resource or "", *([] if limits is None else [dict.fromkeys(limits, 1)])]
        )

    def credit_bucket(self, entity_id: str, resource: str, amounts: Mapping[str, int]) -> None:
        """Give whole tokens, up to the ceiling."""
        self.writes.append(["@credit", entity_id, resource, dict(amounts)])

    def lift_bucket(self, entity_id: str, resource: str, amounts: Mapping[str, int]) -> None:
        """Give limits by the calendar whole tokens above their ceiling, in their period."""
        self.writes.append(["@lift", entity_id, resource, dict(amounts)])

    def drop_bucket(self, bucket: Bucket) -> None:
        self._write("@drop", bucket.entity_id, bucket.resource)

    def buckets_of(self, entity_id: str) -> list[Bucket]:
        return self._show(entity_id, "", "", "")

    # Usage: begun by the scripts that take

    def close_usage(self, bucket: Bucket, end: Counters) -> None:
        """An hour ends where the next begins, or with the bucket."""

    def usage_rows(self, entity_id: str, resource: str, start: int, end: int) -> list[UsageRow]:
        command = self._usage_command(entity_id, resource)
        if command not in self._seen:
            pairs = [pair for pair in self._next_pairs if pair >= (entity_id, resource)][:PREFETCHED]
            raise Missing([command, *(self._usage_command(*pair) for pair in pairs if pair != (entity_id, resource))])
        usage = usage_in(entity_id, resource, self._seen[command])
        rows = [row if row.end is not None else row._replace(end=usage.live) for row in usage.rows]
        return [row for row in rows if start <= row.hour < end]

    def _usage_command(self, entity_id: str, resource: str) -> Command:
        return ("EVALSHA", USAGE.sha, 1, namespace_key(self.prefix), self.prefix, self._now, entity_id, resource)

    def usage_pairs(
        self, entity_id: str | None, resource: str | None, after: tuple[str, str] | None, count: int
    ) -> list[tuple[str, str]]:
        if entity_id is None and resource is not None:
            names = self._page(f"on#{resource}", after[0] if after else None, count)
            pairs = [(name, resource) for name in names]
        else:
            pairs = [pair for pair in self._all_pairs(entity_id, resource) if pair > (after or ("", ""))][:count]
        self._next_pairs = pairs
        return pairs

    def _all_pairs(self, entity_id: str | None, resource: str | None) -> list[tuple[str, str]]:
        names = [resource] if resource is not None else self.resources_in_use()
        if entity_id is None:
            lists = self._all([("ZRANGE", f"{self.prefix}on#{name}", 0, -1) for name in names])
            return sorted((one.decode(), name) for name, found in zip(names, lists, strict=True) for one in found)
        scores = self._all([("ZSCORE", f"{self.prefix}on#{name}", entity_id) for name in names])
        return [(entity_id, name) for name, score in zip(names, scores, strict=True) if score is not None]

    def resources_in_use(self) -> list[str]:
        """Those that have or had buckets."""
        return [name.decode() for name in self._one("ZRANGE", self.prefix + "res", 0, -1)]

    # Records of leases

    def lease_slot(self, record_id: str) -> LeaseSlot:
        text = self._one("GET", lease_key(self.prefix, record_id))
        return LeaseSlot(None if text is None else record_in(record_id, text))

    def put_lease(self, slot: LeaseSlot, record: LeaseRecord) -> None:
        lifetime = str(max(record.expires_at - record.granted_at, 1))
        self._write("SET", lease_key(self.prefix, record.id), text_of(record), "PX", lifetime)

    def lease_records(self, entity_id: str | None, after: str | None, count: int, now: int) -> list[LeaseRecord]:
        listed = self._one("ZRANGEBYSCORE", self.prefix + "leases", f"({now}", "+inf")
        found = sorted(
            (record_id, owner)
            for owner, _, record_id in (member.decode().partition("#") for member in listed)
            if entity_id in (None, owner) and (after is None or record_id > after)
        )
        ids = [record_id for record_id, _ in found[: count + SPARE_RECORDS]]
        texts = self._all([("GET", lease_key(self.prefix, record_id)) for record_id in ids])
        records = [record_in(record_id, text) for record_id, text in zip(ids, texts, strict=True) if text is not None]
        return [record for record in records if record.expires_at > now][:count]

    # Audit

    def add_audit(
        self,
        subject: str,
        action: str,
        resource: str | None,
        principal: str | None,
        details: Mapping[str, Any],
        now: int,
    ) -> None:
        self._events += 1
        self.changed_at = now  # every change is audited, so this is when it holds from
        event_id = ulid(now, (self.epoch() << 20) + self._events)
        text = event_id + json.dumps([now, action, subject, resource, principal, dict(details)], separators=(",", ":"))
        expired = ulid(max(now - AUDIT_RETENTION_MS, 0), 0)
        for key in (audit_key(self.prefix, None), audit_key(self.prefix, subject)):
            self._write("ZADD", key, "0", text)
            self._write("ZREMRANGEBYLEX", key, "-", f"({expired}")
            self._write("PEXPIRE", key, str(AUDIT_RETENTION_MS + DAY_MS))

    def audit(
        self, subject: str | None, start: int | None, end: int | None, before: str | None, count: int
    ) -> list[AuditEvent]:
        ends = ([] if end is None else [ulid(end, 0)]) + ([] if before is None else [before])
        high = f"({min(ends)}" if ends else "+"
        low = "-" if start is None else f"[{ulid(start, 0)}"
        command = ("ZREVRANGEBYLEX", audit_key(self.prefix, subject), high, low, "LIMIT", "0", str(count))
        return [_event(row.decode()) for row in self._one(*command)]


def _entity_text(entity: Entity) -> str:
    created = None if entity.created_at is None else milliseconds_at(entity.created_at)
    values = [entity.name, entity.parent_id, entity.cascade, dict(entity.metadata), entity.version, created]
    return json.dumps(values, separators=(",", ":"))


def _entity(entity_id: str, text: bytes | None) -> Entity | None:
    if text is None:
        return None
    name, parent_id, cascade, metadata, version, created = json.loads(text)
    return Entity(entity_id, name, parent_id, cascade, metadata, version, None if created is None else at(created))


def _config_text(config: Config) -> str:
    stored = {
        "limits": [values_of(limit) for limit in config.limits],
        "terms": terms_of(config.limits),
        "policy": config.on_unavailable,
        "version": config.version,
    }
    return json.dumps(stored, separators=(",", ":"))


def _config(text: bytes | None) -> Config | None:
    if text is None:
        return None
    stored = json.loads(text)
    policy = stored["policy"]
    limits = tuple(limit_of(values) for values in stored["limits"])
    return Config(limits, None if policy is None else OnUnavailable(policy), stored["version"])


def _event(text: str) -> AuditEvent:
    now, action, subject, resource, principal, details = json.loads(text[ULID_LENGTH:])
    return AuditEvent(text[:ULID_LENGTH], at(now), action, subject, resource, principal, details)
