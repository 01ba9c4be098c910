"""The access switch: who is let through at all, whatever the limits say."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import Any

from zae_limiter.exceptions import AccessBlocked, RateLimitExceeded, ValidationError
from zae_limiter.models.choices import AccessMode
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import at
from zae_limiter.testing.contract.harness import World, case

WIDE_SECONDS = 5.0
"""Within this time a wide switch holds everywhere."""


async def blocked(world: World, limiter: Any, entity_id: str = "key", resource: str = "gpt", **amounts: int) -> Any:
    """The error that an acquire raises."""
    with world.raises(AccessBlocked) as caught:
        async with limiter.acquire(entity_id, resource, amounts or {"rpm": 1}):
            pass
    return caught.value


async def is_blocked(limiter: Any, entity_id: str = "key", resource: str = "gpt") -> bool:
    try:
        async with limiter.acquire(entity_id, resource, {"rpm": 1}):
            return False
    except AccessBlocked:
        return True


async def within_five_seconds(world: World, limiter: Any, expected: bool, *who: str) -> None:
    """Ask until it is so."""
    give_up = time.monotonic() + WIDE_SECONDS
    while await is_blocked(limiter, *who) is not expected:
        assert time.monotonic() < give_up, "a wide switch is not obeyed in time"
        await world.pause(0.1)


@case("A blocked entity is refused at once by every client, with an error that is no RateLimitExceeded")
async def a_blocked_entity_is_refused_by_every_client(world: World) -> None:
    other = world.client()
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    async with other.acquire("key", "gpt", {"rpm": 1}):
        pass
    await world.limiter.set_access("block", entity_id="key", principal="ann")
    for limiter in (other, world.limiter):
        error = await blocked(world, limiter)
        assert (error.entity_id, error.resource, error.access.mode) == ("key", "gpt", AccessMode.BLOCK)
        assert not isinstance(error, RateLimitExceeded)
        assert error.as_dict()["error"] == "access_blocked"
    assert not await is_blocked(other, "another")
    assert await world.limiter.available("key", "gpt") == {"rpm": 9}
    await world.limiter.set_access("enforce", entity_id="key")
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert await world.limiter.available("key", "gpt") == {"rpm": 8}


@case("An entity may be blocked on one resource only")
async def an_entity_may_be_blocked_on_one_resource(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    await world.limiter.set_access("block", entity_id="key", resource="gpt")
    await blocked(world, world.limiter)
    assert not await is_blocked(world.limiter, "key", "claude")
    found = await world.limiter.get_access(entity_id="key", resource="gpt")
    assert (found.mode, found.entity_id, found.resource) == (AccessMode.BLOCK, "key", "gpt")
    assert (await world.limiter.get_access(entity_id="key")).mode is AccessMode.ENFORCE


@case("A switch of the system or of a resource holds everywhere within five seconds, and its end likewise")
async def a_wide_switch_holds_everywhere_within_five_seconds(world: World) -> None:
    other = world.client()
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 1_000_000)])
    assert not await is_blocked(other)
    await world.limiter.set_access("block", resource="gpt")
    await blocked(world, world.limiter)
    await within_five_seconds(world, other, True)
    assert not await is_blocked(other, "key", "claude")
    await world.limiter.set_access("block")
    await world.limiter.set_access("enforce", resource="gpt")
    await within_five_seconds(world, other, True, "key", "claude")
    await blocked(world, world.client(), "a-new-one")
    await world.limiter.set_access("enforce")
    await within_five_seconds(world, other, False)
    assert not await is_blocked(world.limiter, "key", "claude")


@case("The strictest switch holds: a narrow one never lifts what a wider one blocks")
async def the_strictest_switch_holds(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 1)])
    await world.limiter.set_access("block")
    await world.limiter.set_access("observe", entity_id="key")
    error = await blocked(world, world.limiter)
    assert error.access.is_wide
    modes = [access.mode for access in await world.limiter.resolve_access("key", "gpt")]
    assert modes == [AccessMode.BLOCK, AccessMode.OBSERVE]


@case("A check says what the switches say: blocked, nothing fits; observed, everything does")
async def a_check_knows_the_switches(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 1)])
    assert (await world.limiter.check("key", "gpt", {"rpm": 1})).access is None
    await world.limiter.set_access("observe", entity_id="key")
    observed = await world.limiter.check("key", "gpt", {"rpm": 9})
    assert (observed.fits, observed.wait_seconds, observed.access.mode) == (True, 0.0, AccessMode.OBSERVE)
    await world.limiter.set_access("block")
    refused = await world.limiter.check("key", "gpt", {"rpm": 1})
    assert (refused.fits, refused.wait_seconds, refused.access.is_wide) == (False, None, True)


@case("A check and a status of another client know the switches of an entity and its ancestors at once")
async def another_client_knows_the_switches_of_entities(world: World) -> None:
    other = world.client()
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("team", parent_id="org", cascade=True)
    await world.limiter.create_entity("key", parent_id="team", cascade=True)
    limits = [Limit.per_minute("rpm", 10)]
    await world.limiter.set_limits("key", limits)
    await world.limiter.set_limits("org", limits)
    async with other.acquire("key", "gpt", {"rpm": 1}):
        pass

    async def decides(**given: Any) -> Any:
        found = (await other.check("key", "gpt", {"rpm": 1}, **given)).access
        return None if found is None else (str(found.mode), found.entity_id, found.resource)

    async def holding() -> list[Any]:
        return [(str(access.mode), access.entity_id) for access in (await other.get_status("key", "gpt")).access]

    assert (await decides(), await holding()) == (None, [])
    for entity_id in ("key", "team", "org"):
        await world.limiter.set_access("observe", entity_id=entity_id)
    assert await decides() == await decides(limits=limits) == ("observe", "key", None)
    assert await holding() == [("observe", "key"), ("observe", "team"), ("observe", "org")]
    for entity_id in ("org", "team"):
        await world.limiter.set_access("block", entity_id=entity_id, resource="gpt")
        assert await decides() == await decides(limits=limits) == ("block", entity_id, "gpt")
    for entity_id in ("org", "team"):
        await world.limiter.set_access("enforce", entity_id=entity_id, resource="gpt")
        await world.limiter.set_access("enforce", entity_id=entity_id)
    await world.limiter.set_access("enforce", entity_id="key")
    assert (await decides(), await decides(limits=limits), await holding()) == (None, None, [])


@case("A block of an ancestor holds for every acquire that cascades to it, whether it has limits or not")
async def a_block_of_an_ancestor_holds_for_those_below(world: World) -> None:
    other = world.client()
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("team", parent_id="org", cascade=True)
    await world.limiter.create_entity("key", parent_id="team", cascade=True)
    await world.limiter.create_entity("loner", parent_id="team")
    limits = [Limit.per_minute("rpm", 10)]
    await world.limiter.set_limits("key", limits)
    await world.limiter.set_limits("loner", limits)
    await world.limiter.set_limits("org", limits)
    assert not await is_blocked(other)
    for ancestor in ("team", "org"):
        await world.limiter.set_access("block", entity_id=ancestor)
        assert (await blocked(world, other)).access.entity_id == ancestor
        assert not await is_blocked(other, "loner")
        await world.limiter.set_access("enforce", entity_id=ancestor)
        await within_five_seconds(world, other, False)  # a block that was met is believed for a moment
    assert await world.limiter.available("org", "gpt") == {"rpm": 7}
    assert await world.limiter.available("key", "gpt") == {"rpm": 7}


@case("A lease that is open when its entity is blocked settles all the same, and takes no more")
async def an_open_lease_settles_and_takes_no_more(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    async with world.limiter.acquire("key", "gpt", {"rpm": 3}) as lease:
        await world.limiter.set_access("block", entity_id="key")
        with world.raises(AccessBlocked):
            await lease.consume(rpm=1)
        await lease.adjust(rpm=-1)
    assert await world.limiter.available("key", "gpt") == {"rpm": 8}


@case("Observed refusals are let through uncharged, and told; what fits is charged as ever")
async def observed_refusals_are_let_through(world: World) -> None:
    limiter = world.observed()
    await limiter.set_system_defaults([Limit.per_minute("rpm", 3)])
    await limiter.set_access("observe", entity_id="key")
    verdicts = []
    for amount in (2, 2, 1, 1, 9):
        async with limiter.acquire("key", "gpt", {"rpm": amount}, timeout=60) as lease:
            verdicts.append([status.limit_name for status in lease.refused_by])
            assert not lease.degraded
            await lease.adjust(rpm=1)
            await lease.adjust(rpm=-1)
    # What an enforced limit would have done with the same calls: 2 taken, 2 refused, 1 taken, 1 and 9 refused.
    assert verdicts == [[], ["rpm"], [], ["rpm"], ["rpm"]]
    assert await limiter.available("key", "gpt") == {"rpm": 0}
    decided = [event for event in world.events if type(event).__name__ == "Decided"]
    assert [event.would_refuse for event in decided] == [(), ("rpm",), (), ("rpm",), ("rpm",)]
    assert all(event.granted for event in decided)
    await limiter.set_access("enforce", entity_id="key")
    with world.raises(RateLimitExceeded):
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass


@case("A switch ends by itself at its time")
async def a_switch_ends_by_itself(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    until = at(world.clock()) + timedelta(seconds=60)
    await world.limiter.set_access("block", entity_id="key", until=until)
    await world.limiter.set_access("block", resource="claude", until=until)
    assert (await blocked(world, world.limiter)).access.until == until
    await blocked(world, world.limiter, "key", "claude")
    world.clock.advance(59.999)
    await blocked(world, world.limiter)
    world.clock.advance(0.001)
    assert not await is_blocked(world.limiter)
    assert not await is_blocked(world.limiter, "key", "claude")
    assert (await world.limiter.get_access(entity_id="key")).mode is AccessMode.ENFORCE
    assert (await world.limiter.list_access()).items == []


@case("A block holds while the store is unavailable, whatever the policy says")
async def a_block_holds_while_the_store_is_unavailable(world: World) -> None:
    limiter = world.failing_limiter
    await limiter.set_system_defaults([Limit.per_minute("rpm", 10)], on_unavailable="allow")
    await limiter.set_access("block", entity_id="key")
    await blocked(world, limiter)
    assert not await is_blocked(limiter, "another")
    world.store.fail("draw")
    await blocked(world, limiter)
    async with limiter.acquire("another", "gpt", {"rpm": 1}) as lease:
        assert lease.degraded


@case("Switches are listed, in the status, and audited with what was before")
async def switches_are_listed_and_audited(world: World) -> None:
    limiter = world.limiter
    await limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    await limiter.set_access("observe", principal="ann")
    await limiter.set_access("block", resource="gpt")
    await limiter.set_access("block", entity_id="key", resource="gpt")
    await limiter.set_access("observe", entity_id="key")
    places = [(access.entity_id, access.resource, str(access.mode)) for access in (await limiter.list_access()).items]
    assert places == [
        (None, None, "observe"),
        (None, "gpt", "block"),
        ("key", None, "observe"),
        ("key", "gpt", "block"),
    ]
    page = await limiter.list_access(limit=1)
    seen = list(page.items)
    while page.next_cursor:
        page = await limiter.list_access(limit=1, cursor=page.next_cursor)
        seen += page.items
    assert [(access.entity_id, access.resource, str(access.mode)) for access in seen] == places
    status = await limiter.get_status("key", "gpt")
    assert [str(access.mode) for access in status.access] == ["block", "block", "observe", "observe"]
    await limiter.set_access("enforce")
    events = (await limiter.get_audit_events("$SYSTEM")).items
    changed = [event for event in events if event.action == "access_set"]
    assert [(event.details["from"]["mode"], event.details["to"]["mode"]) for event in changed] == [
        ("observe", "enforce"),
        ("enforce", "observe"),
    ]
    assert changed[1].principal == "ann"


@case("Limits and switches of one level do not touch each other; deleting an entity removes both")
async def limits_and_switches_do_not_touch_each_other(world: World) -> None:
    limiter = world.limiter
    limits = [Limit.per_minute("rpm", 10)]
    await limiter.set_system_defaults(limits)
    await limiter.set_access("block", entity_id="key")
    assert await limiter.get_limits("key") == []
    assert list((await limiter.list_entities_with_custom_limits()).items) == []
    await limiter.set_limits("key", limits)
    await blocked(world, limiter)
    await limiter.delete_limits("key")
    await blocked(world, limiter)
    await limiter.set_limits("key", limits)
    await limiter.set_access("enforce", entity_id="key")
    assert await limiter.get_limits("key") == limits
    await limiter.set_access("block", entity_id="key")
    await limiter.delete_entity("key")
    assert not await is_blocked(limiter)
    assert (await limiter.list_access()).items == []


@case("Arguments of the access switch are checked")
async def arguments_of_the_switch_are_checked(world: World) -> None:
    limiter = world.limiter
    soon = at(world.clock()) + timedelta(seconds=1)
    wrong = (
        partial(limiter.set_access, "shut"),
        partial(limiter.set_access, "block", entity_id="a#b"),
        partial(limiter.set_access, "block", resource=""),
        partial(limiter.set_access, "block", resource="_default_"),
        partial(limiter.set_access, "block", until=at(world.clock())),
        partial(limiter.set_access, "enforce", until=soon),
        partial(limiter.get_access, entity_id=7),
        partial(limiter.resolve_access, ""),
        partial(limiter.list_access, cursor="no"),
    )
    for call in wrong:
        with world.raises(ValidationError):
            await call()
