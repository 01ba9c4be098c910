"""When the store does not answer."""

from __future__ import annotations

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.models.events import Decided, Degraded, Settled, StoreCalled
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)


@case("The store fails during acquire: RateLimiterUnavailable with its cause, by default")
async def an_unavailable_store_blocks_by_default(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter
    world.store.fail("draw")
    with world.raises(RateLimiterUnavailable) as caught:
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            raise AssertionError("the body must not run")
    assert "does not answer" in str(caught.value)
    world.store.heal()
    assert await world.limiter.available("key", "gpt") == {"rpm": 10}


@case('on_unavailable="allow" gives a degraded lease that takes nothing and refuses nothing')
async def allow_gives_a_degraded_lease(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded
        assert lease.consumed == {}
        assert lease.statuses == ()
        await lease.adjust(rpm=-1)
        await lease.settle(rpm=7)
        await lease.consume(rpm=100)
        await lease.flush()
        await lease.commit()
    assert lease.degraded
    world.store.heal()
    assert await world.limiter.available("key", "gpt") == {"rpm": 10}


@case("The policy: call argument > stored system value > block")
async def the_calls_policy_wins_over_the_stored_one(world: World) -> None:
    await world.limiter.set_system_defaults([RPM], on_unavailable="allow")
    limiter = world.failing_limiter
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    world.store.fail()
    async with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        assert lease.degraded
    with world.raises(RateLimiterUnavailable):
        async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="block"):
            pass


@case("A denial is not an outage: allow does not open the gate")
async def allow_does_not_let_through_what_is_denied(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"rpm": 11}, on_unavailable="allow"):
            pass


@case("A store under too much load denies, without statuses if it cannot say more: allow does not open the gate")
async def load_denies_whatever_the_policy(world: World) -> None:
    await world.limiter.set_system_defaults([RPM], on_unavailable="allow")
    limiter = world.failing_limiter
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    world.store.overload()
    for policy in (None, "block", "allow"):
        with world.raises(RateLimitExceeded) as caught:
            async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable=policy):
                raise AssertionError("the body must not run")
        error = caught.value
        assert error.statuses == error.violations == error.passed == ()
        assert error.retry_after_seconds == 0.1
        assert error.retry_after_header == "1"
        assert error.as_dict()["retry_after_seconds"] == 0.1
        assert "too much load" in str(error)
    world.store.heal()
    assert await world.limiter.available("key", "gpt") == {"rpm": 9}


@case("Who may wait is not sent away by load: it asks again after the wait")
async def a_waiter_asks_again_after_load(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter
    world.store.overload(times=1)

    async def acquiring() -> None:
        async with limiter.acquire("key", "gpt", {"rpm": 1}, timeout=5) as lease:
            assert lease.consumed == {"rpm": 1}

    async def time() -> None:
        await world.until_waiting(1)
        world.clock.advance(0.1)

    assert await world.concurrently(acquiring(), time()) == [None, None]
    assert await world.limiter.available("key", "gpt") == {"rpm": 9}


@case("A store slower than the deadline is unavailable when the deadline has passed")
async def a_hanging_store_costs_one_deadline(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter
    world.store.delay(3_600, "draw")

    async def acquiring() -> None:
        with world.raises(RateLimiterUnavailable):
            async with limiter.acquire("key", "gpt", {"rpm": 1}):
                pass

    async def time() -> None:
        await world.until_waiting(1)
        world.clock.advance(2)

    assert await world.concurrently(acquiring(), time()) == [None, None]


@case("A failure to write pending adjustments is retried")
async def settlement_is_retried(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter

    async def working() -> None:
        async with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
            await lease.adjust(rpm=2)
            world.store.fail("settle", times=2)

    async def time() -> None:
        for _ in range(2):
            await world.until_waiting(1)
            world.clock.advance(milliseconds=100)

    assert await world.concurrently(working(), time()) == [None, None]
    assert await world.limiter.available("key", "gpt") == {"rpm": 7}


@case("A failure to settle never undoes the work nor hides the body's exception; it is counted")
async def a_failed_settlement_hides_nothing(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter

    async def working() -> None:
        async with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
            await lease.adjust(rpm=2)
            world.store.fail("settle")
        with world.raises(ZeroDivisionError):
            async with limiter.acquire("key", "gpt", {"rpm": 1}):
                raise ZeroDivisionError

    async def time() -> None:
        for _ in range(4):
            await world.until_waiting(1)
            world.clock.advance(milliseconds=100)
            await world.until_waiting(0)

    assert await world.concurrently(working(), time()) == [None, None]
    assert limiter.repository.unresolved == 2


@case("A lost reply is never credited twice")
async def a_lost_reply_is_never_credited_twice(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter
    async with world.limiter.acquire("key", "gpt", {"rpm": 5}):
        pass
    world.store.fail("settle", applied=True)
    with world.raises(ZeroDivisionError):
        async with limiter.acquire("key", "gpt", {"rpm": 2}):
            raise ZeroDivisionError
    assert await world.limiter.available("key", "gpt") == {"rpm": 5}
    assert limiter.repository.unresolved == 1


@case("flush says when it cannot write, and what is pending stays pending")
async def a_failed_flush_keeps_what_is_pending(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    limiter = world.failing_limiter
    async with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        await lease.adjust(rpm=2)
        world.store.fail("settle", times=1)
        with world.raises(RateLimiterUnavailable):
            await lease.flush()
    assert await world.limiter.available("key", "gpt") == {"rpm": 7}


@case("Reads and changes raise RateLimiterUnavailable; is_available says whether the store answers")
async def reads_and_changes_say_that_the_store_is_unavailable(world: World) -> None:
    limiter = world.failing_limiter
    assert await limiter.is_available()
    world.store.fail()
    assert not await limiter.is_available()
    for call in (
        limiter.check(),
        limiter.check("key", "gpt", {"rpm": 1}),
        limiter.available("key", "gpt"),
        limiter.get_status("key"),
        limiter.set_system_defaults([RPM]),
        limiter.create_entity("key"),
        limiter.list_entities(),
        limiter.get_audit_events(),
        limiter.repository.list_namespaces(),
    ):
        with world.raises(RateLimiterUnavailable):
            await call


@case("The observer is told every decision, settlement, store call and degradation")
async def the_observer_is_told_everything(world: World) -> None:
    limiter = world.observed()
    await limiter.set_system_defaults([RPM])
    async with limiter.acquire("key", "gpt", {"rpm": 9}) as lease:
        await lease.adjust(rpm=1)
    with world.raises(RateLimitExceeded):
        async with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    world.store.fail("draw")
    async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow"):
        pass
    told = [event for event in world.events if not isinstance(event, StoreCalled)]
    assert [type(event) for event in told] == [Decided, Settled, Decided, Degraded]
    assert [event.granted for event in told if isinstance(event, Decided)] == [True, False]
    assert told[1].deltas == {"rpm": 1}
    assert {event.namespace for event in world.events} == {"default"}
    assert {event.timestamp for event in world.events} == {world.clock() / 1000}
    assert {type(event.duration_seconds) for event in world.events if isinstance(event, StoreCalled)} == {float}
    assert [event.waited_seconds for event in told if isinstance(event, Decided)] == [0.0, 0.0]
    verbs = [(event.verb, event.error is None) for event in world.events if isinstance(event, StoreCalled)]
    assert verbs == [
        ("set_config", True),
        ("draw", True),
        ("settle", True),
        ("draw", True),
        ("draw", False),
    ]


@case("An observer that raises disturbs no caller")
async def an_observer_that_raises_disturbs_no_caller(world: World) -> None:
    def broken(event: object) -> None:
        raise RuntimeError("observer")

    limiter = world.client(observer=broken)
    await limiter.set_system_defaults([RPM])
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert await limiter.available("key", "gpt") == {"rpm": 9}
