"""Two teams share the budget of their organisation: each has a limit, and together they have one."""

from __future__ import annotations

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter

ORGANISATION = [Limit.per_day("tokens", 10_000)]
TEAM = [Limit.per_day("tokens", 7_000)]


def spend(limiter: SyncRateLimiter, team: str, tokens: int) -> None:
    """One job of a team; says how it went."""
    try:
        with limiter.acquire(team, "big-model", {"tokens": tokens}) as lease:
            left = {status.entity_id: status.available for status in lease.statuses}
            print(f"{team} spends {tokens:,}: left {left}")
    except RateLimitExceeded as refused:
        blame = refused.primary_violation
        print(f"{team} wants {tokens:,}: {blame.entity_id} has only {blame.available:,} left")


def main() -> None:
    """A morning at ACME."""
    with SyncRateLimiter.open("memory://") as limiter:
        limiter.create_entity("acme")
        limiter.set_limits("acme", ORGANISATION)
        for team in ("search", "support"):
            limiter.create_entity(team, parent_id="acme", cascade=True)
            limiter.set_limits(team, TEAM)

        spend(limiter, "search", 6_000)
        spend(limiter, "search", 2_000)  # more than the team has left
        spend(limiter, "support", 5_000)  # more than the organisation has left
        spend(limiter, "support", 4_000)

        limiter.set_limits("acme", [Limit.per_second("tokens", 10_000)], principal="finance")  # from per day
        print("finance raises the budget of acme: nothing is minted, but it fills faster")
        wait = limiter.time_until_available("support", "big-model", {"tokens": 3_000})
        print(f"support could spend 3,000 more in {wait:.1f} s")

        for team in ("search", "support"):
            usage = limiter.get_usage_summary(team, "big-model", "daily")
            print(f"{team} used {usage.total['tokens']:,} tokens today")


if __name__ == "__main__":
    main()
