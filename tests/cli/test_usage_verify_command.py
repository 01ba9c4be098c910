"""``zae-limiter usage verify`` on every store: for people, for programs, and for scripts by its exit code."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from cli_runner import CommandRunner

from zae_limiter import SyncRateLimiter, UsageChain, UsageGap, UsageProof
from zae_limiter.models.choices import WindowType
from zae_limiter.models.moments import at

SCHEMA = json.loads(files("zae_limiter.cli").joinpath("schemas/aggregation.json").read_text(encoding="utf-8"))


def checked(text: str, kind: str = "usage_proof") -> Any:
    found = json.loads(text)
    jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{kind}"}).validate(found)
    return found


@pytest.fixture
def used(any_runner: CommandRunner) -> CommandRunner:
    """A stage on which key-1 took something in two hours, all of it counted."""
    any_runner.run("system", "set-defaults", "-l", "rpd:100/day")
    for amount in (1, 2):
        any_runner.run("acquire", "key-1", "gpt-4", f"rpd={amount}")
        any_runner.clock.advance(3_600)
    with any_runner.limiter() as limiter:
        limiter.get_usage_snapshots("key-1", window_type=WindowType.HOURLY)
    return any_runner


def test_usage_that_holds_is_proven(used: CommandRunner) -> None:
    ran = used.run("usage", "verify", "--entity", "key-1")
    assert (ran.code, ran.err) == (0, "")
    assert "the usage of key-1 is what was taken: " in ran.out
    assert "(grants)" in ran.out
    assert "broken" not in ran.out
    found = checked(used.run("usage", "verify", "--entity", "key-1", "--resource", "gpt-4", "--json").out)
    assert found["holds"]
    assert [(chain["limit_name"], chain["hours"], chain["counted"], chain["behind"]) for chain in found["chains"]] == [
        (None, 2, 2, 0),
        ("rpd", 2, 3, 0),
    ]


def test_the_usage_of_all_is_proven_at_once(used: CommandRunner) -> None:
    used.run("acquire", "key-2", "gpt-4", "rpd=1")
    with used.limiter() as limiter:
        limiter.get_usage_snapshots("key-2", window_type=WindowType.HOURLY)
    ran = used.run("usage", "verify", width=120)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "2 entities, 4 chains of hours: usage is what was taken, every hour begins where the one before ended\n"
    )
    assert checked(used.run("usage", "verify", "--json").out, "usage_proofs")["entities"] == 2
    assert "nothing to prove" in used.run("usage", "verify", "--resource", "unused").out


def test_of_all_those_are_shown_that_do_not_hold(used: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    used.run("acquire", "key-2", "gpt-4", "rpd=1")
    whole = SyncRateLimiter.verify_usage

    def verify(limiter: SyncRateLimiter, entity_id: str, resource: str | None) -> UsageProof:
        if entity_id != "key-2":
            return whole(limiter, entity_id, resource)
        chain = UsageChain("gpt-4", "rpd", 0, "abc", 1, 5, 0, None, (UsageGap(None, at(1_767_225_600_000), 2),))
        return UsageProof(entity_id, resource, (chain,))

    monkeypatch.setattr(SyncRateLimiter, "verify_usage", verify)
    ran = used.run("usage", "verify")
    assert ran.code == 1
    assert "gpt-4 rpd, shard 0: +2 before the first hour" in ran.out
    assert "the usage of key-2 is not what was taken" in ran.out
    assert "2 entities, 3 chains of hours: the usage of 1 is not what was taken" in ran.out
    found = checked(used.run("usage", "verify", "--json").out, "usage_proofs")
    assert [proof["entity_id"] for proof in found["broken"]] == ["key-2"]


def test_an_entity_without_usage_has_nothing_to_prove(any_runner: CommandRunner) -> None:
    any_runner.run("entity", "create", "key-2")
    ran = any_runner.run("usage", "verify", "--entity", "key-2")
    assert (ran.code, ran.out) == (0, "key-2 has no usage and no buckets: nothing to prove\n")


def test_a_break_is_shown_where_it_is_and_exits_with_1(runner: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [at(1_767_225_600_000 + place * 3_600_000) for place in range(2)]
    gaps = (UsageGap(None, hours[0], 2), UsageGap(hours[0], hours[1], 3), UsageGap(hours[1], None, -1))
    broken = UsageChain("gpt-4", "rpd", 1, "abc", 2, 5, 0, None, gaps)
    behind = UsageChain("gpt-4", None, 1, "abc", 2, 5, 4, 7, ())
    proof = UsageProof("key-1", None, (behind, broken))
    monkeypatch.setattr(SyncRateLimiter, "verify_usage", lambda *words: proof)
    ran = runner.run("usage", "verify", "--entity", "key-1", width=120)
    assert ran.code == 1
    assert "gpt-4 rpd, shard 1: +2 before the first hour, 2026-01-01 00:00\n" in ran.out
    assert "+3 between the hours 2026-01-01 00:00 and 2026-01-01 01:00, and in neither" in ran.out
    assert "shard 1: the last hour is 1 ahead of the bucket" in ran.out
    assert "+7 since, 4 expired" in ran.out
    assert "the usage of key-1 is not what was taken" in ran.out
    again = runner.run("usage", "verify", "--entity", "key-1", "--json")
    assert (again.code, checked(again.out)["holds"]) == (1, False)


def test_a_name_that_is_none_is_refused(runner: CommandRunner) -> None:
    assert runner.run("usage", "verify", "--entity", "no#signs").code == 1
