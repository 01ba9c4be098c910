"""``on_unavailable="local"``: while the store is away a process grants from its share, and books that on return."""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import AccessBlocked, RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.models.events import Reconciled, WentLocal
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case, kind_case

RPM = Limit.per_minute("rpm", 60)  # a token per second


async def used(world: World, limiter: Any, amount: int = 1, entity_id: str = "key") -> None:
    """The process takes so much, twice within some seconds: so it knows its share, which is everything."""
    for _ in range(2):
        async with limiter.acquire(entity_id, "gpt", {"rpm": amount}):
            pass
        world.clock.advance(2)


async def counted(world: World, entity_id: str = "key") -> int:
    (bucket,) = (await world.limiter.get_status(entity_id)).buckets
    return sum(level.total_consumed for level in bucket.limits)


@case('on_unavailable="local" grants from the share of the process; the lease says that it is degraded and local')
async def local_grants_from_the_share(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.client(store=world.store, on_unavailable="local", local_share=0.5)
    await used(world, limiter)
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 10}) as lease:
        assert lease.degraded
        assert lease.local
        assert lease.consumed == {"rpm": 10}
        assert [status.available for status in lease.statuses] == [20]  # half of 60, less 10
        assert lease.remaining == {"rpm": 20}
    with world.raises(RateLimitExceeded) as caught:
        async with limiter.acquire("key", "gpt", {"rpm": 21}):
            raise AssertionError("the body must not run")
    assert caught.value.retry_after_seconds <= 1.0  # the store may be back
    async with limiter.acquire("key", "gpt", {"rpm": 20}):
        pass
    world.clock.advance(2)  # half a token per second
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    with world.raises(RateLimitExceeded):
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass


@case("A share is measured: what the process took of what all took")
async def the_share_is_measured(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.custom("rpm", 1_000, 1, 86_400)])
    limiter = world.client(store=world.store, on_unavailable="local")
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    world.clock.advance(1)
    async with world.limiter.acquire("key", "gpt", {"rpm": 300}):
        pass
    async with limiter.acquire("key", "gpt", {"rpm": 100}):
        pass
    world.store.fail()  # a quarter of what was taken last, and 599 are left
    with world.raises(RateLimitExceeded):
        async with limiter.acquire("key", "gpt", {"rpm": 150}):
            pass
    async with limiter.acquire("key", "gpt", {"rpm": 149}) as lease:
        assert lease.local
    hardly = world.client(store=world.store, on_unavailable="local")
    world.store.heal()
    async with hardly.acquire("key", "gpt", {"rpm": 1}):
        pass
    world.store.fail()
    with world.raises(RateLimitExceeded):
        async with hardly.acquire("key", "gpt", {"rpm": 13}):  # 0.02 of less than 600
            pass


@case("On return everything granted is usage, and taken is what refill has not paid meanwhile; once")
async def what_was_granted_is_booked_on_return(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.client(store=world.store, on_unavailable="local")
    await used(world, limiter)
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 40}):
        pass
    world.clock.advance(30)  # 30 of them are refilled: the share would be full, and is 10 lower
    world.store.heal()
    async with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        assert not lease.degraded
        assert not lease.local
    assert await world.limiter.available("key", "gpt") == {"rpm": 49}
    assert await counted(world) == 2 + 40 + 1
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert await world.limiter.available("key", "gpt") == {"rpm": 48}
    assert await counted(world) == 2 + 40 + 2
    assert not any(chain.gaps for chain in (await world.limiter.verify_usage("key")).chains)
    assert limiter.repository.unresolved == 0


@case("What was granted locally is booked once, however many replies are lost")
async def local_grants_are_booked_once(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.client(store=world.store, on_unavailable="local")
    await used(world, limiter)
    world.store.fail("draw")
    async with limiter.acquire("key", "gpt", {"rpm": 10}):
        pass
    world.store.fail("settle", times=3, applied=True)
    for _ in range(3):
        async with limiter.acquire("key", "gpt", {"rpm": 2}) as lease:
            assert lease.local
    world.store.heal()
    async with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        assert not lease.local
    assert await world.limiter.available("key", "gpt") == {"rpm": 60 - 10 - 6 - 1}
    assert await counted(world) == 2 + 10 + 6 + 1


@case("Limits that the process never resolved: local blocks")
async def local_blocks_what_it_does_not_know(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.client(store=world.store, on_unavailable="local")
    world.store.fail()
    with world.raises(RateLimiterUnavailable):
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass


@case("The policy local: call argument > of the client > stored system value")
async def the_policy_local_is_chosen_like_others(world: World) -> None:
    await world.limiter.set_system_defaults([RPM], on_unavailable="local")
    assert (await world.limiter.get_system_defaults())[1] == "local"
    limiter = world.failing_limiter
    await used(world, limiter)
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        assert lease.local
    async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded
        assert not lease.local
        assert lease.consumed == {}
    with world.raises(RateLimiterUnavailable):
        async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="block"):
            pass
    world.store.heal()
    allowing = world.client(store=world.store, on_unavailable="allow")
    async with allowing.acquire("key", "gpt", {"rpm": 1}, on_unavailable="local"):
        pass
    world.store.fail()
    async with allowing.acquire("key", "gpt", {"rpm": 1}) as lease:
        assert lease.degraded
        assert not lease.local
    async with allowing.acquire("key", "gpt", {"rpm": 1}, on_unavailable="local") as lease:
        assert lease.local


@case("local_share is above 0 and up to 1")
async def a_local_share_is_a_share(world: World) -> None:
    for wrong in (0, -0.5, 1.5, True, "half", float("nan")):
        with world.raises(ValidationError):
            world.client(on_unavailable="local", local_share=wrong)  # type: ignore[arg-type]
    with world.raises(ValidationError):
        world.client(on_unavailable="perhaps")
    world.client(on_unavailable="local", local_share=1)


@case("A local grant is one of every leg, and booked on every leg")
async def local_grants_cascade(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("key", parent_id="org", cascade=True)
    await world.limiter.create_entity("other", parent_id="org", cascade=True)
    limiter = world.client(store=world.store, on_unavailable="local")
    await used(world, limiter)
    await used(world, limiter, entity_id="other")
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 40}):
        pass
    with world.raises(RateLimitExceeded):  # the parent has not so many left
        async with limiter.acquire("other", "gpt", {"rpm": 40}):
            pass
    world.store.heal()
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert await world.limiter.available("key", "gpt") == {"rpm": 19}
    assert await world.limiter.available("org", "gpt") == {"rpm": 19}
    assert await counted(world) == 2 + 40 + 1
    assert await counted(world, "org") == 4 + 40 + 1


@case("What a local lease settles, and gives back, is that of the share; after the return that of the store")
async def local_leases_settle(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.custom("rpm", 60, 1, 86_400)])
    limiter = world.client(store=world.store, on_unavailable="local")
    await used(world, limiter)
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 10}) as lease:
        await lease.adjust(rpm=20)
    with world.raises(ZeroDivisionError):
        async with limiter.acquire("key", "gpt", {"rpm": 28}):
            raise ZeroDivisionError  # and comes back
    async with limiter.acquire("key", "gpt", {"rpm": 5}) as lease:
        world.store.heal()
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        await lease.settle(rpm=8)
    assert await world.limiter.available("key", "gpt") == {"rpm": 60 - 2 - 30 - 8 - 1}
    assert await counted(world) == 2 + 30 + 8 + 1
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 5}) as lease:
        world.store.heal()
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        await lease.settle(rpm=2)  # counted; only what the share was lower by had been taken, so nothing comes back
    assert await counted(world) == 41 + 1 + 2 + 1
    assert await world.limiter.available("key", "gpt") == {"rpm": 19 - 1 - 5 - 1}


@case("Buckets that no call comes to are booked by the first call that is answered, and at close")
async def other_buckets_are_booked_along(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.client(store=world.store, on_unavailable="local")
    names = [f"key-{number}" for number in range(23)]
    for _ in range(2):
        for name in names:
            async with limiter.acquire(name, "gpt", {"rpm": 1}):
                pass
        world.clock.advance(2)
    world.store.fail()
    for name in names:
        async with limiter.acquire(name, "gpt", {"rpm": 3}):
            pass
    world.store.heal()
    async with limiter.acquire("key-0", "gpt", {"rpm": 1}):
        pass
    for name in names[1:]:
        assert await counted(world, name) == 5
    world.store.fail()
    async with limiter.acquire("key-1", "gpt", {"rpm": 4}):
        pass
    world.store.heal()
    await limiter.repository.close()
    assert await counted(world, "key-1") == 9


@case("A caller that may wait waits for its share, or for the store")
async def local_grants_are_waited_for(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.client(store=world.store, on_unavailable="local", local_share=0.5)
    await used(world, limiter)
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 30}):
        pass

    async def acquiring() -> None:
        async with limiter.acquire("key", "gpt", {"rpm": 1}, timeout=5) as lease:
            assert lease.local

    finished: list[int] = []

    async def waiting() -> None:
        await acquiring()
        finished.append(1)

    async def time() -> None:
        for _ in range(40):
            await world.until(lambda: world.clock.waiting == 1 or bool(finished))
            if finished:
                return
            world.clock.advance(milliseconds=100)

    assert await world.concurrently(waiting(), time()) == [None, None]


@case("A known block holds, and no local share opens it")
async def local_obeys_a_block(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.client(store=world.store, on_unavailable="local")
    await used(world, limiter)
    await world.limiter.set_access("block", entity_id="key")
    with world.raises(AccessBlocked):
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    world.store.fail()
    with world.raises(AccessBlocked):
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass


@case("The observer is told when a bucket goes local, and when that is booked")
async def the_observer_hears_of_local_grants(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.client(store=world.store, observer=world.events.append, on_unavailable="local")
    await used(world, limiter)
    world.store.fail()
    for _ in range(2):
        async with limiter.acquire("key", "gpt", {"rpm": 10}):
            pass
    world.store.heal()
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    (went,) = [event for event in world.events if isinstance(event, WentLocal)]
    assert (went.entity_id, went.resource, went.shares) == ("key", "gpt", {"rpm": 1.0})
    told = [event for event in world.events if isinstance(event, Reconciled)]
    assert sum(event.granted["rpm"] for event in told) == 20
    assert sum(event.taken["rpm"] for event in told) == 20


@kind_case("Locally lent slots are whole and its own; those still held on return are held in the store")
async def local_slots_are_taken_again(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.concurrent("calls", 10, ttl=600)])
    limiter = world.client(store=world.store, on_unavailable="local", local_share=0.25)
    async with limiter.acquire("key", "gpt", {"calls": 1}):
        world.store.fail()
        async with limiter.acquire("key", "gpt", {"calls": 1}) as second:  # 2 slots, of which it holds one
            assert second.local
            with world.raises(RateLimitExceeded):
                async with limiter.acquire("key", "gpt", {"calls": 1}):
                    pass
        async with limiter.acquire("key", "gpt", {"calls": 1}) as third:
            world.store.heal()
            async with limiter.acquire("key", "gpt", {"calls": 1}) as fourth:
                assert third.local
                assert not fourth.local
                assert await world.limiter.available("key", "gpt") == {"calls": 7}
            assert await world.limiter.available("key", "gpt") == {"calls": 8}
        assert await world.limiter.available("key", "gpt") == {"calls": 9}
    assert await world.limiter.available("key", "gpt") == {"calls": 10}


@kind_case("A local share of a calendar limit begins anew with its period")
async def local_shares_of_a_period(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_day("rpd", 100, tz="UTC")])
    limiter = world.client(store=world.store, on_unavailable="local", local_share=0.5)
    for _ in range(2):
        async with limiter.acquire("key", "gpt", {"rpd": 10}):
            pass
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpd": 40}):
        pass
    with world.raises(RateLimitExceeded):
        async with limiter.acquire("key", "gpt", {"rpd": 1}):
            pass
    world.clock.advance(86_400)
    async with limiter.acquire("key", "gpt", {"rpd": 30}):
        pass
    world.store.heal()
    async with limiter.acquire("key", "gpt", {"rpd": 1}):
        pass
    assert await world.limiter.available("key", "gpt") == {"rpd": 100 - 30 - 1}
    assert await counted(world) == 20 + 70 + 1
