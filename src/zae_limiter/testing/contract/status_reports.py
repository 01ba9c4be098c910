"""Status, usage, capacity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)
HOUR = 3_600


@case("get_status shows every live bucket: levels, totals, time to full")
async def status_shows_every_live_bucket(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    assert (await world.limiter.get_status("key")).buckets == ()
    for resource in ("gpt", "claude"):
        async with world.limiter.acquire("key", resource, {"rpm": 1, "tpm": 1_000}) as lease:
            await lease.adjust(tpm=500)
    status = await world.limiter.get_status("key")
    assert [bucket.resource for bucket in status.buckets] == ["claude", "gpt"]
    rpm, tpm = status.buckets[0].limits
    assert (rpm.available, rpm.total_consumed, rpm.seconds_to_full) == (9, 1, 6.0)
    assert (tpm.available, tpm.total_consumed, tpm.seconds_to_full) == (-500, 1_500, 90.0)
    assert (rpm.limit, status.buckets[0].total_events) == (RPM, 1)
    assert [b.resource for b in (await world.limiter.get_status("key", "gpt")).buckets] == ["gpt"]


@case("check tells whether an acquire would be granted, what binds and the wait, and takes nothing")
async def check_tells_what_an_acquire_would_meet(world: World) -> None:
    limiter = world.limiter
    await limiter.check()
    await limiter.set_system_defaults([RPM, TPM])
    await limiter.create_entity("org")
    await limiter.create_entity("key", parent_id="org", cascade=True)
    await limiter.set_limits("org", [Limit.per_minute("rpm", 4), TPM])
    async with limiter.acquire("key", "gpt", {"rpm": 3, "tpm": 10}):
        pass
    found = await limiter.check("key", "gpt", {"rpm": 1, "tpm": 10})
    assert (found.fits, found.wait_seconds, found.binding, len(found.statuses)) == (True, 0.0, None, 4)
    found = await limiter.check("key", "gpt", {"rpm": 2})
    assert (found.fits, found.wait_seconds) == (False, 15.0)
    assert found.binding is not None
    assert (found.binding.entity_id, found.binding.limit_name, found.binding.available) == ("org", "rpm", 1)
    found = await limiter.check("key", "gpt", {"rpm": 5})
    assert (found.fits, found.wait_seconds) == (False, None)
    assert (await limiter.available("key", "gpt"))["rpm"] == 7


@case("Usage equals what was taken and settled, per hour, day and month, in UTC")
async def usage_equals_what_was_taken(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = (0, 5, HOUR - 6, 1, 23 * HOUR, 31 * 24 * HOUR)
    for seconds in moments:
        world.clock.advance(seconds)
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as lease:
            await lease.adjust(tpm=11)
        try:
            async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    async def windows(kind: str) -> list[tuple[datetime, dict[str, int], int]]:
        page = await world.limiter.get_usage_snapshots("key", "gpt", kind)
        return [(s.window_start, dict(s.counters), s.total_events) for s in page.items]

    hour, day = timedelta(hours=1), timedelta(days=1)
    assert await windows("hourly") == [
        (start, {"rpm": 3, "tpm": 333}, 6),
        (start + hour, {"rpm": 1, "tpm": 111}, 2),
        (start + day, {"rpm": 1, "tpm": 111}, 2),
        (start + 32 * day, {"rpm": 1, "tpm": 111}, 2),
    ]
    assert await windows("daily") == [
        (start, {"rpm": 4, "tpm": 444}, 8),
        (start + day, {"rpm": 1, "tpm": 111}, 2),
        (start + 32 * day, {"rpm": 1, "tpm": 111}, 2),
    ]
    assert await windows("monthly") == [
        (start, {"rpm": 5, "tpm": 555}, 10),
        (start + 31 * day, {"rpm": 1, "tpm": 111}, 2),
    ]
    everything = (await world.limiter.get_usage_snapshots("key")).items
    assert [s.window_type for s in everything] == ["hourly"] * 4 + ["daily"] * 3 + ["monthly"] * 2
    assert everything[-1].window_end == datetime(2026, 3, 1, tzinfo=UTC)
    some = await world.limiter.get_usage_snapshots(
        "key", window_type="hourly", start_time=start + hour, end_time=start + day
    )
    assert [s.window_start for s in some.items] == [start + hour]
    summary = await world.limiter.get_usage_summary("key", "gpt", "hourly")
    assert (summary.snapshot_count, summary.total, summary.total_events) == (4, {"rpm": 6, "tpm": 666}, 12)
    assert summary.average == {"rpm": 1.5, "tpm": 166.5}
    assert (summary.min_window_start, summary.max_window_start) == (start, start + 32 * day)


@case("Usage can be asked by entity, by resource and by both, and is paged to the end")
async def usage_is_paged_to_the_end(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    for hours in range(3):
        for entity in ("a", "b", "c"):
            for resource in ("gpt", "claude"):
                async with world.limiter.acquire(entity, resource, {"rpm": 1 + hours}):
                    pass
        world.clock.advance(HOUR)

    async def all_of(**query: object) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = []
        cursor = None
        while True:
            page = await world.limiter.get_usage_snapshots(**query, window_type="hourly", limit=4, cursor=cursor)
            assert len(page.items) <= 4
            found.extend((s.entity_id, s.resource, s.counters["rpm"]) for s in page.items)
            cursor = page.next_cursor
            if cursor is None:
                return found

    assert await all_of(entity_id="b") == [("b", r, n) for r in ("claude", "gpt") for n in (1, 2, 3)]
    assert await all_of(resource="gpt") == [(e, "gpt", n) for e in ("a", "b", "c") for n in (1, 2, 3)]
    assert await all_of(entity_id="c", resource="gpt") == [("c", "gpt", n) for n in (1, 2, 3)]
    assert await all_of(entity_id="nobody") == []


@case("Usage of an entity goes on when its bucket went away and came back")
async def usage_survives_the_bucket(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    await world.limiter.create_entity("key")
    for _ in range(2):
        async with world.limiter.acquire("key", "gpt", {"rpm": 2}):
            pass
        await world.limiter.delete_entity("key")
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    page = await world.limiter.get_usage_snapshots("key", window_type="hourly")
    assert [(dict(s.counters), s.total_events) for s in page.items] == [({"rpm": 5}, 3)]


@case("The capacity of a resource is added up over all its buckets, and listed by entity")
async def capacity_is_added_up(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    for number in range(5):
        async with world.limiter.acquire(f"key-{number}", "gpt", {"rpm": number}):
            pass
    async with world.limiter.acquire("key-0", "claude", {"rpm": 10}):
        pass
    capacity = await world.limiter.get_resource_capacity("gpt", "rpm", limit=2)
    assert (capacity.total_capacity, capacity.total_available, capacity.utilization_pct) == (50, 40, 20.0)
    seen = list(capacity.entities.items)
    while capacity.entities.next_cursor:
        capacity = await world.limiter.get_resource_capacity(
            "gpt", "rpm", limit=2, cursor=capacity.entities.next_cursor
        )
        assert capacity.total_capacity == 50
        seen.extend(capacity.entities.items)
    assert [(row.entity_id, row.available) for row in seen] == [(f"key-{n}", 10 - n) for n in range(5)]
    empty = await world.limiter.get_resource_capacity("nothing", "rpm")
    assert (empty.total_capacity, empty.utilization_pct, empty.entities.items) == (0, 0.0, [])


@case("The buckets with the least left come first, of every entity, created or not")
async def tightest_buckets_come_first(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    assert await world.limiter.get_tightest_buckets() == []
    assert await world.limiter.list_active_entities() == []
    await world.limiter.create_entity("idle")
    for entity_id, resource, rpm, tpm in (("a", "gpt", 1, 1), ("b", "gpt", 9, 0), ("b", "claude", 1, 900)):
        async with world.limiter.acquire(entity_id, resource, {"rpm": rpm, "tpm": tpm}):
            pass
    async with world.limiter.acquire("c", "gpt", {"rpm": 1}) as lease:
        await lease.adjust(tpm=1_001)
    tightest = await world.limiter.get_tightest_buckets()
    assert [(bucket.entity_id, bucket.resource) for bucket in tightest] == [
        ("c", "gpt"),
        ("b", "claude"),
        ("b", "gpt"),
        ("a", "gpt"),
    ]
    for bucket in tightest:
        assert (await world.limiter.get_status(bucket.entity_id, bucket.resource)).buckets == (bucket,)
    assert await world.limiter.get_tightest_buckets("gpt", limit=2) == [tightest[0], tightest[2]]
    await world.limiter.set_limits("a", [Limit.per_minute("rpm", 1_000)])
    (raised,) = [bucket for bucket in await world.limiter.get_tightest_buckets() if bucket.entity_id == "a"]
    assert [level.limit for level in raised.limits] == [Limit.per_minute("rpm", 1_000)]
    assert await world.limiter.list_active_entities() == ["a", "b", "c"]
