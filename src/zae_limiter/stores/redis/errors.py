"""What keeps a server from answering, and how a caller is told."""

from __future__ import annotations

from typing import Final

from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable
from zae_limiter.stores.redis.wire import ServerError

PASSING: Final = frozenset(
    {"ASK", "TRYAGAIN", "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "NOREPLICAS", "UNBLOCKED"}
)
"""Refusals that say nothing about the request: nothing was done, and soon it can be."""

NOT_LOCAL: Final = "non local key"
"""A script met a key that is on its way to another node: it was stopped there."""

OUTAGES: Final = frozenset({"OOM", "MISCONF"})
"""Refusals that say that the server is not well."""

HINTS: Final = {
    "OOM": "the server is at its maxmemory; give it more, nothing was taken",
    "MISCONF": "the server cannot write to its disk, and therefore refuses changes",
    "NOPERM": "the server's ACL lacks something that zae-limiter needs; see 'Operating Redis'",
    "NOAUTH": "the URL has no user and password, and the server asks for them",
    "WRONGPASS": "user or password are wrong",
    "CROSSSLOT": "a proxy in between seems to alter keys",
}


class NoReply(Exception):
    """There was no answer. ``sent``: the server may have done what was asked all the same."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


def is_passing(error: ServerError) -> bool:
    """Whether the same request may be granted soon."""
    return error.code in PASSING or NOT_LOCAL in str(error)


def refused(where: str, error: ServerError) -> RateLimiterUnavailable | ConfigurationError:
    """The error that the server will not do it."""
    kind = RateLimiterUnavailable if error.code in OUTAGES or is_passing(error) else ConfigurationError
    refusal = kind(f"the Redis server at {where} refused: {error}", hint=HINTS.get(error.code))
    refusal.__cause__ = error
    return refusal


def unanswered(where: str, deadline: float, why: object, ambiguous: bool) -> RateLimiterUnavailable:
    """The error that no answer came in time."""
    return RateLimiterUnavailable(
        f"no answer from Redis at {where} within {deadline:g} s: {why}",
        hint="is the server running, and is the URL right?",
        ambiguous=ambiguous,
    )


def circuit_open(where: str) -> RateLimiterUnavailable:
    """The error that the servers have not answered for a while, so that they were not asked."""
    return RateLimiterUnavailable(
        f"Redis at {where} has not answered for a while, and was not asked", hint="it is tried about once a second"
    )
