"""What tests do with entities of the DynamoDB store."""

from __future__ import annotations

from typing import Any

from support.dynamodb.plan_driver import World
from zae_limiter.models.entity import Entity
from zae_limiter.stores.protocol import EntityChange


def create(world: World, entity_id: str, parent_id: str | None = None, **fields: Any) -> Entity:
    return world.run(world.space.create_entity(Entity(entity_id, parent_id=parent_id, **fields), None, 1))


def change(world: World, entity_id: str, expected_version: int | None = None, **fields: Any) -> Entity:
    return world.run(world.space.update_entity(entity_id, EntityChange(fields, expected_version), None, 2))


def delete(world: World, entity_id: str) -> None:
    world.run(world.space.delete_entity(entity_id, None, 3))


def meta(world: World, entity_id: str) -> dict[str, Any]:
    item = world.item(f"{world.ns()}/ENTITY#{entity_id}", "#META")
    assert item is not None
    return item


def last_event(world: World, entity_id: str) -> tuple[str, Any]:
    event = world.run(world.space.audit_events(entity_id, None, None, 1, None)).items[0]
    return event.action, event.details
