"""Tenants beside each other."""

from __future__ import annotations

from zae_limiter.exceptions import EntityNotFoundError, NamespaceNotFoundError, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)


@case("Nothing in one namespace can be read, counted or deleted through another")
async def namespaces_are_isolated(world: World) -> None:
    a = world.limiter
    await a.repository.register_namespace("b")
    b = world.client(namespace="b")
    await a.set_system_defaults([RPM])
    await a.create_entity("key")
    async with a.acquire("key", "gpt", {"rpm": 4}):
        pass
    with world.raises(ValidationError):
        async with b.acquire("key", "gpt", {"rpm": 1}):
            pass
    await b.set_system_defaults([Limit.per_minute("rpm", 3)])
    async with b.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert await a.available("key", "gpt") == {"rpm": 6}
    assert await b.available("key", "gpt") == {"rpm": 2}
    with world.raises(EntityNotFoundError):
        await b.get_entity("key")
    assert (await b.list_entities()).items == []
    assert [snap.counters for snap in (await b.get_usage_snapshots("key", window_type="hourly")).items] == [{"rpm": 1}]
    assert await b.reset("key") == 1
    await b.delete_entity("key")
    assert await a.available("key", "gpt") == {"rpm": 6}
    assert (await a.get_entity("key")).id == "key"
    actions = [event.action for event in (await b.get_audit_events()).items]
    assert "entity_created" not in actions


@case("A namespace that is not registered refuses every use")
async def an_unregistered_namespace_is_refused(world: World) -> None:
    nowhere = world.client(namespace="nowhere")
    for call in (
        nowhere.available("key", "gpt"),
        nowhere.create_entity("key"),
        nowhere.set_system_defaults([RPM]),
        nowhere.repository.get_namespace("nowhere"),
    ):
        with world.raises(NamespaceNotFoundError):
            await call
    with world.raises(NamespaceNotFoundError):
        async with nowhere.acquire("key", "gpt", {"rpm": 1}):
            pass
    await nowhere.repository.register_namespace("nowhere")
    await nowhere.set_system_defaults([RPM])
    async with nowhere.acquire("key", "gpt", {"rpm": 1}):
        pass


@case("default is registered from the beginning; registering twice changes nothing")
async def registering_is_idempotent(world: World) -> None:
    repository = world.limiter.repository
    first = await repository.register_namespace("tenant")
    assert await repository.register_namespace("tenant") == first
    assert [info.name for info in (await repository.list_namespaces()).items] == ["default", "tenant"]
    page = await repository.list_namespaces(limit=1)
    assert [info.name for info in page.items] == ["default"]
    page = await repository.list_namespaces(limit=1, cursor=page.next_cursor)
    assert [info.name for info in page.items] == ["tenant"]
    assert page.next_cursor is None


@case("Deleting is soft: every client is refused at once; recovering brings everything back")
async def a_deleted_namespace_can_be_recovered(world: World) -> None:
    repository = world.limiter.repository
    await repository.register_namespace("tenant")
    tenant = world.client(namespace="tenant")
    await tenant.set_system_defaults([RPM])
    async with tenant.acquire("key", "gpt", {"rpm": 4}):
        pass
    await repository.delete_namespace("tenant", principal="ops")
    assert (await repository.get_namespace("tenant")).deleted_at is not None
    with world.raises(NamespaceNotFoundError) as caught:
        async with tenant.acquire("key", "gpt", {"rpm": 1}):
            pass
    assert caught.value.deleted
    assert (await repository.recover_namespace("tenant")).deleted_at is None
    assert await tenant.available("key", "gpt") == {"rpm": 6}


@case("Purging needs a deleted namespace and removes everything; the name may be used again")
async def purging_removes_everything(world: World) -> None:
    repository = world.limiter.repository
    before = await repository.register_namespace("tenant")
    tenant = world.client(namespace="tenant")
    await tenant.set_system_defaults([RPM])
    await tenant.create_entity("key")
    async with tenant.acquire("key", "gpt", {"rpm": 4}):
        pass
    with world.raises(ValidationError):
        await repository.purge_namespace("tenant")
    await repository.delete_namespace("tenant")
    assert await repository.purge_namespace("tenant") > 3
    for call in (repository.get_namespace("tenant"), repository.recover_namespace("tenant")):
        with world.raises(NamespaceNotFoundError):
            await call
    after = await repository.register_namespace("tenant")
    assert after.id != before.id
    assert (await tenant.list_entities()).items == []
    assert (await tenant.get_status("key")).buckets == ()
    assert await tenant.get_system_defaults() == ([], None)
