"""The simulated callers. An application has the same code around its own LLM calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

from zae_limiter import RateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.cli.demo.call_profiles import Call, Caller, next_call
from zae_limiter.cli.demo.scenario import BUDGET, CALLS, RESOURCE_OF, BucketId
from zae_limiter.cli.demo.tally import Ending, Tally


def cents(tokens: int) -> int:
    """What so many tokens cost in the demo."""
    return 1 + tokens // 100


class ProviderFailed(Exception):
    """The simulated provider answered with an error."""


async def place_call(
    limiter: RateLimiter, bucket: BucketId, call: Call, tally: Tally, *, with_budget: bool = False
) -> Ending:
    """Make one call and book what it cost, whatever happens to it."""
    asked = {"rpm": 1, "tpm": call.estimate}
    if with_budget:
        asked |= {BUDGET.name: cents(call.estimate), CALLS.name: 1}
    lease = limiter.acquire(*bucket, asked, timeout=call.timeout)
    try:
        async with lease:
            tally.admitted[bucket] += 1
            if with_budget:
                tally.granted[bucket, CALLS.name] += 1
            await asyncio.sleep(call.work_seconds)
            if call.fails:
                raise ProviderFailed
            await lease.adjust(tpm=call.cost - call.estimate)
            if with_budget:
                await lease.settle({BUDGET.name: cents(call.cost)})
    except ProviderFailed:
        return Ending.FAILED
    except RateLimitExceeded as refusal:
        tally.note_refusal(refusal)
        return Ending.DENIED
    except RateLimiterUnavailable:
        return Ending.UNAVAILABLE
    finally:
        # What was in flight came back; the store counts that it began.
        tally.note_paid(bucket, asked, {name: paid for name, paid in lease.consumed.items() if name != CALLS.name})
    return Ending.SERVED


async def keep_calling(limiter: RateLimiter, caller: Caller, tally: Tally) -> None:
    """Call, pause, call again, until cancelled."""
    rng = Random(caller.seed)
    bucket = BucketId(caller.profile.key, RESOURCE_OF[caller.profile.key])
    limits, *_ = await limiter.repository.resolve_limits(*bucket)
    with_budget = BUDGET in (limits or ())
    while True:
        call = next_call(caller.profile, rng)
        await asyncio.sleep(call.pause)
        ending = Ending.CUT_SHORT
        try:
            ending = await place_call(limiter, bucket, call, tally, with_budget=with_budget)
        finally:
            tally.endings[bucket, ending] += 1


async def run_callers(limiter: RateLimiter, callers: Iterable[Caller], tally: Tally, stop: asyncio.Event) -> None:
    """Run all callers until ``stop``. Calls under way are cancelled then, so their leases roll back."""
    calling = [asyncio.create_task(keep_calling(limiter, caller, tally)) for caller in callers]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((stopping, *calling), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (stopping, *calling):
            task.cancel()
        endings = await asyncio.gather(*calling, return_exceptions=True)
    for ending in endings:
        if isinstance(ending, Exception):
            raise ending
