"""Limits that are lifted for a period, by writes of clients whose snapshots are old: exact, whatever the schedule.

The writes go to the model of DynamoDB. After each that was done the bucket holds what the account says; one that was
refused is computed again from what the refusal brought, and is done or rightly denied then.
"""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pytest

from simulation.model.model import Model
from support.budget_account import Account
from zae_limiter import Limit
from zae_limiter.bucket import MILLI
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.intents import Intent, Terms
from zae_limiter.stores.dynamodb.operations.namespaces import table_params
from zae_limiter.stores.dynamodb.requests import Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key
from zae_limiter.stores.dynamodb.shards import split_in_two
from zae_limiter.stores.dynamodb.write_forms import new_item, update
from zae_limiter.stores.protocol import Leg

START = 1_767_225_600_000
HOUR = 3_600_000
KEY = bucket_key("ns", "key", "gpt")
RPM = Limit.per_minute("rpm", 60)
TRIES = 6


def budget(amount: int, more: int, *, carry: bool) -> Limit:
    return Limit.per_day("usd", amount, amount + more, tz="UTC", carry_debt=carry)


class Bucket:
    """One bucket in the model, and what a client saw of it at any time."""

    def __init__(self, limit: Limit, now: int) -> None:
        self.model = Model()
        self.model.call("CreateTable", table_params("t"))
        self.ids = count(1)
        self.versions = count(2)
        item = new_item(
            KEY,
            self.terms(limit, "v1"),
            {},
            now=now,
            write_id="w0",
            inc="life",
            grants=0,
            epoch_s=now // MILLI,
            ttl_margin_s=60,
        )
        self.model.call("PutItem", {"TableName": "t", "Item": item})
        self.seen = [self.snapshot(KEY)]

    def terms(self, limit: Limit, cv: str) -> Terms:
        return Terms(Leg("key", "gpt", (RPM, limit), "system"), cv, None, False)

    def item(self, key: Key) -> dict[str, Any]:
        found = self.model.call("GetItem", {"TableName": "t", "Key": {"PK": {"S": key.pk}, "SK": {"S": key.sk}}})
        item: dict[str, Any] = found["Item"]
        return item

    def snapshot(self, key: Key) -> BucketSnapshot:
        return snapshot_of(self.item(key))

    def write(self, intent: Intent, now: int, seen: BucketSnapshot) -> bool:
        """Do it, by what was seen. False: it was not done."""
        write = update(
            seen, intent, now=now, write_id=f"{now:x}.{next(self.ids)}", epoch_s=now // MILLI, ttl_margin_s=60
        )
        try:
            self.model.call("UpdateItem", write.params("t", KEY))
        except Refused as refusal:
            if not refusal.by_condition:
                raise
            return False
        assert self.model.charges[0].writes == 1, "a write unit"
        return True

    def write_until_done(self, intent: Intent, now: int, rng: random.Random) -> bool:
        """The same, as clients do it: from an old snapshot first, then from what a refusal brings."""
        seen = rng.choice(self.seen[-4:])
        for _ in range(TRIES):
            if self.write(intent, now, seen):
                self.seen.append(self.snapshot(KEY))
                return True
            before, seen = seen, self.snapshot(KEY)
            if repr(before) == repr(seen) and before.balances["usd"].extra == seen.balances["usd"].extra:
                return False
        raise AssertionError("refused again and again by a bucket that stands still")


@pytest.mark.parametrize("seed", range(60))
def test_a_lifted_bucket_holds_what_the_account_says(seed: int) -> None:
    rng = random.Random(seed)
    more, carry = rng.choice((0, 0, 30, 150)), rng.random() < 0.7
    limit, now = budget(100, more, carry=carry), START
    bucket, account = Bucket(limit, now), Account(limit, now)
    for _ in range(60):
        now += rng.choice((0, 1, 1, HOUR, 7 * HOUR, 24 * HOUR))
        account.go_to(now)
        milli = rng.randint(1, 160) * MILLI // rng.choice((1, 3))
        what = rng.choice(("draw", "draw", "draw", "debit", "credit", "credit", "lift", "lower", "terms", "fill"))
        if what == "draw":
            done = bucket.write_until_done(Intent({"usd": milli}, {"usd": milli}, grants=1), now, rng)
            assert done == (account.level * MILLI >= milli)
            if done:
                account.take(milli)
        elif what == "debit":
            assert bucket.write_until_done(Intent({"usd": milli}), now, rng)
            account.take(milli)
        elif what == "credit":
            assert bucket.write_until_done(Intent({"usd": -milli}), now, rng)
            account.give_back(milli)
        elif what == "lift":
            assert bucket.write_until_done(Intent({}, rebase=True, lifts={"usd": 40 * MILLI}), now, rng)
            account.lift(40)
        elif what == "lower":
            if account.level * MILLI > milli:
                del bucket.seen[:-1]  # who lowers has just read the bucket
                assert bucket.write_until_done(Intent({}, most={"usd": milli}), now, rng)
                account.lower(milli)
        elif what == "terms":
            limit = budget(rng.choice((60, 100, 140)), more, carry=carry)
            terms = bucket.terms(limit, f"v{next(bucket.versions)}")
            assert bucket.write_until_done(Intent({}, terms=terms), now, rng)
            account.change(limit)
        else:
            assert bucket.write_until_done(Intent({}, fill=True, rebase=True), now, rng)
            account.fill()
        stored = bucket.seen[-1].balances["usd"]
        assert stored.level(max(now, bucket.seen[-1].rf)) == account.level * MILLI, what
        assert stored.extra_at(now) == account.extra * MILLI, what
        if account.extra:
            item = bucket.item(KEY)
            assert int(item["ttl"]["N"]) * MILLI > account.period_ends, "it is kept to the end of the period"


@pytest.mark.parametrize("seed", range(30))
def test_a_split_halves_what_is_extra_and_conserves_the_level(seed: int) -> None:
    rng = random.Random(seed)
    limit, now = budget(101, rng.choice((0, 60)), carry=rng.random() < 0.7), START
    bucket, account = Bucket(limit, now), Account(limit, now)
    for _ in range(rng.randint(0, 3)):
        lifted = rng.randint(1, 41)
        assert bucket.write_until_done(Intent({}, rebase=True, lifts={"usd": lifted * MILLI}), now, rng)
        account.lift(lifted)
        taken = rng.randint(0, 200_000)
        assert bucket.write_until_done(Intent({"usd": taken}), now, rng)
        account.take(taken)
    now += rng.choice((0, 1, 25 * HOUR))
    account.go_to(now)
    write, key, new = split_in_two(bucket.item(KEY), now=now, write_id="split", inc="other")
    bucket.model.call("UpdateItem", write.params("t", KEY))
    bucket.model.call("PutItem", {"TableName": "t", "Item": new})
    halves = [bucket.snapshot(place).balances["usd"] for place in (KEY, key)]
    moment = max(now, bucket.snapshot(KEY).rf)
    assert sum(half.level(moment) for half in halves) == account.level * MILLI
    assert sum(half.extra_at(moment) for half in halves) == account.extra * MILLI
    assert sum(half.bx for half in halves) == (limit.burst + account.extra) * MILLI
