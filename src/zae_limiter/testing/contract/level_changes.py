"""Levels replace each other whole, and who sets one is told what no longer holds."""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import MAX_LIMITS, Limit
from zae_limiter.testing.contract.harness import World, case

RPM, TPM, USD = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000), Limit.per_hour("usd", 50)
MORE = Limit.per_minute("rpm", 500)


def told(changed: Any) -> list[tuple[str, str, str | None]]:
    return [(replaced.limit.name, replaced.source, replaced.resource) for replaced in changed.replaced]


@case("A setter is told which limits of the wider level no longer hold there")
async def a_setter_is_told_what_no_longer_holds(world: World) -> None:
    limiter = world.limiter
    assert told(await limiter.set_system_defaults([RPM, TPM])) == []
    assert told(await limiter.set_resource_defaults("gpt", [RPM, USD])) == [("tpm", "system", None)]
    changed = await limiter.set_limits("key", [MORE], resource="gpt")
    assert changed.limits == (MORE,)
    assert told(changed) == [("usd", "resource", "gpt")]
    assert changed.replaced[0].limit == USD
    assert told(await limiter.set_limits("key", [MORE], resource="other")) == [("tpm", "system", None)]
    assert told(await limiter.set_limits("key", [RPM, TPM], resource="other")) == []
    assert await limiter.available("key", "gpt") == {"rpm": 500}, "and it does not hold"


@case("An entity's limits for all resources stand before those of every resource and the system's")
async def limits_for_all_resources_stand_before_many(world: World) -> None:
    limiter = world.limiter
    await limiter.set_system_defaults([RPM, TPM])
    for resource in ("a", "b", "c"):
        await limiter.set_resource_defaults(resource, [RPM, USD])
    await limiter.set_limits("key", [RPM], resource="b")
    changed = await limiter.set_limits("key", [MORE])
    assert told(changed) == [("usd", "resource", "a"), ("usd", "resource", "c"), ("tpm", "system", None)]
    assert told(await limiter.set_limits("key", [RPM], resource="new")) == []
    await limiter.set_limits("key", [RPM, USD])
    assert told(await limiter.set_limits("key", [RPM], resource="new")) == [("usd", "entity_default", None)]


@case("With merge=True the limits of the wider level are kept, with its own terms first")
async def merging_keeps_the_limits_of_the_wider_level(world: World) -> None:
    limiter = world.limiter
    await limiter.set_system_defaults([RPM, TPM])
    changed = await limiter.set_limits("key", [MORE], resource="gpt", merge=True)
    assert changed.limits == (MORE, TPM)
    assert told(changed) == []
    assert await limiter.get_limits("key", resource="gpt") == [MORE, TPM]
    async with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}):
        pass
    assert await limiter.available("key", "gpt") == {"rpm": 499, "tpm": 900}
    assert (await limiter.set_resource_defaults("gpt", [USD], merge=True)).limits == (USD, RPM, TPM)
    await limiter.set_resource_defaults("gpt", [USD])
    changed = await limiter.set_limits("other", [MORE], merge=True)
    assert changed.limits == (MORE, TPM), "the system's, which are the same for all resources"
    assert told(changed) == [("usd", "resource", "gpt")]


@case("What cannot be merged is a ValidationError, and nothing is set")
async def too_much_to_merge_is_refused(world: World) -> None:
    many = [Limit.per_minute(f"l{number}", 1) for number in range(MAX_LIMITS)]
    await world.limiter.set_system_defaults(many)
    with world.raises(ValidationError):
        await world.limiter.set_limits("key", [RPM], resource="gpt", merge=True)
    bad: Any = "yes"
    with world.raises(ValidationError):
        await world.limiter.set_limits("key", [RPM], resource="gpt", merge=bad)
    assert await world.limiter.get_limits("key", resource="gpt") == []
    assert (await world.limiter.set_limits("key", many[:1], resource="gpt", merge=True)).limits == tuple(many)
