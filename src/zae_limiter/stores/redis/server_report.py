"""Whether a server is fit to keep limits: what its ``INFO`` says, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

OLDEST: Final = (6, 2)
"""The oldest version that has all that the scripts use."""


class Finding(NamedTuple):
    """One thing that was looked at: how it is, and what is to be done, if anything."""

    what: str
    state: str
    advice: str | None = None


def facts_in(info: str) -> dict[str, str]:
    """``INFO`` as a mapping."""
    lines = (line.partition(":") for line in info.splitlines() if not line.startswith("#"))
    return {name: value.strip() for name, colon, value in lines if colon}


def findings_in(facts: Mapping[str, str]) -> list[Finding]:
    """What ``INFO`` says about everything that matters."""
    return [_version(facts), _role(facts), _eviction(facts), _persistence(facts), _memory(facts)]


def _version(facts: Mapping[str, str]) -> Finding:
    if "valkey_version" in facts:
        return Finding("version", f"Valkey {facts['valkey_version']}")
    version = facts.get("redis_version", "unknown")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    advice = None if numbers >= OLDEST else "it must be Redis 6.2 or later, or Valkey: upgrade the server"
    return Finding("version", f"Redis {version}", advice)


def _role(facts: Mapping[str, str]) -> Finding:
    role = facts.get("role", "unknown")
    if role != "slave":
        return Finding("role", role)
    advice = "this server follows another and takes no writes: name its master in the URL, or use redis+sentinel://"
    return Finding("role", "replica", advice)


def _eviction(facts: Mapping[str, str]) -> Finding:
    policy, most = facts.get("maxmemory_policy", "unknown"), facts.get("maxmemory", "0")
    if policy == "noeviction" or most == "0":
        return Finding("eviction", policy if most != "0" else "none: maxmemory is not set")
    advice = "a bucket that is evicted is full again, and its limits may go too: set maxmemory-policy noeviction"
    return Finding("eviction", policy, advice)


def _persistence(facts: Mapping[str, str]) -> Finding:
    if facts.get("aof_enabled") == "1":
        failed = facts.get("aof_last_write_status", "ok") != "ok"
        return Finding(
            "persistence", "append-only file", "the last write to it failed: look at its disk" if failed else None
        )
    advice = "a restart forgets the limits and what was taken since the last snapshot: set appendonly yes"
    return Finding("persistence", "no append-only file", advice)


def _memory(facts: Mapping[str, str]) -> Finding:
    used, most = facts.get("used_memory_human", "unknown"), facts.get("maxmemory_human", "0B")
    state = used if facts.get("maxmemory", "0") == "0" else f"{used} of {most}"
    try:
        scarce = 0 < int(facts.get("maxmemory", "0")) * 0.9 < int(facts.get("used_memory", "0"))
    except ValueError:
        scarce = False
    return Finding("memory", state, "it is nearly full; a full server refuses every acquire" if scarce else None)
