"""The proof holds for what can happen, and fails for what must not."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from zae_limiter import Limit, RateLimiter
from zae_limiter.cli.demo.call_profiles import CALL_PROFILES, Call, assign_callers, next_call
from zae_limiter.cli.demo.callers import place_call
from zae_limiter.cli.demo.proof import CLAIMS, prove, refill_during
from zae_limiter.cli.demo.scenario import (
    BUDGET_KEY,
    PARENTS,
    RESOURCE_OF,
    BucketId,
    Place,
    Reading,
    build_world,
    places,
    read_levels,
    survey,
)
from zae_limiter.cli.demo.tally import Ending, Tally, added_up
from zae_limiter.models.status import BucketStatus, LimitLevel

WITHIN, COUNTED, CONSERVED = CLAIMS
TPM = Limit.per_minute("tpm", 6_000, burst=500)
KEY, OTHER = BucketId("key-1", "gpt-4"), BucketId("key-2", "gpt-4")
ORG = Place(BucketId("org", "gpt-4"), "org", ("key-1", "key-2"), (TPM,), "entity")
ONE_SECOND = 1_000


def reading(used: int, left: int) -> Reading:
    return Reading(ORG, BucketStatus(*ORG.bucket, (LimitLevel("tpm", TPM, left, used, 0.0),), 9))


def books(granted: int, over: int = 0) -> Tally:
    """Half of it paid by each of the two keys."""
    tally = Tally()
    for bucket, part in ((KEY, granted // 2), (OTHER, granted - granted // 2)):
        tally.granted[bucket, "tpm"] = part
    tally.over[KEY, "tpm"] = over
    return tally


@pytest.mark.parametrize(
    ("granted", "over", "left"),
    [
        (0, 0, 500),
        (600, 0, 0),  # burst and a second's refill, to the last token
        (300, 200, 100),
        (600, 250, -250),  # in debt by what was settled on top
        (100, 0, 500),  # what ran over the brim is lost, not owed
    ],
)
def test_the_proof_holds_up_to_the_last_token(granted: int, over: int, left: int) -> None:
    [account] = prove([reading(granted + over, left)], books(granted, over), ONE_SECOND)
    assert account.allowed == 600
    assert account.broken == ()


def test_it_fails_when_one_token_too_many_was_granted() -> None:
    [account] = prove([reading(used=601, left=-1)], books(601), ONE_SECOND)
    assert account.broken == (WITHIN,)


def test_debt_does_not_excuse_a_grant_beyond_the_limit() -> None:
    [account] = prove([reading(used=700, left=-100)], books(650, over=50), ONE_SECOND)
    assert account.broken == (WITHIN,)


@pytest.mark.parametrize("used", [299, 301])
def test_it_fails_when_store_and_callers_counted_differently(used: int) -> None:
    [account] = prove([reading(used, left=200)], books(300), ONE_SECOND)
    assert account.broken == (COUNTED,)


def test_it_fails_when_tokens_were_minted() -> None:
    [account] = prove([reading(used=300, left=301)], books(300), ONE_SECOND)
    assert account.broken == (CONSERVED,)


def test_a_parent_pays_for_all_keys_below_it() -> None:
    [account] = prove([reading(used=11, left=489)], books(11), ONE_SECOND)
    assert account.granted == 11


@pytest.mark.parametrize(
    ("limit", "elapsed_ms", "tokens"),
    [
        (Limit.per_second("x", 1), 999, 1),  # 999 thousandths and the one that rounding may add
        (Limit.per_second("x", 1), 998, 0),
        (Limit.per_minute("x", 60), 10_000, 10),
        (Limit.per_day("x", 1), 3_600_000, 0),
    ],
)
def test_refill_counts_whole_tokens(limit: Limit, elapsed_ms: int, tokens: int) -> None:
    assert refill_during(limit, elapsed_ms) == tokens


class Stopwatch:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Stopwatch:
    return Stopwatch()


async def saturate(limiter: RateLimiter, clock: Stopwatch, tally: Tally) -> None:
    """Two seconds of the calls of all workers, one after another, on a clock of their own."""
    rng = Random(7)
    for _ in range(200):
        profile = rng.choice(CALL_PROFILES)
        call = next_call(profile, rng)._replace(work_seconds=0, timeout=0)
        bucket = BucketId(profile.key, RESOURCE_OF[profile.key])
        with_budget = profile.key == BUDGET_KEY
        ending = await place_call(limiter, bucket, call, tally, with_budget=with_budget)
        tally.endings[bucket, ending] += 1
        clock.now += 10


def test_the_real_store_passes_and_a_refilled_bucket_does_not(clock: Stopwatch) -> None:
    async def story() -> None:
        async with await RateLimiter.open("memory://", clock=clock) as limiter:
            await build_world(limiter)
            surveyed, tally, started = await survey(limiter), Tally(), clock.now
            await saturate(limiter, clock, tally)
            for ending in (Ending.SERVED, Ending.FAILED, Ending.DENIED):
                assert tally.ended(ending)

            accounts = prove(await read_levels(limiter, surveyed), tally, clock.now - started)
            assert len(accounts) == 2 * len(surveyed) + 2  # one key has a budget, and calls in flight
            assert [account for account in accounts if account.broken] == []
            assert any(account.over for account in accounts)

            assert await limiter.reset("key-agent")
            accounts = prove(await read_levels(limiter, surveyed), tally, clock.now - started)
            assert [(str(account), account.broken) for account in accounts if account.broken] == [
                ("tpm of key-agent on gpt-4", (CONSERVED,))
            ]

    asyncio.run(story())


def test_books_that_miss_a_call_are_noticed_at_every_level(clock: Stopwatch) -> None:
    async def story() -> None:
        async with await RateLimiter.open("memory://", clock=clock) as limiter:
            await build_world(limiter)
            bucket = BucketId("key-web", "gpt-4")
            await place_call(limiter, bucket, Call(100, 120, 0, False, 0, 0), Tally())
            accounts = prove(await read_levels(limiter, await survey(limiter)), Tally(), 0)
            miscounted = {account.bucket.entity_id for account in accounts if COUNTED in account.broken}
            assert miscounted == {"key-web", "chat", "acme"}

    asyncio.run(story())


def test_books_split_what_was_paid_into_granted_and_over() -> None:
    tally = Tally()
    tally.note_paid(KEY, {"rpm": 1, "tpm": 100}, {"rpm": 1, "tpm": 130})  # cost more
    tally.note_paid(KEY, {"rpm": 1, "tpm": 100}, {"rpm": 1, "tpm": 40})  # cost less
    tally.note_paid(KEY, {"rpm": 1, "tpm": 100}, {"rpm": 0, "tpm": 0})  # rolled back
    tally.note_paid(KEY, {"rpm": 1, "tpm": 100}, {})  # never admitted
    total = added_up([tally, tally])
    assert {name: total.granted[KEY, name] for name in ("rpm", "tpm")} == {"rpm": 4, "tpm": 280}
    assert {name: total.over[KEY, name] for name in ("rpm", "tpm")} == {"rpm": 0, "tpm": 60}


def test_the_seed_decides_every_choice() -> None:
    def choices(seed: int) -> list[list[Call]]:
        return [
            [next_call(caller.profile, rng) for _ in range(3)]
            for group in assign_callers(seed, 4)
            for caller in group
            for rng in [Random(caller.seed)]
        ]

    assert choices(7) == choices(7)
    assert choices(7) != choices(8)


def test_every_worker_is_started_once_whatever_the_number_of_groups() -> None:
    seeds = sorted(caller.seed for caller in assign_callers(7, 1)[0])
    assert len(set(seeds)) == sum(profile.callers for profile in CALL_PROFILES)
    for groups in (2, 4, 32):
        dealt = assign_callers(7, groups)
        assert len(dealt) == groups
        assert sorted(caller.seed for group in dealt for caller in group) == seeds


def test_every_key_pays_at_every_level_above_it() -> None:
    payers = {place.bucket: set(place.payers) for place in places()}
    for key, resource in RESOURCE_OF.items():
        entity_id: str | None = key
        while entity_id is not None:
            assert key in payers[BucketId(entity_id, resource)]
            entity_id = PARENTS[entity_id]
