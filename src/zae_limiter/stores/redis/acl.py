"""The least that a user of a Redis server must be allowed. Pure.

``docs/operating-redis.md`` shows the rule, and a test plays parts of the contract suite with it.
"""

from __future__ import annotations

from typing import Final

KEY_PATTERNS: Final = ("~zael", "~{zael:*}*")

COMMANDS: Final = (
    *("evalsha", "script|load", "ping", "time"),
    *("get", "set", "del", "exists", "unlink", "pexpire", "scan", "getbit", "setbit"),
    *("hget", "hmget", "hset", "hsetnx", "hdel", "hkeys", "hgetall", "hincrby"),
    *("zadd", "zrem", "zrange", "zrangebylex", "zrevrangebylex", "zremrangebylex", "zrandmember", "zscore"),
    *("zrangebyscore", "zremrangebyscore"),
)

FOR_CHECKS: Final = ("info",)
"""What ``zae-limiter check`` needs besides."""


def rule(*, checks: bool = True) -> str:
    """The rule as ``ACL SETUSER name on >password`` takes it."""
    commands = COMMANDS + (FOR_CHECKS if checks else ())
    return " ".join(("resetkeys", *KEY_PATTERNS, "-@all", *(f"+{command}" for command in commands)))
