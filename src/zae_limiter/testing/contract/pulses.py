"""Pulses: what processes tell of themselves, merged, bounded, and gone with them."""

from __future__ import annotations

from zae_limiter.exceptions import NamespaceNotFoundError, RateLimitExceeded, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 5)


async def _spend(world: World, limiter: object, entity_id: str, grants: int, refusals: int) -> None:
    for _ in range(grants):
        async with limiter.acquire(entity_id, "gpt", {"rpm": 1}):  # type: ignore[attr-defined]
            pass
    for _ in range(refusals):
        with world.raises(RateLimitExceeded):
            async with limiter.acquire(entity_id, "gpt", {"rpm": 5}):  # type: ignore[attr-defined]
                pass


@case("The pulses of all processes are one: who is refused, near a limit and in debt, the worst first")
async def pulses_are_merged(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    one, two = world.client(pulse=True), world.client(pulse=True)
    assert (await world.limiter.get_pulse()).processes == 0
    await _spend(world, one, "near", 4, 0)
    await _spend(world, one, "noisy", 2, 3)
    await _spend(world, two, "noisy", 1, 2)
    await _spend(world, two, "calm", 1, 0)
    async with two.acquire("owing", "gpt", {"rpm": 1}) as lease:
        await lease.adjust(rpm=9)
    world.clock.advance(6)
    await _spend(world, two, "owing", 0, 1)
    await one.write_pulse()
    await two.write_pulse()
    pulse = await world.limiter.get_pulse()
    assert pulse.processes == 2
    assert [(row.entity_id, row.refused_in_all, row.calls) for row in pulse.rows] == [
        ("noisy", 5, 8),
        ("owing", 1, 2),
        ("near", 0, 4),
        ("calm", 0, 1),
    ]
    noisy, owing, _, calm = pulse.rows
    assert noisy.level is not None
    assert (noisy.level.limit_name, noisy.level.entity_id, noisy.requested) == ("rpm", "noisy", {"rpm": 5})
    assert owing.level is not None
    assert (owing.level.used_permille > 1000, owing.level.available < 0, calm.level) == (True, True, None)
    assert (sum(pulse.granted), sum(pulse.refused_per_minute)) == (9, 6)
    assert [(one.limit_name, one.level) for one in pulse.refused] == [("rpm", "own")]


@case("A pulse replaces the one before it, and ends with its process")
async def pulses_end(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    one = world.client(pulse=True)
    await one.write_pulse()
    assert (await world.limiter.get_pulse()).processes == 0
    for refusals in (1, 2):
        await _spend(world, one, "key", 0 if refusals > 1 else 5, refusals)
        await one.write_pulse()
        pulse = await world.limiter.get_pulse()
        assert (pulse.processes, sum(pulse.refused_per_minute)) == (1, 1 if refusals == 1 else 3)
        world.clock.advance(7)
    world.clock.advance(60)
    assert (await world.limiter.get_pulse()).processes == 0
    await one.write_pulse()
    later = await world.limiter.get_pulse()
    assert (later.processes, sum(later.refused_per_minute[:-1]), later.refused_per_minute[-1]) == (1, 3, 0)


@case("A pulse is of one namespace, and only of processes that were opened with one")
async def pulses_are_of_one_namespace(world: World) -> None:
    await world.limiter.repository.register_namespace("other")
    other = world.client(namespace="other", pulse=True)
    await other.set_system_defaults([RPM])
    await _spend(world, other, "key", 5, 1)
    await other.write_pulse()
    assert (await world.limiter.get_pulse()).rows == ()
    assert [row.entity_id for row in (await other.get_pulse()).rows] == ["key"]
    with world.raises(ValidationError):
        await world.limiter.write_pulse()
    await other.repository.delete_namespace("other")
    with world.raises(NamespaceNotFoundError):
        await other.get_pulse()
    with world.raises(NamespaceNotFoundError):
        await other.write_pulse()
    assert await world.limiter.repository.purge_namespace("other") > 0
