"""Levels: whose limits and switches, and what each of them says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zae_limiter.exceptions import LimitsChangedError
from zae_limiter.models.access import Access
from zae_limiter.models.choices import AccessMode, ConfigSource, OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.limit_versions import ANY_LIMITS, limits_version
from zae_limiter.models.moments import LAST_MOMENT_MS, at
from zae_limiter.naming import DEFAULT_RESOURCE, RESOURCE_SUBJECT, SYSTEM_SUBJECT, TOTAL_RESOURCE


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose limits: the system's, a resource's, or an entity's (for one resource, for each, or for all together)."""

    entity_id: str | None = None
    resource: str | None = None

    @property
    def label(self) -> str:
        """Whose, in words."""
        if self.entity_id is None:
            return "the system" if self.resource is None else f"resource {self.resource}"
        where = "" if self.resource in (None, DEFAULT_RESOURCE) else f" on {self.resource}"
        return f"{self.entity_id}{where}"

    @property
    def level(self) -> ConfigSource:
        """The level this scope stands on."""
        if self.entity_id is None:
            return "system" if self.resource is None else "resource"
        if self.resource == TOTAL_RESOURCE:
            return "total"
        return "entity_default" if self.resource == DEFAULT_RESOURCE else "entity"

    @property
    def audited_as(self) -> str:
        """The subject of its audit events."""
        if self.entity_id is not None:
            return self.entity_id
        return SYSTEM_SUBJECT if self.resource is None else RESOURCE_SUBJECT + self.resource


def access_scope(entity_id: str | None, resource: str | None) -> Scope:
    """The level an access switch stands on: an entity alone stands for all resources."""
    return Scope(entity_id, DEFAULT_RESOURCE if entity_id is not None and resource is None else resource)


def access_on(scope: Scope, mode: AccessMode, until_ms: int | None) -> Access:
    """The access switch of a level, as callers see it."""
    resource = None if scope.resource == DEFAULT_RESOURCE else scope.resource
    return Access(mode, scope.entity_id, resource, None if until_ms is None else at(until_ms))


def access_to_text(access: Access) -> str:
    """A switch as stores keep it: its mode, and the moment it ends, if it does. Its level is where it stands."""
    until = access.until_ms
    return str(access.mode) if until is None else f"{access.mode} {until}"


def access_from_text(scope: Scope, text: str) -> Access:
    """The inverse of :func:`access_to_text`. Raises ``ValueError``."""
    mode, _, until = text.partition(" ")
    until_ms = int(until) if until else None
    if until_ms is not None and not 0 <= until_ms <= LAST_MOMENT_MS:
        raise ValueError("out of bounds")
    return access_on(scope, AccessMode(mode), until_ms)


def scopes_for(entity_id: str, resource: str) -> tuple[Scope, ...]:
    """The four levels in the order they are asked: the first that has limits gives all of them."""
    return (
        Scope(entity_id, resource),
        Scope(entity_id, DEFAULT_RESOURCE),
        Scope(None, resource),
        Scope(),
    )


@dataclass(frozen=True, slots=True)
class Config:
    """What one level says. The version grows with every change, and where clients compare it, with a deletion too."""

    limits: tuple[Limit, ...] = ()
    on_unavailable: OnUnavailable | None = None
    version: int = 0
    access: Access | None = None


def check_version(scope: Scope, config: Config, expected: str | None) -> None:
    """Refuse to change what a level says if it is not what the caller has read."""
    if expected is None or (expected == ANY_LIMITS and config.limits):
        return
    found = limits_version(config.limits, config.on_unavailable)
    if found != expected:
        raise LimitsChangedError(scope.label, expected, found)


class Resolution(NamedTuple):
    """The limits that hold for an entity and resource, and where they came from."""

    limits: list[Limit] | None
    on_unavailable: OnUnavailable | None
    source: ConfigSource | None
