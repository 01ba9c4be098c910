"""Bad input: a named error that says what to do, and nothing taken."""

from __future__ import annotations

from collections import Counter
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)
BAD_IDS: tuple[Any, ...] = (
    "",
    "a#b",
    "$a",
    "_a",
    "*",
    "_default_",
    "a\n",
    "a\x7f",
    "a\u200bb",
    "x" * 257,
    None,
    7,
    ["a"],
    b"a",
)
BAD_AMOUNTS: tuple[Any, ...] = (-1, 1.0, "1", None, True, False, [1], 10**16)


@case("An invalid entity or resource name is a ValidationError; nothing is taken")
async def bad_names_are_refused(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    for bad in BAD_IDS:
        for entity_id, resource in ((bad, "gpt"), ("key", bad)):
            with world.raises(ValidationError) as caught:
                async with world.limiter.acquire(entity_id, resource, {"rpm": 1}):
                    pass
            assert caught.value.field in ("entity_id", "resource")
            assert caught.value.reason
            for read in (
                world.limiter.available(entity_id, resource),
                world.limiter.time_until_available(entity_id, resource, {"rpm": 1}),
                world.limiter.get_status(entity_id, "a#b" if resource in (None, "*") else resource),  # a total has one
            ):
                with world.raises(ValidationError):
                    await read


@case("An amount that is negative, not whole, or a bool is a ValidationError; nothing is taken")
async def bad_amounts_are_refused(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    for bad in BAD_AMOUNTS:
        with world.raises(ValidationError):
            async with world.limiter.acquire("key", "gpt", {"rpm": bad}):
                pass
        with world.raises(ValidationError):
            await world.limiter.time_until_available("key", "gpt", {"rpm": bad})
    for bad in (None, [("rpm", 1)], "rpm", 1, {"rpm"}, {1: 1}):
        with world.raises(ValidationError):
            async with world.limiter.acquire("key", "gpt", bad):
                pass
    assert await world.limiter.available("key", "gpt") == {"rpm": 9}


@case("consume names an unknown limit: ValidationError that lists the known ones; nothing is taken")
async def unknown_limits_are_refused(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    for _ in range(2):
        for unknown in ({"rpm": 1, "tpm": 1}, {"typo": 1}, Counter(typo=1)):
            with world.raises(ValidationError) as caught:
                async with world.limiter.acquire("key", "gpt", unknown):
                    pass
            assert "rpm" in str(caught.value)
        assert await world.limiter.available("key", "gpt") == {"rpm": 10}
    async with world.limiter.acquire("key", "gpt", Counter(rpm=1)) as lease:
        with world.raises(ValidationError):
            async with world.limiter.acquire("key", "gpt", Counter(typo=1)):
                pass
        for use in (lease.adjust, lease.settle, lease.consume, lease.release):
            with world.raises(ValidationError):
                await use(tpm=1)
            with world.raises(ValidationError):
                await use(rpm=1.5)


@case("No limits configured anywhere, or limits=[]: ValidationError")
async def without_limits_nothing_can_be_acquired(world: World) -> None:
    with world.raises(ValidationError) as caught:
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    assert "no limits are configured" in str(caught.value)
    await world.limiter.set_system_defaults([RPM])
    bad: Any
    for bad in ([], [1], RPM, "rpm", [RPM, RPM], 7):
        with world.raises(ValidationError):
            async with world.limiter.acquire("key", "gpt", {"rpm": 1}, limits=bad):
                pass
        with world.raises(ValidationError):
            await world.limiter.set_system_defaults(bad)
        with world.raises(ValidationError):
            await world.limiter.set_limits("key", bad)
    assert await world.limiter.available("key", "gpt") == {"rpm": 10}


@case("Options that are not among the choices are ValidationErrors")
async def bad_options_are_refused(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    options: tuple[dict[str, Any], ...] = (
        {"timeout": -1},
        {"timeout": "1"},
        {"timeout": ""},
        {"timeout": None},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": True},
        {"on_unavailable": "maybe"},
        {"on_error": "explode"},
        {"on_error": None},
    )
    for option in options:
        with world.raises(ValidationError):
            async with world.limiter.acquire("key", "gpt", {"rpm": 1}, **option):
                pass
    for call in (
        world.limiter.list_entities(limit=0),
        world.limiter.list_entities(limit=1_001),
        world.limiter.list_entities(cursor="nonsense"),
        world.limiter.list_entities(cursor=7),
        world.limiter.get_usage_snapshots(),
        world.limiter.get_usage_snapshots("key", window_type="weekly"),
        world.limiter.get_usage_snapshots("key", start_time="yesterday"),
        world.limiter.get_audit_events("a#b"),
        world.limiter.set_system_defaults([RPM], on_unavailable="maybe"),
        world.limiter.create_entity("key", cascade="yes"),
        world.limiter.create_entity("key", metadata={"a": 1}),
        world.limiter.create_entity("key", name=""),
        world.limiter.create_entity("key", principal="a#b"),
        world.limiter.set_limits("key", [RPM], resource="#"),
        world.limiter.get_resource_capacity("gpt", "wcu"),
    ):
        with world.raises(ValidationError):
            await call
    assert await world.limiter.available("key", "gpt") == {"rpm": 10}


@case("Every valid name works")
async def every_valid_name_works(world: World) -> None:
    long_id, long_resource, long_limit = "a" * 256, "r/" * 63 + "rr", "l" * 64
    names = (("0", "r", "a"), ("a_.-:@Z9", "v1/chat:b@c", "A.b-c_1"), (long_id, long_resource, long_limit))
    for entity_id, resource, limit in names:
        await world.limiter.set_limits(entity_id, [Limit.per_minute(limit, 3)], resource=resource)
        async with world.limiter.acquire(entity_id, resource, {limit: 1}) as lease:
            await lease.adjust(**{limit: 1})
        assert await world.limiter.available(entity_id, resource) == {limit: 1}
        assert (await world.limiter.get_status(entity_id)).buckets[0].resource == resource
    await world.limiter.set_limits("odd", [Limit.per_minute("self", 3)])
    async with world.limiter.acquire("odd", "gpt", {"self": 1}) as lease:
        await lease.adjust(self=1)
    assert await world.limiter.available("odd", "gpt") == {"self": 1}


@case("Ids and resources are taken as they are: any text that can be seen, told apart byte by byte")
async def ids_are_taken_as_they_are(world: World) -> None:
    limiter = world.limiter
    ids = [
        "auth0|1",
        "user/1",
        "ann+test@x.com",
        "::1",
        "jürgen",
        "j\N{LATIN SMALL LETTER U}\N{COMBINING DIAERESIS}rgen",
    ]
    ids += ["a", "a b", "a!", 'a"', "/a", "-a", "~", "日" * 256, "東京" * 64, "%2F?&=", "{a}", "*a", "\N{ROCKET}"]
    await limiter.set_system_defaults([RPM])
    await limiter.create_entity("org")
    for number, name in enumerate(ids):
        await limiter.create_entity(name, parent_id="org", principal=name)
        resource = name[:128]
        await limiter.set_limits(name, [RPM], resource=resource)
        for _ in range(number % 3 + 1):
            async with limiter.acquire(name, resource, {"rpm": 1}) as lease:
                await lease.adjust(rpm=1)
        assert await limiter.available(name, resource) == {"rpm": 10 - 2 * (number % 3 + 1)}
        async with limiter.acquire(name, "a", {"rpm": 1}):
            pass
    listed = [entity.id for entity in (await limiter.list_entities()).items]
    assert sorted(listed) == sorted([*ids, "org"])
    found: list[str] = []
    cursor = None
    while True:
        page = await limiter.get_children("org", limit=2, cursor=cursor)
        found += [entity.id for entity in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(found) == sorted(ids)
    assert len(found) == len(ids)
    for number, name in enumerate(ids):
        status = await limiter.get_status(name)
        assert {bucket.resource for bucket in status.buckets} == {name[:128], "a"}
        events = (await limiter.get_audit_events(name)).items
        assert {event.entity_id for event in events} == {name}
        assert events[-1].principal == name
        used: list[tuple[str, int]] = []
        cursor = None
        while True:
            usage = await limiter.get_usage_snapshots(name, window_type="hourly", limit=1, cursor=cursor)
            used += [(row.resource, row.counters["rpm"]) for row in usage.items]
            cursor = usage.next_cursor
            if cursor is None:
                break
        counts = {name[:128]: 2 * (number % 3 + 1)}
        counts["a"] = counts.get("a", 0) + 1
        assert sorted(used) == sorted(counts.items())
    everywhere = [
        row.entity_id for row in (await limiter.get_usage_snapshots(resource="a", window_type="hourly")).items
    ]
    assert sorted(everywhere) == sorted(ids)
