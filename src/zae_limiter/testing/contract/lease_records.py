"""Leases with a record: charged once and settled once, wherever that happens; credits that are given once."""

from __future__ import annotations

from zae_limiter.exceptions import (
    LeaseExpiredError,
    LeaseNotFoundError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_day("rpm", 10)
TPM = Limit.per_day("tpm", 1_000)
ASKED = {"rpm": 1, "tpm": 100}


class BodyError(Exception):
    """What a body raises."""


@case("A request that is repeated under its id gets the same grant, and is charged once")
async def a_repeated_request_is_charged_once(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    for limiter in (world.limiter, world.limiter, world.client()):
        async with limiter.acquire("key", "gpt", ASKED, request_id="r-1") as lease:
            assert (lease.id, lease.consumed, lease.already_settled) == ("r-1", ASKED, False)
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 900}


@case("Another request under the same id is a ValidationError, and takes nothing")
async def another_request_under_the_same_id_is_refused(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", ASKED, request_id="r-1"):
        pass
    for entity, resource, consume in (("key", "gpt", {"rpm": 2}), ("other", "gpt", ASKED), ("key", "o3", ASKED)):
        with world.raises(ValidationError) as caught:
            async with world.client().acquire(entity, resource, consume, request_id="r-1"):
                pass
        assert caught.value.field == "request_id"
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 900}
    assert await world.limiter.available("other", "gpt") == {"rpm": 10, "tpm": 1_000}


@case("Many that repeat one request at once are charged once")
async def repeats_at_once_are_charged_once(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    clients = [world.client() for _ in range(4)]

    async def ask(place: int) -> dict[str, int]:
        async with clients[place].acquire("key", "gpt", ASKED, request_id="r-1") as lease:
            consumed: dict[str, int] = lease.consumed
            return consumed

    assert await world.concurrently(*(ask(place) for place in range(4))) == [ASKED] * 4
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 900}


@case("A request that is denied leaves no record: the same id may be granted later")
async def a_denied_request_may_be_granted_later(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 1)])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}, request_id="r-1"):
            pass
    world.clock.advance(60)
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}, request_id="r-1"):
        pass
    assert await world.limiter.available("key", "gpt") == {"rpm": 0}


@case("A request whose work failed gives back, and is charged anew when it is repeated")
async def a_failed_request_may_be_repeated(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    with world.raises(BodyError):
        async with world.limiter.acquire("key", "gpt", ASKED, request_id="r-1"):
            raise BodyError
    assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 1_000}
    async with world.client().acquire("key", "gpt", ASKED, request_id="r-1") as lease:
        await lease.settle(tpm=70)
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 930}


@case("A repeat that fails gives nothing back: it took nothing")
async def a_repeat_that_fails_gives_nothing_back(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", ASKED, request_id="r-1"):
        pass
    with world.raises(BodyError):
        async with world.client().acquire("key", "gpt", ASKED, request_id="r-1"):
            raise BodyError
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 900}


@case("A request that was settled is settled: who repeats it is told, and books nothing")
async def a_settled_request_stays_settled(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", ASKED, request_id="r-1") as lease:
        await lease.settle(tpm=40)
    async with world.client().acquire("key", "gpt", ASKED, request_id="r-1") as lease:
        assert lease.already_settled
        assert lease.consumed == {"rpm": 1, "tpm": 40}
        await lease.settle(tpm=999)
        with world.raises(LeaseExpiredError):
            await lease.consume(tpm=1)
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 960}


@case("A lease that is detached is settled by another client, once")
async def a_detached_lease_is_settled_elsewhere(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("key", parent_id="org", cascade=True)
    async with world.limiter.acquire("key", "gpt", ASKED) as lease:
        await lease.adjust(tpm=50)
        token = await lease.detach()
        with world.raises(LeaseExpiredError):
            await lease.settle(tpm=1)
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 850}
    async with world.client().resume(token) as lease:
        assert lease.consumed == {"rpm": 1, "tpm": 150}
        await lease.settle(tpm=30)
    for entity in ("key", "org"):
        assert await world.limiter.available(entity, "gpt") == {"rpm": 9, "tpm": 970}
    async with world.client().resume(token) as lease:
        assert lease.already_settled
        await lease.settle(tpm=500)
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 970}


@case("A lease that is closed has ended before its block does, once")
async def a_closed_lease_has_ended(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", ASKED, request_id="r-1") as lease:
        token = lease.token
    assert token is not None
    async with world.client().resume(token) as lease:
        await lease.settle(tpm=30)
        await lease.close()
        assert (await world.client().get_lease(token)).state == "closed"
        with world.raises(LeaseExpiredError):
            await lease.adjust(tpm=1)
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 970}
    async with world.client().resume(token) as lease:
        assert lease.already_settled
    async with world.limiter.acquire("key", "gpt", ASKED) as lease:
        assert lease.token is None
        await lease.settle(rpm=1)
        await lease.close(refund=True)
        assert await world.limiter.available("key", "gpt") == {"rpm": 8, "tpm": 970}  # the settled request stays
    assert await world.limiter.available("key", "gpt") == {"rpm": 8, "tpm": 970}


@case("A lease that is closed with a refund gives back what is not settled, and its request may be granted anew")
async def a_refunded_lease_gives_back(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    for _ in range(2):
        async with world.limiter.acquire("key", "gpt", ASKED, request_id="r-1") as lease:
            token = lease.token
        assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 900}
        async with world.client().resume(token) as lease:
            await lease.close(refund=True)
        assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 1_000}
    with world.raises(LeaseNotFoundError):
        async with world.client().resume(token):
            pass


@case("A lease that cannot be closed says so and stays open, and closing it again books once")
async def a_lease_that_cannot_be_closed_stays_open(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    limiter = world.failing_limiter
    for place, applied in enumerate((False, True)):
        async with limiter.acquire("key", "gpt", ASKED) as lease:
            token = await lease.detach()
        world.store.fail("settle", times=1, applied=applied)
        async with limiter.resume(token) as lease:
            await lease.settle(tpm=30)
            with world.raises(RateLimiterUnavailable):
                await lease.close()
            await lease.close()
        assert (await world.client().get_lease(token)).state == "closed"
        assert await world.limiter.available("key", "gpt") == {"rpm": 9 - place, "tpm": 970 - 30 * place}


@case("Of two that settle one lease, one does, and the other is told")
async def of_two_settlers_one_settles(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", ASKED) as lease:
        token = await lease.detach()
    clients = [world.client(), world.client()]

    async def settle(place: int) -> bool:
        async with clients[place].resume(token) as lease:
            await lease.settle(tpm=60 + place)
        told: bool = lease.already_settled
        return told

    told = await world.concurrently(settle(0), settle(1))
    assert sorted(told) == [False, True]
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 1_000 - (60 + told.index(False))}


@case("What a resumed lease releases comes back, and a body that fails gives the rest back")
async def a_resumed_lease_gives_back(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    tokens = []
    for _ in range(2):
        async with world.limiter.acquire("key", "gpt", ASKED) as lease:
            await lease.settle(rpm=1)
            tokens.append(await lease.detach())
    async with world.client().resume(tokens[0]) as lease:
        await lease.release(tpm=100)
    assert await world.limiter.available("key", "gpt") == {"rpm": 8, "tpm": 900}
    with world.raises(BodyError):
        async with world.client().resume(tokens[1]):
            raise BodyError
    assert await world.limiter.available("key", "gpt") == {"rpm": 8, "tpm": 1_000}  # the settled request stays


@case("A lease may be detached and resumed many times; each keeps what was booked before")
async def a_lease_travels_on(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", ASKED) as lease:
        token = await lease.detach()
    for _ in range(3):
        async with world.client().resume(token) as lease:
            await lease.consume(tpm=100)
            await lease.adjust(tpm=-10)
            assert await lease.detach() == token
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 1_000 - 100 - 3 * 90}
    async with world.client().resume(token) as lease:
        assert lease.consumed == {"rpm": 1, "tpm": 370}
        await lease.settle(tpm=0)
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 1_000}


@case("A lease that is never resumed stays charged, and is gone when its time is over")
async def an_expired_lease_stays_charged(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.custom("tpm", 1_000, 1, 86_400)])
    async with world.limiter.acquire("key", "gpt", {"tpm": 100}) as lease:
        token = await lease.detach(ttl=60)
    world.clock.advance(61)
    with world.raises(LeaseNotFoundError):
        async with world.client().resume(token):
            pass
    assert await world.limiter.available("key", "gpt") == {"tpm": 900}


@case("A token is worth nothing in another namespace, and what is no token is a ValidationError")
async def a_token_is_of_one_namespace(world: World) -> None:
    await world.limiter.set_system_defaults([TPM])
    await world.limiter.repository.register_namespace("other")
    async with world.limiter.acquire("key", "gpt", {"tpm": 100}) as lease:
        token = await lease.detach()
    with world.raises(LeaseNotFoundError):
        async with world.client(namespace="other").resume(token):
            pass
    for wrong in ("", "nonsense", "zl1.", "zl1.#", 7, None):
        with world.raises(ValidationError):
            async with world.limiter.resume(wrong):
                pass
    for wrong in ("", "#", "_x", "$x", 7, "x" * 257):
        with world.raises(ValidationError):
            async with world.limiter.acquire("key", "gpt", {"tpm": 1}, request_id=wrong):
                pass
    assert await world.limiter.available("key", "gpt") == {"tpm": 900}


@case("A store that is away: settling a lease by its token is repeated until it is known, and books once")
async def a_settlement_with_a_record_is_repeated_exactly(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.custom("tpm", 1_000, 1, 86_400)])
    limiter = world.failing_limiter

    async def working(applied: bool) -> str:
        async with limiter.acquire("key", "gpt", {"tpm": 100}) as lease:
            token: str = await lease.detach()
        world.store.fail("settle", times=1, applied=applied)
        async with limiter.resume(token) as lease:
            await lease.settle(tpm=30)
        assert not lease.already_settled
        return token

    async def time() -> None:
        await world.until_waiting(1)
        world.clock.advance(milliseconds=100)

    for applied in (False, True):
        token, _ = await world.concurrently(working(applied), time())
    assert await world.limiter.available("key", "gpt") == {"tpm": 940}
    world.store.fail("lease_record")
    with world.raises(RateLimiterUnavailable):
        async with world.failing_limiter.resume(token):
            pass


@case("The leases of an entity are listed, with what they consumed and whether they are open")
async def leases_are_listed(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", ASKED) as lease:
        token = await lease.detach()
    async with world.limiter.acquire("key", "gpt", ASKED, request_id="r-1") as lease:
        await lease.settle(tpm=5)
    async with world.limiter.acquire("other", "gpt", ASKED, request_id="r-2"):
        pass
    page = await world.limiter.list_leases("key")
    assert {(info.token, info.state, info.consumed["tpm"]) for info in page.items} == {
        (token, "open", 100),
        ("zl1.r-1", "closed", 5),
    }
    assert len((await world.limiter.list_leases()).items) == 3
    first = await world.limiter.list_leases(limit=2)
    rest = await world.limiter.list_leases(limit=2, cursor=first.next_cursor)
    assert len(first.items) + len(rest.items) == 3
    info = await world.limiter.get_lease(token)
    assert (info.entity_id, info.resource, info.granted) == ("key", "gpt", ASKED)


@case("An operator's credit is given once per key, up to the burst, and is no usage; another under the key is refused")
async def a_credit_is_given_once(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 5, "tpm": 900}):
        pass
    for limiter in (world.limiter, world.client()):
        await limiter.grant("key", "gpt", {"tpm": 300}, key="inv-1", principal="ops")
    assert await world.limiter.available("key", "gpt") == {"rpm": 5, "tpm": 400}
    with world.raises(ValidationError) as caught:
        await world.limiter.grant("key", "gpt", {"tpm": 301}, key="inv-1")
    assert caught.value.field == "key"
    assert await world.limiter.grant("key", "gpt", {"rpm": 100}, key="inv-2")
    assert not await world.limiter.grant("key", "gpt", {"rpm": 100}, key="inv-2")
    assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 400}
    taken = {
        level.limit_name: level.total_consumed for level in (await world.limiter.get_status("key")).buckets[0].limits
    }
    assert taken == {"rpm": 5, "tpm": 900}
    granted = [event for event in (await world.limiter.get_audit_events("key")).items if event.action == "granted"]
    assert [(event.principal, event.details["amounts"], event.details["key"]) for event in granted] == [
        (None, {"rpm": 100}, "inv-2"),
        ("ops", {"tpm": 300}, "inv-1"),
    ]
    for wrong in ({}, {"tpm": -1}, {"tpx": 1}, {"tpm": True}):
        with world.raises(ValidationError):
            await world.limiter.grant("key", "gpt", wrong, key="inv-3")


@case("A reset may name limits, and under a key is done once")
async def a_reset_of_some_limits_once(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    for _ in range(2):
        async with world.limiter.acquire("key", "gpt", {"rpm": 5, "tpm": 500}):
            pass
        assert await world.limiter.reset("key", "gpt", limits=["tpm"], key="night") == 1
    assert await world.limiter.available("key", "gpt") == {"rpm": 0, "tpm": 500}
    with world.raises(ValidationError):
        await world.limiter.reset("key", key="night")
    with world.raises(ValidationError):
        await world.limiter.reset("key", limits=[])
